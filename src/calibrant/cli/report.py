"""`calibrant report`: the tables and figures of an experiment as files, and all of them in one page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.cli.figure import ALL, figures_of
from calibrant.cli.show import steps
from calibrant.errors import CalibrantError, NoDataError

if TYPE_CHECKING:
    import pyarrow as pa

    from calibrant.report.tables import Table

PAGE = "report.html"


def report(folder: Path, /, *, root: Path | None = None) -> None:
    """Write the figures of an experiment, and a page that holds its tables and figures.

    Parameters
    ----------
    folder
        The folder of an experiment that has been run.
    root
        The folder of the data sets, for pictures of them; by default CALIBRANT_DATA or data.
    """
    said = _said(folder)
    wanted = said.get("figures", [ALL])
    print(f"open {write_page(folder, figures=wanted, missing=_missing(folder), root=root or _root(said))}")


def write_page(
    folder: Path, *, figures: Sequence[str] = (ALL,), missing: Sequence[str] = (), root: str | Path | None = None
) -> Path:
    """Write FOLDER/figures/*.svg and FOLDER/report.html; returns the latter."""
    from calibrant._files import make_folder, replacing
    from calibrant.experiments.rows import read_rows
    from calibrant.report.figures.render import to_svg
    from calibrant.report.html import write_report

    rows = read_rows(folder)
    with steps("drawing") as say:
        made, reasons = figures_of(folder, names=figures, root=None if root is None else Path(root), report=say)
        drawings = [(found, to_svg(found.chart)) for found in made]
    make_folder(folder / "figures")
    for found, svg in drawings:
        with replacing(folder / "figures" / f"{found.name}.svg") as file:
            file.write(svg.encode())
    notes = [f"The figure {name} could not be made: {reason}." for name, reason in reasons.items()]
    notes += [f"Not done: {name}." for name in missing]
    write_report(
        folder / PAGE,
        title=str(_said(folder).get("title") or folder),
        tables=tables_of(rows),
        figures=[(found.caption, svg) for found, svg in drawings],
        facts=_facts(folder, rows),
        notes=notes,
    )
    return folder / PAGE


def tables_of(rows: "pa.Table") -> "list[Table]":
    """The tables that the rows suffice for."""
    from calibrant.report.tables import make_table

    found = []
    for name, all_losses in (("1", False), ("2", False), ("2", True), ("appendix", False)):
        try:
            found.append(make_table(rows, name, all_losses=all_losses))
        except NoDataError:
            continue
    return found


def _said(folder: Path) -> dict[str, Any]:
    """What the file of the experiment says, of which a copy is in its folder."""
    import tomllib

    try:
        return tomllib.loads((folder / "experiment.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _missing(folder: Path) -> list[str]:
    """The runs that the experiment names and the rows have not."""
    from calibrant.experiments.config import planned, read_experiment
    from calibrant.experiments.rows import read_rows

    try:
        names = [run.name for run in planned(read_experiment(folder / "experiment.toml"))]
    except CalibrantError:
        return []
    there = set(read_rows(folder).column("run").unique().to_pylist())
    return [name for name in names if name not in there]


def _root(said: dict[str, Any]) -> str | None:
    root = said.get("settings", {}).get("root")
    return root if isinstance(root, str) else None


def _facts(folder: Path, rows: "pa.Table") -> dict[str, str]:
    """What was done, and what it was done with."""
    facts = {}
    for name in ("data", "model", "loss", "seed", "calibrator"):
        facts[name] = ", ".join(str(value) for value in rows.column(name).unique().to_pylist())
    facts["runs"] = str(len(rows.column("run").unique()))
    tests = rows.select(["data", "split", "n_rows"]).group_by(["data", "split", "n_rows"]).aggregate([])
    sizes = sorted(set(tests.column("n_rows").to_pylist()))
    if sizes:
        facts["tests"] = f"{len(tests)}, of {sizes[0]:,}" + (f" to {sizes[-1]:,}" if sizes[1:] else "") + " rows each"
    for run in rows.column("run").unique().to_pylist()[:1]:
        try:
            environment = json.loads((folder / run / "environment.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        facts["environment"] = ", ".join(f"{key} {value}" for key, value in environment.items() if value is not None)
    return facts
