"""`calibrant average`: the file it writes, the comparison of orders, JSON, and refusals."""

from pathlib import Path

import pytest
import torch

import calibrant as cb
from calibrant import Predictions
from made.cli import Run, in_this_process


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_this_process(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three members, with calibrators that were fitted to other rows."""
    monkeypatch.chdir(tmp_path)
    for part, seed in (("", 0), ("val_", 1)):
        generator = torch.Generator().manual_seed(seed)
        true = 2 * torch.randn(400, 3, generator=generator)
        labels = true.softmax(1).multinomial(1, generator=generator)[:, 0]
        for name in "abc":
            logits = 2 * true + torch.randn(400, 3, generator=generator)
            columns = {"order_id": list(range(400)), "logit_norm": logits.norm(dim=1)}
            rows = Predictions.from_logits(logits, labels, columns=columns, class_names=["x", "y", "z"])
            rows.save(f"{part}{name}.parquet")
            if part:
                cb.TemperatureScaling.fit(rows).save(f"{name}.json")
    return tmp_path


FILES = ("a.parquet", "b.parquet", "c.parquet")


@pytest.mark.slow
def test_an_average_as_a_file(calibrant: Run, folder: Path) -> None:
    out = calibrant("average", *FILES, "-o", "e.parquet").done()
    assert "e.parquet: 400 rows, the average of 3 members" in out
    assert "left out, since the members differ in them: logit_norm" in out
    assert Predictions.load("e.parquet").fingerprint == cb.average(FILES).fingerprint
    record = calibrant("average", *FILES, "-o", "e.parquet", "--json").record
    assert record == {"output": "e.parquet", "n_rows": 400, "n_members": 3, "left_out": ["logit_norm"]}
    calibrant("audit", "e.parquet").done()


def test_calibrated_members_and_ids(calibrant: Run, folder: Path) -> None:
    calibrators = ("--calibrators", "a.json", "b.json", "c.json")
    calibrant("average", *FILES, *calibrators, "-o", "e.parquet").done()
    wanted = cb.average(FILES, calibrators=[cb.load_calibrator(f"{name}.json") for name in "abc"])
    assert Predictions.load("e.parquet").fingerprint == wanted.fingerprint
    rows = Predictions.load("b.parquet")
    rows[torch.arange(399, -1, -1)].match_names(["z", "y", "x"]).save("turned.parquet")
    turned = ("a.parquet", "turned.parquet", "c.parquet")
    calibrant("average", *turned, "--id", "order_id", "--match-names", *calibrators, "-o", "e.parquet").done()
    torch.testing.assert_close(Predictions.load("e.parquet").logits, wanted.logits)
    calibrant("average", *turned, "--id", "order_id", "-o", "e.parquet").refused("--match-names")


def test_the_comparison_of_orders(calibrant: Run, folder: Path) -> None:
    command = ("average", *FILES, "--compare-calibrator", "temperature")
    out = calibrant(*command).done()
    for words in ("temperature and the average of 3 members, cross-fitted", "before", "after", "both", "none"):
        assert words in out
    record = calibrant(*command, "--json").record
    chosen = next(row for row in record if row["chosen"])
    assert f"{chosen['order']}: the order with the fewest calibrators" in out
    assert [row["order"] for row in record] == ["none", "after", "before", "both"]


def test_refusals(calibrant: Run, folder: Path) -> None:
    out = ("-o", "e.parquet")
    calibrant("average", "a.parquet", *out).refused("give at least two files, folders or globs of predictions: each is")
    calibrant("average", *FILES).refused("give either --output, to average, or --compare-calibrator")
    calibrant("average", *FILES, *out, "--compare-calibrator", "temperature").refused("give either --output")
    comparing = ("average", *FILES, "--compare-calibrator", "temperature")
    calibrant(*comparing, "--calibrators", "a.json").refused("--calibrators and --allow-same-rows are for --output")
    calibrant("average", *FILES, "--compare-calibrator", "temprature").refused("did you mean 'temperature'")
    calibrant("average", *FILES, *out, "--calibrators", "a.json").refused("one for each of 3 members, got 1")
    calibrant("average", *FILES, *out, "--calibrators", "a.json", "no.json", "a.json").refused(
        "there is no file no.json"
    )
    calibrant("average", *FILES, *out, "--id", "order").refused("did you mean 'order_id'")
    calibrant("average", "a.parquet", "no.parquet", *out).refused("there is no file no.parquet")
    calibrant("average", *FILES, "-o", "a.parquet").refused("it is an input")
    Predictions.load("b.parquet")[:399].save("short.parquet")
    calibrant("average", "a.parquet", "short.parquet", *out).refused("must have the 400 rows of a.parquet, got 399")
    validation = ("average", "val_a.parquet", "val_b.parquet", *out, "--calibrators", "a.json", "b.json")
    calibrant(*validation).refused("val_a.parquet: predictions hold the rows that it was fitted on")
    calibrant(*validation, "--allow-same-rows").done()
    Predictions.from_logits(torch.zeros(400, 3)).save("bare.parquet")
    bare = ("average", "bare.parquet", "bare.parquet", "--compare-calibrator", "temperature")
    calibrant(*bare).refused("members must have labels to be compared, got none at row 0")
