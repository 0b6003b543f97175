"""What an experiment is said to have found, against independent computations; and the tables of its page."""

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


def told(rows: pa.Table) -> list[str]:
    shared, notes = shared_tests(rows)
    shifted = any(shared["shifted"].to_pylist())
    return findings(shared, table_scores(shared, shifted=shifted), notes)


def said(*runs: list[Row]) -> str:
    return " ".join(told(rows_table(row for run in runs for row in run)))


def ece(loss: str, *values: float, first_seed: int = 0, **about: Any) -> list[Row]:
    """A run per value, with two shifted tests about it."""
    return [
        row
        for seed, value in enumerate(values, first_seed)
        for row in run_rows({"fog-1": value - 0.01, "fog-2": value + 0.01}, seed=seed, loss=loss, **about)
    ]


def slow_score(loss: str, metric: str) -> np.ndarray[Any, Any]:
    """The mean over shifted tests of each seed."""
    by_seed = defaultdict(list)
    for row in MADE.rows:
        if row["shifted"] and (row["loss"], row["metric"], row["calibrator"]) == (loss, metric, "none"):
            by_seed[row["seed"]].append(row["value"])
    return np.array([np.mean(by_seed[seed]) for seed in sorted(by_seed)])


def digits(share: float) -> str:
    """Three of them, of a percentage below 100."""
    return f"{100 * share:.2f}" if 100 * share < 9.995 else f"{100 * share:.1f}"


# Words


@pytest.mark.parametrize(("metric", "most"), [("ece", "lowest ECE"), ("accuracy", "highest accuracy")])
def test_the_leader_and_whether_by_chance(metric: str, most: str) -> None:
    sign = 1 if metric == "ece" else -1
    scores = {loss: slow_score(loss, metric) for loss in ("cross_entropy", "focal", "maxent_mean")}
    first, second, third = sorted(scores, key=lambda loss: sign * scores[loss].mean())
    sentence = next(line for line in told(ROWS) if most in line)
    assert sentence.startswith(f"{loss_label(first)} has the {most} over the 6 shifted tests, ")
    assert f", {digits(scores[first].mean())}±" in sentence
    assert f"; {loss_label(second)} is next with {digits(scores[second].mean())}±" in sentence
    beyond = all(stats.ttest_rel(scores[first], scores[other]).pvalue < 0.05 for other in (second, third))
    lead = f"the lead over all others {'is' if beyond else 'is not'} beyond the chance of seeds"
    assert sentence.endswith(f", and {lead} (paired t-test over 3 seeds, 5 %).")


def test_leads_beyond_chance_and_within() -> None:
    assert "the lead is beyond the chance of seeds" in said(ece("focal", 0.1, 0.2), ece("poly", 0.3, 0.4))
    assert "the lead is not beyond the chance of seeds" in said(ece("focal", 0.1, 0.5), ece("poly", 0.3, 0.4))
    close, noisy, even = ece("poly", 0.3, 0.4), ece("avuc", 0.3, 0.9), ece("avuc", 0.5, 0.6)
    assert "the lead over all others is not beyond the chance of seeds" in said(ece("focal", 0.1, 0.2), close, noisy)
    assert "the lead over all others is beyond the chance of seeds" in said(ece("focal", 0.1, 0.2), close, even)
    few = said(ece("focal", 0.1, 0.2), close, ece("avuc", 0.9))
    assert "With fewer than two seeds in common with AvUC, the lead over all others cannot be tested." in few
    assert "chance of seeds" not in few


def test_what_cannot_be_said_of_one_seed_of_equals_and_without_a_rival() -> None:
    words = said(ece("focal", 0.1), ece("poly", 0.3))
    assert "Focal has the lowest ECE over the 2 shifted tests, 10.0 %; Poly is next with 30.0 %." in words
    assert "With one seed, nothing can be said of chance." in words
    assert "chance of seeds" not in words
    apart = said(ece("focal", 0.1, 0.1), ece("poly", 0.3, 0.3, first_seed=2))
    assert "With no seed in common, nothing can be said of chance." in apart
    single = said(run_rows({"wild": 0.1}), run_rows({"wild": 0.2}, loss="poly"))
    assert "Focal has the lowest ECE over the shifted test, 10.0 %" in single  # without a count
    equal = said(ece("focal", 0.1), ece("poly", 0.1), ece("avuc", 0.3))
    assert "Focal and Poly share the lowest ECE over the 2 shifted tests, 10.0 %." in equal
    alone = said(ece("focal", 0.25))
    assert "Focal alone can be judged over the 2 shifted tests: its ECE is 25.0 %." in alone
    assert "lowest" not in alone


def test_each_data_set_has_a_sentence_of_its_own() -> None:
    there = [ece("focal", 0.4, data="digits"), ece("poly", 0.1, data="digits")]
    words = said(ece("focal", 0.2), ece("poly", 0.3), *there)
    assert "CIFAR10-C: Focal has the lowest ECE" in words
    assert "digits: Poly has the lowest ECE" in words


def test_what_the_shift_does_to_cross_entropy() -> None:
    def mean(metric: str, level: int) -> str:
        about = {"loss": "cross_entropy", "metric": metric, "severity": level, "calibrator": "none"}
        return f"{digits(float(np.mean([row['value'] for row in MADE.rows if about.items() <= row.items()])))} %"

    assert told(ROWS)[-1] == (
        f"From the unshifted test to severity 5, the accuracy of CE falls from {mean('accuracy', 0)} to "
        f"{mean('accuracy', 5)} and its ECE rises from {mean('ece', 0)} to {mean('ece', 5)}."
    )
    wild, _ = Experiment(data=("camelyon17",), losses=("avuc", "focal"), wild=True).tables
    assert told(wild)[-1].startswith("From the unshifted test to the shifted test, the accuracy of Focal falls from ")


def test_fewer_tests_are_told() -> None:
    tests = {"test": 0.1, "fog-1": 0.2, "fog-2": 0.4}
    whole = said(run_rows(tests), run_rows(tests, loss="poly"))
    assert "to severity 2, the ECE of Focal rises" in whole
    assert "all runs have" not in whole
    words = said(run_rows(tests), run_rows({"test": 0.1, "fog-1": 0.2}, loss="poly"))
    assert "to severity 1, the ECE of Focal rises" in words
    assert "cifar10: means are over the 2 of 3 tests that all runs have." in words


def test_what_was_run_is_counted() -> None:
    first = "9 runs of 3 losses on digits, seeds 0, 1 and 2; 7 tests of 600 rows each, 6 of them shifted."
    assert told(ROWS)[0] == first
    many, _ = Experiment(data=tuple("abcdef"), losses=("focal",), seeds=6, metrics=("ece",), severities=(1,)).tables
    assert told(many)[0].startswith("36 runs of 1 loss on 6 data sets, 6 seeds; 18 tests of 600 rows each, 12 ")
    first, *leaders, last = told(rows_table(row for row in MADE.rows if not row["shifted"]))
    assert first.endswith("; 1 test of 600 rows each, none of them shifted.")
    assert last == "None of the tests is shifted, so that nothing can be said of shift."
    assert [" over the unshifted test, " in sentence for sentence in leaders] == [True, True]
    assert told(rows_table([])) == ["No run is done yet, so that there is nothing to tell."]


# Tables


def tables_of(rows: pa.Table, *, shifted: bool = True) -> list[Table]:
    metrics = sort_metrics(set(rows["metric"].to_pylist()))
    return metric_tables(table_scores(rows, shifted=shifted), metrics, [], shifted=shifted)


def test_the_tables_of_the_page_are_those_of_the_command() -> None:
    metrics = ("accuracy", "ece", "cece", "kse")
    losses = {"focal": (0.1, 0.2), "poly": (0.3, 0.45), "cross_entropy": (0.2, 0.1)}
    found = (ece(loss, *values, metric=metric) for loss, values in losses.items() for metric in metrics)
    rows = rows_table(row for run in found for row in run)
    whole = make_table(rows, "1", against="paper")
    for table in tables_of(rows):
        at = next(at for at, column in enumerate(whole.columns) if column.heading == table.option)
        for row, line in zip(table.rows, whole.rows, strict=True):
            for own, other in zip(row[1:], line[at : at + 2], strict=True):
                assert (own.text, own.value, own.kind) == (other.text, other.value, other.kind)
    first = tables_of(rows)[0]
    assert [column.heading for column in first.columns] == ["Loss", "CIFAR10-C", "paper"]
    assert {row[0].text: row[1].kind for row in first.rows} == {"CE": "best", "Focal": "best", "Poly": ""}


def test_every_metric_has_its_table() -> None:
    tables = {table.option: table for table in tables_of(ROWS)}
    assert list(tables) == ["ECE", "Accuracy", "KSE", "Confidence", "Feature norm"]
    assert len({table.name for table in tables.values()}) == len(tables)
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
    assert table.notes[0].endswith("over the unshifted tests that all runs of a data set and model have (1).")


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
