"""Files of calibrators: what is refused, what stays where saving fails, and that nothing is unpickled.

That a file comes back to the last bit is an aspect of the battery.
"""

import io
import json
import math
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import calibrant as cb
from calibrant.calibrators import TemperatureScaling, VectorScaling
from calibrant.errors import CalibrantError, CorruptFileError, NoDataError, ResourceError
from made.calibrator_check import CALIBRATORS, fitted, fresh_rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.json"


def refused(path: Path, kind: type[CalibrantError] = CorruptFileError) -> str:
    """The one line with which the file is refused, which names it."""
    with pytest.raises(kind) as caught:
        cb.load_calibrator(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


def damaged(path: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    """The file of a calibrator with another record, without the digest, as a person who edits it leaves it."""
    fitted(name).save(path)
    record = json.loads(path.read_text())
    del record["digest"]
    change(record)
    path.write_text(json.dumps(record))
    return path


# Files of something else

CONTENTS = [
    *(b"", b"temperature: 1.5\n", b"PAR1\x00\x01\x02PAR1", b"\xff\xfe\x00\x80", b"\xef\xbb\xbf{}"),
    *(b"null", b"3", b'"temperature"', b"[]", b"[1, 2]", b"{}", b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000),
    b'{"calibrator": "temperature", "temperature": 1.5}',
    b'{"calibrant_calibrator": "one"}',
    b'{"calibrant_calibrator": null}',
    b'{"calibrant_calibrator": 1}',
    b'{"calibrant_calibrator": 0, "calibrator": "temperature"}',
]


def test_other_content_is_refused(path: Path) -> None:
    refused(path, NoDataError)
    for content in CONTENTS:
        path.write_bytes(content)
        refused(path)
    for name in ("temperature", "histogram"):
        fitted(name).save(path)
        text = path.read_text().rstrip()
        for share in (0.01, 0.5, 0.99):
            path.write_text(text[: int(share * len(text))])
            refused(path)
    path.unlink()
    path.mkdir()
    refused(path, ResourceError)


def test_the_file_of_another_calibrator_is_refused(path: Path) -> None:
    fitted("vector").save(path)
    with pytest.raises(CorruptFileError, match=r"'vector', not 'temperature'"):
        TemperatureScaling.load(path)
    assert isinstance(VectorScaling.load(path), VectorScaling)


# Damaged records: where, what stands there, and what the message names

REMOVED = "(removed)"
RECORDS: list[tuple[str, Any, str]] = [
    ("calibrant_calibrator", 2, "newer"),
    ("calibrator", "temprature", "temprature"),
    *(("calibrator", value, "calibrator") for value in (REMOVED, None, 3, ["temperature"], {})),
    *(("n_classes", value, "") for value in (REMOVED, None, "three", 1, 0, -3, 2.5, [3], True)),
    *(("fitted", value, "") for value in (REMOVED, {}, [], None, "240 rows")),
    *((f"fitted.{part}", REMOVED, part) for part in ("n_rows", "nll_before", "nll_after", "rows")),
    *(("fitted.rows", value, "RowSketch must be of type dict") for value in ([], None, 3, "rows")),
    ("fitted.n_rows", True, "n_rows"),
    ("fitted.rows.sample", [-1], "sample"),
    ("fitted.rows.sample", [2**64], "sample"),
    *(("parameters", value, "") for value in (REMOVED, {}, [], None, 3)),
    *(
        ("parameters.temperature", value, "temperature")
        for value in (-1.5, 0.0, math.nan, math.inf, None, "1.5", [1.5], {})
    ),
    ("parameters.temperature", 10**400, ""),
]


def test_every_changed_digit_is_refused(path: Path) -> None:
    """Also where the record could be read; spaces and the order of the keys may change."""
    fitted("temperature").save(path)
    text = path.read_text()
    digits = [place for place, letter in enumerate(text) if letter.isdigit()]
    for place in digits[:: len(digits) // 50]:
        path.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
        refused(path)
    path.write_text(text.replace("4", "5"))
    assert "remove its key digest" in refused(path)
    path.write_text(json.dumps(json.loads(text), sort_keys=True))
    assert isinstance(cb.load_calibrator(path), TemperatureScaling)


@pytest.mark.parametrize(("place", "value", "message"), RECORDS, ids=lambda value: str(value)[:30])
def test_damaged_records_are_refused(path: Path, place: str, value: Any, message: str) -> None:
    def change(record: dict[str, Any]) -> None:
        *parents, last = place.split(".")
        for parent in parents:
            record = record[parent]
        assert last in record
        if value is REMOVED:
            del record[last]
        else:
            record[last] = value

    assert message in refused(damaged(path, "temperature", change))


# Parameters of every calibrator


def with_numbers(value: object, number: float) -> object:
    """The same structure with this in place of every fraction."""
    if isinstance(value, dict):
        return {name: with_numbers(part, number) for name, part in value.items()}
    if isinstance(value, list):
        return [with_numbers(part, number) for part in value]
    return number if isinstance(value, float) else value


def lists_of(value: object) -> Iterator[list[Any]]:
    """Every list within a record that is not empty."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from lists_of(part)
    if isinstance(value, list) and value:
        yield value


FITTED_NAMES = [name for name, cls in CALIBRATORS.items() if not cls.idempotent]


REPORTS = {"interval", "influential_rows", "standard_error", "slope", "at_bound"}  # on the fit; they change no row


@pytest.mark.slow
@pytest.mark.parametrize("name", FITTED_NAMES)
def test_missing_and_other_parameters_are_refused(name: str, path: Path) -> None:
    fitted(name).save(path)
    parameters = json.loads(path.read_text())["parameters"]
    for field, value in parameters.items():
        damaged(path, name, lambda record, field=field: record["parameters"].pop(field))
        if field in REPORTS:
            found = cb.load_calibrator(path)
            assert torch.equal(found(fresh_rows(name)).logits, fitted(name)(fresh_rows(name)).logits)
        else:
            assert field in refused(path)
        if isinstance(value, int | float | dict) and not isinstance(value, bool):
            for other in ({"a": "x"}, [[["x"]]]):
                refused(damaged(path, name, lambda record, f=field, o=other: record["parameters"].update({f: o})))
    for number in (math.nan, math.inf):
        refused(damaged(path, name, lambda record, n=number: record.update(parameters=with_numbers(parameters, n))))


CHANGES: tuple[Callable[[list[Any]], object], ...] = (
    lambda values: values.pop(),
    lambda values: values.append(values[-1]),
    lambda values: values.clear(),
    lambda values: values.__setitem__(-1, "x"),
    lambda values: values.__setitem__(0, None),
)


@pytest.mark.parametrize("name", ["vector", "matrix", "histogram", "spline"])
def test_parameters_of_another_shape_are_refused(name: str, path: Path) -> None:
    fitted(name).save(path)
    n_lists = len(list(lists_of(json.loads(path.read_text())["parameters"])))
    assert n_lists > 0
    for change in CHANGES:
        for i in range(n_lists):
            refused(damaged(path, name, lambda record, i=i, c=change: c(list(lists_of(record["parameters"]))[i])))
    if name != "spline":
        refused(damaged(path, name, lambda record: record.update(n_classes=7)))


IMPOSSIBLE: list[tuple[str, str, Callable[[list[float]], list[float]]]] = [
    ("ensemble_temperature", "weights", lambda values: [-1.0, 2.0, 0.0]),
    ("ensemble_temperature", "weights", lambda values: [1.0, 1.0, 1.0]),
    ("histogram", "values", lambda values: [-v for v in values]),
    ("histogram", "knots", lambda values: values[::-1]),
    ("isotonic", "values", lambda values: values[::-1]),
    ("conditional_temperature", "knots", lambda values: values[::-1]),
    ("conditional_temperature", "scales", lambda values: [-v for v in values]),
]


def test_parameters_that_would_compute_something_else_are_refused(path: Path) -> None:
    for name, field, change in IMPOSSIBLE:

        def damage(record: dict[str, Any], field: str = field, change: Any = change) -> None:
            entry = record["parameters"][field]
            entry["values"] = change(entry["values"])

        assert field in refused(damaged(path, name, damage))
    assert "scale" in refused(damaged(path, "spline", lambda record: record["parameters"].update(scale=-1.0)))


# Saving that fails, and no pickle


def raising(error: Exception) -> Callable[..., object]:
    def refuse(*_args: object, **_options: object) -> object:
        raise error

    return refuse


def test_a_failed_save_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted("temperature").save(path)
    before = path.read_bytes()
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, raising(OSError("no rename today")))
    with pytest.raises(OSError, match="no rename today"):
        fitted("vector").save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_nothing_is_unpickled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    torch.save({"temperature": 1.5}, buffer)
    contents = (pickle.dumps({"temperature": 1.5}), buffer.getvalue())
    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, raising(AssertionError("pickle was asked")))
    for name in ("load", "save"):
        monkeypatch.setattr(torch, name, raising(AssertionError("torch was asked")))
    for content in contents:
        path.write_bytes(content)
        refused(path)
    path.unlink()
    fitted("temperature").save(path)
    cb.load_calibrator(path).save(path)
    assert isinstance(cb.load_calibrator(path), TemperatureScaling)
