"""Temperatures that depend on a row's distance to known features, or on a score."""

import math

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.calibrators import ConditionalTemperature, DensityAwareScaling, TemperatureScaling
from calibrant.calibrators.conditional import feature_bank, neighbor_distances
from made.calibrator_data import angle_rows, draw, draw32, row_temperatures


def near_and_far(n: int, seed: int, *, far: float = 4.0) -> cb.Predictions:
    """The first half lies near one direction; the other anywhere, and is overconfident."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 6, generator=generator)
    features[: n // 2] = torch.eye(6)[0] + 0.03 * features[: n // 2]
    scale = torch.ones(n, dtype=torch.float64)
    scale[n // 2 :] = far
    return draw(n, scale, seed + 1, features=features * 5)


def test_density_aware_scaling_knows_directions_alone() -> None:
    """Features are brought to length 1; where distance tells nothing, all temperatures are about the same."""
    reference, new = near_and_far(600, 50)[:300], near_and_far(400, 20)
    found = DensityAwareScaling.fit(near_and_far(2000, 10), reference=reference, k=10)
    assert new.features is not None
    got, longer = (row_temperatures(found, new.with_features(new.features * factor)) for factor in (1, 4))
    torch.testing.assert_close(longer, got, rtol=1e-3, atol=1e-3)
    assert got[:200].median().item() == pytest.approx(1.0, rel=0.25)
    assert got[200:].median() > 2.5
    own = row_temperatures(DensityAwareScaling.fit(near_and_far(2000, 10)), new)
    assert own[200:].median() > 1.5 * own[:200].median()
    level = row_temperatures(DensityAwareScaling.fit(near_and_far(3000, 10, far=1.0), reference=reference, k=10), new)
    assert level.max() < 1.2 * level.min()
    assert level.median().item() == pytest.approx(1.0, rel=0.1)


def test_density_aware_scaling_does_not_extrapolate() -> None:
    """A distance beyond those of validation counts as the greatest of them, or as the least."""
    pole = {"reference": angle_rows(500, seed=25, widest=0.03).predictions}
    whole = angle_rows(4000, seed=26).predictions
    assert whole.features is not None
    distances = neighbor_distances(whole.features, DensityAwareScaling.fit(whole, **pole).bank, 5)
    middle = (distances > 0.4) & (distances < 0.8)
    found = DensityAwareScaling.fit(whole[middle], **pole, k=5)
    assert (found.min_distance, found.max_distance) == pytest.approx((0.4, 0.8), abs=0.02)
    low, high = (found.w0 + found.w1 * limit for limit in (found.min_distance, found.max_distance))
    assert high > 1.2 * low
    got = row_temperatures(found, angle_rows(900, seed=27).predictions)
    assert (got.min().item(), got.max().item()) == pytest.approx((low, high), rel=1e-4)


def test_no_row_is_its_own_neighbour() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 5, generator=generator)
    rows = draw32(40, 3, 0, features=features)
    bank, members = feature_bank(features, rows.row_hashes[0])
    found = neighbor_distances(features, bank, 3, members)
    unit = features / features.norm(dim=1, keepdim=True)
    apart = torch.cdist(unit, unit).fill_diagonal_(math.inf)
    torch.testing.assert_close(found.float(), apart.sort(dim=1).values[:, :3].mean(1), atol=2e-3, rtol=0)


def scored(n: int, seed: int, *, rising: bool = True) -> cb.Predictions:
    score = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return draw(n, 1 + 2 * (score if rising else 1 - score), seed + 1, columns={"score": score})


@pytest.mark.parametrize("rising", [True, False])
def test_conditional_temperature_is_monotone_and_constant_beyond_what_it_knows(rising: bool) -> None:
    found = ConditionalTemperature.fit(scored(5000, 0, rising=rising), score="score")
    places = np.array([-1e6, -5.0, -1e-3, *np.linspace(0.05, 0.95, 50), 1.001, 5.0, 1e6])
    row = draw(1, 1.0, 5).logits.expand(len(places), -1)
    got = row_temperatures(found, cb.Predictions.from_logits(row, columns={"score": places})).numpy()
    assert (np.diff(got) * (1 if rising else -1)).min() >= -1e-6
    inside = places[3:-3]
    assert got[3:-3] == pytest.approx(1 + 2 * (inside if rising else 1 - inside), rel=0.2)
    assert got[:3] == pytest.approx(got[0], rel=1e-5)
    assert got[-3:] == pytest.approx(got[-1], rel=1e-5)


@pytest.mark.parametrize("score", ["entropy", "logit_norm", "feature_norm"])
def test_conditional_temperature_by_any_score(score: str) -> None:
    rows, new = near_and_far(1500, 10), near_and_far(500, 20)
    for n_knots in (2, 6):
        found = ConditionalTemperature.fit(rows, score=score, n_knots=n_knots)
        after, plain = found.fitted.nll_after, TemperatureScaling.fit(rows).fitted.nll_after
        assert after is not None
        assert plain is not None
        assert after <= plain + 1e-6
        assert torch.equal(found(new).logits.argmax(1), new.logits.argmax(1))


def test_without_errors_the_temperature_of_all_rows_is_kept() -> None:
    """Sure rows of a calibrated model hold next to no evidence; the likelihood alone takes their 1/T to the limit."""
    for seed in range(4):
        scales = ConditionalTemperature.fit(draw32(300, 2, seed)).scales
        assert scales.max() / scales.min() < 4
