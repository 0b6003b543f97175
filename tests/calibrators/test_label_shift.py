"""Class proportions of a target: oracles, coverage of the intervals, the test of label shift; and the calibrator."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from scipy.stats import binom

import calibrant as cb
from calibrant import Predictions
from calibrant.calibrators import ClassProportions, LabelShift, class_proportions
from calibrant.calibrators.label_shift import _share_kept
from calibrant.calibrators.proportions import LabelShiftProblem
from calibrant.calibrators.scaling import fit_bias_corrected
from calibrant.errors import CalibrantError, InvalidInputError, NotConvergedError
from made.calibrator_data import class_rows, like, nll_per_row, permuted

EQUAL = (1 / 3,) * 3
SKEWED = (0.7, 0.25, 0.05)
ONE_ALONE = (0.0, 1.0, 0.0)
TEN = (0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.0, 0.0)


def rows(n: int, prior: Sequence[float], seed: int, **options: Any) -> Predictions:
    return class_rows(n, prior, seed=seed, **options).predictions


# Oracles


def test_bias_corrected_temperature_is_the_optimum() -> None:
    """Of the NLL and the prior: biases of about 1, and a scale of about that of temperature scaling."""
    validation = rows(400, SKEWED, 1)
    logits, labels = validation.logits.numpy(), validation.labels.numpy()
    unit = 1 / cb.TemperatureScaling.fit(validation).temperature

    def penalized(theta: np.ndarray) -> float:
        log_probs = log_softmax(theta[0] * logits + theta[1:], axis=1)
        prior = ((theta[0] / unit - 1) ** 2 + (theta[1:] ** 2).sum()) / 2
        return (prior - float(log_probs[np.arange(400), labels].sum())) / 400

    best = minimize(penalized, np.array([1.0, 0.0, 0.0, 0.0]), method="BFGS", options={"gtol": 1e-9})
    fit = fit_bias_corrected(validation)
    assert [fit.scale, *fit.bias] == pytest.approx(best.x, abs=1e-5)


def test_em_is_the_fixed_point_of_saerens() -> None:
    validation, target = rows(500, EQUAL, 1), rows(400, SKEWED, 2)
    fit, prior = fit_bias_corrected(validation), np.bincount(validation.labels) / 500
    probs = softmax(fit.scale * target.logits.numpy() + fit.bias, axis=1)
    proportions = prior
    for _ in range(5000):
        posterior = probs * proportions / prior
        proportions = (posterior / posterior.sum(1, keepdims=True)).mean(0)
    found = class_proportions(target, validation)
    assert found.proportions == pytest.approx(proportions, abs=1e-6)
    assert found.validation == pytest.approx(prior)


def test_bbse_solves_the_confusion_matrix() -> None:
    validation, target = rows(500, EQUAL, 1), rows(400, SKEWED, 2)
    for method, score in (("bbse", lambda p: p), ("bbse_hard", lambda p: np.eye(3)[p.argmax(1)])):
        known, new = (score(part.probs.numpy()) for part in (validation, target))
        confusion = np.stack([known[validation.labels.numpy() == c].mean(0) for c in range(3)], axis=1)
        found = class_proportions(target, validation, method=method)
        assert found.proportions == pytest.approx(np.linalg.solve(confusion, new.mean(0)), abs=1e-9)


@pytest.mark.parametrize("method", ["em", "bbse"])
def test_influences_are_derivatives(method: str) -> None:
    """What the estimate changes by if some rows count twice, to first order: intervals are made of that."""
    parts = {"validation": rows(2000, EQUAL, 1), "target": rows(2000, SKEWED, 2)}

    def estimate(**given: Predictions) -> Any:
        problem = LabelShiftProblem(given["validation"], given["target"])
        return (
            problem.em(fit_bias_corrected(given["validation"]), 0.9)[0] if method == "em" else problem.bbse(hard=False)
        )

    before = estimate(**parts)
    for side, influence in (("validation", before.of_validation), ("target", before.of_target)):
        for chosen in (parts[side].logits.argmax(1) == 0, parts[side].labels == 2):
            some = chosen.nonzero()[:20, 0]
            after = estimate(**{**parts, side: Predictions.concat([parts[side], parts[side][some]])})
            wanted = influence[some.numpy()].sum(0) / (2000 + len(some))
            assert np.abs(after.proportions - before.proportions - wanted).max() < 0.05 * np.abs(wanted).max() + 2e-5


# Intervals, and the test of label shift


def simulated(runs: int, n: int, m: int, prior: Sequence[float], method: str, **shift: Any) -> list[ClassProportions]:
    equal = [1 / len(prior)] * len(prior)
    return [
        class_proportions(rows(m, prior, 2 * run + 1, **shift), rows(n, equal, 2 * run), method=method)
        for run in range(runs)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "n", "m", "prior"),
    [
        ("em", 150, 1500, SKEWED),
        ("em", 1500, 100, SKEWED),
        ("em", 120, 60, (0.9, 0.1, 0.0)),
        ("em", 300, 300, TEN),
        ("em", 200, 100, ONE_ALONE),
        ("bbse", 150, 1500, SKEWED),
        ("bbse", 300, 300, TEN),
        ("bbse_hard", 1500, 100, SKEWED),
    ],
)
def test_coverage(method: str, n: int, m: int, prior: Sequence[float]) -> None:
    """Of 90 % intervals, whichever of the two has fewer rows; 5 % of the targets at most are called another shift."""
    found = simulated(30, n, m, prior, method)
    truth = np.array(prior)
    low, high = np.moveaxis([each.intervals for each in found], -1, 0)
    covered = (low <= truth + 1e-12) & (truth <= high + 1e-12)
    assert covered.mean() >= 0.8
    assert covered.mean(0).min() >= 0.7
    assert all(sum(each.proportions) == pytest.approx(1) and min(each.proportions) >= 0 for each in found)
    assert sum(each.warning is not None for each in found) <= binom.ppf(0.99, 30, 0.05)


def test_intervals_shrink_with_the_rows_of_both() -> None:
    few = simulated(1, 200, 200, SKEWED, "em")[0]
    for n, m in ((200, 20_000), (20_000, 200)):
        widths = [np.ptp(each.intervals, axis=1).sum() for each in (few, simulated(1, n, m, SKEWED, "em")[0])]
        assert 0.4 * widths[0] < widths[1] < widths[0]  # what the other adds remains
    wide = class_proportions(rows(200, SKEWED, 1), rows(200, EQUAL, 0), level=0.99)
    assert np.ptp(wide.intervals, axis=1) == pytest.approx(np.ptp(few.intervals, axis=1) * 2.576 / 1.645, rel=0.3)


def test_p_values_of_label_shift_are_uniform() -> None:
    found = [each.p_value for each in simulated(80, 200, 250, SKEWED, "bbse")]
    assert 0.4 < np.mean(found) < 0.6
    assert np.mean(np.less_equal(found, 0.05)) <= 0.1


def test_another_shift_is_told_from_label_shift() -> None:
    """Rows of each class that spread more, or less: the proportions are wrong, and the result says so."""
    for spread in (0.5, 1.8):
        found = simulated(15, 500, 500, SKEWED, "em", spread=spread)
        assert np.mean([each.p_value <= 0.05 for each in found]) >= 0.9
        assert all("do not believe" in str(each.warning) for each in found if each.p_value <= 0.05)


# The calibrator


def test_known_proportions_make_better_predictions() -> None:
    """About as good as the true posterior, and better than a calibrator that does not know the target."""
    validation, target, fresh = rows(2000, EQUAL, 1), rows(1000, SKEWED, 2), class_rows(4000, SKEWED, seed=3)
    calibrator = LabelShift.fit(validation, target=like(target, labels=None))
    found = nll_per_row(calibrator(fresh.predictions)).mean()
    truth = nll_per_row(Predictions.from_probs(fresh.probs, fresh.predictions.labels)).mean()
    vector = nll_per_row(cb.CALIBRATORS["vector"].fit(validation)(fresh.predictions)).mean()
    assert found < truth + 0.01 < vector - 0.05
    assert calibrator.fitted.nll_after == pytest.approx(found.item(), abs=0.05)  # weighted to the target
    assert calibrator.warning is None
    assert calibrator.class_proportions == class_proportions(target, validation)


def test_where_nothing_shifted_predictions_are_only_calibrated() -> None:
    """In at least 95 % of the targets, of few rows and of many."""
    for m in (30, 400):
        fits = [LabelShift.fit(rows(300, SKEWED, 2 * i), target=rows(m, SKEWED, 2 * i + 1)) for i in range(25)]
        shifted = [each for each in fits if not torch.equal(each.proportions, each.validation_proportions)]
        assert len(shifted) <= binom.ppf(0.99, 25, 0.05)


def test_how_much_of_a_difference_is_kept() -> None:
    assert _share_kept(3.0, 2, 1000) == 0.0
    assert _share_kept(2 * 5.991, 2, 10**6) == pytest.approx(0.5, abs=1e-3)  # twice the 5 % point of χ²
    assert _share_kept(1e30, 2, 50) == pytest.approx(50 / 51)
    assert _share_kept(1e30, 60, 50) == 0.0  # fewer rows than directions


def test_one_class_in_the_target() -> None:
    """No class gets the probability 0: one of its rows would cost an infinite NLL."""
    calibrator = LabelShift.fit(rows(600, EQUAL, 1), target=rows(400, ONE_ALONE, 2))
    assert calibrator.estimated[1] > 0.9
    assert 0 < calibrator.proportions.min() < 0.02
    separated = Predictions.from_logits(60 * torch.eye(3)[torch.arange(90) % 3], torch.arange(90) % 3)
    alone = separated[torch.arange(90) % 3 == 1]
    found = class_proportions(alone, separated)
    assert found.proportions == pytest.approx(ONE_ALONE, abs=1e-6)
    assert all(0.03 < high < 0.2 for _, high in found.intervals[::2])  # 0 of 30 rows
    assert nll_per_row(LabelShift.fit(separated, target=alone)(rows(50, EQUAL, 3))).isfinite().all()


def test_another_shift_is_in_the_file_and_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrant.cli.fit import fit

    monkeypatch.chdir(tmp_path)
    rows(500, EQUAL, 1).save("val.parquet")
    rows(500, SKEWED, 2, spread=2.0).save("target.parquet")
    fit("val.parquet", calibrator="label_shift", target=["target.parquet"], output="l.json")
    assert "Warning: more than the class proportions" in " ".join(capsys.readouterr().out.split())
    fit("val.parquet", calibrator="label_shift", target=["target.parquet"], output="l.json", as_json=True)
    assert "do not believe" in json.loads(capsys.readouterr().out)["warning"]
    assert "do not believe" in str(LabelShift.load("l.json").warning)


def test_refusals() -> None:
    validation, target = rows(100, EQUAL, 1), rows(60, SKEWED, 2)
    kept = validation.labels != 2
    kept[int((validation.labels == 2).nonzero()[0])] = True
    alike = Predictions.from_logits(validation.logits[:, [0, 1, 1]], validation.labels)
    four = Predictions.from_logits(torch.zeros(60, 4))
    backwards = Predictions.from_logits(-validation.logits, validation.labels)
    wrong: list[tuple[type[CalibrantError], str, Predictions, Predictions]] = [
        (
            InvalidInputError,
            "validation must have at least 2 rows of every class, got 1 of class 2",
            target,
            validation[kept],
        ),
        (InvalidInputError, "validation must have labels", target, like(validation, labels=None)),
        (InvalidInputError, "target must have at least 20 rows, got 19", target[:19], validation),
        (InvalidInputError, "target must have the 3 classes of validation, got 4", four, validation),
        (
            NotConvergedError,
            "do not tell class 1 from class 2",
            Predictions.from_logits(target.logits[:, [0, 1, 1]]),
            alike,
        ),
        (NotConvergedError, "labels do not follow the logits", target, backwards),
    ]
    for error, message, of_target, of_validation in wrong:
        with pytest.raises(error, match=message):
            class_proportions(of_target, of_validation)
        with pytest.raises(error, match=message):
            LabelShift.fit(of_validation, target=of_target)
    with pytest.raises(CalibrantError, match=r"method.*saerens"):
        class_proportions(target, validation, method="saerens")
    with pytest.raises(InvalidInputError, match=r"level.*90"):
        class_proportions(target, validation, level=90)
    with pytest.raises(InvalidInputError, match=r"target .* label_shift needs them"):
        LabelShift.fit(validation)


def test_two_classes_and_any_order_of_rows() -> None:
    """Two classes, rows of probability 0 and 1 among them."""
    two = rows(300, (0.5, 0.5), 1)
    logits = two.logits.clone()
    certain = torch.arange(0, 300, 7)
    logits[certain, 1 - two.labels[certain]] = -torch.inf
    validation, target = like(two, logits=logits), rows(200, (0.95, 0.05), 2)
    found, again = (
        class_proportions(target, validation),
        class_proportions(permuted(target, 1), permuted(validation, 2)),
    )
    assert found.proportions == pytest.approx(again.proportions, abs=1e-7)
    assert found.intervals[0][0] <= 0.95 <= found.intervals[0][1]
