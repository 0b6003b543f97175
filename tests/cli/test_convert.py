"""`calibrant convert` and `calibrant label`: what they print, write and refuse."""

from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant import Predictions
from made.cli import Run

ROWS = "p_cat,p_dog,y,order\n0.9,0.1,cat,007\n0.33,0.66,,008\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(ROWS)


def test_what_was_found_is_printed_first(calibrant: Run) -> None:
    lines = calibrant("convert", "a.csv", "--text", "order", "-o", "p.parquet").done().splitlines()
    assert lines == [
        "a.csv: probabilities of 2 classes (cat, dog) from p_cat, p_dog; labels from y",
        "a.csv: 1 rows sum to 1 only within 0.01, as rounding to 2 digits explains: rescaled",
        "p.parquet: 2 rows",
    ]
    found = Predictions.load("p.parquet")
    assert found.labels.tolist() == [0, -1]
    assert found.column("order").to_pylist() == ["007", "008"]
    assert found.metadata == {"converted": {"files": ["a.csv"]}}
    calibrant("convert", "a.csv", "--text", "order", "-o", "p.parquet").done()  # replaces what it wrote
    labels = "label p.parquet l.csv --id order -o l.parquet"
    Path("l.csv").write_text("order,label\n008,dog\n009,cat\n")
    out = calibrant(*labels.split()).done()
    assert out == "l.parquet: 2 rows, 1 with a new label, 0 without\n1 labels have an id that no row has\n"
    calibrant("audit", "l.parquet").done()


def test_several_files_flags_and_a_toml_file(calibrant: Run) -> None:
    Path("b.csv").write_text(ROWS)
    Path("c.toml").write_text('[columns]\nprobs = "p_*"\nlabel = "y"\ntext = ["order"]\n')
    calibrant("convert", "?.csv", "--columns", "c.toml", "-o", "p.parquet").done()
    assert len(Predictions.load("p.parquet")) == 4
    options = ("--class-names", "dog", "cat", "--columns", "c.toml", "-o", "p.parquet")
    calibrant("convert", "a.csv", *options).done()
    assert Predictions.load("p.parquet").class_names == ("dog", "cat")
    np.save("scores.npy", np.eye(3))
    np.save("y.npy", np.arange(3))
    calibrant("convert", "scores.npy", "--probs", "scores", "--label", "y.npy", "-o", "p.parquet").done()
    assert Predictions.load("p.parquet").labels.tolist() == [0, 1, 2]


def test_refusals(calibrant: Run) -> None:
    calibrant("convert", "-o", "p.parquet").refused("give at least one file or glob")
    calibrant("convert", "a.csv", "--label", "z", "-o", "p.parquet").refused("no column 'z', which --label names")
    calibrant("convert", "a.csv", "--probs", "q*", "-o", "p.parquet").refused("no column q*; its columns are p_cat")
    calibrant("convert", "a.csv", "--logits", "p_*", "--probs", "p_*", "-o", "p.parquet").refused("give one of")
    calibrant("convert", "a.csv", "--log-probs", "p_cat", "-o", "p.parquet").refused("a column for each class")
    calibrant("convert", "a.csv", "--positive-probs", "p_*", "-o", "p.parquet").refused("one column of numbers")
    calibrant("convert", "a.csv", "--text", "x", "-o", "p.parquet").refused("which --text names")
    calibrant("convert", "a.csv", "--columns", "no.toml", "-o", "p.parquet").refused("there is no file no.toml")
    calibrant("convert", "a.csv", "--class-names", "a", "b", "-o", "p.parquet").refused("those of the columns")
    Path("b.csv").write_text(ROWS.replace("p_cat,p_dog", "p_dog,p_cat"))
    calibrant("convert", "b.csv", "-o", "a.csv").refused("a.csv exists and is not a Parquet file")
    assert not Path("p.parquet").exists()
    calibrant("convert", "a.csv", "b.csv", "-o", "p.parquet").refused("b.csv must have the class names of a.csv")
    calibrant("convert", "a.csv", "b.csv", "--class-names", "cat", "dog", "-o", "p.parquet").done()
    by_flag = Predictions.load("p.parquet").probs
    calibrant("convert", "a.csv", "b.csv", "--match-names", "-o", "p.parquet").done()
    assert torch.equal(Predictions.load("p.parquet").probs, by_flag)
