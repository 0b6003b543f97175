"""Experiment files: grids of training runs, their evaluation, and the folder of the results."""

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from calibrant._files import read_toml
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, NoDataError, UnknownNameError
from calibrant.experiments.files import EXPERIMENT
from calibrant.runs import RunKey, ensemble_variant
from calibrant.training.settings import Settings, check_settings, run_key, validate_settings
from calibrant.training.toml import as_calibrant_error

AXES = ("data", "model", "loss", "label_smoothing", "seed")  # settings of a grid that may be lists
PAPER_METRICS = ("accuracy", "ece", "cece", "kse", "mce", "adaece", "nll", "brier", "nll_on_errors", "brier_on_errors")

Names = Annotated[tuple[str, ...], Field(strict=False)]


class StrictModel(BaseModel):
    """Base of the tables of an experiment file: no unknown keys, no conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _optional(name: str, many: bool) -> Any:
    """A training setting as an optional key, with the same constraints; many: or a list of values."""
    field = Settings.model_fields[name]
    kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    if many:
        either = BeforeValidator(_as_list, json_schema_input_type=kind | list[kind])
        kind = Annotated[list[kind], Field(min_length=1), either]
    return (kind | None, Field(default=None, description=field.description))


def _settings_table(name: str, axes: Iterable[str]) -> type[StrictModel]:
    return create_model(
        name, __base__=StrictModel, **{key: _optional(key, key in axes) for key in Settings.model_fields}
    )


class CommonSettings(_settings_table("OneOfEach", ())):  # type: ignore[misc]
    """Training settings of every run; see `calibrant train --help`."""


class Grid(_settings_table("OneOrManyOfEach", AXES)):  # type: ignore[misc]
    """Training settings of some runs: one for each combination of data, model, loss, label_smoothing and seed."""

    variant: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]*$", max_length=40)] = ""
    """A name for runs that differ in another setting, as global; part of the name of the folder."""

    def settings(self, common: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The settings of every run; those of the grid override the common ones."""
        given = {**common, **self.model_dump(exclude_unset=True, exclude={"variant"})}
        axes = {name: _as_list(given[name]) for name in AXES if name in given}
        return [{**given, **dict(zip(axes, values, strict=True))} for values in product(*axes.values())]


class Resources(StrictModel):
    """What each run reserves on a Ray cluster."""

    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """CPU cores, and threads of torch."""
    gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """GPUs, by default one if the cluster has any."""


class Experiment(StrictModel):
    """An experiment: which models are trained, and how they are evaluated."""

    title: str = ""
    """The title of tables and the report."""
    output: str | None = None
    """The folder of all results, by default runs/ and the name of the file."""
    calibrators: Names = ("temperature",)
    """Calibrators in addition to none: names as temperature, or temperature_grid for that of the paper."""
    calibration_shifts: Names = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    """Corruptions of validation images for calibrators that are fitted to shifted rows; for a test under one of them
    the calibrator is fitted without it."""
    ensembles: bool = False
    """Whether each loss also has the ensemble over its seeds, with the mean of their probabilities."""
    metrics: Names = PAPER_METRICS
    """The metrics of every test."""
    intervals: Names = ("accuracy", "ece")
    """The metrics with a 95 % confidence interval; each takes time."""
    figures: Names = ("all",)
    """The figures of the report; all draws every figure that the rows allow."""
    settings: CommonSettings = Field(default_factory=CommonSettings)
    """Training settings of every run."""
    grid: list[Grid] = Field(default_factory=list)
    """Training settings of some runs."""
    resources: Resources = Field(default_factory=Resources)
    """What each run reserves on a Ray cluster."""

    @cached_property
    def runs(self) -> dict[RunKey, Settings]:
        """The settings of the runs of all grids by key.

        Raises:
            InvalidInputError: Two runs of different settings would have the same folder, or a setting is not possible.
        """
        return _expand_grids(self)

    @cached_property
    def members(self) -> dict[RunKey, tuple[RunKey, ...]]:
        """The runs of each ensemble, which differ in their seeds; none if the experiment has no ensembles."""
        kinds: dict[tuple[object, ...], list[RunKey]] = {}
        for key in self.runs if self.ensembles else ():
            kinds.setdefault(key.kind, []).append(key)
        return {
            keys[0]._replace(variant=ensemble_variant(keys[0].variant, len(keys)), seed=0): tuple(keys)
            for keys in kinds.values()
            if len(keys) > 1
        }


KNOWN_KEYS = {
    "": Experiment.model_fields,
    "settings": CommonSettings.model_fields,
    "grid": Grid.model_fields,
    "resources": Resources.model_fields,
}


@checked
def read_experiment(path: str | os.PathLike[str]) -> Experiment:
    """Read an experiment file; every name and every run in it is checked.

    Args:
        path: The TOML file.

    Returns:
        The experiment, with its output folder.

    Raises:
        NoDataError: The file does not exist, or that of a model of your own.
        CorruptFileError: The file is not TOML.
        InvalidInputError: A value has a wrong type or is not possible; the message names the file and the key.
        UnknownNameError: An unknown key or name.
    """
    experiment = parse_experiment(path)
    try:
        _check_names(experiment)
        _check_runs(experiment)
    except (InvalidInputError, UnknownNameError, NoDataError) as error:
        raise type(error)(f"{path}: {error}") from None
    return experiment


def parse_experiment(path: str | os.PathLike[str]) -> Experiment:
    """Read an experiment file as `read_experiment` does, but check only keys and values: no names, and no code is run.

    Raises: those of `read_experiment`.
    """
    prefix = f"{path}: "
    try:
        experiment = Experiment.model_validate(read_toml(path))
    except ValidationError as error:
        raise as_calibrant_error(error, prefix, KNOWN_KEYS) from None
    try:
        experiment.runs  # noqa: B018  (they are checked)
    except (InvalidInputError, UnknownNameError) as error:
        raise type(error)(f"{prefix}{error}") from None
    # of the copy in the folder of an experiment, that folder
    default = Path(path).parent if Path(path).name == EXPERIMENT else Path("runs") / Path(path).stem
    return experiment if experiment.output else experiment.model_copy(update={"output": str(default)})


def _check_names(experiment: Experiment) -> None:
    from calibrant.calibrators import CALIBRATORS
    from calibrant.corruptions import CORRUPTIONS
    from calibrant.metrics import METRICS

    known: dict[str, Iterable[str]] = {
        "calibrators": CALIBRATORS,
        "calibration_shifts": CORRUPTIONS,
        "metrics": METRICS,
        "intervals": experiment.metrics if "intervals" in experiment.model_fields_set else METRICS,
    }
    for key, names in known.items():
        given: tuple[str, ...] = getattr(experiment, key)
        for name in given:
            check_choice(f"name in {key}", name, names)
        if len(set(given)) < len(given):
            raise InvalidInputError(f"{key} must name each once, got {', '.join(given)}")
    fit_shifts = [name for name in experiment.calibrators if CALIBRATORS[name].fits_shifts]
    if fit_shifts and not experiment.calibration_shifts:
        raise InvalidInputError(f"calibration_shifts must name corruptions to fit {fit_shifts[0]} to, got none")


def _check_runs(experiment: Experiment) -> None:
    common = experiment.settings.model_dump(exclude_unset=True)
    for grid in experiment.grid:
        one_seed = grid.model_copy(update={"seed": grid.seed[:1]}) if grid.seed else grid  # the check builds the loss
        for values in one_seed.settings(common):
            check_settings(Settings(**values))
    if not experiment.grid and "figures" not in experiment.model_fields_set:
        raise InvalidInputError("grid must name at least one run, or figures at least one figure")
    if experiment.ensembles and not experiment.members:
        raise InvalidInputError("ensembles must have two seeds of a loss, got one of each")


def _expand_grids(experiment: Experiment) -> dict[RunKey, Settings]:
    common = experiment.settings.model_dump(exclude_unset=True)
    runs: dict[str, tuple[RunKey, Settings]] = {}  # by name: two keys may have the same one
    for number, grid in enumerate(experiment.grid):
        for values in grid.settings(common):
            settings = validate_settings(values, f"grid[{number}].")
            key = run_key(settings, grid.variant)
            if runs.setdefault(key.name, (key, settings)) != (key, settings):
                raise InvalidInputError(f"grid[{number}] has another {key.name}: give one of them a variant")
    return dict(runs.values())
