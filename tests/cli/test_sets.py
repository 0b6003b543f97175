"""`calibrant sets`: fit, apply and check, as tables, sentences and JSON; exit codes and refusals."""

from pathlib import Path

import pytest
import torch

import calibrant as cb
from made.cli import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Validation and test rows of two sites, and rows whose labels are those of another model."""
    random = torch.Generator().manual_seed(0)

    def draw(n: int) -> cb.Predictions:
        logits = 2 * torch.randn(n, 4, generator=random)
        labels = logits.softmax(1).multinomial(1, generator=random)[:, 0]
        columns = {"site": ["north", "south"] * (n // 2)}
        return cb.Predictions.from_logits(logits, labels, columns=columns, class_names=list("abcd"))

    for name, n in (("val", 600), ("test", 1000), ("few", 10)):
        draw(n).save(tmp_path / f"{name}.parquet")
    rows = draw(400)
    broken = cb.Predictions.from_logits(2 * rows.logits, rows.labels, columns=rows.columns, class_names=list("abcd"))
    broken.save(tmp_path / "broken.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_fit_apply_and_check(calibrant: Run, folder: Path) -> None:
    assert "The coverage holds over all rows" in calibrant("sets", "fit", "val.parquet", "-o", "s.json").done()
    assert calibrant("sets", "apply", "s.json", "test.parquet", "-o", "out.parquet").done() == (
        "out.parquet: 1,000 rows, each with a set of aps\n"
    )
    rows = cb.Predictions.load("test.parquet")
    wanted = cb.ConformalSets.fit(cb.Predictions.load("val.parquet"))(rows).column("prediction_set").to_pylist()
    assert cb.Predictions.load("out.parquet").column("prediction_set").to_pylist() == wanted
    text = calibrant("sets", "check", "out.parquet", "--by", "site").done()
    for part in ("% of the sets hold the label", "may be chance", "The least coverage by site is", "1 class"):
        assert part in text
    found = cb.score_sets(cb.Predictions.load("out.parquet"), by="site")
    ran = calibrant("sets", "check", "out.parquet", "--by", "site", "--json", "--fail-if", "coverage < 0.99")
    record = ran.record
    assert (ran.code, ran.err) == (3, f"failed: coverage < 0.99 (coverage = {found.coverage.value:.6g})\n")
    assert record["coverage"] == found.coverage._asdict()
    assert {"words", "failed"} <= record.keys()
    calibrant("sets", "apply", "s.json", "broken.parquet", "-o", "b.parquet").done()
    assert "the promise is broken (p < 0.0001)" in calibrant("sets", "check", "b.parquet").done()


def test_options_of_a_fit(calibrant: Run, folder: Path) -> None:
    fit = ("sets", "fit", "val.parquet", "-o", "s.json")
    options = ("--method", "raps", "--k-reg", "1", "--penalty", "0.1", "--randomized", "--seed", "4", "--json")
    record = calibrant(*fit, "--coverage", "0.8", "--by", "class", *options).record
    assert (record["method"], record["k_reg"], record["penalty"], record["seed"]) == ("raps", 1, 0.1, 4)
    assert list(record["thresholds"]) == list("abcd")
    assert (record["coverage"], record["randomized"], record["output"]) == (0.8, True, "s.json")
    assert "in each group of site" in calibrant(*fit, "--by", "site").done()
    assert "effective rows" in calibrant(*fit, "--target", "test.parquet").done()
    many = cb.Predictions.from_logits(torch.randn(9000, 30), torch.arange(9000) % 30)
    many.save("many.parquet")
    assert "And 10 more." in calibrant("sets", "fit", "many.parquet", "--by", "class", "-o", "m.json").done()


def test_refusals(calibrant: Run, folder: Path) -> None:
    calibrant("sets", "fit", "val.parquet", "-o", "s.json").done()
    calibrant("sets", "apply", "s.json", "test.parquet", "-o", "out.parquet").done()
    fit = ("sets", "fit", "-o", "t.json")
    calibrant(*fit).refused("give at least one file")
    calibrant(*fit, "few.parquet", "--coverage", "0.95").refused("at least 19 rows for coverage 0.95: it has 10")
    calibrant(*fit, "val.parquet", "--coverage", "1").refused("coverage must be")
    calibrant(*fit, "val.parquet", "--method", "apz").refused("did you mean 'aps'")
    calibrant(*fit, "val.parquet", "--by", "sight").refused("did you mean 'site'")
    calibrant(*fit, "val.parquet", "--target", "no.parquet").refused("there is no file no.parquet")
    calibrant("sets", "fit", "val.parquet", "-o", "out.parquet").refused("is not a conformal predictor")
    apply = ("sets", "apply", "s.json")
    calibrant(*apply, "-o", "x.parquet").refused("give at least one file")
    calibrant(*apply, "val.parquet", "-o", "x.parquet").refused("rows that it was fitted on")
    calibrant(*apply, "out.parquet", "-o", "x.parquet").refused("'prediction_set' already")
    calibrant(*apply, "test.parquet", "-o", "val.parquet").refused("of another kind")
    calibrant(*apply, "test.parquet", "-o", "s.json").refused("it is an input")
    calibrant("sets", "apply", "test.parquet", "test.parquet", "-o", "x.parquet").refused("test.parquet")
    check = ("sets", "check")
    calibrant(*check).refused("give at least one file")
    calibrant(*check, "test.parquet").refused("unknown column 'prediction_set'")
    calibrant(*check, "out.parquet", "--column", "site").refused("must have lists of class indices, got string")
    calibrant(*check, "out.parquet", "--fail-if", "coverge < 1").refused("did you mean 'coverage'")
    calibrant(*check, "out.parquet", "--fail-if", "worst_group < 1").refused("needs groups")
    calibrant(*check, "out.parquet", "--level", "1").refused("level must lie")
    assert not Path("t.json").exists()
    assert not Path("x.parquet").exists()
