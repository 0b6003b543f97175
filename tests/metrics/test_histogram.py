"""Scores from a stream's histogram against exact ones, on data made to be hard for a histogram."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

import calibrant
from calibrant.metrics import METRICS, Scorecard
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.histogram import MAX_HISTOGRAM_BINS, FineHistogram
from calibrant.predictions import Predictions

STREAMED = ["kse", "adaece", "l2ce", "smece", "aurc"]
N = 300_000  # more than the cells of a stream


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def two_classes(margin: Tensor, right: Tensor) -> Predictions:
    """The larger logit is that of class 0; `right` says whether it is the label."""
    return Predictions.from_logits(torch.stack([margin, torch.zeros_like(margin)], dim=1), (~right).long())


def with_confidence(confidence: Tensor, right: Tensor) -> Predictions:
    """float64 confidences above ½ of two classes."""
    return two_classes(confidence.log() - (1 - confidence).log(), right)


def uniform(seed: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + (high - low) * torch.rand(N, generator=generator(seed), dtype=torch.float64)


def saturated() -> Predictions:
    """Margins of 20 to 100, which float32 rounds to a confidence of 1; the surer, the more often wrong."""
    margin = uniform(400, 20, 100)
    return two_classes(margin.float(), uniform(401) > (margin - 20) / 80)


def saturated_and_split() -> Predictions:
    """The same, but right below a margin of 60 and wrong above."""
    margin = uniform(402, 20, 100)
    return two_classes(margin.float(), margin < 60)


def bunched() -> Predictions:
    """All confidences within 0.001; right in the upper half only."""
    confidence = uniform(403, 0.7, 0.701)
    return with_confidence(confidence, confidence > 0.7005)


def bunched_in_a_cell() -> Predictions:
    """All confidences within 2^-19, right in the upper half only."""
    confidence = uniform(404, 0.7, 0.7 + 2.0**-19)
    return with_confidence(confidence, confidence > 0.7 + 2.0**-20)


def tied() -> Predictions:
    """Seven confidences, half of them edges of bins."""
    values = torch.tensor([0.5, 0.6, 2 / 3, 0.75, 0.8, 14 / 15, 0.99], dtype=torch.float64)
    chosen = torch.randint(0, 7, (N,), generator=generator(405))
    return with_confidence(values[chosen], uniform(406) < 0.7)


def two_clusters() -> Predictions:
    confidence = torch.where(uniform(407) < 0.3, uniform(408, 0.55, 0.5501), uniform(409, 0.9999, 1 - 1e-9))
    return with_confidence(confidence, uniform(410) < 0.9)


def alternating() -> Predictions:
    """Right, wrong, right, wrong in the order of confidence."""
    return with_confidence(uniform(411, 0.5, 1).sort().values, torch.arange(N) % 2 == 0)


def alternating_in_runs() -> Predictions:
    """Runs of 100 rights and 100 wrongs, packed into a hundredth of the range."""
    return with_confidence(uniform(412, 0.8, 0.81).sort().values, torch.arange(N) // 100 % 2 == 0)


def all_wrong() -> Predictions:
    return with_confidence(uniform(413, 0.5, 1), torch.zeros(N, dtype=torch.bool))


def all_right() -> Predictions:
    return with_confidence(uniform(414, 0.5, 1), torch.ones(N, dtype=torch.bool))


def near_chance() -> Predictions:
    """Ten classes whose logits differ by 0.01: every confidence is 0.1 and a little."""
    logits = 1e-2 * torch.randn(N, 10, generator=generator(415), dtype=torch.float64)
    return Predictions.from_logits(logits, torch.randint(0, 10, (N,), generator=generator(416)))


def near_chance_by_rank() -> Predictions:
    """Ten classes within 1e-5 of 0.1; right where the confidence is above its median."""
    logits = 1e-4 * torch.randn(N, 10, generator=generator(417), dtype=torch.float64)
    confidence, top = logits.softmax(1).max(1)
    return Predictions.from_logits(logits, torch.where(confidence > confidence.median(), top, (top + 1) % 10))


def ordinary() -> Predictions:
    logits = 3 * torch.randn(N, 10, generator=generator(418))
    labels = torch.multinomial((0.7 * logits).softmax(1), 1, generator=generator(419)).squeeze(1)
    return Predictions.from_logits(logits, labels)


CASES: dict[str, Callable[[], Predictions]] = {
    make.__name__: make
    for make in (
        saturated,
        saturated_and_split,
        bunched,
        bunched_in_a_cell,
        tied,
        two_clusters,
        alternating,
        alternating_in_runs,
        all_wrong,
        all_right,
        near_chance,
        near_chance_by_rank,
        ordinary,
    )
}


def batches(rows: Predictions, size: int) -> Iterator[Predictions]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def streamed_card(rows: Predictions, size: int, max_histogram_bins: int, names: Iterable[str] = STREAMED) -> Scorecard:
    """What a stream of batches gives when it may keep this many cells."""
    return sum(
        Scorecard.of(batch, metrics=names, max_histogram_bins=max_histogram_bins) for batch in batches(rows, size)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("case", CASES)
def test_within_the_bound_and_a_ten_thousandth(case: str) -> None:
    """The exact scorecard, and that of a stream that has more different confidences than it may keep."""
    rows = CASES[case]()
    exact, streamed = calibrant.score(rows, metrics=STREAMED), streamed_card(rows, 2**16, MAX_HISTOGRAM_BINS)
    for name in STREAMED:
        assert exact.error_bound(name) == 0
        assert abs(streamed[name] - exact[name]) <= min(streamed.error_bound(name) + 1e-9, 1e-4), name


# A few rows in one cell: the bound is all that is left


@pytest.mark.parametrize("name", STREAMED)
def test_bound_of_a_few_rows_in_few_cells(name: str) -> None:
    """A handful of cells for all rows, right above or below their middle or anywhere."""
    random = np.random.default_rng(430)
    for trial in range(150):
        n, n_bins = int(random.integers(1, 40)), int(random.choice([1, 2, 5, 15]))
        width = float(random.choice([2.0**-19, 2.0**-17, 2.0**-15, 0.1]))
        confidence = torch.from_numpy(0.7 + width * random.random(n))
        right = [confidence > confidence.median(), torch.from_numpy(random.random(n) < 0.5)][trial % 2]
        rows = with_confidence(confidence, right)
        exact = calibrant.score(rows, metrics=[name], n_bins=n_bins)
        streamed = Scorecard.of(rows, metrics=[name], n_bins=n_bins, max_histogram_bins=1 + trial % 5)
        difference, bound = abs(streamed[name] - exact[name]), streamed.error_bound(name)
        assert difference <= bound + 1e-9, f"off by {difference:g}, bound {bound:g}: {n} rows, {n_bins} bins"


@pytest.mark.parametrize("name", ["adaece", "l2ce"])
def test_bound_where_one_cell_holds_every_row(name: str) -> None:
    """Exactly, ten bins of equal mass have gaps of 0.3 and 0.7; in one cell, the gap is 0.2."""
    confidence = torch.linspace(0.7, 0.7 + 1e-7, 100, dtype=torch.float64)
    rows = with_confidence(confidence, torch.arange(100) >= 50)
    exact = calibrant.score(rows, metrics=[name], n_bins=10)
    streamed = Scorecard.of(rows, metrics=[name], n_bins=10, max_histogram_bins=1)
    assert len(streamed.top_histogram.total) == 1
    assert abs(streamed[name] - exact[name]) > 0.1
    assert abs(streamed[name] - exact[name]) <= streamed.error_bound(name)


@pytest.mark.parametrize("right", [True, False])
def test_smooth_error_of_one_row(right: bool) -> None:
    """The smoothed residual is |c − r| at every width; at that width itself nothing but rounding is left."""
    for i, confidence in enumerate(uniform(431)[:500].tolist()):
        value = calibrant.metrics.smooth_calibration_error(
            torch.tensor([confidence], dtype=torch.float64), torch.tensor([right])
        )
        assert value.item() == pytest.approx(abs(right - confidence), abs=1e-4), f"row {i}: {confidence!r}"


# Counts


def assert_same_counts(one: Scorecard, other: Scorecard) -> None:
    for a, b in zip(parts_of(one), parts_of(other), strict=True):
        assert torch.equal(a, b)


def cells_of(card: Scorecard) -> FineHistogram:
    return card.sums["histogram"]


def parts_of(card: Scorecard) -> list[Tensor]:
    cells = cells_of(card)
    return [cells.key, cells.sums.count, card.top_bins.count, card.class_bins.count, card.means.count]


@pytest.mark.parametrize("max_histogram_bins", [2**12, MAX_HISTOGRAM_BINS])
@pytest.mark.parametrize("case", ["saturated", "two_clusters", "near_chance", "ordinary"])
def test_counts_do_not_depend_on_the_split(case: str, max_histogram_bins: int) -> None:
    names = [name for name in METRICS if not METRICS[name].binary]
    rows = CASES[case]()[:50_000]
    order = torch.randperm(50_000, generator=generator(432))
    whole = streamed_card(rows, 50_000, max_histogram_bins, names)
    for size in (7919, 1024):
        assert_same_counts(streamed_card(rows, size, max_histogram_bins, names), whole)
    assert_same_counts(streamed_card(rows[order], 5000, max_histogram_bins, names), whole)
    left, right = (streamed_card(part, 3000, max_histogram_bins, names) for part in (rows[:20_000], rows[20_000:]))
    assert_same_counts(right + left, whole)
    for name in STREAMED:
        assert (left + right).values()[name] == pytest.approx(whole[name], abs=1e-9), name


def test_a_stream_is_the_same_every_time() -> None:
    rows = CASES["ordinary"]()[:30_000]
    first, second = (calibrant.score(batches(rows, 1000), metrics=STREAMED) for _ in range(2))
    assert first.values() == second.values()


@pytest.mark.parametrize("case", ["saturated", "bunched", "tied", "ordinary"])
def test_no_row_is_lost(case: str) -> None:
    """Nor counted twice, and an exact scorecard that joins a stream takes the stream's cells."""
    rows = CASES[case]()[:50_000]
    exact, streamed = calibrant.score(rows, metrics=STREAMED), streamed_card(rows, 5000, 2**10)
    right = rows.logits.argmax(1) == rows.labels
    assert cells_of(streamed).sums.count.sum(0).tolist() == [int((~right).sum()), int(right.sum())]
    assert (cells_of(streamed).key.diff() > 0).all()
    dropped = cells_of(streamed).dropped  # no bit too many
    assert dropped == 0 or len(cells_of(exact).rounded_key(dropped - 1).unique()) > 2**10
    mixed, doubled = exact + streamed, streamed + streamed
    assert torch.equal(cells_of(mixed).key, cells_of(doubled).key)
    assert torch.equal(mixed.top_histogram.count, doubled.top_histogram.count)


def test_confidences_in_the_order_of_their_cells() -> None:
    """The key of a cell grows with the confidence, from 1/K to where float32 has long rounded it to 1."""
    margin = torch.linspace(0, 85, 20_001)
    rows = two_classes(margin, torch.ones(20_001, dtype=torch.bool))
    keys = [int(cells_of(calibrant.score([rows[i : i + 1]], metrics=["kse"])).key) for i in range(0, 20_001, 100)]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


# Memory


def numbers_of(tally: BinSums) -> int:
    return sum(getattr(tally, name).numel() for name in BinSums.__slots__)


def test_so_many_cells_and_no_more() -> None:
    """However many distinct confidences go in."""
    sizes = []
    card = None
    for seed in range(12):
        margin = 120 * torch.rand(2**16, generator=generator(440 + seed), dtype=torch.float64) ** 3
        right = torch.rand(2**16, generator=generator(460 + seed)) < 0.8
        rows = two_classes(torch.where(torch.arange(2**16) % 2 == 0, margin, -margin), right)
        more = calibrant.score([rows], metrics=["kse", "kse_positive", "ece"])
        card = more if card is None else card + more
        sizes.append(len(cells_of(card).key))
        positive = card.sums["positive_histogram"]
        assert len(positive.key) <= MAX_HISTOGRAM_BINS
        assert numbers_of(positive.sums) <= 6 * MAX_HISTOGRAM_BINS
    assert card is not None
    assert card.n_rows == 12 * 2**16
    assert max(sizes) <= MAX_HISTOGRAM_BINS < card.n_rows
    assert min(sizes[4:]) > MAX_HISTOGRAM_BINS // 2  # and no bit is dropped too many
