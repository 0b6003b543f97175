"""The JSON that runs leave behind, of which a line may be cut off, and a name may be anything."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple


class Records(NamedTuple):
    """The records of a file in its order, and how many lines could not be read."""

    records: list[dict[str, Any]]
    n_broken: int = 0


def run_file(folder: Path, run: str, name: str) -> Path | None:
    """A file of a run; none of one whose name is no folder's, for the rows of others may lead anywhere.

    >>> run_file(Path("runs"), "..", "log.jsonl"), run_file(Path("runs"), "a/b", "log.jsonl")
    (None, None)
    """
    return None if run in ("", ".", "..") or set(run) & set("/\\\0") else folder / run / name


def read_records(path: Path | None) -> Records:
    """The lines that are JSON objects; a file that is not there has none."""
    lines = _content(path).splitlines()
    found, n_broken = [], 0
    for line in lines:
        record = _record(line)
        if record is not None:
            found.append(record)
        elif line.strip():
            n_broken += 1
    return Records(found, n_broken)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def read_object(path: Path | None) -> dict[str, Any] | None:
    """The JSON object in a file, if there is one."""
    return _record(_content(path))


def _content(path: Path | None) -> bytes:
    try:
        return b"" if path is None else path.read_bytes()
    except OSError:
        return b""


def number(value: object) -> float | None:
    """A finite number, or nothing.

    >>> number(0.5), number("0.5"), number(float("nan")), number(True)
    (0.5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
