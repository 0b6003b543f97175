"""From weights and a data set to files of predictions, with the norms of features and logits."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from calibrant._files import make_folder
from calibrant._names import check_choice
from calibrant._progress import ProgressBar, no_bar
from calibrant.data import DataSet, corruption_shifts, open_dataset
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.models import Classifier, build_model, import_model, load_weights
from calibrant.predictions import Predictions
from calibrant.runs import RunFolder
from calibrant.shifts import Shift
from calibrant.training.batches import default_workers
from calibrant.training.engine import new_fabric
from calibrant.training.folder import read_run_settings
from calibrant.training.outputs import ModelLike, outputs
from calibrant.training.settings import Settings

PredictProgress = Callable[[str, int, int], None]  # the next split, its number, and how many there are


@dataclass(frozen=True)
class Predictor:
    """A model and its data set, ready to predict any split or shifted test.

    model: a module, or a function, from images, float (n, c, h, w), normalised as the data set says, to logits.
    """

    model: ModelLike
    data: DataSet
    fabric: Fabric
    features: bool = False
    workers: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sample: int | None = None  # of the rows of each test

    @classmethod
    def of_run(
        cls, path: str | os.PathLike[str], *, root: str | None = None, features: bool = False, device: str = "auto"
    ) -> "Predictor":
        """The trained model of a run."""
        run = RunFolder(Path(path))
        settings = read_run_settings(run)
        if not run.weights.is_file():
            raise NoDataError(f"{path} has no weights.safetensors yet: the run is not finished")
        data = open_dataset(settings.data, root or settings.root, image_size=settings.image_size)
        model = new_model(settings, data)
        trained_on = load_weights(model, run.weights).get("class_names")
        if trained_on != list(data.class_names):
            raise InvalidInputError(f"{data.root} has other classes than {path} was trained on")
        fabric = new_fabric(device, precision=settings.precision)
        features = features or settings.features
        return cls(model, data, fabric, features, settings.workers, model_metadata(settings), settings.test_sample)

    def predict(self, name: str) -> Predictions:
        """The columns are those of the split, its name, the norm of the logits, and that of the features, if any.

        Clean rows have the corruption "none" of severity 0, so that they can be joined with the others.
        """
        split = self.data.split(name)
        if self.sample is not None and name not in (self.data.splits[0], self.data.validation):
            split = split.sample(self.sample)
        if len(split) == 0:
            raise NoDataError(f"{self.data.name} has no rows in {name}")
        if isinstance(self.model, nn.Module):
            self.model.to(self.fabric.device)
        workers = default_workers(self.fabric.world_size) if self.workers is None else self.workers
        found = outputs(self.fabric, self.model, split, self.data, workers=workers, features=self.features)
        if found.logits.shape[1] != self.data.n_classes:
            got = f"{found.logits.shape[1]} classes, and {self.data.name} has {self.data.n_classes}"
            raise InvalidInputError(f"the model has {got}")
        norms = {"logit_norm": found.logits.norm(dim=1), "feature_norm": found.feature_norm}
        return Predictions.from_logits(
            found.logits,
            split.labels,
            columns={
                "corruption": ["none"] * len(split),
                "severity": [0] * len(split),
                "origin": ["published"] * len(split),
                **split.columns,
                "split": [name] * len(split),
                **{column: norm for column, norm in norms.items() if norm is not None},
            },
            features=found.features,
            class_names=self.data.class_names,
            metadata={"data": self.data.name, **self.metadata},
        )

    def write(
        self, names: Iterable[str], folder: Path, *, skip: bool = False, progress: PredictProgress | None = None
    ) -> list[Path]:
        """A file for each name, all of which are returned; with skip, those that are there already stay."""
        make_folder(folder)
        paths = {name: folder / f"{name}.parquet" for name in names}
        for number, (name, path) in enumerate(paths.items()):
            if skip and path.is_file():
                continue
            if progress is not None:
                progress(name, number, len(paths))
            found = self.predict(name)
            if self.fabric.is_global_zero:
                found.save(path)
        self.fabric.barrier()
        return list(paths.values())


def predict(model: ModelLike, data: DataSet, name: str, *, features: bool = False, device: str = "auto") -> Predictions:
    """The predictions of a model on a split or shifted test of a data set; see :class:`Predictor`.

    >>> digits = open_dataset("digits")
    >>> predict(build_model("mlp", 10, image_size=8, channels=1), digits, "fog-3", device="cpu").column("severity")[0]
    <pyarrow.Int64Scalar: 3>
    """
    return Predictor(model, data, new_fabric(device), features).predict(name)


def predict_run(
    path: str | os.PathLike[str],
    names: Iterable[str] = (),
    *,
    output: str | os.PathLike[str] | None = None,
    root: str | None = None,
    features: bool = False,
    device: str = "auto",
    bar: ProgressBar = no_bar,
) -> list[Path]:
    """Write the predictions of a trained run on splits and shifted tests.

    Args:
        path: The folder of the run.
        names: As test, fog-3, fog or all; by default every split but the training one, and every shifted test.
        output: The folder to write to; by default that of the run's predictions.
        root: The folder of the data sets; by default that of the run's settings.
        features: Store the penultimate features.
        device: Where to compute: auto, cpu, cuda or mps.
        bar: Opens a progress bar.

    Returns:
        The files that were written.

    Raises:
        NoDataError: the run has no weights.
        InvalidInputError: the run is not finished, and no output is given.
    """
    predictor, run = Predictor.of_run(path, root=root, features=features, device=device), RunFolder(Path(path))
    if output is None and not run.is_done:
        raise InvalidInputError(f"{path} is not finished: say where else the predictions are to go")
    return _write(predictor, names, run.predictions if output is None else Path(output), bar)


def predict_model(
    model: str | ModelLike,
    data: str,
    names: Iterable[str] = (),
    *,
    output: str | os.PathLike[str],
    root: str | None = None,
    image_size: int | None = None,
    features: bool = False,
    device: str = "auto",
    bar: ProgressBar = no_bar,
) -> list[Path]:
    """Write the predictions of a model of one's own on splits and shifted tests of a data set.

    Args:
        model: A model, or module:name of one; see :func:`calibrant.models.import_model`.
        data: The name of the data set.
        image_size: The side in pixels to which images in files are brought.
        names, output, root, features, device, bar: As for :func:`predict_run`.

    Returns:
        The files that were written.
    """
    opened = open_dataset(data, root, image_size=image_size)
    metadata = {"model": model} if isinstance(model, str) else {}
    loaded = import_model(model) if isinstance(model, str) else model
    predictor = Predictor(loaded, opened, new_fabric(device), features, metadata=metadata)
    return _write(predictor, names, Path(output), bar)


def _write(predictor: Predictor, names: Iterable[str], folder: Path, bar: ProgressBar) -> list[Path]:
    chosen = select_splits(predictor.data, names)
    with bar("predicting", len(chosen)) as advance:
        return predictor.write(chosen, folder, progress=lambda _name, number, _total: advance(1 if number else 0))


def select_splits(data: DataSet, wanted: Iterable[str], what: str = "split") -> list[str]:
    """Splits and shifted tests by name; by default all but the training split.

    fog is all of its severities, val+fog the validation split under them, and all every shifted test.
    """
    chosen: list[str] = []
    for word in list(wanted) or [*data.splits[1:], "all"]:
        if word in ("all", "none"):
            chosen += data.shifts if word == "all" else ()
        elif word in (*data.splits, *data.shifts):
            chosen.append(word)
        else:
            chosen += _family(data, word, what)
    return list(dict.fromkeys(chosen))


def _family(data: DataSet, word: str, what: str) -> list[str]:
    """What is meant by fog, val+fog or val+fog-3."""
    part, plus, shift = word.rpartition("+")
    shifts = corruption_shifts() if plus else data.shifts
    families = sorted({_family_of(name) for name in shifts})
    if plus:
        check_choice(what, part, data.clean)
        check_choice("corruption", shift, ("all", *families, *shifts))
    else:
        check_choice(what, shift, dict.fromkeys([*data.splits, *families, *shifts]))
    return [f"{part}{plus}{name}" for name in shifts if shift in ("all", name, _family_of(name))]


def _family_of(name: str) -> str:
    """The corruption of a shifted test; a test of the user's own is alone in its family."""
    return Shift.parse(name).corruption if name in corruption_shifts() else name


def new_model(settings: Settings, data: DataSet) -> Classifier:
    model = build_model(settings.model, data.n_classes, image_size=data.image_size, channels=data.channels)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def model_metadata(settings: Settings) -> dict[str, Any]:
    """What a file of predictions says of the model that made them."""
    return {"model": settings.model, "loss": settings.loss, "seed": settings.seed}
