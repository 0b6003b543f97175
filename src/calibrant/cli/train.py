"""`calibrant train`: from a data set's name to weights, and predictions of the clean and every shifted test."""

import json
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Union, get_args, get_origin

from cyclopts import Parameter

from calibrant.cli.options import File, Json, Output, integer
from calibrant.cli.output import finite, new_table, shown
from calibrant.report.numbers import number

try:
    from pydantic_core import PydanticUndefined

    from calibrant.training.recipes import SMALL
    from calibrant.training.settings import Settings, read_settings
except ImportError:
    from calibrant.errors import NoDataError

    raise NoDataError("training needs the extra train: pip install 'calibrant[train]'") from None

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.console import Console

    from calibrant.training.watch import Watch


def flag(name: str, field: "FieldInfo") -> Any:
    """The flag of a setting: its type without the rules, which Settings knows, and its description."""
    kinds = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in get_args(field.annotation)]
    is_union = get_origin(field.annotation) in (Union, UnionType)
    options: dict[str, Any] = {"help": field.description}
    if name not in SMALL and field.default not in (None, PydanticUndefined, False):
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
COLUMNS = ("accuracy", "ece", "kse", "nll", "brier")


def train(
    file: File | None = None,
    *,
    output: Output | None = None,
    settings: Annotated[Flags, Parameter(name="*")] = {},  # noqa: B006  (only read)
    as_json: Json = False,
) -> None:
    """Train a classifier, and predict its validation split, its test and every shifted test.

    The same command goes on with a run that was stopped. Start it with torchrun for many processes.

    Parameters
    ----------
    file
        A TOML file of settings; flags win over it.
    output
        The folder of the run, by default runs/DATA-MODEL-LOSS-SEED.
    as_json
        Print JSON instead of lines and a table.
    """
    from rich.console import Console

    chosen = read_settings(file, **settings)
    model = chosen.model.replace(":", "-").replace("/", "-")
    folder = Path(output or f"runs/{chosen.data}-{model}-{chosen.loss}-{chosen.seed}")

    from calibrant.training.engine import is_main_process
    from calibrant.training.run import train as run

    console = Console(stderr=as_json)
    run(chosen, folder, watch=_watch(console, quiet=as_json and not console.is_terminal))
    if is_main_process():
        show(console, folder, as_json=as_json)


def _watch(console: "Console", *, quiet: bool) -> "Watch":
    from calibrant.cli.output import TrainingBar
    from calibrant.training.engine import is_main_process
    from calibrant.training.watch import Watch

    return Watch() if quiet or not is_main_process() else TrainingBar(console)


def show(console: "Console", folder: Path, *, as_json: bool) -> None:
    """The scores of a finished run: of its splits, and the mean over the shifted tests of each severity."""
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "metrics.parquet").to_pylist()
    groups: dict[tuple[str, int], dict[str, list[float | None]]] = {}
    for row in rows:
        kind = (f"severity {row['severity']}", 0) if row["severity"] else (row["split"], 1)
        groups.setdefault(kind, {}).setdefault(row["metric"], []).append(row["value"])
    means = {kind: {metric: _mean(values) for metric, values in found.items()} for kind, found in groups.items()}
    if as_json:
        scores = {name: found for (name, _), found in sorted(means.items())}  # of two, the user's own comes last
        print(json.dumps(finite({"folder": str(folder), "scores": scores}), indent=2, allow_nan=False))
        return
    table = new_table(str(folder), ("", "tests", *COLUMNS), n_left=1)
    for kind, found in sorted(groups.items(), key=lambda item: (-item[0][1], item[0][0])):
        table.add_row(shown(kind[0]), str(len(found["accuracy"])), *(number(means[kind][metric]) for metric in COLUMNS))
    console.print(table)


def _mean(values: list[float | None]) -> float | None:
    """The mean, where every value is there."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
