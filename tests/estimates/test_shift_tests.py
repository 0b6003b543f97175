"""Shift tests: their size and power by simulation, effects by hand, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, energy_distance

from calibrant import Predictions
from calibrant.errors import InvalidInputError
from calibrant.estimates import ShiftTest, shift_tests
from made.calibrator_data import generator_of, normal, permuted


def rows(n: int, seed: int, *, scale: float = 2.0, favoured: float = 0.0, moved: float = 0.0) -> Predictions:
    """Ten classes with probabilities rounded to tenths, of many ties, and 16 features."""
    generator = generator_of(seed)
    logits = scale * normal(n, 10, generator=generator)
    logits[:, 0] += favoured
    probs = (10 * logits.softmax(1)).round() + 0.1
    features = normal(n, 16, generator=generator) + moved
    return Predictions.from_probs(probs / probs.sum(1, keepdim=True), features=features)


def simulated(runs: int, n: int, m: int, **shift: float) -> list[tuple[ShiftTest, ...]]:
    return [shift_tests(rows(n, 2 * run, **shift), rows(m, 2 * run + 1)) for run in range(runs)]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(5, 8), (30, 120)])
def test_size(n: int, m: int) -> None:
    """Where nothing differs, at most 5 % of the runs have a p-value below 0.05, and effects are the noise floor."""
    found = simulated(100, n, m)
    false_alarms = sum(min(test.p_value for test in tests) <= 0.05 for tests in found)
    assert false_alarms <= binom.ppf(0.99, 100, 0.05)
    for tests in zip(*found, strict=True):
        effect, floor = (np.mean([getattr(test, name) for test in tests]) for name in ("effect", "noise_floor"))
        assert effect == pytest.approx(floor, rel=0.25), tests[0].name
        assert all(0 <= test.effect <= 1 for test in tests)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shift", "seen", "unseen"),
    [
        ({"scale": 1.0}, {"confidence", "entropy"}, {"class_mix", "features"}),
        ({"favoured": 2.0}, {"class_mix"}, {"features"}),
        ({"moved": 0.3}, {"features"}, {"confidence", "entropy", "class_mix"}),
    ],
)
def test_power(shift: dict[str, float], seen: set[str], unseen: set[str]) -> None:
    """Each test sees its own kind of shift, with an effect above the noise floor, and not that of the others."""
    found = simulated(30, 150, 200, **shift)
    for tests in zip(*found, strict=True):
        share = np.mean([test.p_value <= 0.05 for test in tests])
        assert share >= 0.9 if tests[0].name in seen else True
        assert share <= 0.15 if tests[0].name in unseen else True
        assert tests[0].name not in seen or np.mean([test.effect / test.noise_floor for test in tests]) > 1.3


def test_effects_by_hand() -> None:
    reference = Predictions.from_positive_probs([0.1, 0.3, 0.7, 0.9] * 25).with_features(torch.zeros(100, 1))
    target = Predictions.from_positive_probs([0.1, 0.2, 0.3, 0.9] * 25).with_features(torch.ones(100, 1))
    confidence, entropy, mix, features = shift_tests(target, reference)
    assert confidence.effect == pytest.approx(0.25)  # one half of the rows below 0.75, instead of a quarter
    assert entropy.effect == pytest.approx(0.25)
    assert mix.effect == pytest.approx(0.25)
    assert mix.statistic == pytest.approx(200 * (75 * 50 - 25 * 50) ** 2 / (100 * 100 * 125 * 75))
    assert features.effect == 1.0  # nothing in common
    assert features.statistic == pytest.approx(50 * 2.0)
    assert features.p_value == pytest.approx(3 / 1000)  # the least of 999 draws, then third in Holm's order


def test_few_rows_of_a_class() -> None:
    """Three rows of either class: 2 of the 20 ways to divide them are as far apart; χ² would say 0.014."""
    _, _, mix = shift_tests(Predictions.from_positive_probs([0.8] * 3), Predictions.from_positive_probs([0.2] * 3))
    assert mix.effect == 1.0
    assert mix.p_value == pytest.approx(3 * 0.1, rel=0.1)


def test_the_energy_distance_is_that_of_scipy() -> None:
    x, y = rows(60, 1), rows(90, 2, moved=0.5)
    one = [part.with_features(part.features[:, :1]) for part in (x, y)]  # type: ignore[index]
    features = shift_tests(*one)[3]
    values = [part.features[:, 0].double().numpy() for part in one]  # type: ignore[index]
    assert features.statistic == pytest.approx(60 * 90 / 150 * energy_distance(*values) ** 2)


def test_rows_in_any_order_and_precision() -> None:
    """And more than the 500 whose features are compared; labels do not count; the same rows do not differ."""
    target, reference = rows(700, 1, moved=0.05), rows(800, 2)
    tests = shift_tests(target, reference)
    labelled = Predictions.from_logits(target.logits, [3] * 700, features=target.features)
    assert shift_tests(permuted(labelled, 3), permuted(reference, 4)) == tests
    single = Predictions.from_logits(target.logits.float())
    for test in shift_tests(single, Predictions.from_logits(target.logits)):
        assert (test.effect, test.p_value) == (0.0, 1.0)


def test_nothing_to_tell_apart() -> None:
    """One row of each; constant rows; one class."""
    one, features = rows(1, 5), normal(1, 64, generator=generator_of(6)).expand(40, -1)
    constant = Predictions.from_logits(torch.zeros(40, 3), features=features)
    assert [test.p_value for test in shift_tests(one, one)] == [1.0] * 4
    for test in shift_tests(constant, constant[:7]):
        assert (test.effect, test.p_value) == (0.0, 1.0)
        assert math.isfinite(test.statistic)


def test_refusals() -> None:
    target, reference = rows(9, 1), rows(9, 2)
    other = Predictions.from_logits(torch.zeros(9, 4))
    named = [Predictions.from_logits(torch.zeros(9, 2), class_names=names) for names in (["a", "b"], ["a", "c"])]
    wrong = [
        ((target[:0], reference), "target must have at least one row"),
        ((target, reference[:0]), "reference must have at least one row"),
        ((other, reference), "target must have the 10 classes of reference, got 4"),
        ((named[0], named[1]), "class 1 is 'b', not 'c'"),
        ((target.with_features(torch.ones(9, 3)), reference), "target must have the 16 features of reference, got 3"),
    ]
    for given, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            shift_tests(*given)
    assert [test.name for test in shift_tests(other, other.with_features(torch.ones(9, 2)))][2:] == ["class_mix"]
