"""`calibrant detect`: table, JSON, the file of scores and refusals."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

import calibrant as cb
from made.cli import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    random = torch.Generator().manual_seed(0)
    for name, scale in (("val", 3.0), ("test", 3.0), ("other", 1.0)):
        logits = scale * torch.randn(60, 3, generator=random)
        labels = torch.randint(3, (60,), generator=random)
        rows = cb.Predictions.from_logits(logits, labels, features=logits, class_names=["a", "b", "c"])
        rows.save(tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_table_json_and_scores(calibrant: Run, folder: Path) -> None:
    command = ("detect", "test.parquet", "other.parquet")
    text = calibrant(*command).done()
    assert text.startswith("test.parquet against other.parquet")
    assert "60 rows inside, 60 outside." in text
    assert "nearest_neighbors: reference must be given" in text
    record = calibrant(*command, "--reference", "val.parquet", "--json", "--level", "0.9").record
    found = {one["method"]: one for one in record["detections"]}
    assert list(record["left_out"]) == ["mutual_information"]
    inside, outside, known = (cb.Predictions.load(f"{name}.parquet") for name in ("test", "other", "val"))
    assert found["mahalanobis"] == cb.detection(inside, outside, "mahalanobis", reference=known, level=0.9).to_dict()
    chosen = calibrant(*command, "--method", "entropy", "energy", "--scores", "s.parquet").done()
    assert chosen.endswith("s.parquet: the scores of 120 rows\n")
    assert pq.read_table("s.parquet").column_names == ["outside", "row", "entropy", "energy"]


def test_refusals(calibrant: Run, folder: Path) -> None:
    reordered = cb.Predictions.load("other.parquet").match_names(["b", "a", "c"])
    reordered.save("reordered.parquet")
    pair = ("detect", "test.parquet", "other.parquet")
    calibrant("detect", "test.parquet", "reordered.parquet").refused("--match-names")
    same, matched = (
        calibrant("detect", "test.parquet", other, "--json", "--match-names")
        for other in ("other.parquet", "reordered.parquet")
    )
    assert same.record["detections"][0]["auroc"] == pytest.approx(matched.record["detections"][0]["auroc"])
    calibrant("detect", "test.parquet", "test.parquet").refused("--allow-same-rows")
    calibrant("detect", "test.parquet", "test.parquet", "--allow-same-rows", "--method", "energy").done()
    calibrant(*pair, "--reference", "test.parquet", "--method", "mahalanobis").refused("inside must hold other rows")
    calibrant(*pair, "--method", "mahalanobis").refused("reference must be given for mahalanobis")
    calibrant(*pair, "--method", "enrgy").refused("did you mean 'energy'")
    calibrant(*pair, "--level", "95").refused("level must lie between")
    calibrant(*pair, "--scores", "val.parquet").refused("val.parquet exists, and is of another kind")
    calibrant(*pair, "--scores", "test.parquet").refused("test.parquet must not be written: it is an input")
    assert not Path("s.parquet").exists()
