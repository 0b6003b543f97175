"""A training run from its settings to its last file; finished parts are not repeated."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant._paths import as_path
from calibrant._signals import StopRequest, handle_signals
from calibrant._signatures import checked
from calibrant.data import DataSet, corruption_shifts
from calibrant.errors import CalibrantError, InterruptedRunError
from calibrant.models import load_weights
from calibrant.runs import REMOVE_IT, RunFolder, remedy
from calibrant.training.callback import TrainingCallback
from calibrant.training.engine import new_fabric, reproducible_torch
from calibrant.training.folder import open_run_folder
from calibrant.training.loop import TrainingLoop
from calibrant.training.predicting import Predictor, PredictProgress, model_metadata, new_model, select_shifts
from calibrant.training.results import write_metrics
from calibrant.training.settings import Settings, check_settings, open_data, run_key

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@checked
def train(
    settings: Settings, folder: str | os.PathLike[str], *, scored: bool = True, callback: TrainingCallback | None = None
) -> Path:
    """Train a model and write its predictions of validation, test and shifted tests.

    A run that was stopped or killed resumes from its last checkpoint. Its files are bit-for-bit those of an
    uninterrupted run on the same machine with the same numbers of threads and processes. A finished run is not
    repeated, but what is missing of its weights and predictions is made again. The global generator of torch is seeded.

    Args:
        settings: What is trained, on what, and how.
        folder: The folder of the run.
        scored: Whether the predictions are scored into metrics.parquet; an experiment does that itself.
        callback: Called as the run proceeds.

    Returns:
        The folder.

    Raises:
        InvalidInputError: A setting is not possible, or the folder has a run of other settings, or an experiment.
        NoDataError: The data set is missing.
        CorruptFileError: A file of the run is damaged; the message says how to make it again.
        ResourceError: The folder cannot be written, or another process uses it.
        NotConvergedError: The loss is not finite.
        InterruptedRunError: A signal stopped the run.
    """
    run, callback = RunFolder(as_path("folder", folder)), callback or TrainingCallback()
    try:
        check_settings(settings)
        data = open_data(settings)
        shifts = select_shifts(data, settings)
        names = list(dict.fromkeys([*data.splits[1:], data.validation, *shifts]))
        fabric = new_fabric(settings.device, precision=settings.precision, logger=settings.logger, folder=run.path)
        request = StopRequest()
        with _open_run(run, settings, fabric), handle_signals(request), reproducible_torch():
            if not fabric.broadcast(run.is_done):
                for name in names:  # a split that cannot be read raises before the training, not after it
                    if name not in corruption_shifts():
                        data.split(name)
                if not run.weights.is_file():
                    TrainingLoop(settings, data, run, fabric, callback=callback, request=request).run()
                    fabric.barrier()
                _predict(settings, data, run, fabric, names=names, progress=partial(_on_predict, callback, request))
                if fabric.is_global_zero:
                    if scored:
                        with remedy(REMOVE_IT):
                            write_metrics(run, names, data, run_key(settings))
                    run.mark_done()
        return run.path
    finally:
        callback.on_end()


@contextmanager
def _open_run(run: RunFolder, settings: Settings, fabric: "Fabric") -> Iterator[None]:
    """Open the folder in the main process; where that fails, every process raises instead of waiting."""
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


def _predict(
    settings: Settings,
    data: DataSet,
    run: RunFolder,
    fabric: "Fabric",
    *,
    names: list[str],
    progress: PredictProgress,
) -> None:
    """Write the predictions that are missing."""
    model = new_model(settings, data)
    with remedy(REMOVE_IT):
        load_weights(model, run.weights)
    predictor = Predictor(
        model,
        data,
        fabric,
        features=settings.features,
        workers=settings.workers,
        metadata=model_metadata(settings),
        sample=settings.test_sample,
    )
    predictor.write(names, run.predictions, skip=True, progress=progress)


def _on_predict(callback: TrainingCallback, request: StopRequest, name: str, number: int, total: int) -> None:
    if request.asked:
        raise InterruptedRunError(f"stopped before predicting {name}; the same command resumes there")
    callback.on_predict(name, number, total)
