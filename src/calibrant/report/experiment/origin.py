"""How an experiment was made: its environment and configuration, the commands that make it again, a fingerprint."""

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from calibrant import __version__
from calibrant.report.experiment.progress import count
from calibrant.report.experiment.records import read_object, run_file

MOST_BYTES = 200_000  # of a configuration that is shown


class Origin(NamedTuple):
    facts: list[tuple[str, str]]
    environment: list[tuple[str, str]]
    notes: list[str]
    configuration: str  # the experiment file, empty where there is none
    commands: str


def origin_of(folder: Path, rows: pa.Table, runs: Sequence[str], *, made: datetime | None = None) -> Origin:
    """From the files in the folder. runs: their names. made: when the page was, by default now."""
    environment, notes = environment_of(folder, runs)
    configuration, note = _configuration(folder / "experiment.toml")
    facts = [
        (name, _listed(rows, name)) for name in ("data", "model", "loss", "variant", "seed", "calibrator", "metric")
    ]
    facts = [(name, value) for name, value in facts if value]
    facts.append(("fingerprint", _fingerprint(folder / "rows.parquet")))
    now = (made or datetime.now(UTC)).astimezone(UTC)
    facts.append(("page made", f"{now:%Y-%m-%d %H:%M:%S} UTC by calibrant {__version__}"))
    return Origin(facts, environment, [*notes, *note], configuration, _commands(folder, bool(configuration)))


def _listed(rows: pa.Table, column: str) -> str:
    return ", ".join(str(value) for value in rows[column].unique().to_pylist() if value not in (None, ""))


def _fingerprint(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return f"sha256 {hashlib.file_digest(file, 'sha256').hexdigest()} of rows.parquet"
    except OSError:
        return "none: there is no rows.parquet"


def environment_of(folder: Path, runs: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """What the runs were made with; where they differ, each value with the number of its runs."""
    found = {run: read_object(run_file(folder, run, "environment.json")) for run in runs}
    there = [record for record in found.values() if record is not None]
    keys = dict.fromkeys(key for record in there for key in record)
    pairs, differing = [], []
    for key in keys:
        values = Counter(_text(record.get(key)) for record in there)
        if len(values) > 1:
            differing.append(key)
            pairs.append((key, ", ".join(f"{value} ({count(n, 'run')})" for value, n in values.most_common())))
        else:
            pairs.append((key, next(iter(values))))
    notes = [f"The runs differ in {', '.join(differing)}: compare them with care."] if differing else []
    n_without = len(found) - len(there)
    if n_without:
        verb = "has" if n_without == 1 else "have"
        notes.append(f"{count(n_without, 'run')} of {len(found)} {verb} no environment.json that can be read.")
    return pairs, notes


def _text(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _configuration(path: Path) -> tuple[str, list[str]]:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError:
        return "", ["There is no experiment.toml in the folder, so that the plan is not known."]
    text = content[:MOST_BYTES].decode("utf-8", errors="replace").replace("\r\n", "\n")
    return text, ["The configuration is cut off, for it is long."] if len(content) > MOST_BYTES else []


def _commands(folder: Path, configured: bool) -> str:
    file, place = shlex.quote(str(folder / "experiment.toml")), shlex.quote(str(folder))
    again = shlex.quote(f"{folder}-again")
    train = [
        "# all of it, in another folder",
        f"calibrant run {file} -o {again}",
        "# what is left of it",
        f"calibrant run {file}",
    ]
    return "\n".join([*(train if configured else ()), "# this page", f"calibrant report {place}"])
