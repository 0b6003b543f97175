"""The fine histogram of a stream against exact scores, on data that are hard for a histogram."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import calibrant
from calibrant.metrics import METRICS, Scorecard
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.histogram import MAX_HISTOGRAM_BINS, FineHistogram, fine_histogram
from calibrant.predictions import Predictions

STREAMED = ["kse", "adaece", "l2ce", "smece", "aurc"]
N = 270_000  # more than the bins of a stream


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def two_classes(margin: Tensor, correct: Tensor) -> Predictions:
    """The larger logit is that of class 0."""
    return Predictions.from_logits(torch.stack([margin, torch.zeros_like(margin)], dim=1), (~correct).long())


def with_confidence(confidence: Tensor, correct: Tensor) -> Predictions:
    """float64 confidences above ½ of two classes."""
    return two_classes(confidence.log() - (1 - confidence).log(), correct)


def uniform(seed: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + (high - low) * torch.rand(N, generator=generator(seed), dtype=torch.float64)


def saturated(*, split: bool) -> Predictions:
    """Margins of 20 to 100, which float32 rounds to a confidence of 1; the larger, the more errors, or all above 60."""
    margin = uniform(400, 20, 100)
    return two_classes(margin.float(), margin < 60 if split else uniform(401) > (margin - 20) / 80)


def narrow(width: float) -> Predictions:
    """All confidences in a narrow range; correct in its upper half only."""
    confidence = uniform(403, 0.7, 0.7 + width)
    return with_confidence(confidence, confidence > 0.7 + width / 2)


def tied() -> Predictions:
    """Seven confidences, half of them edges of bins."""
    values = torch.tensor([0.5, 0.6, 2 / 3, 0.75, 0.8, 14 / 15, 0.99], dtype=torch.float64)
    chosen = torch.randint(0, 7, (N,), generator=generator(405))
    return with_confidence(values[chosen], uniform(406) < 0.7)


def two_clusters() -> Predictions:
    confidence = torch.where(uniform(407) < 0.3, uniform(408, 0.55, 0.5501), uniform(409, 0.9999, 1 - 1e-9))
    return with_confidence(confidence, uniform(410) < 0.9)


def alternating(length: int, high: float) -> Predictions:
    """In the order of confidence, runs of this length are correct and incorrect in turn."""
    return with_confidence(uniform(411, 0.5, high).sort().values, torch.arange(N) // length % 2 == 0)


def near_chance() -> Predictions:
    """Ten classes within 1e-5 of 0.1; correct where the confidence is above its median."""
    logits = 1e-4 * torch.randn(N, 10, generator=generator(417), dtype=torch.float64)
    confidence, top = logits.softmax(1).max(1)
    return Predictions.from_logits(logits, torch.where(confidence > confidence.median(), top, (top + 1) % 10))


def common() -> Predictions:
    logits = 3 * torch.randn(N, 10, generator=generator(418))
    labels = torch.multinomial((0.7 * logits).softmax(1), 1, generator=generator(419)).squeeze(1)
    return Predictions.from_logits(logits, labels)


CASES: dict[str, Callable[[], Predictions]] = {
    "saturated": lambda: saturated(split=False),
    "saturated_and_split": lambda: saturated(split=True),
    "narrow": lambda: narrow(0.001),
    "in_one_bin": lambda: narrow(2.0**-19),
    "tied": tied,
    "two_clusters": two_clusters,
    "alternating": lambda: alternating(1, 1.0),
    "alternating_in_runs": lambda: alternating(100, 0.51),
    "all_incorrect": lambda: with_confidence(uniform(413, 0.5, 1), torch.zeros(N, dtype=torch.bool)),
    "near_chance": near_chance,
    "common": common,
}


def score_stream(rows: Predictions, size: int, limit: int, names: Iterable[str] = STREAMED) -> Scorecard:
    """The scorecard of batches of this size, with this limit of the histogram."""
    batches = (rows[start : start + size] for start in range(0, len(rows), size))
    return sum(Scorecard.of(batch, metrics=names, max_histogram_bins=limit) for batch in batches)  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_within_the_bound_and_a_ten_thousandth(case: str) -> None:
    """Of a stream with more distinct confidences than bins."""
    rows = CASES[case]()
    exact, streamed = calibrant.score(rows, metrics=STREAMED), score_stream(rows, 2**16, MAX_HISTOGRAM_BINS)
    for name in STREAMED:
        assert exact.error_bound(name) == 0
        assert abs(streamed[name] - exact[name]) <= min(streamed.error_bound(name) + 1e-9, 1e-4), name


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMED)
def test_bound_of_a_few_rows_in_few_bins(name: str) -> None:
    random = np.random.default_rng(430)
    for trial in range(150):
        n, n_bins = int(random.integers(1, 40)), int(random.choice([1, 2, 5, 15]))
        width = float(random.choice([2.0**-19, 2.0**-17, 2.0**-15, 0.1]))
        confidence = torch.from_numpy(0.7 + width * random.random(n))
        correct = [confidence > confidence.median(), torch.from_numpy(random.random(n) < 0.5)][trial % 2]
        rows = with_confidence(confidence, correct)
        exact = calibrant.score(rows, metrics=[name], n_bins=n_bins)
        streamed = Scorecard.of(rows, metrics=[name], n_bins=n_bins, max_histogram_bins=1 + trial % 5)
        difference, bound = abs(streamed[name] - exact[name]), streamed.error_bound(name)
        assert difference <= bound + 1e-9, f"off by {difference:g}, bound {bound:g}: {n} rows, {n_bins} bins"


@pytest.mark.parametrize(("name", "bound"), [("adaece", 2 * 0.5), ("l2ce", (4 * 0.5 + 2 * 1 + 10 / 100) ** 0.5)])
def test_bound_where_one_bin_holds_every_row(name: str, bound: float) -> None:
    """Exactly, ten bins of equal mass have gaps of 0.3 and 0.7; in one bin, the gap is 0.2. Rise plus fall are 0.5."""
    confidence = torch.linspace(0.7, 0.7 + 1e-7, 100, dtype=torch.float64)
    rows = with_confidence(confidence, torch.arange(100) >= 50)
    exact = calibrant.score(rows, metrics=[name], n_bins=10)
    streamed = Scorecard.of(rows, metrics=[name], n_bins=10, max_histogram_bins=1)
    assert len(streamed.top_histogram.total) == 1
    assert 0.1 < abs(streamed[name] - exact[name]) <= streamed.error_bound(name) == pytest.approx(bound, rel=1e-6)


def test_bound_where_one_bin_of_two_rows_is_split() -> None:
    """500 rows, 2 that share a bin, 498; two bins of equal mass; every row is incorrect."""
    confidence = torch.tensor([0.6, 0.7, 0.7 + 1e-7, 0.9], dtype=torch.float64)
    rows = with_confidence(confidence.repeat_interleave(torch.tensor([500, 1, 1, 498])), torch.zeros(1000).bool())
    card = Scorecard.of(rows, metrics=["adaece", "l2ce"], n_bins=2, max_histogram_bins=3)
    rise, mass = 0.002 * 0.7, 0.002
    assert card.error_bound("adaece") == pytest.approx(2 * rise, rel=1e-6)
    assert card.error_bound("l2ce") == pytest.approx((4 * rise + 2 * mass + 2 / 1000) / card["l2ce"], rel=1e-6)


# Counts


def histogram_of(card: Scorecard) -> FineHistogram:
    return card.sums["histogram"]  # type: ignore[no-any-return]


def assert_same_counts(one: Scorecard, other: Scorecard) -> None:
    for card in (one, other):
        assert set(card.sums) == {"means", "bins", "histogram", "classes"}
    assert torch.equal(histogram_of(one).key, histogram_of(other).key)
    for part in ("means", "top_bins", "top_histogram", "class_bins"):
        assert torch.equal(getattr(one, part).count, getattr(other, part).count), part


@pytest.mark.parametrize("limit", [2**12, MAX_HISTOGRAM_BINS])
@pytest.mark.parametrize("case", ["saturated", "two_clusters", "common"])
def test_counts_do_not_depend_on_the_split(case: str, limit: int) -> None:
    names = [name for name in METRICS if not METRICS[name].binary]
    rows = CASES[case]()[:20_000]
    order = torch.randperm(20_000, generator=generator(432))
    at_once = score_stream(rows, 20_000, limit, names)
    assert_same_counts(score_stream(rows, 1024, limit, names), at_once)
    assert_same_counts(score_stream(rows[order], 5000, limit, names), at_once)
    left, right = (score_stream(part, 3000, limit, names) for part in (rows[:8000], rows[8000:]))
    assert_same_counts(right + left, at_once)
    for name in STREAMED:
        assert (left + right)[name] == pytest.approx(at_once[name], abs=1e-9), name


@pytest.mark.parametrize("limit", [2**10, 2**11])
@pytest.mark.parametrize("case", ["saturated", "narrow", "tied", "common"])
def test_no_row_is_lost_or_counted_twice(case: str, limit: int) -> None:
    """A sum of an exact and a streamed scorecard has the bins of the stream."""
    rows = CASES[case]()[:50_000]
    exact, streamed = calibrant.score(rows, metrics=STREAMED), score_stream(rows, 5000, limit)
    correct = rows.logits.argmax(1) == rows.labels
    histogram = histogram_of(streamed)
    assert histogram.sums.count.sum(0).tolist() == [int((~correct).sum()), int(correct.sum())]
    assert (histogram.key.diff() > 0).all()
    dropped = histogram.dropped  # no bit too many
    assert dropped == 0 or len(histogram_of(exact).rounded_key(dropped - 1).unique()) > limit
    mixed, doubled = exact + streamed, streamed + streamed
    assert torch.equal(histogram_of(mixed).key, histogram_of(doubled).key)
    assert torch.equal(mixed.top_histogram.count, doubled.top_histogram.count)


def test_keys_increase_with_the_confidence() -> None:
    """From 1/K to where float32 rounds it to 1."""
    margin = torch.linspace(0, 85, 201)
    rows = two_classes(margin, torch.ones(201, dtype=torch.bool))
    keys = [int(histogram_of(calibrant.score([rows[i : i + 1]], metrics=["kse"])).key) for i in range(201)]
    assert keys == sorted(set(keys))


def test_limit_of_the_histogram() -> None:
    sizes, cards = [], []
    for seed in range(6):
        margin = 120 * torch.rand(2**17, generator=generator(440 + seed), dtype=torch.float64) ** 3
        correct = torch.rand(2**17, generator=generator(460 + seed)) < 0.8
        rows = two_classes(torch.where(torch.arange(2**17) % 2 == 0, margin, -margin), correct)
        cards = [sum([*cards, calibrant.score([rows], metrics=["kse", "kse_positive", "ece"])])]  # type: ignore[list-item]
        sizes.append(len(histogram_of(cards[0]).key))
        positive = cards[0].sums["positive_histogram"]
        assert len(positive.key) <= MAX_HISTOGRAM_BINS
        assert sum(getattr(positive.sums, name).numel() for name in BinSums.__slots__) <= 6 * MAX_HISTOGRAM_BINS
    assert max(sizes) <= MAX_HISTOGRAM_BINS < cards[0].n_rows == 6 * 2**17
    assert min(sizes[2:]) > MAX_HISTOGRAM_BINS // 2  # and no bit is dropped too many


def test_no_bit_more_than_necessary_is_dropped() -> None:
    random = torch.Generator().manual_seed(0)
    for power in (1, 9, 40):
        near = 1 - torch.rand(700, generator=random, dtype=torch.float64) ** power
        exact = fine_histogram(near, 1 - near, near > 0.5, None)
        for before in (exact, exact.coarsen(9)):
            for limit in (1, 2, 5, 64, 300):
                found = replace(before, limit=limit).reduce()
                assert len(found.key) <= limit
                assert found.dropped == 1 or len(before.coarsen(found.dropped - 1).key) > limit
