"""The effect of temperature scaling, against cross-fitting, and the reasons why there is none."""

import math
from dataclasses import replace

import pytest
import torch

from calibrant.audits.statistics import collect_statistics
from calibrant.audits.temperature import temperature_effect
from calibrant.calibrators import cross_fit
from calibrant.metrics import compare, score
from calibrant.predictions import Predictions
from made.audits import make_rows


@pytest.mark.parametrize("cluster", [None, "patient"])
@pytest.mark.parametrize("weights", [None, "w"])
def test_the_effect_is_that_of_cross_fitting(weights: str | None, cluster: str | None) -> None:
    weighted, clustered = weights is not None, cluster is not None
    rows = make_rows(patient=[i // 6 for i in range(300)])
    sample = collect_statistics(rows, weights=weights, cluster=cluster).sample.predictions()
    options = {"n_bins": 10, "level": 0.9, "seed": 1}
    effect = temperature_effect(sample, 999, weighted=weighted, clustered=clustered, **options)  # type: ignore[arg-type]
    column, clusters = "weights" if weighted else None, "cluster" if clustered else None
    assert len(sample.groups("cluster")[1]) == (50 if clustered else 1)
    fit = cross_fit(sample, "temperature", weights=column, cluster=clusters)
    assert effect.temperature == fit.calibrator.temperature  # type: ignore[attr-defined]
    assert effect.interval == (None if clustered else fit.calibrator.interval)  # type: ignore[attr-defined]
    assert (effect.n_sample, effect.n_rows, effect.failure) == (len(sample), 999, "")
    options = {"metrics": ["nll", "ece"], "weights": column, "cluster": clusters, "n_bins": 10}
    card = score(sample, **options)  # type: ignore[call-overload]
    for row in compare(fit.predictions, sample, level=0.9, seed=1, **options):  # type: ignore[arg-type]
        change = effect.changes[row.metric]
        assert (change.before, change.after, change.interval) == (row.b, row.a, row.interval)
        assert change.before == pytest.approx(card[row.metric])
        assert change.before_interval == card.interval(row.metric, level=0.9, seed=1)
    assert effect.changes["nll"].improved  # the rows are made with T = 2
    assert effect.temperature == pytest.approx(2.0, abs=0.4)
    assert effect.helps


def test_improved_and_worsened_are_significant() -> None:
    effect = temperature_effect(
        make_rows().select([]), 300, weighted=False, clustered=False, n_bins=15, level=0.95, seed=0
    )
    cases = (-0.2, True, [], True), (-0.2, False, [], False), (0.2, True, ["nll"], False)
    for moved, significant, worsened, helps in cases:
        change = replace(effect.changes["nll"], difference=moved, significant=significant)
        changed = replace(effect, changes={"nll": change})
        assert (changed.worsened, changed.helps) == (worsened, helps)
    better, worse = (replace(effect.changes["nll"], difference=moved, significant=True) for moved in (-0.2, 0.2))
    assert not replace(effect, changes={"nll": better, "ece": worse}).helps


@pytest.mark.slow
def test_a_lower_level_changes_no_decision() -> None:
    """For calibrated rows: at a level of 50 % every other interval excludes 0."""
    seen = 0
    for seed in range(6):
        rows = make_rows(n=300, seed=seed, scale=1.0).select([])
        low, default = (
            temperature_effect(rows, 300, weighted=False, clustered=False, n_bins=15, level=level, seed=0)
            for level in (0.5, 0.95)
        )
        for name in ("nll", "ece"):
            change, other = low.changes[name], default.changes[name]
            assert (change.significant, change.after_lower_limit) == (other.significant, other.after_interval[0])
            assert change.significant == (change.p_value <= 0.05)
            seen += not change.significant and not change.interval[0] <= 0 <= change.interval[1]
    assert seen > 0


def backwards() -> Predictions:
    """Labels that are mostly the least likely class."""
    logits = 5 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    labels = (-logits).argmax(1)
    labels[:40] = logits[:40].argmax(1)
    return Predictions.from_logits(logits, labels)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (Predictions.from_logits([[3.0, 0.0]] * 50, [0] * 50), "fewer than 20 rows are inc"),
        (Predictions.from_logits([[3.0, 0.0]] * 50, [1] * 50), "fewer than 20 rows are correct"),
        (Predictions.from_logits([[3.0, 0.0]] * 50, [0, 1] * 25), "there are fewer than 5 different rows"),
        (Predictions.from_logits([[3.0, -math.inf]] * 50, [0, 1] * 25), "25 of 50 rows have a label of"),
        (backwards(), "the labels do not follow the logits"),
    ],
)
def test_why_there_is_no_temperature(rows: Predictions, reason: str) -> None:
    effect = temperature_effect(rows, 50, weighted=False, clustered=False, n_bins=15, level=0.95, seed=0)
    assert reason in effect.failure
    assert (effect.temperature, effect.changes) == (None, {})
