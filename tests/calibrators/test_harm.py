"""What a calibrator must not do: run away where it has no evidence, trip over ties and zeros, hide a leak."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.calibrators import CALIBRATORS, HistogramBinning, TemperatureScaling
from calibrant.calibrators.base import mean_nll
from calibrant.calibrators.conditional import feature_bank, neighbor_distances
from calibrant.calibrators.transcal import control_variate
from calibrant.errors import InvalidInputError, NotConvergedError
from made.calibrator_check import NO_CERTAINTIES, PLAIN
from made.calibrator_data import draw as drawn_at


def draw(n: int, k: int, seed: int, *, factor: float = 1.0, **options: Any) -> cb.Predictions:
    """Rows in single precision that are calibrated when their logits are divided by the factor."""
    rows = drawn_at(n, factor, seed, n_classes=k, **options)
    return replace(rows, logits=rows.logits.float())


# No evidence: how much worse than the truth the mean NLL of fresh rows may get


@pytest.mark.parametrize("name", sorted(PLAIN))
@pytest.mark.parametrize(
    ("n", "k", "spread", "factor"), [(100, 2, 2, 1), (1000, 2, 2, 1), (1000, 10, 2, 1), (1000, 10, 8, 1.5)]
)
def test_fresh_rows_of_a_calibrated_model_stay_nearly_so(
    name: str, n: int, k: int, spread: float, factor: float
) -> None:
    if CALIBRATORS[name].two_classes_only and k > 2:
        return
    allowed = 0.1 if n == 100 or name in NO_CERTAINTIES else 0.06
    for seed in range(3):
        calibrator = CALIBRATORS[name].fit(draw(n, k, seed, spread=spread, factor=factor))
        truth = mean_nll(draw(5000, k, 100 + seed, spread=spread))
        fresh = mean_nll(calibrator.calibrate(draw(5000, k, 100 + seed, spread=spread, factor=factor)))
        if name not in ("identity", "temperature_grid") or factor == 1:  # these do not adapt to any factor
            assert fresh - truth < allowed + (0.05 if name in ("histogram", "bbq") else 0)


@pytest.mark.parametrize("name", ["vector", "matrix", "dirichlet", "conditional_temperature", "platt", "beta"])
@pytest.mark.parametrize("factor", [0.02, 50.0])
def test_logits_of_another_scale_are_calibrated(name: str, factor: float) -> None:
    k = 2 if CALIBRATORS[name].two_classes_only else 10
    calibrator = CALIBRATORS[name].fit(draw(1000, k, 0, spread=3, factor=factor))
    fresh = mean_nll(calibrator.calibrate(draw(5000, k, 1, spread=3, factor=factor)))
    assert fresh - mean_nll(draw(5000, k, 1, spread=3)) < (0.03 if k == 2 else 0.06)


@pytest.mark.parametrize("name", ["matrix", "dirichlet"])
def test_one_row_does_not_decide_a_matrix(name: str) -> None:
    calibrator = CALIBRATORS[name].fit(cb.Predictions.from_logits([[1.0, 0.0, 0.0]], [1]))
    probs = calibrator.calibrate(cb.Predictions.from_logits([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0]])).probs()
    assert probs.max() < 0.95


def test_a_near_tie_does_not_push_the_other_classes_out() -> None:
    calibrator = CALIBRATORS["spline"].fit(draw(2000, 10, 0, spread=3, factor=0.5))
    tie = cb.Predictions.from_probs([[0.4002, 0.4001, *[0.024962] * 8]])
    assert calibrator.calibrate(tie).probs().min() > 1e-12


def test_rows_that_hardly_overlap_carry_no_temperature_over() -> None:
    generator = torch.Generator().manual_seed(0)
    source = draw(1000, 3, 0, features=torch.randn(1000, 2, generator=generator))
    target = draw(1000, 3, 1, features=torch.randn(1000, 2, generator=generator) + 20)
    with pytest.raises(NotConvergedError, match="overlap"):
        CALIBRATORS["transcal"].fit(source, target=target)  # type: ignore[call-arg]


# Ties and zeros


def test_bins_of_equal_mass_end_where_ties_do() -> None:
    probs = [[0.9, 0.1]] * 50 + [[0.1, 0.9]] * 50
    labels = ([1] * 5 + [0] * 45) + ([0] * 5 + [1] * 45)
    rows = cb.Predictions.from_probs(probs, labels)
    for name in ("histogram", "bbq", "isotonic"):
        calibrated = CALIBRATORS[name].fit(rows).calibrate(cb.Predictions.from_probs([[0.9, 0.1], [0.1, 0.9]])).probs()
        assert calibrated.diagonal().numpy() == pytest.approx([0.9, 0.9], abs=0.03)


def test_a_bin_without_rows_keeps_its_middle() -> None:
    rows = cb.Predictions.from_probs([[0.4, 0.6], [0.6, 0.4]] * 50, [1, 0] * 50)
    calibrator = HistogramBinning.fit(rows, n_bins=10, equal_width=True)
    found = calibrator.calibrate(cb.Predictions.from_probs([[0.03, 0.97]])).probs()
    assert found[0, 1].item() == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_saturated_models_are_no_trouble(name: str) -> None:
    for k in (2,) if CALIBRATORS[name].two_classes_only else (2, 10):
        calibrator = CALIBRATORS[name].fit(draw(1000, k, 0, spread=30))
        assert not calibrator.calibrate(draw(500, k, 1, spread=30)).logits.isnan().any()
        single = calibrator.module().float()(draw(500, k, 1, spread=30).logits)
        assert not single.isnan().any()


@pytest.mark.parametrize("name", ["vector", "matrix", "dirichlet"])
def test_a_class_of_probability_0_stays_so_and_moves_no_other(name: str) -> None:
    calibrator = CALIBRATORS[name].fit(draw(1000, 5, 0))
    least = float(draw(1000, 5, 0).logits.min())
    rows = torch.tensor([[2.0, 1.0, 0.0, -1.0, 2 + least], [2.0, 1.0, 0.0, -1.0, -math.inf]])
    near, masked = calibrator.calibrate(cb.Predictions.from_logits(rows)).probs()
    assert masked[4] == 0
    torch.testing.assert_close(masked[:4], near[:4], atol=0.1, rtol=0)


def test_an_ensemble_gives_no_class_less_than_its_temperature_does() -> None:
    calibrator = CALIBRATORS["ensemble_temperature"].fit(draw(2000, 3, 0, factor=1.05))
    assert calibrator.calibrate(cb.Predictions.from_logits([[0.0, -1.0, -900.0]])).logits.isfinite().all()


# The order of rows


@pytest.mark.parametrize("name", ["spline", "domain_temperature", "set_temperature"])
def test_the_order_of_tied_rows_and_of_groups_does_not_count(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.8, 0.1, 0.1]])[torch.randint(2, (600,), generator=generator)]
    labels = probs.multinomial(1, generator=generator)[:, 0]
    features = torch.randn(600, 3, generator=generator)
    columns = {
        "domain": [f"d{i % 9}" for i in range(600)],
        "corruption": [("none", "b", "c", "d", "e", "f", "g")[i % 7] for i in range(600)],
        "severity": [i % 2 for i in range(600)],
    }
    rows = cb.Predictions.from_probs(probs, labels, features=features, columns=columns)
    new = cb.Predictions.from_probs([[0.6, 0.3, 0.1], [0.7, 0.2, 0.1]], features=torch.ones(2, 3))
    found = [
        CALIBRATORS[name].fit(rows[torch.randperm(600, generator=generator)]).calibrate(new).probs() for _ in range(3)
    ]
    for probs in found[1:]:
        torch.testing.assert_close(probs, found[0], atol=1e-6, rtol=0)


# Leaks


def test_leaks_that_are_not_whole_are_seen() -> None:
    rows, others = draw(1000, 5, 0), draw(1000, 5, 1)
    doubled = cb.Predictions.concat([rows, rows[:1]])
    calibrator = TemperatureScaling.fit(doubled)
    bootstrap = rows[torch.randint(1000, (1000,), generator=torch.Generator().manual_seed(0))]
    for leak in (
        rows[:900],
        bootstrap,
        cb.Predictions.concat([rows, rows]),
        cb.Predictions.concat([rows[:400], others[:600]]),
        cb.Predictions.concat([rows, others, others[:5]]),
    ):
        with pytest.raises(InvalidInputError, match="allow_same_rows"):
            calibrator(leak)
    assert len(calibrator(others)) == 1000
    assert len(calibrator(cb.Predictions.concat([others, rows[:3]]))) == 1003


def test_domains_are_told_apart_by_their_values() -> None:
    rows = [draw(300, 3, seed, factor=factor) for seed, factor in ((0, 1.0), (1, 3.0))]
    both = cb.Predictions.concat(rows)

    def of(first: Any, second: Any) -> cb.Predictions:
        return cb.Predictions.from_logits(both.logits, both.labels, columns={"domain": [first] * 300 + [second] * 300})

    found = CALIBRATORS["domain_temperature"].fit(of(None, "None"))
    assert len(found.temperatures) == 2  # type: ignore[attr-defined]
    whole = CALIBRATORS["domain_temperature"].fit(of(1, 2))
    torch.testing.assert_close(whole.calibrate(of(1.0, 2.0)).logits, whole.calibrate(of(1, 2)).logits)


# Pieces


def test_without_errors_the_temperature_of_all_rows_is_kept() -> None:
    """Sure rows of a calibrated model hold next to no evidence; the likelihood alone takes their 1/T to the limit."""
    for seed in range(4):
        scales = CALIBRATORS["conditional_temperature"].fit(draw(300, 2, seed)).scales  # type: ignore[attr-defined]
        assert scales.max() / scales.min() < 4


def test_weights_are_corrected_for_their_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = 0.8 + 0.5 * torch.rand(500, generator=generator, dtype=torch.float64)
    losses = torch.rand(500, generator=generator, dtype=torch.float64)
    found = control_variate(weights)
    assert found.mean().item() == pytest.approx(1.0, abs=1e-12)
    slope = np.cov((weights * losses).numpy(), weights.numpy(), bias=True)[0, 1] / weights.var(correction=0)
    wanted = (weights * losses).mean() - slope * (weights.mean() - 1)
    assert (found * losses).mean().item() == pytest.approx(wanted.item(), rel=1e-12)


def test_no_row_is_its_own_neighbour() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 5, generator=generator)
    rows = draw(40, 3, 0, features=features)
    bank, members = feature_bank(features, rows.row_hashes[0])
    found = neighbor_distances(features, bank, 3, members)
    unit = features / features.norm(dim=1, keepdim=True)
    apart = torch.cdist(unit, unit).fill_diagonal_(math.inf)
    torch.testing.assert_close(found.float(), apart.sort(dim=1).values[:, :3].mean(1), atol=2e-3, rtol=0)


def test_a_large_offset_is_refused_or_fitted() -> None:
    rows = draw(1000, 5, 0)
    shifted = cb.Predictions.from_logits(rows.logits.double() + 1e10, rows.labels)
    for name in ("vector", "matrix", "dirichlet"):
        try:
            calibrator = CALIBRATORS[name].fit(shifted)
        except NotConvergedError:
            continue
        assert calibrator.fitted.nll_after <= calibrator.fitted.nll_before + 1e-9  # type: ignore[operator]


def test_impossible_classes_do_not_hide_why_there_is_no_temperature() -> None:
    rows = draw(500, 5, 0)
    logits = rows.logits.clone()
    labels = torch.arange(500) % 4
    logits[torch.arange(500), labels] -= 5
    logits[:, 4] = -math.inf
    with pytest.raises(NotConvergedError, match="do not follow"):
        TemperatureScaling.fit(cb.Predictions.from_logits(logits, labels))
