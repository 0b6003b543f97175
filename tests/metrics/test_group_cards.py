"""The sums of all groups at once are those of each group's rows alone."""

from typing import Any

import numpy as np
import pytest
import torch

import calibrant
from calibrant.metrics import Scorecard
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.histogram import FineHistogram
from calibrant.predictions import Predictions

N_GROUPS = 30


def rows_of(n: int, n_classes: int, dtype: torch.dtype) -> Predictions:
    """In groups of one row to many; some confidences are repeated, some are nearly 1."""
    generator = torch.Generator().manual_seed(n_classes)
    logits = 4 * torch.randn(n, n_classes, generator=generator, dtype=dtype)
    logits[: n // 4] = logits[0]
    labels = torch.multinomial((0.6 * logits).softmax(1), 1, generator=generator).squeeze(1)
    random = np.random.default_rng(n_classes)
    group = np.minimum(random.geometric(0.15, n), N_GROUPS)
    columns = {"group": group, "w": random.integers(0, 4, n) / 2, "patient": random.integers(0, 50, n)}
    return Predictions.from_logits(logits, labels, columns=columns)


def assert_equal_sums(found: Any, wanted: Any) -> None:
    """Counts and keys are equal, sums up to rounding."""
    assert type(found) is type(wanted)
    if isinstance(found, FineHistogram):
        assert (found.dropped, found.limit) == (wanted.dropped, wanted.limit)
        assert torch.equal(found.key, wanted.key)
        found, wanted = found.sums, wanted.sums
    assert torch.equal(found.count, wanted.count)
    for name in BinSums.__slots__ if isinstance(found, BinSums) else ("weight", "squared", "sums"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize(("n_classes", "dtype"), [(2, torch.float32), (3, torch.float64), (40, torch.float32)])
@pytest.mark.parametrize("limit", [None, 12])
def test_sums_of_every_part(
    n_classes: int, dtype: torch.dtype, weights: str | None, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, and in a stream whose histograms are too small for some of the groups."""
    monkeypatch.setattr("calibrant.metrics.sample_scores.SOFTMAX_BLOCK", 256)
    monkeypatch.setattr("calibrant.metrics.sample_scores.PENDING", 200)
    monkeypatch.setattr("calibrant.metrics.group_cards.MAX_GROUP_HISTOGRAM_BINS", limit)
    monkeypatch.setattr("calibrant.metrics.scoring.GROUPED_ELEMENTS", 150 * n_classes)
    rows = rows_of(600, n_classes, dtype)
    batches = [rows] if limit is None else [rows[i : i + 50] for i in range(0, 600, 50)]
    groups = calibrant.score(rows if limit is None else batches, by="group", weights=weights)
    assert len(groups) > 15
    for group, card in groups.items():
        parts = [batch.where(group=group) for batch in batches]
        counted = [part for part in parts if len(part) and (weights is None or max(part.column("w").to_pylist()) > 0)]
        alone = [Scorecard.of(part, weights=weights, max_histogram_bins=limit) for part in counted]
        wanted: Any = sum(alone)
        assert (card.names, card.n_rows, card.n_classes) == (wanted.names, wanted.n_rows, n_classes)
        assert card.sums.keys() == wanted.sums.keys()
        for part, sums in card.sums.items():
            assert_equal_sums(sums, wanted.sums[part])
    coarse = [card.top_histogram for card in groups.values() if not card.sums["histogram"].exact]
    assert bool(coarse) == (limit is not None)


def test_clusters_of_every_group() -> None:
    rows = rows_of(400, 3, torch.float64)
    groups = calibrant.score([rows[:250], rows[250:]], by="group", cluster="patient")
    for group in list(groups)[:5]:
        alone = Scorecard.of(rows.where(group=group), cluster="patient", max_cluster_groups=32)
        for name in ("ece", "nll", "cece"):
            assert groups[group].interval(name) == pytest.approx(alone.interval(name), abs=1e-9)


def test_batches_of_other_columns_and_types() -> None:
    """Batches are joined only where they are of one kind."""
    rows = rows_of(60, 3, torch.float64)
    plain = Predictions.from_logits(rows.logits.float(), rows.labels, columns={"group": rows.column("group")})
    groups = calibrant.score([rows[:20], plain[20:40], rows[40:].select(["group"])], by="group", metrics=["accuracy"])
    wanted = calibrant.score(rows, by="group", metrics=["accuracy"])
    assert {group: card.values() for group, card in groups.items()} == {g: c.values() for g, c in wanted.items()}
