"""`calibrant estimate`: sentences, tables, JSON, exit codes and refusals."""

from pathlib import Path

import pytest
import torch

import calibrant as cb
from made.cli import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reference with three types of shift, and a target of a fourth at two sites, with labels."""
    random = torch.Generator().manual_seed(0)

    def one_set(kind: str, severity: int, n: int = 500) -> cb.Predictions:
        true_logits = 3 * 0.6**severity * torch.randn(n, 4, generator=random)
        labels = true_logits.softmax(1).multinomial(1, generator=random)[:, 0]
        columns = {"corruption": [kind] * n, "severity": [severity] * n, "site": ["north"] * (n - 10) + ["south"] * 10}
        return cb.Predictions.from_logits((1 + severity / 2) * true_logits, labels, columns=columns)

    shifted = [one_set(kind, severity) for kind in ("blur", "fog", "rain") for severity in (1, 2)]
    cb.Predictions.concat([one_set("none", 0, 1000), *shifted]).save(tmp_path / "val.parquet")
    one_set("snow", 2).save(tmp_path / "new.parquet")
    one_set("none", 0).save(tmp_path / "same.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_estimate_in_words_tables_and_json(calibrant: Run, folder: Path) -> None:
    command = ("estimate", "new.parquet", "--reference", "val.parquet")
    text = calibrant(*command, "--by", "site").done()
    assert "the predictions are overconfident by" in text
    assert "The labels of the target were not used." in text
    assert "Fewer than 20 rows: south." in text
    ran = calibrant(*command, "--json", "--fail-if", "accuracy < 0.99", "--fail-if", "gap > 0.9")
    record = ran.record
    assert ran.code == 3
    assert ran.err.startswith("failed: accuracy < 0.99 (accuracy = ")
    truth = cb.score(cb.Predictions.load("new.parquet")).accuracy
    assert record["accuracy"]["low"] < truth < record["accuracy"]["high"]
    assert record["shifts"] == ["blur", "fog", "rain"]
    calibrant("fit", "val.parquet", "--calibrator", "set_temperature", "-o", "set.json").done()
    assert calibrant(*command, "--calibrator", "set.json", "--json").record["accuracy"] == record["accuracy"]
    assert "looks like the reference" in calibrant("estimate", "same.parquet", *command[2:]).done()


def test_refusals(calibrant: Run, folder: Path) -> None:
    cb.Predictions.load("new.parquet")[:5].save("few.parquet")
    cb.Predictions.from_logits(torch.randn(30, 3)).save("other.parquet")
    calibrant("fit", "same.parquet", "-o", "t.json").done()
    reference = ("--reference", "val.parquet")
    calibrant("estimate", *reference).refused("give at least one file")
    calibrant("estimate", "few.parquet", *reference).refused("target must have at least 20 rows, got 5")
    calibrant("estimate", "other.parquet", *reference).refused("4 classes")
    calibrant("estimate", "val.parquet", *reference).refused("rows that it was fitted on")
    calibrant("estimate", "new.parquet", *reference, "--method", "cod").refused("did you mean 'cot'")
    calibrant("estimate", "new.parquet", *reference, "--fail-if", "acuracy > 1").refused("accuracy")
    calibrant("estimate", "new.parquet", *reference, "--calibrator", "t.json").refused("SetTemperature")
    calibrant("estimate", "new.parquet", *reference, "--by", "cite").refused("'site'")
    calibrant("estimate", "new.parquet", "--reference", "new.parquet").refused("not shifted")
