"""The verdicts on the claims of the paper, and the order of combinations, from made-up rows."""

from typing import Any

import pytest

from calibrant.errors import NoDataError
from calibrant.report.claims import make_claims
from calibrant.report.combinations import make_combinations
from made.rows import rows_table, run_rows

TESTS = ("test", "fog-1", "fog-5", "snow-1", "snow-5", "photos")


def runs(level: float, *, growth: float = 0.0, metric: str = "ece", noise: float = 0.01, **about: Any) -> list[Any]:
    """Three seeds that differ by the noise; a test set of severity s has the level plus s times the growth."""
    rows = []
    for seed in range(3):
        values = {test: level * (1 + noise * (seed - 1)) + growth * int(test[-1] == "5") for test in TESTS}
        values["blur-1"] = 0.38 if growth else level  # it has no severity 5
        rows += run_rows(values, seed=seed, metric=metric, **about)
    return [row | {"majority": 0.1} for row in rows]


def verdicts(rows: list[Any]) -> dict[str, tuple[str, ...]]:
    """By row, those on corruptions and on photos."""
    table = make_claims(rows_table(rows))
    return {line[0].text: tuple(cell.text for cell in line[3::3]) for line in table.rows}


def test_verdicts() -> None:
    rows = runs(0.3, growth=0.1, loss="cross_entropy") + runs(0.2, loss="maxent_mean")
    rows += runs(0.2, noise=-0.5) + runs(0.1, loss="poly")
    rows += runs(0.8, metric="accuracy", loss="cross_entropy") + runs(0.795, metric="accuracy", loss="maxent_mean")
    rows += runs(0.25, loss="maxent_mean", calibrator="temperature") + runs(0.4, loss="maxent_mean", variant="global")
    found = verdicts(rows)
    assert found == {
        "MaxEnt M: lower ECE than CE": ("holds", "holds"),
        "MaxEnt M: lower ECE than Focal": ("cannot be told", "cannot be told"),
        "MaxEnt M: lower ECE than Poly": ("does not hold", "does not hold"),
        "MaxEnt M: accuracy at most 1% lower": ("holds", "holds"),  # 0.6 % lower
        "MaxEnt M: accuracy at most 1% lower, unshifted": ("holds", "–"),
        "MaxEnt M: lower ECE than CE, unshifted": ("holds", "–"),
        "MaxEnt M: lead over CE grows with severity": ("holds", "–"),
        "MaxEnt M: lower ECE with temperature (exact)": ("does not hold", "does not hold"),
        "MaxEnt M: temperature helps less under shift": ("cannot be told", "–"),
        "MaxEnt M: lower ECE with local constraints": ("holds", "holds"),
        "MaxEnt M: local constraints at severities 1, 2": ("holds", "–"),
    }
    table = make_claims(rows_table(rows))
    note = "17 tests, not adjusted for their number: holds 10, does not hold 4, cannot be told 3."
    assert table.notes[0] == note
    lead = next(line for line in table.rows if "lead" in line[0].text)
    assert lead[1].text == "10.0 (10.0 to 10.0) pp"
    (paper,) = (line[2].text for line in table.rows if line[0].text == "MaxEnt M: lower ECE than Focal")
    assert paper == "0.94±0.02"
    lower = [
        row | {"value": 0.7} if row["metric"] == "accuracy" and row["loss"] == "maxent_mean" else row for row in rows
    ]
    assert verdicts(lower)["MaxEnt M: accuracy at most 1% lower"] == ("does not hold", "does not hold")
    at_chance = [row | {"value": 0.1} if row["metric"] == "accuracy" else row for row in rows]
    assert verdicts(at_chance)["MaxEnt M: lower ECE than CE"] == ("at chance", "at chance")
    one = make_claims(rows_table(row for row in rows if row["seed"] == 1))
    assert {cell.marks for line in one.rows for cell in line if cell.facts} == {"*"}
    assert any(note.startswith("*: of one seed.") for note in one.notes)
    assert not any(cell.marks for line in table.rows for cell in line)
    unknown = [row | {"jackknife": None} for row in rows if row["seed"] == 1 and row["corruption"] in ("test", "fog")]
    lead = next(line for line in make_claims(rows_table(unknown)).rows if "lead" in line[0].text)
    assert (lead[1].text, lead[3].text) == ("10.0 pp", "cannot be told")  # no noise is known: no interval
    assert any(note.startswith("paper: ") for note in table.notes)
    ours = make_claims(rows_table(row | {"data": "digits"} for row in rows))
    assert not any(note.startswith("paper: ") for note in ours.notes)
    with pytest.raises(NoDataError, match="no claim can be tested"):
        make_claims(rows_table(runs(0.3)))


def test_combinations_are_sorted_and_the_best_keeps_the_accuracy() -> None:
    rows = runs(0.3, loss="cross_entropy") + runs(0.8, metric="accuracy", loss="cross_entropy")
    for level, accuracy, about in (
        (0.1, 0.8, {"loss": "focal", "calibrator": "temperature"}),
        (0.06, 0.7, {"loss": "focal", "variant": "ensemble3"}),
        (0.2, 0.8, {"loss": "focal", "label_smoothing": 0.01}),
        (0.03, 0.1, {"loss": "poly"}),
    ):
        rows += runs(level, **about) + runs(accuracy, metric="accuracy", **about)
    table = make_combinations(rows_table(rows))
    assert [line[0].text for line in table.rows] == [
        "Poly",
        "Focal × 3",
        "Focal + temperature",
        "Focal + LS 0.01",
        "CE",
    ]
    assert [line[1].kind for line in table.rows] == ["", "", "best", "", ""]
    assert [line[1].marks for line in table.rows] == ["§", "", "", "", ""]
    assert [line[1].text for line in table.rows][2:] == ["0.33 (0.33–0.33)", "0.67 (0.67–0.67)", "1"]
    assert {column.group for column in table.columns[1:]} == {"CIFAR10-C", "cifar10, photos"}
    assert table.rows[1][2].facts["ratio"] == pytest.approx(0.7 / 0.8)
    dead = [row | {"value": 0.1} if row["metric"] == "accuracy" else row for row in rows]
    assert {cell.kind for line in make_combinations(rows_table(dead)).rows for cell in line} == {""}
