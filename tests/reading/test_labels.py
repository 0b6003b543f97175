"""Labels of any type: an oracle that reads one value at a time, and refusals with the row."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrant as cb
from calibrant.errors import CorruptFileError, InvalidInputError
from calibrant.reading.labels import LabelReader

NAMES = ("cat", "dog", "fish")


def read(values: Any, names: tuple[str, ...] | None = NAMES, n_classes: int = 3, **options: Any) -> list[int]:
    options = {"numbered": True, "nan_is_unknown": False, **options}
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return list(LabelReader("y", n_classes, names, **options).read(column, 100).tolist())


@given(st.lists(st.sampled_from([*NAMES, None]), min_size=1))
def test_names_one_at_a_time(values: list[str | None]) -> None:
    wanted = [-1 if value is None else NAMES.index(value) for value in values]
    texts = pa.array(values, pa.string())
    for column in (texts, texts.cast(pa.large_string()), texts.dictionary_encode()):
        assert read(column) == wanted


def test_numbers_and_booleans() -> None:
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.float64()):
        assert read(pa.array([2, None, 0], kind)) == [2, -1, 0]
    assert read(["2", "1.0", "0"], None) == [2, 1, 0]
    assert read([True, False, None], None, 2) == [1, 0, -1]
    assert read(["True", "FALSE", "true"], None, 2) == [1, 0, 1]
    assert read([True, False], ("True", "False"), 2) == [0, 1]
    assert read(pa.nulls(2)) == [-1, -1]


def test_names_that_are_numbers_are_the_labels() -> None:
    assert read([3, 1, 2], ("1", "2", "3")) == [2, 0, 1]
    assert read(["3", "1.0"], ("1", "2", "3")) == [2, 0]
    with pytest.raises(InvalidInputError, match="y must be a class, got 0 at row 100"):
        read([0, 1], ("1", "2", "3"))


def test_not_known_yet() -> None:
    assert read(["", "NA", "null", "None", "cat"]) == [-1, -1, -1, -1, 0]
    assert read(["NA", "ZA"], ("ZA", "NA"), 2) == [1, 0]  # Namibia
    assert read([0.0, np.nan], nan_is_unknown=True) == [0, -1]
    assert read(["NaN", "cat"], nan_is_unknown=True) == [-1, 0]


def test_many_categories() -> None:
    names = tuple(f"c{k}" for k in range(128))
    column = pa.DictionaryArray.from_arrays(pa.array([127, None, 0], pa.int8()), pa.array(names))
    assert read(column, names, 128) == [127, -1, 0]


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        (["cat", "dgo"], NAMES, "y must be a class, got 'dgo' at row 101; did you mean 'dog'"),
        (["0", "cat"], None, "whole numbers from 0 to 2, got 'cat' at row 101: type --class-names with the names of"),
        ([0, 3], NAMES, r"y must lie in \[0, 2\], got 3 at row 101"),
        ([0, -1], NAMES, "empty\\) where not known, got -1 at row 101"),
        ([0.0, 0.5], NAMES, "got 0.5 at row 101"),
        ([1.0, np.nan], NAMES, "NaN at row 101: type --nan-is-unknown"),
        (["cat", "nan"], NAMES, "NaN at row 101: type --nan-is-unknown"),
        ([0.0, np.inf], NAMES, "got inf at row 101"),
        ([True, False], NAMES, "must be integers for 3 classes, got booleans at row 100"),
        ([[1], [2]], NAMES, "y must be labels, got list"),
    ],
)
def test_refusals(values: Any, names: tuple[str, ...] | None, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read(values, names)


def test_columns_that_are_not_numbered_from_0_have_no_numbers() -> None:
    with pytest.raises(InvalidInputError, match="y must be class names, got 1 at row 100"):
        read([1], numbered=False)


def test_labels_that_are_lists_are_soft_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    soft = np.random.default_rng(1).multinomial(4, probs) / 4
    soft[0] = 1, 0, 0
    np.savez("a.npz", probs=probs, labels=soft)
    np.savez("b.npz", probs=probs, label_probs=soft)
    np.save("probs.npy", probs)
    np.save("votes.npy", soft)
    frame = pd.DataFrame({"probs": list(probs), "y": list(soft), "id": range(60)})
    frame.to_parquet("d.parquet")
    frame["y"] = [[1, 0, 0], *soft[1:].tolist()]  # integers first
    frame.to_json("e.jsonl", orient="records", lines=True, double_precision=15)
    wanted = cb.score(cb.Predictions.from_probs(probs, soft)).values()
    for path in ("a.npz", "b.npz", "probs.npy", "d.parquet", "e.jsonl"):
        scan = cb.Predictions.scan(path, label="votes.npy" if path == "probs.npy" else None)
        assert "soft labels from" in scan.found[0]
        assert cb.score(scan).values() == pytest.approx(wanted, abs=1e-12)
    assert cb.read("e.jsonl").columns.column_names == ["id", "label_probs"]
    np.savez("f.npz", probs=probs, labels=soft, label_probs=soft)
    with pytest.raises(
        InvalidInputError, match=r"f\.npz has soft labels in labels and label_probs: rename one of them"
    ):
        cb.read("f.npz")
    for votes, message in (
        (soft[:, :2], "h.npz: y must have 3 numbers"),
        (soft * 4, r"y must lie in \[0, 1\], got 4 at"),
    ):
        np.savez("h.npz", probs=probs, y=votes)
        with pytest.raises(CorruptFileError, match=message):
            cb.read("h.npz")
    np.savez("g.npz", probs=probs, y=np.eye(3, dtype=int)[probs.argmax(1)])  # one-hot
    assert cb.score(cb.read("g.npz")).accuracy == 1
