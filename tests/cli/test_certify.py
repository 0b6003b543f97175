"""`calibrant certify`: made, applied, checked and adapted; exit codes and refusals."""

from pathlib import Path

import pytest
import torch

import calibrant as cb
from made.cli import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Validation and test rows, shifted ones, and a reference with three types of shift."""
    random = torch.Generator().manual_seed(0)

    def one_set(kind: str, severity: float, n: int = 2000) -> cb.Predictions:
        labels = torch.randint(0, 4, (n,), generator=random)
        logits = torch.randn(n, 4, generator=random)
        logits[torch.arange(n), labels] += 3 * 0.6**severity
        columns = {"corruption": [kind] * n, "severity": [severity] * n, "site": ["north", "south"] * (n // 2)}
        return cb.Predictions.from_logits(2 * logits, labels, columns=columns)

    for name in ("val", "test"):
        one_set("none", 0.0, 6000).save(tmp_path / f"{name}.parquet")
    one_set("snow", 2.0).save(tmp_path / "new.parquet")
    one_set("none", 0.0, 40).save(tmp_path / "few.parquet")
    sets = [one_set(kind, severity) for kind in ("blur", "fog", "rain") for severity in (1.0, 2.0, 3.0)]
    cb.Predictions.concat([one_set("none", 0.0), *sets]).save(tmp_path / "ref.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_threshold_is_made_applied_and_checked(calibrant: Run, folder: Path) -> None:
    text = calibrant("certify", "val.parquet", "--max-error", "0.05", "--level", "0.95", "-o", "t.json").done()
    assert "Accepted rows are wrong at most 5.00 % of the time, with 95 % confidence." in text
    made = cb.load_threshold("t.json")
    assert made.groups == cb.certify(cb.Predictions.load("val.parquet")).groups
    again = calibrant("certify", "val.parquet", "--by", "site", "-o", "s.json", "--json").record
    assert list(again["groups"]) == ["north", "south"]
    assert again["groups"]["north"]["share_interval"][0] < again["groups"]["north"]["share"]
    text = calibrant("certify", "--apply", "t.json", "test.parquet", "new.parquet", "-o", "out.parquet").done()
    accepted = sum(cb.Predictions.load("out.parquet").column("accepted").to_pylist())
    assert text == f"out.parquet: {accepted:,} of 8,000 rows accepted\n"
    assert "The promise held." in calibrant("certify", "--check", "t.json", "test.parquet").done()
    files = ("test.parquet", "new.parquet", "few.parquet")
    ran = calibrant("certify", "--check", "t.json", *files, "--reference", "val.parquet")
    assert (ran.code, ran.err) == (3, "failed: the promise is broken\n")
    assert "The promise is broken for new.parquet: " in ran.out
    assert "new.parquet differs from validation in confidence" in ran.out
    record = calibrant("certify", "--check", "t.json", *files, "--by", "site", "--json").record
    assert [row["verdict"] for row in record["rows"] if row["name"].endswith("new.parquet")] == ["broken"] * 3
    assert len(record["rows"]) == 9


def test_answers_where_nothing_can_be_promised(calibrant: Run, folder: Path) -> None:
    text = calibrant("certify", "few.parquet", "-o", "t.json").done()
    assert "No threshold can be certified: no row is accepted." in text
    assert "It takes at least 59 rows, none of them wrong." in text
    assert "too few rows to tell" in calibrant("certify", "--check", "t.json", "test.parquet").done()
    cheap = calibrant("certify", "val.parquet", "--costs", "10", "1", "--target-class", "2", "-o", "c.json").done()
    assert "The expected cost per row is at most 0." in cheap
    assert "Accept the rows that are predicted as class 2 with confidence above" in cheap
    assert "cost per row" in calibrant("certify", "--check", "c.json", "test.parquet", "--by", "site").done()


def test_a_threshold_is_adapted_and_marked(calibrant: Run, folder: Path) -> None:
    calibrant("certify", "val.parquet", "-o", "t.json").done()
    text = calibrant("certify", "--adapt", "t.json", "new.parquet", "--reference", "ref.parquet", "-o", "a.json").done()
    assert "nothing is certified" in text
    calibrant("fit", "ref.parquet", "--calibrator", "set_temperature", "-o", "set.json").done()
    record = calibrant(
        "certify", "--adapt", "t.json", "new.parquet", "--calibrator", "set.json", "-o", "a.json", "--json"
    ).record
    assert (record["certified"], record["calibrators"][0].split()[0]) == (False, "set_temperature")
    calibrant("apply", "set.json", "new.parquet", "-o", "adapted.parquet").done()
    before = calibrant("certify", "--check", "t.json", "new.parquet", "--json").record["rows"][0]["value"]
    after = calibrant("certify", "--check", "a.json", "adapted.parquet", "--json").record["rows"][0]["value"]
    assert after < before / 2
    calibrant("certify", "--apply", "a.json", "new.parquet", "-o", "o.parquet").refused("must be calibrated as")


def test_refusals(calibrant: Run, folder: Path) -> None:
    calibrant("certify", "val.parquet", "-o", "t.json").done()
    calibrant("fit", "ref.parquet", "-o", "c.json").done()
    wrong = {
        "-o x.json": "give at least one file",
        "val.parquet": "give the file to write: --output or -o",
        "val.parquet -o x.json --max-error 2": "max_error must be a finite number in",
        "val.parquet -o x.json --max-error 0.1 --costs 2 1": "give either max_error or costs",
        "val.parquet -o x.json --costs 1 2": "the lower one of handing over",
        "val.parquet -o x.json --by cite": "did you mean 'site'",
        "val.parquet -o x.json --score margins": "did you mean 'margin'",
        "val.parquet -o x.json --target-class 7": "unknown class '7'",
        "val.parquet -o x.json --method sgd": "did you mean 'sgr'",
        "val.parquet -o x.json --reference ref.parquet": "--reference has no meaning without --check",
        "val.parquet -o x.json --check t.json": "--output has no meaning with --check",
        "--check t.json --apply t.json val.parquet": "give one of --check, --apply and --adapt",
        "--check t.json test.parquet --max-error 0.1": "--max-error has no meaning with --check",
        "--check t.json val.parquet": "hold the rows that it was fitted on",
        "--check c.json test.parquet": "c.json is not a threshold",
        "--apply t.json val.parquet -o x.parquet": "rows that it was fitted on",
        "--adapt t.json new.parquet -o a.json": "--adapt needs either --reference or --calibrator",
        "--adapt t.json new.parquet -o a.json --reference val.parquet": "corruption",
    }
    for arguments, message in wrong.items():
        calibrant("certify", *arguments.split()).refused(message)
    assert not list(folder.glob("x.*"))
