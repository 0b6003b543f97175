"""`calibrant data`: list, fetch and check data sets."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from calibrant._names import CORRUPTED_TESTS, check_choice, known_names
from calibrant.cli.examples import epilogue
from calibrant.cli.options import File, Json, Switch
from calibrant.cli.output import counting_bar, print_json, print_tables, progress_bar
from calibrant.errors import printable
from calibrant.report.numbers import MISSING
from calibrant.report.table import Cell, Column, Table

if TYPE_CHECKING:
    from calibrant.data.verify import Finding

Root = Annotated[
    File | None,
    Parameter(help="The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data."),
]
Name = Annotated[str, Parameter(help="The data set, as `calibrant data list` names it.")]
AsJson = Annotated[Json, Parameter(help="Print JSON instead of text.")]

data = App(name="data", help="List, fetch and check data sets.", help_epilogue=epilogue("data"))


def list_data(*, root: Root = None, as_json: AsJson = False) -> None:
    """List the data sets: official sizes, shifted tests, licence, and whether the files are here, by name and size."""
    from calibrant.data.verify import describe_all

    records = describe_all(root)
    if as_json:
        print_json(records)
        return
    rows = []
    for record in records:
        splits, shifts = (
            ", ".join(f"{split} {n_rows:,}" for split, n_rows in record[part].items()) or MISSING
            for part in ("splits", "shifts")
        )
        shifts = "19 x 5 corrupted" if record["corrupted"] else shifts
        sizes = (str(record[key] or MISSING) for key in ("n_classes", "image_size"))
        rows.append([record["name"], splits, shifts, record["licence"], *sizes, "yes" if record["here"] else "no"])
    headings = {"name": False, "splits": False, "shifted tests": False, "licence": False}
    _print_table("data sets", headings | dict.fromkeys(("classes", "pixels", "here"), True), rows)


def fetch(name: Name, /, *, root: Root = None, keep: Switch = False) -> None:
    """Fetch a data set; an interrupted download resumes.

    Parameters
    ----------
    keep
        Keep the archives, in the folder archives, after they were unpacked.
    """
    check_choice("data", name, (*known_names("DATASETS"), *CORRUPTED_TESTS))
    from calibrant._files import data_folder
    from calibrant.data.fetch import fetch as fetch_data
    from calibrant.data.table import find_info

    fetched, info = fetch_data(name, root, keep=keep, bar=progress_bar), find_info(name)
    if not info.downloads:
        print(f"{name} comes with the package: there is nothing to fetch")
        return
    for file in fetched:
        verified = "MD5 as published"
        if file.sha256 is not None:
            verified = f"NOT verified: no checksum was published; its SHA-256 is {file.sha256}"
        print(printable(f"{file.path.name}: {file.n_bytes:,} bytes, {verified}"))
    folder = data_folder(root) / info.files[0].path.split("/")[0]
    state = "now" if fetched else "already"
    if not fetched and not any(file.md5 for file in info.files):
        state = "already, NOT verified for want of published checksums,"
    print(printable(f"{name} is {state} in {folder}; licence: {info.licence}"))


def check(name: Name, /, *, root: Root = None, deep: Switch = False, as_json: AsJson = False) -> None:
    """Compare a data set with the published one: sizes and MD5 of files, rows of splits, images.

    Exit code 2, with the first problem, where anything is missing or differs. Other bytes of the right size can be the
    same rows in another order, whose splits are others.

    Parameters
    ----------
    deep
        Decode every image.
    """
    check_choice("data", name, (*known_names("DATASETS"), *CORRUPTED_TESTS))
    from calibrant._files import data_folder
    from calibrant.data.verify import check_data

    checks, folder = check_data(name, root, deep=deep, bar=counting_bar), data_folder(root)
    failed = [one for one in checks if not one.ok]
    if as_json:
        record = {"name": name, "root": str(folder), "ok": not failed, "findings": [asdict(one) for one in checks]}
        print_json(record)
    else:
        rows = [_cells(one) for one in checks]
        _print_table(f"{name} in {folder}", dict.fromkeys(("what", "found", "expected", "ok"), False), rows)
    if failed:
        raise failed[0].error(name)


def _cells(finding: "Finding") -> list[str]:
    """The cells of a finding; JSON and the error have the MD5, and where nothing is expected there is no verdict."""
    from calibrant.data.verify import format_count

    found, expected = format_count(finding.found), format_count(finding.expected)
    if "MD5" in found:
        found, expected = "as published" if finding.ok else "other bytes", "as published"
    verdict = "NO" if not finding.ok else "yes" if finding.expected is not None else MISSING
    return [finding.what, found, expected, verdict]


def where(*, root: Root = None, as_json: AsJson = False) -> None:
    """Print the folder of the data sets, and which setting names it."""
    from calibrant._files import data_folder

    folder = data_folder(root)
    origin = "--root" if root else "CALIBRANT_DATA" if os.environ.get("CALIBRANT_DATA") else "default"
    if as_json:
        print_json({"root": str(folder), "from": origin, "exists": folder.is_dir()})
        return
    state = "it exists" if folder.is_dir() else "it does not exist"
    print(printable(f"{folder} ({'' if origin == 'default' else 'from '}{origin}; {state})"))


data.command(list_data, name="list", help_epilogue=epilogue("data list"))
for verb in (fetch, check, where):
    data.command(verb, help_epilogue=epilogue(f"data {verb.__name__}"))


def _print_table(caption: str, headings: dict[str, bool], rows: Sequence[Sequence[str]]) -> None:
    """headings: whether the column is right-aligned, by heading."""
    columns = [Column(heading, numeric=numeric) for heading, numeric in headings.items()]
    print_tables(Table(caption, columns, [list(map(Cell, row)) for row in rows]))
