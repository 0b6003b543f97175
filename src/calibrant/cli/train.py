"""`calibrant train`: from a data set's name to weights, and predictions of the clean and every shifted test."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from cyclopts import Parameter

from calibrant.cli.show import finite, new_table, number, shown

try:
    from calibrant.training.settings import Settings, read_settings
except ImportError:
    from calibrant.errors import NoDataError

    raise NoDataError("training needs the extra train: pip install 'calibrant[train]'") from None

if TYPE_CHECKING:
    from rich.console import Console

    from calibrant.training.watch import Watch

# Every setting is a flag, of its type and with its description; those that are not given are not there.
Flags = TypedDict(  # type: ignore[misc]
    "Flags",
    {
        name: Annotated[field.annotation, Parameter(help=field.description, consume_multiple=name == "shifts")]
        for name, field in Settings.model_fields.items()
    },
    total=False,
)
COLUMNS = ("accuracy", "ece", "kse", "nll", "brier")


def train(
    file: str | None = None,
    *,
    output: Annotated[str | None, Parameter(name=["--output", "-o"])] = None,
    settings: Annotated[Flags, Parameter(name="*")] = {},  # noqa: B006  (only read)
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
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
    from calibrant.cli.bar import TrainingBar
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
    means = {name: {metric: _mean(values) for metric, values in found.items()} for (name, _), found in groups.items()}
    if as_json:
        print(json.dumps(finite({"folder": str(folder), "scores": means}), indent=2, allow_nan=False))
        return
    table = new_table(str(folder), ("", "tests", *COLUMNS), n_left=1)
    for (name, _), found in sorted(groups.items(), key=lambda item: (-item[0][1], item[0][0])):
        table.add_row(shown(name), str(len(found["accuracy"])), *(number(means[name][metric]) for metric in COLUMNS))
    console.print(table)


def _mean(values: list[float | None]) -> float | None:
    """The mean, where every value is there."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
