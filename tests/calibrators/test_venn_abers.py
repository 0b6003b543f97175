"""Venn-Abers calibration against refitted isotonic regressions and the package venn-abers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from venn_abers.venn_abers import calc_p0p1, calc_probs

import calibrant as cb
from calibrant.calibrators import VennAbers
from calibrant.errors import CorruptFileError, InvalidInputError

FloatArray = NDArray[np.float64]


def of_odds(odds: FloatArray, labels: FloatArray | None = None) -> cb.Predictions:
    """Rows of these log-odds of class 1, with a constant added to both logits."""
    logits = torch.from_numpy(np.stack([np.full_like(odds, 2.0), odds + 2.0], axis=1))
    return cb.Predictions.from_logits(logits, None if labels is None else torch.from_numpy(labels).long())


def draw(n: int, seed: int, *, tied: bool) -> tuple[FloatArray, FloatArray]:
    generator = np.random.default_rng(seed)
    odds = generator.integers(-4, 5, n) / 2.0 if tied else generator.integers(-64, 64, n) / 16.0
    return odds, (generator.random(n) < expit(2 * odds)).astype(float)


def refitted(odds: FloatArray, labels: FloatArray, new: FloatArray) -> FloatArray:
    """Two isotonic regressions for each new row."""
    pairs = [
        [IsotonicRegression().fit(np.append(odds, x), np.append(labels, y)).predict([x]).item() for y in (0.0, 1.0)]
        for x in new
    ]
    return np.array(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_intervals_are_refitted_isotonic_regressions(n: int, tied: bool) -> None:
    """At the scores of validation, between and beyond them; also for labels of one kind."""
    for seed in range(8):
        odds, labels = draw(n, seed, tied=tied)
        labels = np.full(n, float(seed % 2)) if seed > 5 else labels
        new = np.concatenate([odds, odds + 2.0**-7, [-9.0, 9.0]])
        found = VennAbers.fit(of_odds(odds, labels)).interval(of_odds(new)).numpy()
        assert found == pytest.approx(refitted(odds, labels, new), abs=1e-9)
        assert (found[:, 0] <= found[:, 1]).all()


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("tied", [False, True])
def test_the_package_venn_abers_agrees(tied: bool) -> None:
    odds, labels = draw(1000, 0, tied=tied)
    new, _ = draw(500, 1, tied=False)
    probs, other = (np.stack([1 - expit(x), expit(x)], axis=1) for x in (odds, new))
    merged, pairs = calc_probs(*calc_p0p1(probs, labels), other)
    calibrator = VennAbers.fit(of_odds(odds, labels))
    assert calibrator.interval(of_odds(new)).numpy() == pytest.approx(pairs, abs=1e-9)
    assert calibrator(of_odds(new)).probs.numpy() == pytest.approx(merged, abs=1e-9)


def test_the_merged_probability_is_never_certain() -> None:
    """Rows far beyond separated classes, of logits that are infinite or saturate a softmax."""
    odds = np.array([-60.0, -50.0, -40.0, 40.0, 50.0, 60.0])
    calibrator = VennAbers.fit(of_odds(odds, (odds > 0).astype(float)))
    rows = cb.Predictions.from_logits([[0.0, -np.inf], [-np.inf, 0.0], [0.0, 0.0], [0.0, 3e38]])
    assert calibrator.interval(rows).tolist() == pytest.approx(np.array([[0, 0.25], [0.75, 1], [0, 1], [0.75, 1]]))
    assert calibrator(rows).probs[:, 1].tolist() == pytest.approx([0.2, 0.8, 0.5, 0.8])


def test_one_of_the_two_probabilities_is_calibrated() -> None:
    """Mean p₀ ≤ frequency ≤ mean p₁ over fresh rows, for a model that is wrong about them."""
    generator = np.random.default_rng(0)
    frequencies, bounds = [], []
    for _ in range(200):
        odds = generator.normal(size=60)
        labels = (generator.random(60) < expit(3 * np.sin(2 * odds))).astype(float)
        found = VennAbers.fit(of_odds(odds[:40], labels[:40])).interval(of_odds(odds[40:]))
        bounds.append(found.mean(0).numpy())
        frequencies.append(labels[40:].mean())
    low, high = np.mean(bounds, axis=0)
    noise = 4 * np.std(frequencies) / np.sqrt(200)
    assert low - noise <= np.mean(frequencies) <= high + noise
    assert high - low < 0.3


def test_only_steps_are_stored(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    odds = generator.normal(size=20_000)
    labels = (generator.random(20_000) < expit(odds)).astype(float)
    calibrator = VennAbers.fit(of_odds(odds, labels))
    assert max(len(calibrator.lower), len(calibrator.upper)) < 400
    calibrator.save(tmp_path / "v.json")
    new = of_odds(draw(50, 4, tied=False)[0])
    assert torch.equal(VennAbers.load(tmp_path / "v.json").interval(new), calibrator.interval(new))
    record = json.loads((tmp_path / "v.json").read_text())
    record.pop("digest")
    record["parameters"]["lower"]["values"] = [2.0] * len(calibrator.lower)
    (tmp_path / "v.json").write_text(json.dumps(record))
    with pytest.raises(CorruptFileError, match="lower"):
        VennAbers.load(tmp_path / "v.json")


def test_validation_of_certain_rows_is_stored(tmp_path: Path) -> None:
    certain = cb.Predictions.from_logits([[0.0, -np.inf], [0.0, 1.0], [-np.inf, 0.0]], [0, 1, 1])
    calibrator = VennAbers.fit(certain)
    calibrator.save(tmp_path / "v.json")
    found = VennAbers.load(tmp_path / "v.json").interval(certain)
    assert found.tolist() == pytest.approx(np.array([[0, 0.5], [0.5, 1], [2 / 3, 1]]))


def test_refused_rows() -> None:
    three = cb.Predictions.from_logits(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    with pytest.raises(InvalidInputError, match="venn_abers is for two classes, validation has 3"):
        VennAbers.fit(three)
    calibrator = VennAbers.fit(of_odds(*draw(9, 0, tied=True)))
    with pytest.raises(InvalidInputError, match=r"2 classes .* got 3"):
        calibrator.interval(three)
    with pytest.raises(InvalidInputError, match="predictions must be Predictions, got 5"):
        calibrator.interval(5)  # type: ignore[arg-type]
