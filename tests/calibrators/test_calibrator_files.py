"""Files of calibrators: what is read back, what is refused, and what stays where saving fails."""

import contextlib
import io
import json
import math
import os
import pickle
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import calibrant as cb
from calibrant.calibrators import (
    Calibrator,
    ConditionalTemperature,
    DensityAwareScaling,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    SetTemperature,
    SplineCalibration,
    TemperatureScaling,
    VectorScaling,
)
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError

METHODS: tuple[type[Calibrator], ...] = (
    TemperatureScaling,
    VectorScaling,
    MatrixScaling,
    HistogramBinning,
    IsotonicCalibration,
    SplineCalibration,
    SetTemperature,
    DensityAwareScaling,
    ConditionalTemperature,
)


def draw(n: int = 240, seed: int = 0, n_classes: int = 3) -> cb.Predictions:
    generator = torch.Generator().manual_seed(seed)
    honest = 2 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    labels = honest.softmax(1).multinomial(1, generator=generator)[:, 0]
    columns = {"corruption": [("none", "blur")[i % 2] for i in range(n)], "severity": [i // 2 % 3 for i in range(n)]}
    features = torch.randn(n, 4, generator=generator)
    return cb.Predictions.from_logits(2 * honest, labels, columns=columns, features=features)


_FITTED: dict[type[Calibrator], Calibrator] = {}


def fitted(cls: type[Calibrator]) -> Calibrator:
    if cls not in _FITTED:
        _FITTED[cls] = cls.fit(draw())
    return _FITTED[cls]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of temperature scaling."""
    target = tmp_path / "t.json"
    fitted(TemperatureScaling).save(target)
    return target


def refused(path: Path, kind: type[CalibrantError] = CorruptFileError) -> str:
    """The one line with which the file is refused, which names it."""
    with pytest.raises(kind) as caught:
        cb.load_calibrator(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


def loaded_or_message(path: Path) -> Calibrator | str:
    try:
        return cb.load_calibrator(path)
    except CorruptFileError as error:
        return str(error)


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The file with another record."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    return path


def saved(cls: type[Calibrator], folder: Path) -> Path:
    target = folder / "c.json"
    fitted(cls).save(target)
    return target


# What is written


@pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.name)
def test_a_calibrator_comes_back_to_the_last_bit(cls: type[Calibrator], tmp_path: Path) -> None:
    path = saved(cls, tmp_path)
    new = draw(100, seed=1)
    wanted = fitted(cls)(new).logits
    for loaded in (cb.load_calibrator(path), cb.load_calibrator(str(path)), cls.load(path)):
        assert type(loaded) is cls
        assert torch.equal(loaded(new).logits, wanted)
        assert loaded.fitted == fitted(cls).fitted
        with pytest.raises(InvalidInputError, match="allow_same_rows=True"):
            loaded(draw())
    again = tmp_path / "again.json"
    cb.load_calibrator(path).save(again)
    assert json.loads(again.read_text()) == json.loads(path.read_text())


@pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.name)
def test_a_file_is_plain_json(cls: type[Calibrator], tmp_path: Path) -> None:
    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    record = json.loads(saved(cls, tmp_path).read_text(encoding="utf-8"), parse_constant=refuse)
    assert record["calibrant_calibrator"] == 1
    assert record["method"] == cls.name
    assert record["n_classes"] == 3
    assert record["fitted"]["n_rows"] == 240
    assert draw().fingerprint in json.dumps(record["fitted"])
    assert isinstance(record["parameters"], dict)


# What is refused


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.json", NoDataError)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    with pytest.raises((CorruptFileError, NoDataError), match=r"x\.json") as caught:
        cb.load_calibrator(tmp_path / "x.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("cls", [TemperatureScaling, HistogramBinning], ids=lambda cls: cls.name)
def test_a_truncated_file_is_refused(cls: type[Calibrator], share: float, tmp_path: Path) -> None:
    path = saved(cls, tmp_path)
    text = path.read_text().rstrip()
    path.write_text(text[: int(share * len(text))])
    refused(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"temperature: 1.5\n",
        b"PAR1\x00\x01\x02PAR1",
        b"\xff\xfe\x00\x80",
        b"null",
        b"3",
        b'"temperature"',
        b"[]",
        b"[1, 2]",
        b"{}",
        b'{"method": "temperature", "temperature": 1.5}',
        b'{"calibrant_calibrator": "one"}',
        b'{"calibrant_calibrator": null}',
        b'{"calibrant_calibrator": 1}',
        b'{"calibrant_calibrator": 0, "method": "temperature"}',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda content: content[:30].decode("latin-1"),
)
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    refused(path)


def test_a_newer_schema_is_refused(path: Path) -> None:
    message = refused(changed(path, lambda record: record.update(calibrant_calibrator=2)))
    assert "newer" in message


def test_an_unknown_method_is_refused(path: Path) -> None:
    message = refused(changed(path, lambda record: record.update(method="temprature")))
    assert "temprature" in message
    for method in (None, 3, ["temperature"], {}):
        refused(changed(path, lambda record, method=method: record.update(method=method)))


def test_the_file_of_another_method_is_refused(tmp_path: Path) -> None:
    path = saved(VectorScaling, tmp_path)
    with pytest.raises(CorruptFileError, match=r"vector.*temperature|temperature.*vector"):
        TemperatureScaling.load(path)
    assert isinstance(VectorScaling.load(path), VectorScaling)


@pytest.mark.parametrize("name", ["method", "n_classes", "fitted", "parameters"])
def test_a_file_without_one_of_its_parts_is_refused(path: Path, name: str) -> None:
    refused(changed(path, lambda record: record.pop(name)))


@pytest.mark.parametrize("name", ["n_rows", "nll_before", "nll_after"])
def test_a_record_of_the_fit_without_one_of_its_parts_is_refused(path: Path, name: str) -> None:
    refused(changed(path, lambda record: record["fitted"].pop(name)))


@pytest.mark.parametrize("value", [{}, [], None, "240 rows"], ids=repr)
def test_a_record_of_the_fit_that_is_none_is_refused(path: Path, value: object) -> None:
    refused(changed(path, lambda record: record.update(fitted=value)))


@pytest.mark.parametrize("value", [None, "three", 1, 0, -3, 2.5, [3], True], ids=repr)
def test_a_number_of_classes_that_is_none_is_refused(path: Path, value: object) -> None:
    refused(changed(path, lambda record: record.update(n_classes=value)))


@pytest.mark.parametrize("cls", [VectorScaling, MatrixScaling, HistogramBinning, IsotonicCalibration])
def test_parameters_of_another_number_of_classes_are_refused(cls: type[Calibrator], tmp_path: Path) -> None:
    refused(changed(saved(cls, tmp_path), lambda record: record.update(n_classes=7)))


@pytest.mark.parametrize("value", [-1.5, 0.0, math.nan, math.inf, None, "1.5", [1.5], {}], ids=repr)
def test_a_temperature_that_is_none_is_refused(path: Path, value: object) -> None:
    assert "temperature" in json.loads(path.read_text())["parameters"]
    message = refused(changed(path, lambda record: record["parameters"].update(temperature=value)))
    assert "temperature" in message


@pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.name)
def test_missing_parameters_are_refused(cls: type[Calibrator], tmp_path: Path) -> None:
    """But for those that only report on the fit, and change no row."""
    path = saved(cls, tmp_path)
    names = list(json.loads(path.read_text())["parameters"])
    new = draw(50, seed=1)
    wanted = fitted(cls)(new).logits
    n_refused = 0
    for name in names:
        fitted(cls).save(path)
        changed(path, lambda record, name=name: record["parameters"].pop(name))
        found = loaded_or_message(path)
        if isinstance(found, str):
            assert name in found
            n_refused += 1
        else:
            assert torch.equal(found(new).logits, wanted)
    assert n_refused > 0
    for value in ({}, [], None, 3):
        fitted(cls).save(path)
        refused(changed(path, lambda record, value=value: record.update(parameters=value)))


def with_numbers(value: object, number: float) -> object:
    """The same structure with this in place of every fraction."""
    if isinstance(value, dict):
        return {name: with_numbers(part, number) for name, part in value.items()}
    if isinstance(value, list):
        return [with_numbers(part, number) for part in value]
    return number if isinstance(value, float) else value


@pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.name)
@pytest.mark.parametrize("number", [math.nan, math.inf], ids=str)
def test_numbers_that_are_none_are_refused(cls: type[Calibrator], number: float, tmp_path: Path) -> None:
    path = saved(cls, tmp_path)
    before = json.loads(path.read_text())["parameters"]
    after = with_numbers(before, number)
    assert after != before
    refused(changed(path, lambda record: record.update(parameters=after)))


@pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.name)
def test_parameters_of_another_type_are_refused(cls: type[Calibrator], tmp_path: Path) -> None:
    path = saved(cls, tmp_path)
    for name, value in json.loads(path.read_text())["parameters"].items():
        for wrong in ({"a": 1}, [[["x"]]]):
            if isinstance(value, str | bool) or value is None:
                continue  # text is its own damage
            fitted(cls).save(path)
            refused(changed(path, lambda record, name=name, wrong=wrong: record["parameters"].update({name: wrong})))


def lists_of(value: object) -> Iterator[list[Any]]:
    """Every list within a record."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from lists_of(part)
    if isinstance(value, list):
        yield value


CHANGES: dict[str, Callable[[list[Any]], object]] = {
    "shorter": lambda values: values.pop(),
    "longer": lambda values: values.append(values[-1]),
    "empty": lambda values: values.clear(),
    "text": lambda values: values.__setitem__(-1, "x"),
    "null": lambda values: values.__setitem__(0, None),
}


@pytest.mark.parametrize(
    "cls", [VectorScaling, MatrixScaling, HistogramBinning, SplineCalibration], ids=lambda c: c.name
)
@pytest.mark.parametrize("change", CHANGES)
def test_parameters_of_another_shape_are_refused(cls: type[Calibrator], change: str, tmp_path: Path) -> None:
    path = saved(cls, tmp_path)
    n_lists = len(list(lists_of(json.loads(path.read_text())["parameters"])))
    assert n_lists > 0
    for number in range(n_lists):
        fitted(cls).save(path)

        def damage(record: dict[str, Any], number: int = number) -> None:
            CHANGES[change](list(lists_of(record["parameters"]))[number])

        refused(changed(path, damage))


@pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.name)
def test_other_classes_are_refused_with_both_numbers(cls: type[Calibrator], tmp_path: Path) -> None:
    loaded = cb.load_calibrator(saved(cls, tmp_path))
    with pytest.raises(InvalidInputError, match=r"3.*5|5.*3"):
        loaded(draw(20, n_classes=5))


# Saving that fails


def refuse_to_rename(*_args: object, **_options: object) -> None:
    raise OSError("no rename today")


@contextlib.contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_failed_rename_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        for name in ("replace", "rename"):
            patch.setattr(os, name, refuse_to_rename)
        with pytest.raises(OSError, match="no rename today"):
            fitted(VectorScaling).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("limit", [0, 1, 100])
def test_a_full_disk_leaves_the_old_file_or_none(path: Path, limit: int) -> None:
    before = path.read_bytes()
    with full_disk(limit), pytest.raises(OSError, match=r"."):
        fitted(VectorScaling).save(path)
    with full_disk(limit), pytest.raises(OSError, match=r"."):
        fitted(VectorScaling).save(path.with_name("new.json"))
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    fitted(VectorScaling).save(path)
    assert isinstance(cb.load_calibrator(path), VectorScaling)


def test_saving_onto_a_folder_fails_without_leftovers(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    (tmp_path / "x.json" / "kept").write_text("kept")
    with pytest.raises((OSError, InvalidInputError)):
        fitted(TemperatureScaling).save(tmp_path / "x.json")
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
    assert [file.name for file in (tmp_path / "x.json").iterdir()] == ["kept"]


# No pickle


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.touch, (self.target,))


def test_a_pickle_is_refused_and_never_run(tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / "x.json"
    path.write_bytes(pickle.dumps(Bomb(mark)))
    refused(path)
    buffer = io.BytesIO()
    torch.save({"temperature": 1.5, "bomb": Bomb(mark)}, buffer)
    path.write_bytes(buffer.getvalue())
    refused(path)
    assert not mark.exists()


def test_a_file_is_read_without_pickle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("pickle was asked")

    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, refuse)
    for name in ("load", "save"):
        monkeypatch.setattr(torch, name, refuse)
    loaded = cb.load_calibrator(path)
    loaded.save(path)
    assert isinstance(cb.load_calibrator(path), TemperatureScaling)
