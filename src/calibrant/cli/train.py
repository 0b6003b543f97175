"""`calibrant train`: train a classifier and predict its validation split, its test and every shifted test."""

from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Union, get_args, get_origin

from cyclopts import Parameter

from calibrant.cli.extras import needs_extras
from calibrant.cli.options import Json, Output, SmallFile, integer
from calibrant.cli.output import print_json, print_tables
from calibrant.report.numbers import metric_text
from calibrant.report.table import Cell, Column, Table, number_cell
from calibrant.runs import REMOVE_IT, RunFolder, remedy

with needs_extras("training", "train"):
    from pydantic_core import PydanticUndefined

    from calibrant.training.recipes import SMALL_RECIPE
    from calibrant.training.settings import Settings, read_settings, run_key

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def flag(name: str, field: "FieldInfo") -> Any:
    """The flag of a setting: its type without the constraints, which Settings checks, and its description."""
    kinds = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in get_args(field.annotation)]
    is_union = get_origin(field.annotation) in (Union, UnionType)
    options: dict[str, Any] = {"help": field.description}
    is_list = isinstance(field.default, tuple)
    if name not in SMALL_RECIPE and field.default not in (None, PydanticUndefined, False, ()):
        default = " ".join(field.default) if is_list else field.default
        options["help"] = f"{field.description} [default: {default}]"
    if int in (field.annotation, *kinds):
        options["converter"] = integer
    if is_list:
        options |= {"consume_multiple": True, "negative": ()}
    return Annotated[Union[tuple(kinds)] if is_union else field.annotation, Parameter(**options)]  # noqa: UP007


# Every setting is a flag.
Flags = TypedDict(  # type: ignore[misc]
    "Flags",
    {name: flag(name, field) for name, field in Settings.model_fields.items()},
    total=False,
)
SHOWN_METRICS = ("accuracy", "ece", "kse", "nll", "brier")


def train(
    file: SmallFile | None = None,
    *,
    output: Output | None = None,
    settings: Annotated[Flags, Parameter(name="*")] = {},  # noqa: B006  (only read)
    as_json: Json = False,
) -> None:
    """Train a classifier, and predict its validation split, its test and every shifted test.

    The same command resumes a run that was stopped. Start it with torchrun for many processes.

    Parameters
    ----------
    file
        A TOML file of settings; flags win over it.
    output
        The folder of the run, by default runs/ and the name of the run, as DATA-MODEL-LOSS-SEED.
    as_json
        Print JSON instead of lines and a table.
    """
    from rich.console import Console

    checked = read_settings(file, **settings)
    run = RunFolder(Path(output or f"runs/{run_key(checked).name}"))

    from calibrant.cli.bar import TrainingBar
    from calibrant.training.callback import TrainingCallback
    from calibrant.training.engine import is_main_process
    from calibrant.training.results import chance_warning, mean_scores
    from calibrant.training.run import train as train_run

    console = Console(stderr=as_json)
    quiet = not is_main_process() or (as_json and not console.is_terminal)
    train_run(checked, run.path, callback=TrainingCallback() if quiet else TrainingBar(console))
    if not is_main_process():
        return
    with remedy(REMOVE_IT):
        scores = mean_scores(run)
    warning = chance_warning(run, checked.keep)
    if as_json:
        print_json({"folder": str(run.path), "scores": scores, "warning": warning})
        return
    columns = [Column("", numeric=False), *map(Column, ("tests", *SHOWN_METRICS))]
    rows = [
        [
            Cell(name),
            Cell(str(means["tests"])),
            *(number_cell(means.get(m), metric_text(means.get(m))) for m in SHOWN_METRICS),
        ]
        for name, means in scores.items()
    ]
    print_tables(Table(str(run.path), columns, rows, [f"Warning: {warning}."] if warning else []))
