"""Means over tests and seeds against plain Python, shared tests, and significance."""

import math
import random
import statistics
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calibrant.errors import InvalidInputError, NoDataError
from calibrant.report.figures import feature_norm, heat_map, severity
from calibrant.report.paper import make_table
from calibrant.report.scores import (
    Score,
    ScoreKey,
    add_shifts,
    mark_best,
    mean_and_standard_error,
    mean_band,
    scores,
    shared_tests,
    significantly_better,
    why_untested,
)
from made.rows import Experiment, rows_table, run_rows

Rows = list[dict[str, Any]]

KEY = ScoreKey("cifar10", "resnet18", "focal", "", 0.0, "none", "ece")


def found(*runs: Iterable[dict[str, Any]]) -> dict[ScoreKey, Score]:
    """The scores over the shifted test sets that all runs have."""
    shared, _ = shared_tests(rows_table(row for run in runs for row in run))
    shifted = add_shifts(shared.filter(shared["shifted"]))
    return {ScoreKey(*key): score for key, score in scores(shifted, *ScoreKey._fields).items()}


def score_of(*values: float, first_seed: int = 0) -> Score:
    by_seed = dict(enumerate(values, first_seed))
    without = {seed: (value,) * 20 for seed, value in by_seed.items()}  # the test rows have no noise
    return Score(*mean_and_standard_error(values), len(values), 5, by_seed, without)


def test_means_are_over_tests_and_then_over_seeds() -> None:
    score = found(
        run_rows({"fog-1": 0.1, "fog-2": 0.2, "snow-5": 0.6, "test": 9.0}, seed=4),
        run_rows({"fog-1": 0.2, "fog-2": 0.4, "snow-5": 0.6, "test": 9.0}, seed=7),
    )[KEY]
    assert score.per_seed == pytest.approx({4: 0.3, 7: 0.4})
    assert (score.mean, score.standard_error) == pytest.approx((0.35, 0.05))  # sd = 0.1/√2, over √2
    assert (score.n_seeds, score.n_tests) == (2, 3)
    alone = found(run_rows({"wild": 0.25}))[KEY]
    assert (alone.mean, alone.standard_error, alone.n_seeds, alone.n_tests) == (0.25, None, 1, 1)
    assert mean_and_standard_error([math.inf, 1.0]) == (math.inf, None)
    assert mean_band([0.5]) == {"mean": 0.5, "low": 0.5, "high": 0.5, "n_seeds": 1}
    assert mean_band([1.0, 2.0, 6.0])["high"] == pytest.approx(3 + np.std([1, 2, 6], ddof=1) / math.sqrt(3))


@pytest.mark.slow
@given(
    st.dictionaries(
        st.integers(0, 9), st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=3, max_size=3), min_size=1
    ),
    st.randoms(use_true_random=False),
)
def test_any_rows_in_any_order_against_loops(values: dict[int, list[float]], draw: random.Random) -> None:
    rows: Rows = []
    for loss in ("focal", "poly"):
        for seed, given_scores in values.items():
            halved = [score / 2 if loss == "poly" else score for score in given_scores]
            rows += run_rows(dict(zip(("a-1", "b-2", "b-5"), halved, strict=True)), seed=seed, loss=loss)
    draw.shuffle(rows)
    result = found(rows)
    for loss, scale in (("focal", 1.0), ("poly", 0.5)):
        totals = [scale * sum(given_scores) / 3 for given_scores in values.values()]
        own = result[KEY._replace(loss=loss)]
        assert own.mean == pytest.approx(np.mean(totals))
        expected = pytest.approx(np.std(totals, ddof=1) / np.sqrt(len(totals))) if len(totals) > 1 else None
        assert own.standard_error == expected


@pytest.mark.parametrize("gap", [None, math.nan], ids=["null", "nan"])
def test_an_undefined_value_counts_only_in_metrics_of_errors(gap: float | None) -> None:
    runs = [run_rows({"fog-1": 2.0, "fog-2": gap}, metric=metric) for metric in ("ece", "nll_on_errors")]
    assert found(*runs)[KEY].mean is None
    assert found(*runs)[KEY._replace(metric="nll_on_errors")].mean == 2.0
    nowhere = found(run_rows({"fog-1": gap, "fog-2": gap}, metric="nll_on_errors"))
    assert nowhere[KEY._replace(metric="nll_on_errors")].mean is None
    seeds = found(run_rows({"fog-1": 0.5}), run_rows({"fog-1": gap}, seed=1))[KEY]  # a seed is not dropped
    assert (seeds.mean, seeds.standard_error, seeds.n_seeds, seeds.per_seed) == (None, None, 2, {0: 0.5})


def test_means_are_over_the_tests_that_all_runs_of_a_data_set_and_model_have() -> None:
    whole = {"test": 0.1, "fog-1": 0.5, "fog-2": 0.25}
    lacking = run_rows({"test": 0.1, "fog-1": 0.75}, loss="poly")
    elsewhere = run_rows(whole, data="cifar100")
    shared, notes = shared_tests(rows_table([*run_rows(whole), *lacking, *elsewhere]))
    assert notes == ["cifar10: means are over the 2 of 3 test sets that all runs have."]
    assert shared.num_rows == 2 + 2 + 3
    result = found(run_rows(whole), lacking, elsewhere)
    assert [(score.mean, score.n_tests) for score in result.values()] == [(0.5, 1), (0.75, 1), (0.375, 2)]
    assert shared_tests(rows_table(run_rows(whole)))[1] == []
    several = rows_table([*run_rows(whole), *lacking, *run_rows(whole, model="small")])
    assert shared_tests(several)[1] == ["cifar10, resnet18: means are over the 2 of 3 test sets that all runs have."]


def test_a_score_that_lacks_a_shared_test_is_undefined() -> None:
    """As where a calibrator has rows of some tests alone: its mean would be over others than the rest of the table."""
    raw = run_rows({"fog-1": 0.5, "fog-2": 0.25})
    some = run_rows({"fog-1": 0.1}, calibrator="temperature")
    assert found(raw, some)[KEY._replace(calibrator="temperature")].mean is None
    others = run_rows({"fog-1": 2.0}, metric="nll_on_errors")
    assert found(raw, others)[KEY._replace(metric="nll_on_errors")].mean is None


def test_a_tables_mean_is_a_charts_mean() -> None:
    """Also where some runs lack tests, and the chart is of some losses alone."""
    made = Experiment(losses=("cross_entropy", "focal", "poly"), severities=(1, 3), metrics=("ece",))
    rows = rows_table(row for row in made.rows if (row["loss"], row["corruption"]) != ("poly", "fog"))
    facts = [cell.facts for row in make_table(rows, "1").rows for cell in row]
    table = {fact["loss"]: fact["mean"] for fact in facts if fact.get("metric") == "ece"}
    shared, _ = shared_tests(rows)
    cells = {cell["loss"]: cell for cell in heat_map.prepare(shared, losses=["focal"]) if cell["corruption"] == "mean"}
    assert 100 * cells["focal"]["mean"] == table["focal"]
    at_1 = {r["loss"]: r["mean"] for r in severity.prepare(shared, metrics=("ece",)) if r["severity"] == 1}
    at_3 = {r["loss"]: r["mean"] for r in severity.prepare(shared, metrics=("ece",)) if r["severity"] == 3}
    # of the four tests, those of fog are left out
    assert table == pytest.approx({loss: 50 * (at_1[loss] + at_3[loss]) for loss in at_1})


def test_severities_are_compared_over_the_same_corruptions() -> None:
    """Of fog, snow and a natural shift, only fog has both severities."""
    rows = rows_table(run_rows({"test": 0.0, "fog-1": 0.25, "fog-3": 0.5, "snow-1": 0.75, "wild": 0.875}))
    assert {r["severity"]: r["mean"] for r in severity.prepare(rows, metrics=("ece",))} == {0: 0.0, 1: 0.25, 3: 0.5}
    norms = [{**row, "metric": metric} for row in rows.to_pylist() for metric in ("ece", "feature_norm")]
    assert [(p["shift_level"], p["ece"]) for p in feature_norm.prepare(rows_table(norms))] == [
        (0, 0.0),
        (1, 0.25),
        (3, 0.5),
    ]
    apart = rows_table(run_rows({"test": 0.0, "fog-1": 0.25, "snow-5": 0.5}))
    with pytest.raises(NoDataError, match="cannot draw severity: no corruption has test sets at every severity"):
        severity.prepare(apart, metrics=("ece",))


def test_models_calibrators_and_smoothing_are_apart() -> None:
    others: list[dict[str, Any]] = [{"model": "small"}, {"label_smoothing": 0.01}, {"calibrator": "temperature"}]
    rows = [run_rows({"fog-1": n / 8}, **other) for n, other in enumerate(others, 1)]
    result = found(run_rows({"fog-1": 0.0}), *rows)
    assert result[KEY].mean == 0.0
    assert [result[KEY._replace(**other)].mean for other in others] == [0.125, 0.25, 0.375]


def test_a_value_that_occurs_twice_is_refused() -> None:
    rows = run_rows({"fog-1": 0.5})
    with pytest.raises(InvalidInputError, match=r"one ece of cifar10-.* on each test set, got two on some"):
        found(rows, rows)
    other = [row | {"run": "copy"} for row in rows]
    with pytest.raises(InvalidInputError, match=r"each seed must have one run, got cifar10-.* and copy for seed 0"):
        found(rows, other)


def test_significance_of_paired_differences() -> None:
    # differences 0.2, 0.3, 0.4: mean 0.3, sd 0.1, bound 4.3027·0.1/√3 = 0.2484
    assert significantly_better(score_of(0.1, 0.2, 0.3), score_of(0.3, 0.5, 0.7))
    assert significantly_better(score_of(0.3, 0.5, 0.7), score_of(0.1, 0.2, 0.3), higher_is_better=True)
    assert not significantly_better(score_of(0.3, 0.5, 0.7), score_of(0.1, 0.2, 0.3))  # it is behind
    assert not significantly_better(score_of(0.1), score_of(0.9))
    assert not significantly_better(score_of(0.1, 0.1), score_of(0.9, 0.9, first_seed=1))  # one seed in common


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=6))
def test_significance_is_that_of_the_paired_t_test(pairs: list[tuple[int, int]]) -> None:
    a, b = ([pair[side] / 20 for pair in pairs] for side in (0, 1))
    differences = np.subtract(b, a)
    if np.ptp(differences) < 1e-9:
        return
    p_value = stats.ttest_rel(b, a).pvalue
    assert significantly_better(score_of(*a), score_of(*b)) == (p_value < 0.05 and differences.mean() > 0)


def test_standard_errors_are_those_of_exact_arithmetic() -> None:
    random = np.random.default_rng(0)
    for spread in (1e-12, 1e-3, 1.0, 1e200):
        values = (0.3 + spread * random.normal(size=5)).tolist()
        assert mean_and_standard_error(values)[1] == pytest.approx(statistics.stdev(values) / math.sqrt(5), rel=1e-14)
    assert mean_and_standard_error([0.1] * 7)[1] == 0.0


def row_scores(values: np.ndarray) -> Score:
    """Of values (seed, row) of a mean over rows, twenty of which are left out at a time."""
    n = values.shape[1]
    groups = values[:, : n - n % 20].reshape(len(values), 20, -1)
    without = (groups.sum((1, 2))[:, None] - groups.sum(2)) / (groups[0].size - groups[0, 0].size)
    means = dict(enumerate(groups.mean((1, 2)).tolist()))
    return Score(
        *mean_and_standard_error(list(means.values())), len(means), 1, means, dict(enumerate(without.tolist()))
    )


def test_the_noise_of_the_rows_counts_too() -> None:
    """Margins 4.3027 · sd(d)/√3 of three seeds and 2.0930 · √v of twenty groups, as the sides of a right triangle."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(1, 400))  # the same difference of every seed
    seeds = 0.01 * random.normal(size=(3, 1))
    differences = rows + seeds - rows.mean()
    of_seeds = stats.t.ppf(0.975, 2) * differences.mean(1).std(ddof=1) / math.sqrt(3)
    of_rows = stats.t.ppf(0.975, 19) * rows.reshape(20, 20).mean(1).std(ddof=1) / math.sqrt(20)
    bound = math.hypot(of_seeds, of_rows)
    assert of_seeds < bound < 1.2 * of_rows
    for ahead, significant in ((0.98 * bound, False), (1.02 * bound, True)):
        other = row_scores(differences - differences.mean() + ahead)
        assert significantly_better(row_scores(np.zeros((3, 400))), other) == significant
    unknown = replace(row_scores(np.zeros((3, 400))), jackknife={})
    assert why_untested(unknown, row_scores(differences)) == "the noise of the test rows is unknown"
    assert not significantly_better(unknown, row_scores(differences + 9))


@pytest.mark.parametrize(("of_loss", "of_seed"), [(1.0, 0.3), (0.0, 1.0), (0.3, 0.0)])
def test_losses_of_equal_expectation_are_rarely_significant(of_loss: float, of_seed: float) -> None:
    """Two losses, three seeds, shared test rows; at full size in benchmarks/table_marks.py."""
    random = np.random.default_rng(1)
    n_tables, by_seeds = 400, 0
    found = 0
    for _ in range(n_tables):
        pair = []
        for _ in range(2):
            images = of_loss * random.normal(size=(1, 100)) + of_seed * random.normal(size=(3, 100))
            pair.append(images + 0.05 * random.normal(size=(3, 1)))
        scored = [row_scores(values) for values in pair]
        by_seeds += stats.ttest_rel(*(values.mean(1) for values in pair)).pvalue < 0.05
        found += any(significant for _, significant in mark_best(scored))
    assert found <= 0.06 * n_tables
    if of_loss == 1:
        assert by_seeds > 0.15 * n_tables


def test_the_jackknife_of_a_score_is_the_mean_over_tests() -> None:
    def without(values: dict[str, float], *added: float) -> Rows:
        return [{**row, "jackknife": [row["value"] + more for more in added]} for row in run_rows(dict(values))]

    rows = without({"fog-1": 0.125, "fog-2": 0.375}, 0.0, 0.5)
    assert found(rows)[KEY].jackknife == {0: (0.25, 0.75)}
    assert found(rows[:1], without({"fog-2": 0.375}, 0.0, 0.0, 0.0))[KEY].jackknife == {0: ()}  # of other groups
    assert found(rows[:1], [rows[1] | {"jackknife": None}])[KEY].jackknife == {0: ()}
    errors = [[row | {"metric": "nll_on_errors"} for row in rows], run_rows({"fog-3": None}, metric="nll_on_errors")]
    assert found(*errors)[KEY._replace(metric="nll_on_errors")].jackknife == {0: (0.25, 0.75)}


def test_the_best_is_significant_only_against_every_other() -> None:
    best, second = score_of(0.10, 0.20, 0.30), score_of(0.21, 0.30, 0.41)  # ahead by 0.11, 0.10, 0.11
    noisy = score_of(0.05, 0.90, 0.60)  # behind by far, but ahead on one seed
    assert significantly_better(best, second)
    assert not significantly_better(best, noisy)
    assert mark_best([best, second])[0] == (True, True)
    assert mark_best([noisy, best, second]) == [(False, False), (True, False), (False, False)]
    assert mark_best([best, second, score_of(0.9)])[0] == (True, False)  # of one seed nothing is known


def test_the_best_is_the_lowest_that_is_defined() -> None:
    rivals = [score_of(0.3, 0.3), None, score_of(0.2, 0.2), Score(None, None, 2, 5, {0: 0.1})]
    assert mark_best(rivals) == [(False, False), (False, False), (True, True), (False, False)]
    assert mark_best(rivals, higher_is_better=True)[0] == (True, True)
    equals = [score_of(0.2, 0.2), score_of(0.2, 0.2), score_of(0.9, 0.9)]
    assert mark_best(equals) == [(True, False), (True, False), (False, False)]
    unpaired = [score_of(0.125, 0.125, 0.5), score_of(0.25, 0.25)]  # equal, though ahead on both common seeds
    assert mark_best(unpaired) == [(True, False), (True, False)]
    assert mark_best([score_of(0.2, 0.2), None]) == [(False, False)] * 2  # there is no rival
    assert mark_best([]) == []
