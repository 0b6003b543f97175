"""The findings of an experiment against independent computations; and the tables of its page."""

import math
import re
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from calibrant.report.experiment_words import findings
from calibrant.report.paper import calibrator_tables, make_table, metric_tables, table_scores
from calibrant.report.scores import shared_tests
from calibrant.report.style import loss_label, quantity_of, sort_metrics
from calibrant.report.table import Table
from made.rows import NINE, Experiment, rows_table, run_rows

Row = dict[str, Any]

MADE = Experiment(
    losses=("cross_entropy", "focal", "maxent_mean"), seeds=3, calibrators=("none", "temperature"), severities=(1, 3, 5)
)
ROWS, _ = MADE.tables


def sentences(rows: pa.Table) -> list[str]:
    shared, notes = shared_tests(rows)
    shifted = any(shared["shifted"].to_pylist())
    return findings(shared, table_scores(shared, shifted=shifted), notes)


def text_of(*runs: list[Row]) -> str:
    return " ".join(sentences(rows_table(row for run in runs for row in run)))


def ece(loss: str, *values: float, first_seed: int = 0, **about: Any) -> list[Row]:
    """A run per value, with two shifted test sets about it."""
    return [
        row
        for seed, value in enumerate(values, first_seed)
        for row in run_rows({"fog-1": value - 0.01, "fog-2": value + 0.01}, seed=seed, loss=loss, **about)
    ]


def slow_score(loss: str, metric: str) -> np.ndarray[Any, Any]:
    """The mean over shifted test sets of each seed."""
    by_seed = defaultdict(list)
    for row in MADE.rows:
        if row["shifted"] and (row["loss"], row["metric"], row["calibrator"]) == (loss, metric, "none"):
            by_seed[row["seed"]].append(row["value"])
    return np.array([np.mean(by_seed[seed]) for seed in sorted(by_seed)])


UNTESTED = "Whether the difference is significant cannot be tested:"
NOISE = "5 % level, noise of {} seeds and of the test rows"


def digits(share: float) -> str:
    """Three of them, of a percentage below 100."""
    return f"{100 * share:.2f}" if 100 * share < 9.995 else f"{100 * share:.1f}"


# Words


@pytest.mark.parametrize(("metric", "extreme"), [("ece", "lowest mean ECE"), ("accuracy", "highest mean accuracy")])
def test_the_best_loss_and_the_losses_within_seed_noise(metric: str, extreme: str) -> None:
    sign = 1 if metric == "ece" else -1
    scores = {loss: slow_score(loss, metric) for loss in ("cross_entropy", "focal", "maxent_mean")}
    first, second, third = sorted(scores, key=lambda loss: sign * scores[loss].mean())
    sentence = next(line for line in sentences(ROWS) if extreme in line)
    assert sentence.startswith(f"{loss_label(first)} has the {extreme} over the 6 shifted test sets (")
    assert f" ({digits(scores[first].mean())} ± " in sentence
    assert f"; {loss_label(second)} is next ({digits(scores[second].mean())} ± " in sentence
    noise = [other for other in (second, third) if stats.ttest_rel(scores[first], scores[other]).pvalue >= 0.05]
    names = "every other loss" if len(noise) != 1 else loss_label(noise[0])
    result = "not significant" if noise else "significant"
    assert f". The difference from {names} is {result} ({NOISE.format(3)}). " in sentence


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([("poly", 0.3, 0.4)], "The difference from Poly is significant (" + NOISE.format(2)),
        ([("poly", 0.3, 0.9)], "The difference from Poly is not significant (" + NOISE.format(2)),
        ([("poly", 0.3, 0.4), ("avuc", 0.5, 0.6)], "The difference from every other loss is significant"),
        ([("poly", 0.3, 0.4), ("avuc", 0.3, 0.9)], "The difference from AvUC is not significant"),
        (
            [("poly", 0.3, 0.8), ("avuc", 0.3, 0.9)],
            "The difference from every other loss is not significant",
        ),
        (
            [("poly", 0.3, 0.8), ("avuc", 0.3, 0.9), ("mmce", 0.6, 0.7)],
            "The differences from Poly and AvUC are not significant",
        ),
        (
            [("poly", 0.3, 0.4), ("avuc", 0.9)],
            f"The difference from Poly is significant ({NOISE.format(2)}). AvUC: not tested, fewer than two ",
        ),
        ([("poly", 0.3)], f"{UNTESTED} fewer than two common seeds."),
    ],
)
def test_significance_is_tested_against_each_loss(others: list[tuple[Any, ...]], expected: str) -> None:
    text = text_of(ece("focal", 0.1, 0.2), *(ece(*other) for other in others))
    assert f". {expected}" in text


def test_one_seed_no_common_seed_ties_and_one_loss() -> None:
    text = text_of(ece("focal", 0.1), ece("poly", 0.3))
    assert (
        "Focal has the lowest mean ECE over the 2 shifted test sets (10.0 %); Poly is next (30.0 %). "
        f"{UNTESTED} fewer than two common seeds." in text
    )
    apart = text_of(ece("focal", 0.1, 0.1), ece("poly", 0.3, 0.3, first_seed=2))
    assert f"{UNTESTED} fewer than two common seeds." in apart
    single = text_of(run_rows({"wild": 0.1}), run_rows({"wild": 0.2}, loss="poly"))
    assert "Focal has the lowest ECE on the shifted test set (10.0 %)" in single
    equal = text_of(ece("focal", 0.1), ece("poly", 0.1), ece("avuc", 0.3))
    assert "Focal and Poly have the lowest mean ECE over the 2 shifted test sets (10.0 %)." in equal
    alone = text_of(ece("focal", 0.25))
    assert "The mean ECE of Focal over the 2 shifted test sets is 25.0 %." in alone
    assert "lowest" not in alone


def test_each_data_set_has_its_sentence() -> None:
    there = [ece("focal", 0.4, data="digits"), ece("poly", 0.1, data="digits")]
    text = text_of(ece("focal", 0.2), ece("poly", 0.3), *there)
    assert "cifar10: Focal has the lowest mean ECE" in text
    assert "digits: Poly has the lowest mean ECE" in text


def test_the_effect_of_the_shift_on_cross_entropy() -> None:
    def by_seed(metric: str, level: int) -> np.ndarray[Any, Any]:
        about = {"loss": "cross_entropy", "metric": metric, "severity": level, "calibrator": "none"}
        return np.array(
            [
                np.mean([row["value"] for row in MADE.rows if {**about, "seed": s}.items() <= row.items()])
                for s in range(3)
            ]
        )

    sentence = sentences(ROWS)[0]
    assert sentence.startswith(
        "From the unshifted test set to fog and snow at severity 5 (on average), the ECE of CE rises from "
    )
    assert "; its accuracy falls from " in sentence
    for metric in ("ece", "accuracy"):
        clean, shifted = by_seed(metric, 0), by_seed(metric, 5)
        assert f"from {digits(clean.mean())} ± " in sentence
        assert f" to {digits(shifted.mean())} ± " in sentence
        low, high = np.sort(
            np.abs(stats.ttest_rel(shifted, clean).confidence_interval())
        )  # the test rows have no noise
        size = abs(shifted.mean() - clean.mean())
        assert f", by {100 * size:.1f} percentage points (95 % CI {100 * low:.1f} to {100 * high:.1f})" in sentence
    wild, _ = Experiment(data=("camelyon17",), losses=("avuc", "focal"), wild=True).tables
    start = "From the unshifted test set to the shifted test set, the ECE of Focal rises from "
    assert sentences(wild)[0].startswith(start)
    # only snow has severity 5, and a natural shift has no severity
    mixed = text_of(run_rows({"test": 0.1, "fog-1": 0.2, "snow-5": 0.4, "wild": 0.9}))
    assert mixed.startswith(
        "From the unshifted test set to snow at severity 5, the ECE of Focal rises from 10.0 % to 40.0 %, by 30.0 "
        "percentage points (no interval: fewer than two common seeds)."
    )


def test_tests_that_only_some_runs_have_are_noted() -> None:
    tests = {"test": 0.1, "fog-1": 0.2, "fog-2": 0.4}
    text = text_of(run_rows(tests), run_rows(tests, loss="poly"))
    assert "to fog at severity 2, the ECE of Focal rises from 10.0 % to 40.0 %, by 30.0 " in text
    assert "all runs have" not in text
    text = text_of(run_rows(tests), run_rows({"test": 0.1, "fog-1": 0.2}, loss="poly"))
    assert "to fog at severity 1, the ECE of Focal rises from 10.0 % to 20.0 %, by 10.0 " in text
    assert "cifar10: means are over the 2 of 3 test sets that all runs have." in text


def test_the_costs_of_the_best_loss_stand_beside_it() -> None:
    def run(loss: str, accuracy: float, ece: float, clean: float, seeds: int = 1) -> list[Row]:
        values = {"accuracy": {"test": 0.9, "fog-1": accuracy}, "ece": {"test": clean, "fog-1": ece}}
        runs = ((metric, own, seed) for metric, own in values.items() for seed in range(seeds))
        return [row for metric, own, seed in runs for row in run_rows(own, metric=metric, loss=loss, seed=seed)]

    losses = run("cross_entropy", 0.8, 0.1, 0.02), run("focal", 0.7, 0.05, 0.06), run("poly", 0.75, 0.06, 0.01)
    text = text_of(*losses)
    assert "Focal has the lowest ECE on the shifted test set (5.00 %; CE: 10.0 %); Poly is next (6.00 %)." in text
    assert (
        "Compared with CE it is worse in accuracy under shift (70.0 % instead of 80.0 %, not tested) and ECE on the "
        "unshifted test set (6.00 % instead of 2.00 %, not tested), and not worse in accuracy on the unshifted test "
        "set (90.0 % instead of 90.0 %)." in text
    )
    assert "Compared with Focal it is worse in ECE under shift (10.0 % instead of 5.00 %, not" in text_of(*losses[:2])
    assert "Compared with Poly it is worse in accuracy under shift (70.0 % instead of 75.0 %" in text_of(*losses[1:])
    noiseless = text_of(run("cross_entropy", 0.8, 0.1, 0.02, 2), run("focal", 0.7, 0.05, 0.01, 2))
    assert (
        "worse in accuracy under shift (70.0 ± 0.0 % instead of 80.0 ± 0.0 %, significant), and not worse in ECE on "
        "the unshifted test set (1.00 ± 0.0 % instead of 2.00 ± 0.0 %) and" in noiseless
    )


def test_the_best_calibrator_is_compared_with_none_and_with_the_next() -> None:
    def calibrated(name: str, *eces: float, loss: str = "cross_entropy", clean: float = 0.05) -> list[Row]:
        runs = (run_rows({"test": clean, "fog-1": ece}, loss=loss, seed=seed) for seed, ece in enumerate(eces))
        return [{**row, "calibrator": name} for run in runs for row in run]

    losses = [*calibrated("none", 0.19, 0.21), *calibrated("none", 0.1, 0.1, loss="poly")]
    temperature = [*calibrated("temperature", 0.14, 0.16), *calibrated("temperature", 0.2, 0.2, loss="poly")]
    sets = [
        *calibrated("set_temperature", 0.09, 0.11, clean=0.02),
        *calibrated("set_temperature", 0.2, 0.2, loss="poly"),
    ]
    assert (
        "Without a label of the test sets, set_temperature lowers the ECE of CE on the shifted test set from 20.0 ± "
        "1.0 % to 10.0 ± 1.0 %, by 10.0 percentage points (95 % CI 10.0 to 10.0), and that of 1 of 2 losses; "
        "temperature is next (15.0 ± 1.0 %, higher by 5.0 percentage points (95 % CI 5.0 to 5.0)). On the unshifted "
        "test set: 5.00 ± 0.0 % raw, 2.00 ± 0.0 % calibrated." in text_of(losses, temperature, sets)
    )
    worse = text_of(calibrated("none", 0.1), calibrated("temperature", 0.2))
    assert "No calibrator lowers the ECE of CE on the shifted test set: 10.0 % raw, 20.0 % with temperature." in worse
    assert "label of the test sets" not in text_of(calibrated("none", 0.1))


def test_ensembles_stand_beside_their_networks() -> None:
    text = text_of(ece("focal", 0.2, 0.2), ece("poly", 0.3, 0.3), ece("poly", 0.1, variant="ensemble2"))
    assert "Focal has the lowest mean ECE over the 2 shifted test sets" in text
    assert "not tested, Poly × 2 has the lowest ECE: ECE 10.0 % (30.0 ± 0.0 % of its networks alone)." in text


def test_a_model_at_chance_is_not_the_best() -> None:
    """Of ten classes, one run of focal has 11 % on 1,000 rows; within 3 · √(0.1 · 0.9/1000) = 2.8 points of 10 %.

    It is compared by scores that a constant prediction cannot win.
    """

    def run(loss: str, accuracy: float, ece: float, seed: int = 0, **about: Any) -> list[Row]:
        rows = [
            row
            for metric, value in (("accuracy", accuracy), ("ece", ece))
            for row in run_rows({"test": value / 2, "fog-1": value}, metric=metric, seed=seed, loss=loss, **about)
        ]
        return [{**row, "majority": 0.1, "n_rows": 1000} for row in rows]

    dead = [run("focal", 0.6, 0.3), run("focal", 0.11, 0.001, seed=1)]
    tempered = [[{**row, "calibrator": "temperature"} for row in run] for run in dead]
    others = [run(loss, 0.6, 0.2 + 0.1 * seed, seed) for loss in ("poly", "avuc") for seed in (0, 1)]
    found = sentences(rows_table(row for run in (*dead, *tempered, *others) for row in run))
    assert (
        "cifar10: the ECE of these losses is not compared, because the accuracy of a run is at chance, within three "
        "standard errors of that of always predicting the most frequent class, which can be well calibrated: Focal "
        "(11.0 %)." in found
    )
    assert not any(sentence.startswith("Focal has") or "Focal is next" in sentence for sentence in found)
    assert "the ECE of AvUC rises from " in found[0]
    assert not any("temperature" in sentence for sentence in found)  # of focal loss alone
    rows = rows_table(row for run in (*dead, *tempered, *others) for row in run)
    for table in (make_table(rows, "1"), make_table(rows, "2", all_losses=True)):
        cells = [c for row in table.rows for c in row[1:] if c.facts["loss"] == "focal" and c.text != "–"]
        assert {(c.facts["metric"], c.marks[-1:]) for c in cells} <= {("ece", "§"), ("accuracy", "")}
        assert not any(c.kind for c in cells)
        assert any(
            note.startswith("§: not compared, because the accuracy of a run is at chance") for note in table.notes
        )
    alive = [*run("focal", 0.13, 0.001), *run("poly", 0.6, 0.2)]
    assert "Focal has the lowest ECE" in " ".join(sentences(rows_table(alive)))


def test_runs_and_tests_are_counted() -> None:
    first = "9 runs: 3 losses on digits, seeds 0, 1 and 2. 7 test sets of 600 rows each, 6 of them shifted."
    first += " ± is the standard error over seeds."
    assert sentences(ROWS)[-1] == first
    many, _ = Experiment(data=tuple("abcdef"), losses=("focal",), seeds=6, metrics=("ece",), severities=(1,)).tables
    assert sentences(many)[-1].startswith("36 runs: 1 loss on 6 data sets, 6 seeds. 18 test sets of 600 rows each, 12 ")
    *best, no_shift, last = sentences(rows_table(row for row in MADE.rows if not row["shifted"]))
    assert ". 1 test set of 600 rows, unshifted. ± is" in last
    assert no_shift == "No test set is shifted: the experiment does not measure the effect of shift."
    assert [" on the unshifted test set (" in sentence for sentence in best] == [True, True]
    assert sentences(rows_table([])) == ["No run is done yet."]


# Tables


def tables_of(rows: pa.Table, *, shifted: bool = True) -> list[Table]:
    metrics = sort_metrics(set(rows["metric"].to_pylist()))
    return metric_tables(table_scores(rows, shifted=shifted), metrics, [], shifted=shifted)


def test_the_tables_of_the_page_are_those_of_the_command() -> None:
    metrics = ("accuracy", "ece", "cece", "kse")
    losses = {"focal": (0.1, 0.2), "poly": (0.3, 0.45), "cross_entropy": (0.2, 0.1)}
    found = (ece(loss, *values, metric=metric) for loss, values in losses.items() for metric in metrics)
    rows = rows_table(row for run in found for row in run)
    whole = make_table(rows, "1", with_paper=True)
    for table in tables_of(rows):
        at = next(at for at, column in enumerate(whole.columns) if column.heading == table.menu_label)
        for row, line in zip(table.rows, whole.rows, strict=True):
            for own, other in zip(row[1:], line[at : at + 2], strict=True):
                assert (own.text, own.value, own.kind) == (other.text, other.value, other.kind)
    first = tables_of(rows)[0]
    assert [column.heading for column in first.columns] == ["Loss", "CIFAR10-C", "paper"]
    assert {row[0].text: row[1].kind for row in first.rows} == {"CE": "best", "Focal": "best", "Poly": ""}


def test_every_metric_has_its_table() -> None:
    tables = {table.menu_label: table for table in tables_of(ROWS)}
    assert list(tables) == ["ECE", "Accuracy", "KSE", "Confidence", "Feature norm"]
    assert len({table.html_id for table in tables.values()}) == len(tables)
    for metric, scale in (("ece", 100), ("feature_norm", 1)):
        for row in tables[quantity_of(metric).heading].rows:
            loss = next(loss for loss in NINE if loss_label(loss) == row[0].text)
            scores = slow_score(loss, metric)
            assert row[1].value == pytest.approx(scores.mean(), abs=1e-8)
            mean, error = map(float, re.findall(r"[\d.]+", row[1].text))
            assert mean == pytest.approx(scale * scores.mean(), rel=0.006)
            assert error == pytest.approx(scale * scores.std(ddof=1) / math.sqrt(3), rel=0.3, abs=0.05)
    assert {row[1].kind for row in tables["Feature norm"].rows} == {""}  # of a norm, none is best
    assert (tables["Feature norm"].best, tables["ECE"].best) == ("", "column")
    assert "best" in {row[1].kind for row in tables["ECE"].rows}


def test_without_shifted_tests_the_scores_are_of_the_unshifted_one() -> None:
    found = (run_rows({"test": 0.1 * seed}, seed=seed, loss=loss) for seed in (1, 3) for loss in ("focal", "poly"))
    (table,) = tables_of(rows_table(row for run in found for row in run), shifted=False)
    assert table.caption == "ECE (%) without shift"
    assert [column.heading for column in table.columns] == ["Loss", "cifar10"]  # neither CIFAR10-C nor the paper's
    assert {row[0].text: row[1].text for row in table.rows} == {"Focal": "20.0±10.0", "Poly": "20.0±10.0"}
    assert table.notes[0] == "Mean ± standard error over 2 seeds, on the unshifted test set."


def test_scores_that_are_not_there() -> None:
    (table,) = tables_of(rows_table([*ece("focal", 0.1), *ece("poly", 0.2, data="digits")]))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["Focal", "10.0", "9.30±0.1", "–"],
        ["Poly", "–", "15.6±0.4", "20.0"],
    ]
    assert table.rows[0][3].value is None


def test_calibrators_have_their_tables() -> None:
    forms, losses = calibrator_tables(table_scores(ROWS), [])
    assert [column.heading for column in losses.columns] == ["Loss", "raw", "w/ TS"]
    whole = make_table(ROWS, "2", all_losses=True)
    assert [[(c.text, c.kind) for c in row] for row in losses.rows] == [
        [(c.text, c.kind) for c in row] for row in whole.rows
    ]
    assert (forms.columns[1].group, forms.columns[1].heading) == ("MaxEnt", "Mean")
    assert not any("paper" in note for note in losses.notes)
    raw = ece("focal", 0.1)
    (one,) = calibrator_tables(table_scores(rows_table([*raw, *({**r, "calibrator": "temperature"} for r in raw)])), [])
    assert any("paper" in note for note in one.notes)
