"""A training run from its settings to its last file: what is there already is not done again."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from lightning_fabric import Fabric

from calibrant.data import DataSet, corruption_shifts, open_dataset
from calibrant.errors import CalibrantError, InterruptedRunError
from calibrant.models import load_weights
from calibrant.runs import RunFolder
from calibrant.training.callback import TrainingCallback
from calibrant.training.engine import StopRequest, handle_signals, new_fabric, reproducible_torch
from calibrant.training.folder import open_run_folder
from calibrant.training.loop import TrainingLoop
from calibrant.training.predicting import Predictor, PredictProgress, model_metadata, new_model, select_splits
from calibrant.training.results import write_metrics
from calibrant.training.settings import Settings, check_settings, run_key


def train(
    settings: Settings, folder: str | os.PathLike[str], *, scored: bool = True, callback: TrainingCallback | None = None
) -> Path:
    """Train a model and write its predictions of the clean and the shifted tests; returns the folder.

    A run that was stopped, however, resumes from its last checkpoint, and ends with the same files bit-for-bit as one
    that was not (on the same machine with as many threads and processes); one that is finished is left as it is.
    Torch's generator is seeded.

    Args:
        settings: What is trained, on what, and how.
        folder: Where the files of the run go.
        scored: Whether the predictions are scored, into metrics.parquet; an experiment does that itself, with
            calibrators.
        callback: Told how far the run is.

    Raises:
        InvalidInputError: A setting is not possible, or the folder is that of another run.
        NoDataError: The data set is not there, or the folder cannot be written.
        NotConvergedError: The loss is not finite.
        InterruptedRunError: A signal asked to stop.
    """
    run, callback = RunFolder(Path(folder)), callback or TrainingCallback()
    try:
        check_settings(settings)
        data = open_dataset(settings.data, settings.root, image_size=settings.image_size)
        shifts = select_splits(data, settings.shifts, "shift") if settings.shifts else []
        names = list(dict.fromkeys([*data.splits[1:], data.validation, *shifts]))
        fabric = new_fabric(settings.device, precision=settings.precision, logger=settings.logger, folder=run.path)
        with _open_run(run, settings, fabric), handle_signals() as request, reproducible_torch():
            if not fabric.broadcast(run.is_done):
                _check_splits(data, names)
                if not run.weights.is_file():
                    TrainingLoop(settings, data, run, fabric, callback=callback, request=request).run()
                    fabric.barrier()
                _predict(settings, data, run, fabric, names, partial(_tell, callback, request))
                if fabric.is_global_zero:
                    if scored:
                        write_metrics(run, names, data, run_key(settings))
                    run.done.touch()
        return run.path
    finally:
        callback.on_end()


@contextmanager
def _open_run(run: RunFolder, settings: Settings, fabric: Fabric) -> Iterator[None]:
    """The folder, opened by the main process; where that fails, it fails in all of them, so that none waits."""
    with ExitStack() as stack:
        failure = None
        if fabric.is_global_zero:
            try:
                stack.enter_context(open_run_folder(run, settings))
            except CalibrantError as error:
                failure = error
        failure = fabric.broadcast(failure)
        if failure is not None:
            raise failure
        yield


def _check_splits(data: DataSet, names: Iterable[str]) -> None:
    """What is wrong with a split is told before the training, not after it."""
    corrupted = corruption_shifts()
    for name in names:
        if name not in corrupted:
            data.split(name)


def _predict(
    settings: Settings, data: DataSet, run: RunFolder, fabric: Fabric, names: list[str], progress: PredictProgress
) -> None:
    """Write the predictions that are still missing."""
    model = new_model(settings, data)
    load_weights(model, run.weights)
    predictor = Predictor(
        model, data, fabric, settings.features, settings.workers, model_metadata(settings), settings.test_sample
    )
    predictor.write(names, run.predictions, skip=True, progress=progress)


def _tell(callback: TrainingCallback, request: StopRequest, name: str, number: int, total: int) -> None:
    if request.asked:
        raise InterruptedRunError(f"stopped before predicting {name}; the same command resumes there")
    callback.on_predict(name, number, total)
