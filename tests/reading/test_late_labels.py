"""Labels that came later, joined by id."""

from pathlib import Path

import pandas as pd
import pytest

from calibrant import Predictions
from calibrant.errors import CalibrantError
from calibrant.reading import LabelCounts, save_labelled
from made.predictions import rows_of

NAMES = ["cat", "dog", "fish"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"order": [f"{k:03}" for k in range(10)]}
    Predictions.from_logits(rows_of()[0], columns=columns, class_names=NAMES).save("p.parquet")


def write(*pairs: tuple[str, str | None]) -> None:
    pd.DataFrame(pairs, columns=["order", "y"]).to_csv("l.csv", index=False)


def test_some_labels_and_then_the_others() -> None:
    write(("003", "dog"), ("000", "cat"), ("777", "cat"), ("004", None))
    assert save_labelled("p.parquet", "l.csv", "a.parquet", id="order") == LabelCounts(10, 2, 8, 1)
    found = Predictions.load("a.parquet")
    assert found.labels.tolist() == [0, -1, -1, 1, *[-1] * 6]
    assert found.fingerprint != Predictions.load("p.parquet").fingerprint
    write(("003", "dog"), *((f"{k:03}", "fish") for k in (1, 2, 4, 5, 6, 7, 8, 9)))
    assert save_labelled("a.parquet", "l.csv", "b.parquet", id="order") == LabelCounts(10, 8, 0, 0)
    assert Predictions.load("b.parquet").labels.tolist() == [0, 2, 2, 1, *[2] * 6]
    assert Predictions.load("b.parquet").class_names == tuple(NAMES)


def test_ids_that_are_numbers_in_one_file_and_text_in_the_other() -> None:
    Predictions.from_logits(rows_of()[0], columns={"id": list(range(10))}).save("n.parquet")
    Path("l.csv").write_text("id,when,label\n7,x,2\n")
    assert save_labelled("n.parquet", "l.csv", "a.parquet", id="id").n_new == 1
    assert Predictions.load("a.parquet").labels[7] == 2
    Path("l.jsonl").write_text('{"id": 7, "paid": 2}\n{"id": 8, "paid": 1.0}\n')
    assert save_labelled("n.parquet", "l.jsonl", "b.parquet", id="id", label="paid").n_new == 2


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("003", "dog"), ("003", "dog")], "l.csv must have every id once, got '003' twice in 'order'"),
        ([("003", "dog"), ("003", "cat")], "l.csv must have every id once, got '003' twice"),
        ([("003", "dgo")], "l.csv: y must be a class, got 'dgo' at row 0; did you mean 'dog'"),
        ([], "l.csv has no rows"),
    ],
)
def test_refusals(pairs: list[tuple[str, str]], message: str) -> None:
    write(*pairs)
    with pytest.raises(CalibrantError, match=message):
        save_labelled("p.parquet", "l.csv", "a.parquet", id="order")
    assert not Path("a.parquet").exists()


def test_contradictions_and_columns_that_are_not_there() -> None:
    write(("003", "dog"))
    save_labelled("p.parquet", "l.csv", "a.parquet", id="order")
    write(("003", "cat"))
    with pytest.raises(CalibrantError, match=r"l\.csv contradicts the label of '003' in 'order': cat after dog"):
        save_labelled("a.parquet", "l.csv", "b.parquet", id="order")
    with pytest.raises(CalibrantError, match="unknown column 'ordre'; did you mean 'order'"):
        save_labelled("a.parquet", "l.csv", "b.parquet", id="ordre")
    Path("l.csv").write_text("order,a,b\n003,1,2\n")
    with pytest.raises(CalibrantError, match=r"l\.csv has the columns order, a, b: type --label"):
        save_labelled("p.parquet", "l.csv", "b.parquet", id="order")
    Path("l.csv").write_text("id,label\n003,1\n")
    with pytest.raises(CalibrantError, match=r"unknown column of l\.csv 'order'"):
        save_labelled("p.parquet", "l.csv", "b.parquet", id="order")
    twice = Predictions.from_logits(rows_of()[0], columns={"order": [1, *range(1, 10)]})
    twice.save("p.parquet")
    write(("003", "1"))
    with pytest.raises(CalibrantError, match=r"p\.parquet must have every id once, got 1 twice in 'order'"):
        save_labelled("p.parquet", "l.csv", "b.parquet", id="order")
