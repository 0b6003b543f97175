"""`calibrant train`: from a data set's name to weights, and predictions of the clean and every shifted test."""

import json
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Union, get_args, get_origin

from cyclopts import Parameter

from calibrant.cli.options import File, Json, Output, integer
from calibrant.cli.output import finite, new_table, shown
from calibrant.report.numbers import number
from calibrant.runs import RunFolder

try:
    from pydantic_core import PydanticUndefined

    from calibrant.training.recipes import SMALL_RECIPE
    from calibrant.training.settings import Settings, read_settings, run_key
except ImportError:
    from calibrant.errors import NoDataError

    raise NoDataError("training needs the extra train: pip install 'calibrant[train]'") from None

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.console import Console


def flag(name: str, field: "FieldInfo") -> Any:
    """The flag of a setting: its type without the rules, which Settings knows, and its description."""
    kinds = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in get_args(field.annotation)]
    is_union = get_origin(field.annotation) in (Union, UnionType)
    options: dict[str, Any] = {"help": field.description}
    if name not in SMALL_RECIPE and field.default not in (None, PydanticUndefined, False):
        default = " ".join(field.default) if name == "shifts" else field.default
        options["help"] = f"{field.description} [default: {default}]"
    if int in (field.annotation, *kinds):
        options["converter"] = integer
    if name == "shifts":
        options |= {"consume_multiple": True, "negative": ()}
    return Annotated[Union[tuple(kinds)] if is_union else field.annotation, Parameter(**options)]  # noqa: UP007


# Every setting is a flag; those that are not given are not there.
Flags = TypedDict(  # type: ignore[misc]
    "Flags",
    {name: flag(name, field) for name, field in Settings.model_fields.items()},
    total=False,
)
SHOWN_METRICS = ("accuracy", "ece", "kse", "nll", "brier")


def train(
    file: File | None = None,
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

    chosen = read_settings(file, **settings)
    run = RunFolder(Path(output or f"runs/{run_key(chosen).name}"))

    from calibrant.cli.bar import TrainingBar
    from calibrant.training.callback import TrainingCallback
    from calibrant.training.engine import is_main_process
    from calibrant.training.run import train as train_run

    console = Console(stderr=as_json)
    quiet = not is_main_process() or (as_json and not console.is_terminal)
    train_run(chosen, run.path, callback=TrainingCallback() if quiet else TrainingBar(console))
    if is_main_process():
        _show(console, run, as_json=as_json)


def _show(console: "Console", run: RunFolder, *, as_json: bool) -> None:
    """The scores of a finished run."""
    from calibrant.training.results import mean_scores

    scores = mean_scores(run)
    if as_json:
        print(json.dumps(finite({"folder": str(run.path), "scores": scores}), indent=2, allow_nan=False))
        return
    table = new_table(str(run.path), ("", "tests", *SHOWN_METRICS), n_left=1)
    for name, found in scores.items():
        table.add_row(shown(name), str(found["tests"]), *(number(found.get(metric)) for metric in SHOWN_METRICS))
    console.print(table)
