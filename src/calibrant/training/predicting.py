"""Predictions of a model on the splits and shifted tests of a data set, in memory and as files."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from calibrant._checks import check_instance
from calibrant._files import check_folder, make_folder
from calibrant._names import check_choice
from calibrant._paths import as_path
from calibrant._progress import ProgressBar, no_bar
from calibrant._signatures import checked
from calibrant.data import DataSet, Split, corruption_shifts, open_dataset
from calibrant.ensembles.averaging import disagreement_columns
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.models import build_model, import_model, load_weights
from calibrant.predictions import Predictions, check_replaceable
from calibrant.runs import RunFolder, remedy
from calibrant.shifts import Shift
from calibrant.training.batches import default_workers
from calibrant.training.engine import new_fabric
from calibrant.training.folder import check_same_settings, read_run_settings
from calibrant.training.outputs import ModelLike, model_outputs, view_outputs
from calibrant.training.settings import Settings, open_data
from calibrant.training.views import CROP_PADDING, make_views

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PredictProgress = Callable[[str, int, int], None]  # the next split, its number from 0, and how many there are


@dataclass(frozen=True)
class Predictor:
    """Predicts any split or shifted test of a data set with a model.

    Args:
        model: A module or function from images, float (n, c, h, w), normalised by the mean and std of the data set, to
            logits (n, k).
        data: The data set.
        fabric: The device and processes; see `new_fabric`.
        features: Whether the penultimate features are stored with the predictions.
        workers: Processes that decode image files; by default one per core, at most 8.
        metadata: Stored in every file.
        sample: Predict only this many rows of each test.
        views: Views of each image whose predictions are averaged: flip (also the mirror image) and crop5 (the four
            corners and the centre of the padded image).
        crop_padding: The pixels of zeros around an image before crop5.
    """

    model: ModelLike
    data: DataSet
    fabric: "Fabric"
    features: bool = False
    workers: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sample: int | None = None
    views: tuple[str, ...] = ()
    crop_padding: int = CROP_PADDING

    def __post_init__(self) -> None:
        if make_views(self.views) and self.features:
            raise InvalidInputError("features are those of one image: predict them without views")

    @classmethod
    def of_run(
        cls,
        path: str | os.PathLike[str],
        *,
        root: str | None = None,
        features: bool = False,
        device: str = "auto",
        views: Sequence[str] = (),
    ) -> "Predictor":
        """The trained model of a run.

        Args:
            path: The folder of the run.
            root: The folder of the data sets; by default that of the settings of the run.
            features: Store features, even where the settings of the run do not.
            device: auto, cpu, cuda or mps.
            views: Views to average over, as in the class; crop5 has the padding of the run, or 4 if it has none.

        Returns:
            The predictor.

        Raises:
            NoDataError: The run has no weights, or the data set is missing.
            InvalidInputError: The data set has other classes; or a view is flip, and the run was trained without
                mirror images.
            UnknownNameError: There is no such view.
        """
        run = RunFolder(as_path("path", path))
        settings = read_run_settings(run)
        make_views(views)
        if "flip" in views and not settings.flip:
            raise InvalidInputError(
                f"views must not have flip: {path} was trained without mirror images (flip = false)"
            )
        check_same_settings(run, settings)  # the code of a model of your own may have changed
        if not run.weights.is_file():
            raise NoDataError(f"{path} has no weights.safetensors yet: the run is not finished")
        data = open_data(settings, root)
        model = new_model(settings, data)
        with remedy("remove it, and calibrant train or run with the same settings makes it again"):
            record = load_weights(model, run.weights)
        if record.get("class_names") != list(data.class_names):
            raise InvalidInputError(f"{data.root} has other classes than {path} was trained on")
        fabric = new_fabric(device, precision=settings.precision)
        return cls(
            model,
            data,
            fabric,
            features=features or (settings.features and not views),
            workers=settings.workers,
            metadata=model_metadata(settings),
            sample=settings.test_sample,
            views=tuple(views),
            crop_padding=settings.crop_padding or CROP_PADDING,
        )

    def predict(self, name: str) -> Predictions:
        """Predict a split or shifted test.

        Args:
            name: The split or test, as test or fog-3.

        Returns:
            Predictions with the columns of the split, ``split``, ``image``, ``logit_norm`` and, if the model has
            features, ``feature_norm``; with views, ``member_disagreement`` and ``mutual_information`` in their place.
            Clean rows have the corruption "none" of severity 0. ``image`` is the number of the row in its split: the
            same for one image under every corruption.

        Raises:
            NoDataError: The split has no rows.
            InvalidInputError: The model has another number of classes.
        """
        split = self.data.split(name)
        split = replace(split, columns={"image": pa.array(range(len(split))), **split.columns})
        if self.sample is not None and name not in (self.data.splits[0], self.data.validation):
            split = split.sample(self.sample)
        if len(split) == 0:
            raise NoDataError(f"{self.data.name} has no rows in {name}")
        if isinstance(self.model, nn.Module):
            self.model.to(self.fabric.device)
        workers = default_workers(self.fabric.world_size) if self.workers is None else self.workers
        logits, norms, features = self._outputs(split, workers)
        if logits.shape[1] != self.data.n_classes:
            got = f"{logits.shape[1]} classes, and {self.data.name} has {self.data.n_classes}"
            raise InvalidInputError(f"the model has {got}")
        return Predictions.from_logits(
            logits,
            split.labels,
            columns={
                "corruption": ["none"] * len(split),
                "severity": [0] * len(split),
                "origin": ["published"] * len(split),
                **split.columns,
                "split": [name] * len(split),
                **norms,
            },
            features=features,
            class_names=self.data.class_names,
            metadata={"data": self.data.name, **self.metadata, **({"views": list(self.views)} if self.views else {})},
        )

    def _outputs(self, split: Split, workers: int) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """Logits, columns that describe them, and features; the columns of views are those of an ensemble."""
        if views := make_views(self.views, self.crop_padding):
            found = view_outputs(self.fabric, self.model, split, self.data, views, workers=workers)
            return found.log_probs, disagreement_columns(found), None
        logits, feature_norm, features = model_outputs(
            self.fabric, self.model, split, self.data, workers=workers, features=self.features
        )
        norms = {} if feature_norm is None else {"feature_norm": feature_norm}
        return logits, {"logit_norm": logits.norm(dim=1), **norms}, features

    def write(
        self, names: Iterable[str], folder: Path, *, skip: bool = False, progress: PredictProgress | None = None
    ) -> list[Path]:
        """Write a file for each split or test.

        Args:
            names: The splits and tests.
            folder: Where to write NAME.parquet.
            skip: Whether files that exist are kept.
            progress: Called before each one with its name, its number and the total.

        Returns:
            The files, including those that were skipped.

        Raises:
            InvalidInputError: The folder is that of a run, an experiment or corrupted images, or has other files of
                these names.
        """
        check_folder(folder, "predictions")
        make_folder(folder)
        paths = {name: folder / f"{name}.parquet" for name in names}
        if not skip:
            for path in paths.values():
                check_replaceable(path, "data")
        for number, (name, path) in enumerate(paths.items()):
            if skip and path.is_file():
                continue
            if progress is not None:
                progress(name, number, len(paths))
            predictions = self.predict(name)
            if self.fabric.is_global_zero:
                predictions.save(path)
        self.fabric.barrier()
        return list(paths.values())


@checked
def predict(model: ModelLike, data: DataSet, name: str, *, features: bool = False, device: str = "auto") -> Predictions:
    """Predict a split or shifted test of a data set.

    Args:
        model: A module or function from images to logits, as in :class:`Predictor`.
        data: The data set.
        name: The split or test, as test or fog-3.
        features: Store the penultimate features.
        device: auto, cpu, cuda or mps.

    Returns:
        The predictions, with the columns that `Predictor.predict` describes.

    Raises:
        NoDataError: The split has no rows.
        InvalidInputError: The model has another number of classes.

    >>> digits = open_dataset("digits")
    >>> predict(build_model("mlp", 10, image_size=8, channels=1), digits, "fog-3", device="cpu").column("severity")[0]
    <pyarrow.Int64Scalar: 3>
    """
    return Predictor(model, data, new_fabric(device), features).predict(name)


@checked
def predict_run(
    path: str | os.PathLike[str],
    names: Iterable[str] = (),
    *,
    output: str | os.PathLike[str] | None = None,
    root: str | None = None,
    features: bool = False,
    views: Sequence[str] = (),
    device: str = "auto",
    bar: ProgressBar = no_bar,
) -> list[Path]:
    """Write the predictions of a trained run on splits and shifted tests of its data set.

    Args:
        path: The folder of the run.
        names: As test, fog-3, fog or all; by default every split but the training one, and every shifted test.
        output: The folder to write to; by default that of the run's predictions.
        root: The folder of the data sets; by default that of the run's settings.
        features: Store the penultimate features.
        views: Views of each image to average over, as in :class:`Predictor`.
        device: auto, cpu, cuda or mps.
        bar: Opens a progress bar.

    Returns:
        The files that were written.

    Raises:
        NoDataError: The run has no weights.
        InvalidInputError: The run is not finished, or there are views, and no output is given; or the run was trained
            without mirror images, and a view is flip.
        UnknownNameError: The data set has no such split or test, or there is no such view.
    """
    if views and output is None:
        raise InvalidInputError("predictions over views must have an output: those of the run stay as they are")
    predictor = Predictor.of_run(path, root=root, features=features, device=device, views=views)
    run = RunFolder(Path(path))
    if output is not None:
        return _write(predictor, names, as_path("output", output), bar)
    if not run.done.exists():
        raise InvalidInputError(f"{path} is not finished: give another folder as output")
    files = _write(predictor, names, run.predictions, bar)
    run.mark_done(files)
    return files


@checked
def predict_model(
    model: str | ModelLike,
    data: str,
    names: Iterable[str] = (),
    *,
    output: str | os.PathLike[str],
    root: str | None = None,
    image_size: int | None = None,
    features: bool = False,
    views: Sequence[str] = (),
    device: str = "auto",
    bar: ProgressBar = no_bar,
) -> list[Path]:
    """Write the predictions of your own model on splits and shifted tests of a data set.

    Args:
        model: A model, or file.py:name or module:name of one; see :func:`calibrant.models.import_model`.
        data: The name of the data set.
        names: As in :func:`predict_run`.
        output: The folder to write to.
        root: The folder of the data sets; by default CALIBRANT_DATA or data.
        image_size: The side in pixels to which image files are resized.
        features: Store the penultimate features.
        views: Views of each image to average over, as in :class:`Predictor`.
        device: auto, cpu, cuda or mps.
        bar: Opens a progress bar.

    Returns:
        The files that were written.

    Raises:
        NoDataError: The data set is missing.
        InvalidInputError: The model does not return logits for the classes of the data set.
        UnknownNameError: There is no such data set, split, test, view or model.
    """
    make_views(views)
    dataset = open_dataset(data, root, image_size=image_size)
    metadata = {"model": model} if isinstance(model, str) else {}
    loaded = import_model(model) if isinstance(model, str) else model
    predictor = Predictor(loaded, dataset, new_fabric(device), features, metadata=metadata, views=tuple(views))
    return _write(predictor, names, as_path("output", output), bar)


def _write(predictor: Predictor, names: Iterable[str], folder: Path, bar: ProgressBar) -> list[Path]:
    selected = select_splits(predictor.data, names)
    with bar("predicting", len(selected)) as advance:
        return predictor.write(selected, folder, progress=lambda _name, number, _total: advance(1 if number else 0))


def select_shifts(data: DataSet, settings: Settings, what: str = "shift") -> list[str]:
    """The shifted tests of the settings, and those in folders."""
    named = select_splits(data, settings.shifts, what) if settings.shifts else []
    return list(dict.fromkeys([*named, *(PurePath(folder).name for folder in settings.test_folders)]))


def select_splits(data: DataSet, wanted: Iterable[str], what: str = "split") -> list[str]:
    """Splits and shifted tests by name; by default all but the training split.

    "fog" means all of its severities, "val+fog" the validation split under them, "all" every shifted test.
    """
    selected: list[str] = []
    for word in list(wanted) or [*data.splits[1:], "all"]:
        check_instance(f"the name of a {what}", word, str)
        if word in ("all", "none"):
            selected += data.shifts if word == "all" else ()
        elif word in (*data.splits, *data.shifts):
            selected.append(word)
        else:
            selected += _expand_name(data, word, what)
    return list(dict.fromkeys(selected))


def _expand_name(data: DataSet, word: str, what: str) -> list[str]:
    """The tests that fog, val+fog or val+fog-3 stand for."""
    part, plus, shift = word.rpartition("+")
    shifts = corruption_shifts() if plus else data.shifts
    corruptions = sorted({_corruption(name) for name in shifts})
    if plus:
        check_choice(what, part, data.clean)
        check_choice("corruption", shift, ("all", *corruptions, *shifts))
    else:
        check_choice(what, shift, dict.fromkeys([*data.splits, *corruptions, *shifts]))
    return [f"{part}{plus}{name}" for name in shifts if shift in ("all", name, _corruption(name))]


def _corruption(name: str) -> str:
    """The corruption of a shifted test; the name of a test that is no corruption."""
    return Shift.parse(name).corruption if name in corruption_shifts() else name


def new_model(settings: Settings, data: DataSet) -> nn.Module:
    model = build_model(settings.model, data.n_classes, image_size=data.image_size, channels=data.channels)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def model_metadata(settings: Settings) -> dict[str, Any]:
    """What weights and predictions store about the model."""
    return {"model": settings.model, "loss": settings.loss, "seed": settings.seed}
