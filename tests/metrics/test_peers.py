"""Where other libraries give a wrong number, or none: each case as a test of ours."""

import itertools
import math

import pytest
import torch

import calibrant
from calibrant import Predictions, metrics
from made.metric_check import Case, logits_of, parts_of, random_case, scored, streamed

ECE, MCE, ADAPTIVE = (
    metrics.expected_calibration_error,
    metrics.maximum_calibration_error,
    metrics.adaptive_calibration_error,
)


def test_values_by_hand() -> None:
    """Of confidences, some of them edges of bins, and whether each is correct."""
    for function, confidence, correct, options, wanted in (
        # torchmetrics: 1.0 and 0.95 share the last of 10 bins, |1.95 − 1| / 2, not 0.525 of a hidden eleventh
        (ECE, [1.0, 0.95], [0, 1], {"n_bins": 10}, 0.475),
        (MCE, [1.0, 0.95], [0, 1], {"n_bins": 10}, 0.475),
        # 0 joins the first bin
        (ECE, [0.0, 0.05], [1, 0], {}, 0.95 / 2),
        (MCE, [0.0, 0.05], [1, 0], {}, 0.95 / 2),
        # focal_calibration, and the published code of the paper, drop the smallest sample
        (ADAPTIVE, [0.4, 1.0], [0, 1], {"n_bins": 1}, 0.2),
        # ranks 0 and 1 of 4 make the first of 4 bins
        (ADAPTIVE, [0.3, 0.5, 0.6, 0.7], [0, 1, 1, 1], {"n_bins": 4}, (abs(0.8 - 1) + 0.4 + 0.3) / 4),
        # the order within a tie does not matter
        (metrics.ks_error, [0.6] * 6, [1, 1, 1, 0, 0, 0], {}, 0.1),
        (metrics.ks_error, [0.6] * 6, [0, 0, 0, 1, 1, 1], {}, 0.1),
        (metrics.ks_error, [0.6] * 6, [1, 0, 1, 0, 1, 0], {}, 0.1),
    ):
        given = torch.tensor(confidence, dtype=torch.float64), torch.tensor(correct, dtype=torch.bool)
        assert function(*given, **options).item() == pytest.approx(wanted), (confidence, correct)  # type: ignore[operator]
    for dtype in (torch.float32, torch.float64):  # 0.2 is the edge of the third of fifteen bins in either type
        confidences = torch.tensor([0.2, 0.15], dtype=dtype)
        assert ECE(confidences, torch.tensor([True, False])).item() == pytest.approx(0.65 / 2, abs=1e-6)


# torchmetrics


def test_three_million_rows_do_not_drift() -> None:
    """Sums of float32 are 15 % off at 3 million rows; a batch that comes 30 times has the error of the batch."""
    batch = random_case(100_000, 3, seed=40).to(torch.float32).predictions()
    names = ["ece", "accuracy", "confidence", "nll", "brier", "cece", "rmsce", "overconfidence"]
    once = calibrant.score(batch, metrics=names)
    card = calibrant.score(itertools.repeat(batch, 30), metrics=names)
    assert card.n_rows == 3_000_000
    assert card.values() == pytest.approx(once.values(), abs=1e-9)


def test_logits_that_lie_between_0_and_1_are_still_logits() -> None:
    generator = torch.Generator().manual_seed(42)
    logits = torch.rand(5000, 10, generator=generator, dtype=torch.float64)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    case, shifted = Case(logits, labels), Case(logits + 7, labels)
    assert scored(case, "ece") < 0.03
    assert scored(case, "ece") == pytest.approx(scored(shifted, "ece"), abs=1e-9)
    assert scored(case, "confidence") == pytest.approx(logits.softmax(1).amax(1).mean().item(), abs=1e-9)


def test_both_questions_of_two_classes_have_a_name() -> None:
    """P(y = 1) = 0.2 of a class 0, and 0.7 of a class 0: top label 0.8 correct and 0.7 incorrect."""
    card = calibrant.score(Predictions.from_positive_probs([0.2, 0.7], [0, 0]))
    found = card.ece, card.ece_positive, card.overconfidence, card.kse, card.kse_positive
    assert found == pytest.approx((0.45, 0.45, 0.35, 0.35, 0.45), abs=1e-6)
    # opposite errors of P(y = 1) that meet in one bin of the top label
    card = calibrant.score(Predictions.from_positive_probs([0.25, 0.75], [0, 0]))
    assert (card.ece, card.ece_positive) == pytest.approx((0.25, 0.5), abs=1e-6)


# netcal


def test_logits_need_no_softmax_and_probabilities_no_inverse() -> None:
    case = random_case(300, 4, seed=47)
    expected = calibrant.score(case.predictions()).values()
    for given in (
        Predictions.from_probs(case.logits.softmax(1), case.labels),
        Predictions.from_log_probs(case.logits.log_softmax(1), case.labels),
        Predictions.from_logits(case.logits.numpy(), case.labels.numpy()),
    ):
        assert calibrant.score(given).values() == pytest.approx(expected, abs=1e-6)


# torch-uncertainty


def test_every_pixel_counts_but_those_to_ignore() -> None:
    """Dense predictions are scored on all their positions, not on a sample of them."""
    flat = random_case(60, 3, seed=50)
    labels = flat.labels.clone()
    labels[::3] = -100
    logits = flat.logits.reshape(2, 6, 5, 3).permute(0, 3, 1, 2)
    for given in (flat.labels, labels):
        card = calibrant.score(Predictions.from_logits(logits, given.reshape(2, 6, 5)))
        assert card.n_rows == int((given != -100).sum())
        kept = flat[given != -100].predictions()
        assert card.values() == pytest.approx(calibrant.score(kept).values(), abs=1e-9)


def test_binary_ece_and_adaptive_ece_answer_the_same_question() -> None:
    """Rows all alike fall into one bin of either kind: both give |confidence − accuracy| of the same event."""
    card = calibrant.score(Predictions.from_positive_probs([0.3] * 10, [0] * 6 + [1] * 4))
    assert (card.ece, card.adaece, card.ece_positive) == pytest.approx((0.1, 0.1, 0.1), abs=1e-6)
    card = calibrant.score(Predictions.from_positive_probs([0.25] * 4 + [0.75] * 4, [0, 0, 0, 0, 1, 1, 0, 0]), n_bins=1)
    found = card.ece, card.adaece, card.ece_positive, card.adaece_positive
    assert found == pytest.approx((0.0, 0.0, 0.25, 0.25), abs=1e-6)


# The published code of the paper


def test_errors_are_averaged_over_samples_not_over_batches() -> None:
    """A batch without an error adds nothing; the mean is over the three errors, and Brier is a sum over classes."""
    parts = [
        Case(logits_of([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 0])),
        Case(logits_of([[0.9, 0.1]]), torch.tensor([1])),
        Case(logits_of([[0.6, 0.4], [0.7, 0.3]]), torch.tensor([1, 1])),
    ]
    for name, wanted in (
        ("nll_on_errors", -(math.log(0.1) + math.log(0.4) + math.log(0.3)) / 3),
        ("brier_on_errors", 2 * (0.81 + 0.36 + 0.49) / 3),
        ("brier", 2 * (0.01 + 0.04 + 0.81 + 0.36 + 0.49) / 5),
    ):
        assert streamed(parts, name).values()[name] == pytest.approx(wanted), name


def test_classes_absent_from_the_labels_still_count_in_cece() -> None:
    """Class 2 is predicted at 1/4 and never seen: (0 + 1/4 + 1/4) / 3, not 1/8 over those that occur (probmetrics)."""
    case = Case(logits_of([[0.5, 0.25, 0.25]] * 2), torch.tensor([0, 1]))
    assert scored(case, "cece") == pytest.approx(1 / 6)
    assert metrics.classwise_calibration_error(case.logits, case.labels).item() == pytest.approx(1 / 6)
    parts = streamed(parts_of(Case(case.logits.repeat(5, 1), case.labels.repeat(5))), "cece")
    assert parts.values()["cece"] == pytest.approx(1 / 6)


# OpenOOD


def test_the_probability_is_binned_not_the_logit() -> None:
    """Logits of 20 and 19: a confidence of 0.731."""
    case = Case(torch.tensor([[20.0, 19.0]] * 4, dtype=torch.float64), torch.tensor([0, 0, 0, 1]))
    assert scored(case, "ece") == pytest.approx(0.75 - 1 / (1 + math.exp(-1)))


# ties in the largest probability


def test_a_tie_for_the_largest_probability_is_correct_for_the_first_class_only() -> None:
    """Comparing p_y with the largest would count all of them as correct."""
    case = Case(torch.zeros(4, 4, dtype=torch.float64), torch.arange(4))
    assert scored(case, "accuracy") == metrics.accuracy(case.logits, case.labels).item() == 0.25
    assert [scored(case[row : row + 1], "accuracy") for row in range(4)] == [1, 0, 0, 0]
    assert scored(case, "ece") == pytest.approx(0, abs=1e-12)
    halves = Case(logits_of([[0.2, 0.4, 0.4]] * 2), torch.tensor([1, 2]))
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        assert scored(halves.to(dtype), "accuracy") == 0.5
