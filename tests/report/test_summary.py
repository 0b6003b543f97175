"""Means over shifted tests and seeds, against plain Python, and the rules of best and significant, by hand."""

import math
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calibrant.errors import InvalidInputError
from calibrant.experiments.rows import ROWS
from calibrant.report.summary import Cell, Key, cells, leads, mean_and_error, run_mean, standings

Values = dict[str, float | None]


def run_rows(values: Values, *, seed: int = 0, metric: str = "ece", **about: Any) -> list[dict[str, Any]]:
    """The rows of a metric of a run, by split; "test" is the unshifted test."""
    run = {"data": "cifar10", "model": "resnet18", "loss": "focal", "variant": "", "label_smoothing": 0.0} | about
    name = "-".join(str(run[part]) for part in ("data", "model", "loss", "variant", "label_smoothing"))
    rows = []
    for split, value in values.items():
        shift, _, severity = split.partition("-")
        test = {"split": split, "shift": shift, "severity": int(severity or 0), "shifted": split != "test"}
        row = {"run": f"{name}-{seed}", "seed": seed, "origin": "generated", "calibrator": "none", "n_rows": 10}
        rows.append({"low": None, "high": None, "metric": metric, "value": value} | row | test | run)
    return rows


def table_of(*runs: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([row for run in runs for row in run], ROWS)


KEY = Key("cifar10", "resnet18", "focal", "", 0.0, "none", "ece")


def one_cell(*runs: Iterable[dict[str, Any]], metric: str = "ece") -> Cell:
    return cells(table_of(*runs), [metric])[KEY._replace(metric=metric)]


def cell_of(*scores: float, complete: bool = True, first_seed: int = 0) -> Cell:
    per_seed = dict(enumerate(scores, first_seed))
    return Cell(*mean_and_error(scores), len(scores), 5, complete, per_seed)


def test_means_are_over_tests_and_then_over_seeds() -> None:
    found = one_cell(
        run_rows({"fog-1": 0.1, "fog-2": 0.2, "snow-5": 0.6, "test": 9.0}, seed=4),
        run_rows({"fog-1": 0.2, "fog-2": 0.4, "snow-5": 0.6, "test": 9.0}, seed=7),
    )
    assert found.per_seed == pytest.approx({4: 0.3, 7: 0.4})
    assert (found.mean, found.error) == pytest.approx((0.35, 0.05))  # sd = 0.1/√2, over √2
    assert (found.n_seeds, found.n_tests, found.complete) == (2, 3, True)


@given(
    st.dictionaries(
        st.integers(0, 9), st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=3, max_size=3), min_size=1
    ),
    st.randoms(use_true_random=False),
)
def test_any_rows_in_any_order_against_loops(values: dict[int, list[float]], draw: random.Random) -> None:
    rows = []
    for loss in ("focal", "poly"):
        for seed, scores in values.items():
            found = [score / 2 if loss == "poly" else score for score in scores]
            rows += run_rows(dict(zip(("a-1", "b-2", "wild"), found, strict=True)), seed=seed, loss=loss)
    draw.shuffle(rows)
    result = cells(table_of(rows), ["ece"])
    for loss, scale in (("focal", 1.0), ("poly", 0.5)):
        totals = []
        for scores in values.values():
            total = 0.0
            for score in scores:
                total += scale * score
            totals.append(total / 3)
        found = result[KEY._replace(loss=loss)]
        assert found.mean == pytest.approx(np.mean(totals))
        expected = pytest.approx(np.std(totals, ddof=1) / np.sqrt(len(totals))) if len(totals) > 1 else None
        assert found.error == expected


def test_tests_that_are_not_shifted_on_demand() -> None:
    rows = table_of(run_rows({"fog-1": 0.5, "test": 0.125}))
    assert cells(rows, ["ece"])[KEY].mean == 0.5
    found = cells(rows, ["ece"], shifted=False)[KEY]
    assert (found.mean, found.n_tests, found.complete) == (0.125, 1, True)


def test_one_seed_has_no_error() -> None:
    found = one_cell(run_rows({"wild": 0.25}))
    assert (found.mean, found.error, found.n_seeds, found.n_tests) == (0.25, None, 1, 1)


@pytest.mark.parametrize("gap", [None, math.nan], ids=["null", "nan"])
def test_an_undefined_value_counts_only_in_metrics_of_errors(gap: float | None) -> None:
    runs = [run_rows({"fog-1": 2.0, "fog-2": gap}, metric=metric) for metric in ("ece", "nll_on_errors")]
    assert one_cell(*runs).mean is None
    assert one_cell(*runs, metric="nll_on_errors").mean == 2.0
    assert run_mean("nll_on_errors", [gap, gap]) is None


def test_a_seed_without_a_score_is_not_dropped() -> None:
    found = one_cell(run_rows({"fog-1": 0.5}), run_rows({"fog-1": None}, seed=1))
    assert (found.mean, found.error, found.n_seeds, found.per_seed) == (None, None, 2, {0: 0.5})


def test_an_infinite_score_has_no_error() -> None:
    assert mean_and_error([math.inf, 1.0]) == (math.inf, None)


def test_cells_that_lack_tests_are_incomplete() -> None:
    whole = {"fog-1": 0.5, "fog-2": 0.25}
    differing = one_cell(run_rows(whole), run_rows({"fog-1": 0.5}, seed=1))
    assert (differing.complete, differing.n_tests, differing.mean) == (False, 2, pytest.approx(0.4375))
    found = cells(table_of(run_rows({"fog-1": 0.5}), run_rows(whole, loss="poly")), ["ece"])
    assert not found[KEY].complete  # its runs agree, but others have a test more
    assert found[KEY._replace(loss="poly")].complete
    elsewhere = cells(table_of(run_rows({"fog-1": 0.5}), run_rows(whole, data="cifar100")), ["ece"])
    assert elsewhere[KEY].complete


def test_models_calibrators_and_smoothing_are_apart() -> None:
    others: list[dict[str, Any]] = [{"model": "small"}, {"label_smoothing": 0.01}, {"calibrator": "temperature"}]
    rows = [run_rows({"fog-1": n / 8}, **other) for n, other in enumerate(others, 1)]
    found = cells(table_of(run_rows({"fog-1": 0.0}), *rows), ["ece"])
    assert found[KEY].mean == 0.0
    assert [found[KEY._replace(**other)].mean for other in others] == [0.125, 0.25, 0.375]


def test_a_value_that_occurs_twice_is_refused() -> None:
    rows = run_rows({"fog-1": 0.5})
    with pytest.raises(InvalidInputError, match=r"one ece \(none\) of .* on fog-1, got two"):
        cells(table_of(rows, rows), ["ece"])
    other = [row | {"run": "copy"} for row in run_rows({"fog-2": 0.5})]
    with pytest.raises(InvalidInputError, match=r"one run of seed 0, got cifar10-.* and copy"):
        cells(table_of(rows, other), ["ece"])


def test_a_lead_is_judged_on_the_differences_by_seed() -> None:
    # differences 0.2, 0.3, 0.4: mean 0.3, sd 0.1, bound 4.3027·0.1/√3 = 0.2484
    assert leads(cell_of(0.1, 0.2, 0.3), cell_of(0.3, 0.5, 0.7))
    # differences 0.1, 0.3, 0.5: sd 0.2, bound 0.4968
    assert not leads(cell_of(0.1, 0.2, 0.3), cell_of(0.2, 0.5, 0.8))
    assert leads(cell_of(0.3, 0.5, 0.7), cell_of(0.1, 0.2, 0.3), higher_is_better=True)
    assert not leads(cell_of(0.3, 0.5, 0.7), cell_of(0.1, 0.2, 0.3))  # it is behind
    assert not leads(cell_of(0.1), cell_of(0.9))
    assert not leads(cell_of(0.1, 0.1), cell_of(0.9, 0.9, first_seed=1))  # one seed in common


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=6))
def test_a_lead_is_that_of_the_paired_t_test(pairs: list[tuple[int, int]]) -> None:
    a, b = ([pair[side] / 20 for pair in pairs] for side in (0, 1))
    differences = np.subtract(b, a)
    if np.ptp(differences) < 1e-9:
        return
    p_value = stats.ttest_rel(b, a).pvalue
    assert leads(cell_of(*a), cell_of(*b)) == (p_value < 0.05 and differences.mean() > 0)


def test_one_is_significant_only_where_it_leads_every_other() -> None:
    best, second = cell_of(0.10, 0.20, 0.30), cell_of(0.21, 0.30, 0.41)  # ahead by 0.11, 0.10, 0.11
    noisy = cell_of(0.05, 0.90, 0.60)  # behind by far, but ahead on one seed
    assert leads(best, second)
    assert not leads(best, noisy)
    assert standings([best, second])[0] == (True, True)
    assert standings([noisy, best, second]) == [(False, False), (True, False), (False, False)]
    assert standings([best, second, cell_of(0.9)])[0] == (True, False)  # of one seed nothing is known
    lacking = cell_of(0.05, 0.90, 0.60, complete=False)
    assert standings([best, second, lacking])[0] == (True, True)  # it does not compete


def test_the_best_is_the_lowest_of_the_complete() -> None:
    rivals = [cell_of(0.3, 0.3), None, cell_of(0.2, 0.2), cell_of(0.1, 0.1, complete=False)]
    assert standings(rivals) == [(False, False), (False, False), (True, True), (False, False)]
    assert standings(rivals, higher_is_better=True)[0] == (True, True)
    equals = [cell_of(0.2, 0.2), cell_of(0.2, 0.2), cell_of(0.9, 0.9)]
    assert standings(equals) == [(True, False), (True, False), (False, False)]
    unpaired = [cell_of(0.125, 0.125, 0.5), cell_of(0.25, 0.25)]  # equal, though ahead on both common seeds
    assert standings(unpaired) == [(True, False), (True, False)]
    assert standings([cell_of(0.2, 0.2), None]) == [(False, False)] * 2  # there is no rival
    assert standings([]) == []
