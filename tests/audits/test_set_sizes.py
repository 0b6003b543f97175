"""Sizes of prediction sets from histograms: against a sort of the probabilities."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from calibrant.audits.set_sizes import N_BINS, ProbabilityCounts, SetSize
from calibrant.audits.statistics import collect_statistics
from calibrant.predictions import Predictions
from made.audits import make_rows

COVERAGES = (0.8, 0.9, 0.95, 0.99)


def counts_of(rows: Predictions) -> ProbabilityCounts:
    return collect_statistics(rows).probabilities


def probabilities(rows: Predictions) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All of them (n, k), and those of the labels (n,)."""
    probs = rows.logits.double().softmax(1).numpy()
    return probs, probs[np.arange(len(rows)), rows.labels.numpy()]


def exact_sizes(rows: Predictions, slack: float = 1.0) -> list[tuple[float, float]]:
    """The quantile and the mean size for each coverage, from sorted losses; quantiles are made larger by a factor."""
    probs, of_label = probabilities(rows)
    losses, found = sorted(-np.log(of_label)), []
    for coverage in COVERAGES:
        rank = math.ceil((len(rows) + 1) * coverage - 1e-9)
        if rank <= len(rows):
            quantile = losses[rank - 1] * slack
            found.append((quantile, float((-np.log(probs) <= quantile * (1 + 1e-6)).sum(1).mean())))
    return found


@pytest.mark.parametrize("n_classes", [2, 5, 40])
@pytest.mark.parametrize("scale", [0.3, 1.0, 6.0])
def test_sizes_are_those_of_a_sort_within_a_bin(n_classes: int, scale: float) -> None:
    rows = make_rows(n=700, n_classes=n_classes, scale=scale)
    found = counts_of(rows).set_sizes()
    probs, of_label = probabilities(rows)
    exact, wider = exact_sizes(rows), exact_sizes(rows, slack=1 + 2**-7)
    assert [row.coverage for row in found] == list(COVERAGES)
    for row, (quantile, size), (_, largest) in zip(found, exact, wider, strict=True):
        assert quantile <= -math.log(row.above) <= quantile * (1 + 2**-7) + 1e-6
        assert size <= row.mean_size <= largest
        assert row.mean_size == pytest.approx((probs > row.above).sum() / len(rows))
        assert row.covered == pytest.approx((of_label > row.above).mean())
        assert row.covered >= row.coverage


@pytest.mark.slow
def test_coverage_of_new_rows() -> None:
    """Conformal sets of 19 rows hold at least 90 % of the labels of new ones, on average over draws."""
    rows, held = make_rows(n=6000, scale=2.0), []
    _, of_label = probabilities(rows)
    for i in range(0, 6000, 20):
        found = counts_of(rows[torch.arange(i, i + 19)]).set_sizes()
        held.append(of_label[i + 19] > next(row.above for row in found if row.coverage == 0.9))
    assert np.mean(held) > 0.9 - 3 * math.sqrt(0.09 / 300)


def test_few_rows_give_no_sets_of_a_high_coverage() -> None:
    sizes = {n: len(counts_of(make_rows(n=n)).set_sizes()) for n in (1, 3, 4, 8, 9, 18, 19, 98, 99)}
    assert sizes == {1: 0, 3: 0, 4: 1, 8: 1, 9: 2, 18: 2, 19: 3, 98: 3, 99: 4}
    assert ProbabilityCounts.empty().set_sizes() == ()


def test_certain_and_impossible_classes() -> None:
    right = Predictions.from_logits([[0.0, -math.inf]] * 99, [0] * 99)
    assert [(row.mean_size, row.covered) for row in counts_of(right).set_sizes()] == [(1.0, 1.0)] * 4
    wrong = Predictions.from_logits([[0.0, -math.inf]] * 99, [1] * 99)
    assert [(row.mean_size, row.above) for row in counts_of(wrong).set_sizes()] == [(2.0, 0.0)] * 4
    sure = counts_of(Predictions.from_logits([[60.0, 0.0]] * 99, [0] * 99))
    assert [row.mean_size for row in sure.set_sizes()] == [1.0] * 4
    tied = counts_of(Predictions.from_logits(torch.zeros(99, 4), [0] * 99))
    assert [row.mean_size for row in tied.set_sizes()] == [4.0] * 4


def test_double_precision_and_shifted_logits_give_the_same_counts() -> None:
    rows = make_rows(n=500)
    shifted = Predictions.from_logits(rows.logits.double() + 1000, rows.labels)
    found, wanted = counts_of(shifted), counts_of(rows)
    assert np.abs(found.classes.cumsum() - wanted.classes.cumsum()).max() <= 2  # at the edges of bins
    assert (found.classes.sum(), found.labels.sum()) == (2000, 500)


def test_sums_are_those_of_all_rows() -> None:
    rows = make_rows(n=301, n_classes=3)
    parts = [counts_of(rows[torch.arange(i, min(i + 50, 301))]) for i in range(0, 301, 50)]
    total = sum(parts[1:], start=parts[0])
    whole = counts_of(rows)
    assert np.array_equal(total.classes, whole.classes)
    assert np.array_equal(total.labels, whole.labels)
    assert len(whole.classes) == N_BINS
    assert isinstance(whole.set_sizes()[0], SetSize)


@pytest.mark.parametrize("options", [{"weights": "w"}, {"cluster": "site"}])
def test_rows_that_do_not_count_alike_or_depend_on_each_other_have_no_sets(options: dict[str, str]) -> None:
    assert collect_statistics(make_rows(), **options).probabilities.set_sizes() == ()  # type: ignore[arg-type]
