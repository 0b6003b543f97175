"""`calibrant data`: which data sets there are and where, fetching them, holding them against the originals."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from calibrant.cli.options import Json, Switch
from calibrant.cli.output import counting_bar, new_table, progress_bar, shown
from calibrant.errors import printable

if TYPE_CHECKING:
    from rich.table import Table


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
    from calibrant.data.verify import describe_all

    records = describe_all(root)
    if as_json:
        print(json.dumps(records, indent=2))
        return
    table = _folding("data sets", ["name", "splits", "shifted tests", "licence", "classes", "pixels", "here"])
    for record in records:
        splits, shifts = (
            ", ".join(f"{split} {n_rows:,}" for split, n_rows in record[part].items()) or "–"
            for part in ("splits", "shifts")
        )
        numbers = ("–" if record[key] is None else record[key] for key in ("n_classes", "image_size"))
        shifted = "19 x 5 corrupted" if record["corrupted"] else shifts
        here = "yes" if record["here"] else "no"
        table.add_row(*map(shown, (record["name"], splits, shifted, record["licence"], *numbers, here)))
    _print(table)


def fetch(name: str, /, *, root: Path | None = None, keep: Switch = False) -> None:
    """Fetch a data set into its place; an interrupted download resumes where it broke off.

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
    from calibrant.data.table import find_info

    arrivals, info = bring(name, root, keep=keep, bar=progress_bar), find_info(name)
    if not info.downloads:
        print(f"{name} comes with the package: there is nothing to fetch")
        return
    for arrival in arrivals:
        verified = "MD5 as published"
        if arrival.sha256 is not None:
            verified = f"NOT verified: no sum was published for it; its SHA-256 is {arrival.sha256}"
        print(printable(f"{arrival.file.name}: {arrival.n_bytes:,} bytes, {verified}"))
    place = data_folder(root) / info.leaves[0].path.split("/")[0]
    print(printable(f"{name} is {'now' if arrivals else 'already'} in {place}; licence: {info.licence}"))


def check(name: str, /, *, root: Path | None = None, deep: Switch = False, as_json: Json = False) -> None:
    """Hold a data set against what was published: sizes and MD5 of files, rows of splits, images that are named.

    Exit code 2, with the first thing that is missing or wrong, where anything is.

    Parameters
    ----------
    name
        The data set, as `calibrant data list` names it.
    root
        The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
    deep
        Decode every image.
    as_json
        Print JSON instead of a table.
    """
    from calibrant._files import data_folder
    from calibrant.data.verify import check_data, counted

    findings = check_data(name, root, deep=deep, bar=counting_bar)
    faults = [finding for finding in findings if not finding.ok]
    if as_json:
        record = {"name": name, "root": str(data_folder(root)), "ok": not faults}
        print(json.dumps({**record, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        table = _folding(f"{name} in {data_folder(root)}", ["what", "found", "expected", "ok"])
        for one in findings:
            cells = (one.what, counted(one.found), counted(one.expected), "yes" if one.ok else "NO")
            table.add_row(*map(shown, cells))
        _print(table)
    if faults:
        raise faults[0].error(name)


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


def _folding(title: str, headings: Sequence[str]) -> "Table":
    """A table whose inner texts are folded where the terminal is narrow, not cut."""
    table = new_table(title, headings, n_left=4)
    for column in table.columns[1:-1]:
        column.no_wrap, column.overflow = False, "fold"
    return table


def _print(table: "Table") -> None:
    from rich.console import Console

    Console().print(table)
