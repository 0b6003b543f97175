"""`calibrant data`: which data sets there are and where, fetching them, holding them against the originals."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from calibrant.cli.options import Json, Switch
from calibrant.cli.output import counting_bar, new_table, progress_bar, shown
from calibrant.errors import CorruptFileError, NoDataError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from calibrant.data.sources import Source
    from calibrant.data.verify import Finding

data = App(name="data", help="List, fetch and check data sets.")


def list_data(*, root: Path | None = None, as_json: Json = False) -> None:
    """List the data sets: official sizes, shifted tests, licence, and whether the files are here.

    Parameters
    ----------
    root
        The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
    as_json
        Print JSON instead of a table.
    """
    from rich.console import Console

    from calibrant.data.sources import SOURCES
    from calibrant.data.verify import is_here

    here = {name: is_here(name, root) for name in SOURCES}
    if as_json:
        print(json.dumps([_record(name, source, here[name]) for name, source in SOURCES.items()], indent=2))
        return
    headings = ["name", "splits", "shifted tests", "licence", "classes", "pixels", "here"]
    table = _folding("data sets", headings, n_left=4)
    for name, source in SOURCES.items():
        numbers = ("–" if value is None else str(value) for value in (source.n_classes, source.image_size))
        answer = "yes" if here[name] else "no"
        table.add_row(*map(shown, (name, _sizes(source.splits), _shifted(source), source.licence, *numbers, answer)))
    Console().print(table)


def fetch(name: str, /, *, root: Path | None = None, keep: Switch = False) -> None:
    """Fetch a data set into its place; an interrupted download goes on where it broke off.

    Parameters
    ----------
    name
        The data set, as `calibrant data list` names it.
    root
        The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
    keep
        Keep the archives, in the folder archives, after they were unpacked.
    """
    from calibrant._files import data_folder
    from calibrant.data.fetch import fetch as bring
    from calibrant.data.sources import SOURCES

    arrivals = bring(name, root, keep=keep, watch=progress_bar)
    source, folder = SOURCES[name], data_folder(root)
    if not source.downloads:
        print(f"{name} comes with the package: there is nothing to fetch")
        return
    for arrival in arrivals:
        line = f"{arrival.file.name}: {arrival.n_bytes:,} bytes"
        print(
            printable(f"{line}, MD5 as published")
            if arrival.sha256 is None
            else printable(f"{line}, NOT verified: no sum was published for it; its SHA-256 is {arrival.sha256}")
        )
    place = folder / source.leaves[0].path.split("/")[0]
    print(printable(f"{name} is {'now' if arrivals else 'already'} in {place}; licence: {source.licence}"))


def check(name: str, /, *, root: Path | None = None, deep: Switch = False, as_json: Json = False) -> None:
    """Hold a data set against what was published: sizes and MD5 of files, rows of splits, pictures that are named.

    Exit code 2, with the first thing that is missing or wrong, where anything is.

    Parameters
    ----------
    name
        The data set, as `calibrant data list` names it.
    root
        The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
    deep
        Decode every picture.
    as_json
        Print JSON instead of a table.
    """
    from rich.console import Console

    from calibrant._files import data_folder
    from calibrant.data.verify import check_data

    findings = check_data(name, root, deep=deep, watch=counting_bar)
    if as_json:
        record = {"name": name, "root": str(data_folder(root)), "ok": all(finding.ok for finding in findings)}
        print(json.dumps({**record, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        table = _folding(f"{name} in {data_folder(root)}", ["what", "found", "expected", "ok"], n_left=4)
        for finding in findings:
            found, expected = (_counted(value) for value in (finding.found, finding.expected))
            table.add_row(*map(shown, (finding.what, found, expected, "yes" if finding.ok else "NO")))
        Console().print(table)
    for finding in findings:
        if not finding.ok:
            raise _failure(name, finding)


def where(*, root: Path | None = None, as_json: Json = False) -> None:
    """Say in which folder data sets are looked for, and why there.

    Parameters
    ----------
    root
        The folder, as for the other verbs.
    as_json
        Print JSON.
    """
    from calibrant._files import data_folder

    folder = data_folder(root)
    origin = "--root" if root else "CALIBRANT_DATA" if os.environ.get("CALIBRANT_DATA") else "default"
    if as_json:
        print(json.dumps({"root": str(folder), "from": origin, "exists": folder.is_dir()}, indent=2))
        return
    state = "it exists" if folder.is_dir() else "it does not exist"
    print(printable(f"{folder} (from {origin}; {state})" if origin != "default" else f"{folder} (default; {state})"))


data.command(list_data, name="list")
for verb in (fetch, check, where):
    data.command(verb)


def _folding(title: str, headings: Sequence[str], n_left: int) -> "Table":
    """A table whose inner texts are folded where the terminal is narrow, not cut."""
    table = new_table(title, headings, n_left)
    for column in table.columns[1:-1]:
        column.no_wrap, column.overflow = False, "fold"
    return table


def _record(name: str, source: "Source", here: bool) -> dict[str, Any]:
    return {
        "name": name,
        "n_classes": source.n_classes,
        "image_size": source.image_size,
        "splits": dict(source.splits),
        "shifts": dict(source.shifts),
        "corrupted": source.corrupted,
        "licence": source.licence,
        "urls": [download.url for download in source.downloads],
        "here": here,
    }


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{split} {n_rows:,}" for split, n_rows in sizes.items()) or "–"


def _shifted(source: "Source") -> str:
    return "19 x 5 corrupted" if source.corrupted else _sizes(source.shifts)


def _counted(value: object) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _failure(name: str, finding: "Finding") -> CorruptFileError | NoDataError:
    if finding.found == "missing":
        return NoDataError(f"{name} is not complete: {finding.what} is missing; calibrant data fetch {name} brings it")
    line = f"{name} is not in order: {finding.what}: {_counted(finding.found)}"
    if finding.expected is not None:
        line += f", expected {_counted(finding.expected)}"
    return CorruptFileError(f"{line}; {finding.first}" if finding.first else line)
