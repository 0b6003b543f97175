"""Where other libraries give a wrong number, or none: each case as a test of ours."""

import itertools
import math

import numpy as np
import pytest
import torch
from metric_check import OF_LOGITS, OF_OUTCOMES, Case, logits_of, parts_of, random_case, scored, streamed, wanted_value
from metric_oracles import class_rows, mass_bins, top_outcomes

import calibrant
from calibrant import Predictions, metrics
from calibrant.errors import InvalidInputError

# torchmetrics


def test_a_confidence_of_exactly_one_is_in_the_last_bin() -> None:
    """[1.0 wrong, 0.95 right] share the last of 10 bins: |1.95 − 1| / 2, not 0.525 of a hidden eleventh."""
    confidence, correct = torch.tensor([1.0, 0.95]), torch.tensor([False, True])
    assert metrics.expected_calibration_error(confidence, correct, n_bins=10).item() == pytest.approx(0.475, abs=1e-6)
    assert metrics.maximum_calibration_error(confidence, correct, n_bins=10).item() == pytest.approx(0.475, abs=1e-6)
    card = calibrant.score(Predictions.from_probs([[1.0, 0.0], [0.95, 0.05]], [1, 0]), n_bins=10)
    assert card.ece == pytest.approx(0.475, abs=1e-6)


def test_twenty_million_rows_in_one_bin_are_all_counted() -> None:
    """Counters of float32 stop at 2^24: accuracy 0.596 and confidence 1.0 where 0.5 and 0.85 are right."""
    rows = Predictions.from_positive_probs([0.85] * 2000, [0, 1] * 1000)
    card = calibrant.score(rows, metrics=["accuracy", "confidence", "ece"])
    total = card
    for _ in range(14):
        total = total + total
    assert total.n_rows == 2000 * 2**14 > 20_000_000
    assert (total.accuracy, total.confidence, total.ece) == pytest.approx((0.5, 0.85, 0.35), abs=1e-6)


def test_three_million_rows_do_not_drift() -> None:
    """Sums of float32 are 15 % off at 3 million rows; a batch that comes 30 times has the error of the batch."""
    case = random_case(100_000, 3, seed=40).to(torch.float32)
    batch = case.predictions()
    names = ["ece", "accuracy", "confidence", "nll", "brier", "cece", "rmsce", "overconfidence"]
    once = calibrant.score(batch, metrics=names)
    card = calibrant.score(itertools.repeat(batch, 30), metrics=names)
    assert card.n_rows == 3_000_000
    assert card.values() == pytest.approx(once.values(), abs=1e-9)


def test_the_error_of_many_small_batches_is_that_of_float64_sums() -> None:
    case = random_case(200_000, 4, seed=41).to(torch.float32)
    batches = [case[i : i + 1000].predictions() for i in range(0, 200_000, 1000)]
    card = calibrant.score(batches, metrics=["ece"])
    probs = case.logits.softmax(1)
    confidence, correct = probs.amax(1).double().numpy(), (probs.argmax(1) == case.labels).double().numpy()
    index = np.clip(np.ceil(confidence * 15).astype(int) - 1, 0, 14)
    wanted = np.abs(np.bincount(index, confidence - correct, 15)).sum() / 200_000
    assert card.ece == pytest.approx(wanted, abs=2e-5)  # a confidence within rounding of an edge may change bins


def test_logits_that_lie_between_0_and_1_are_still_logits() -> None:
    generator = torch.Generator().manual_seed(42)
    logits = torch.rand(5000, 10, generator=generator, dtype=torch.float64)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    case, shifted = Case(logits, labels), Case(logits + 7, labels)
    assert scored(case, "ece") < 0.03
    assert scored(case, "ece") == pytest.approx(scored(shifted, "ece"), abs=1e-9)
    assert scored(case, "confidence") == pytest.approx(logits.softmax(1).amax(1).mean().item(), abs=1e-9)


def test_what_a_batch_holds_does_not_change_what_it_means() -> None:
    """One batch within [0, 1], one beyond it: both are logits."""
    inside, beyond = random_case(40, 3, seed=43), random_case(40, 3, seed=44)
    inside = Case(inside.logits.sigmoid(), inside.labels)
    both = Case(torch.cat((inside.logits, beyond.logits)), torch.cat((inside.labels, beyond.labels)))
    got = streamed([inside, beyond], "ece").values()["ece"]
    assert got == pytest.approx(wanted_value(both, "ece"), abs=1e-9)


@pytest.mark.parametrize("bad", [math.nan, math.inf], ids=str)
def test_a_row_of_nan_or_infinity_is_refused(bad: float) -> None:
    logits = random_case(6, 4, seed=45).logits.clone()
    logits[3, 2] = bad
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    with pytest.raises(InvalidInputError, match=f"got {bad} at row 3, class 2"):
        Predictions.from_logits(logits, labels)
    for function in OF_LOGITS.values():
        with pytest.raises(InvalidInputError, match=str(bad)):
            getattr(metrics, function)(logits, labels)


@pytest.mark.parametrize("bad", [math.nan, 1.5, -0.25], ids=str)
def test_a_confidence_that_is_none_is_refused(bad: float) -> None:
    for function in OF_OUTCOMES.values():
        with pytest.raises(InvalidInputError, match=f"got {bad} at row 1"):
            getattr(metrics, function)(torch.tensor([0.5, bad, 0.75]), torch.tensor([True, False, True]))


def test_both_questions_of_two_classes_have_a_name() -> None:
    """P(y = 1) = 0.2 of a class 0, and 0.7 of a class 0: top label 0.8 right and 0.7 wrong."""
    card = calibrant.score(Predictions.from_positive_probs([0.2, 0.7], [0, 0]))
    assert card.ece == pytest.approx((0.2 + 0.7) / 2, abs=1e-6)
    assert card.ece_positive == pytest.approx((0.2 + 0.7) / 2, abs=1e-6)
    assert card.overconfidence == pytest.approx(0.7 / 2, abs=1e-6)
    assert card.kse == pytest.approx(0.7 / 2, abs=1e-6)  # 0.7 wrong: −0.7; 0.8 right brings it to −0.5
    assert card.kse_positive == pytest.approx(0.9 / 2, abs=1e-6)
    # opposite errors of P(y = 1) that meet in one bin of the top label
    card = calibrant.score(Predictions.from_positive_probs([0.25, 0.75], [0, 0]))
    assert card.ece == pytest.approx(abs(1.5 - 1) / 2, abs=1e-6)
    assert card.ece_positive == pytest.approx((0.25 + 0.75) / 2, abs=1e-6)


def test_what_is_missing_elsewhere_is_here() -> None:
    card = calibrant.score(random_case(400, 3, seed=46).predictions())
    for name in ("cece", "adaece", "kse", "brier", "smece", "l2ce", "aurc"):
        assert 0 <= card[name] <= 2
        low, high = card.interval(name)
        assert -1 < low <= high < 2


# netcal


def test_logits_need_no_softmax_and_probabilities_no_inverse() -> None:
    case = random_case(300, 4, seed=47)
    cards = [
        calibrant.score(given)
        for given in (
            Predictions.from_logits(case.logits, case.labels),
            Predictions.from_probs(case.logits.softmax(1), case.labels),
            Predictions.from_log_probs(case.logits.log_softmax(1), case.labels),
            Predictions.from_logits(case.logits.numpy(), case.labels.numpy()),
        )
    ]
    for card in cards[1:]:
        assert card.values() == pytest.approx(cards[0].values(), abs=1e-6)


def test_float32_is_not_a_silent_other_answer() -> None:
    case = random_case(500, 5, seed=48)
    wide, narrow = (calibrant.score(given.predictions()).values() for given in (case, case.to(torch.float32)))
    assert narrow == pytest.approx(wide, abs=1e-4)


# torch-uncertainty


def test_every_pixel_counts() -> None:
    """Dense predictions are scored on all their positions, not on a sample of them."""
    flat = random_case(2 * 16 * 9, 3, seed=49)
    logits = flat.logits.reshape(2, 16, 9, 3).permute(0, 3, 1, 2)
    labels = flat.labels.reshape(2, 16, 9)
    dense = calibrant.score(Predictions.from_logits(logits, labels))
    assert dense.n_rows == 2 * 16 * 9
    assert dense.values() == pytest.approx(calibrant.score(flat.predictions()).values(), abs=1e-9)


def test_pixels_to_ignore_are_left_out() -> None:
    flat = random_case(60, 3, seed=50)
    labels = flat.labels.clone()
    labels[::3] = -100
    kept = flat[labels != -100]
    logits = flat.logits.reshape(2, 6, 5, 3).permute(0, 3, 1, 2)
    card = calibrant.score(Predictions.from_logits(logits, labels.reshape(2, 6, 5)))
    assert card.n_rows == 40
    assert card.values() == pytest.approx(calibrant.score(kept.predictions()).values(), abs=1e-9)


def test_binary_ece_and_adaptive_ece_answer_the_same_question() -> None:
    """Rows all alike fall into one bin of either kind: both give |confidence − accuracy| of the same event."""
    card = calibrant.score(Predictions.from_positive_probs([0.3] * 10, [0] * 6 + [1] * 4))
    assert card.ece == pytest.approx(0.1, abs=1e-6)
    assert card.adaece == pytest.approx(card.ece, abs=1e-9)
    assert card.ece_positive == pytest.approx(0.1, abs=1e-6)
    card = calibrant.score(Predictions.from_positive_probs([0.25] * 4 + [0.75] * 4, [0, 0, 0, 0, 1, 1, 0, 0]), n_bins=1)
    assert (card.ece, card.adaece) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert (card.ece_positive, card.adaece_positive) == pytest.approx((0.25, 0.25), abs=1e-6)


# focal_calibration, and the published code of the paper


def test_adaptive_ece_keeps_the_smallest_sample() -> None:
    """Two samples, one bin: the smallest is wrong at 0.4, the other right at 1."""
    confidence, correct = torch.tensor([0.4, 1.0], dtype=torch.float64), torch.tensor([False, True])
    assert metrics.adaptive_calibration_error(confidence, correct, n_bins=1).item() == pytest.approx(0.2)
    # ranks 0 and 1 of 4 make the first of 4 bins, so the smallest, the only wrong one, is seen there
    confidence = torch.tensor([0.3, 0.5, 0.6, 0.7], dtype=torch.float64)
    correct = torch.tensor([False, True, True, True])
    got = metrics.adaptive_calibration_error(confidence, correct, n_bins=4).item()
    assert got == pytest.approx((abs(0.8 - 1) + 0.4 + 0.3) / 4)


def test_adaptive_bins_lose_nobody() -> None:
    case = random_case(137, 3, seed=51)
    rows = top_outcomes(class_rows(case.logits.tolist(), case.labels.tolist()))
    assert sum(len(members) for members in mass_bins(rows, 15).values()) == 137
    ece = metrics.expected_calibration_error
    confidence = torch.rand(137, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wrong = torch.zeros(137, dtype=torch.bool)
    for equal_mass in (False, True):
        got = ece(confidence, wrong, equal_mass=equal_mass).item()
        assert got == pytest.approx(confidence.mean().item(), abs=1e-12)


def test_classwise_error_takes_its_classes_from_the_columns() -> None:
    """No label above 0 is seen, yet there are four classes: errors 0.6, 0.3, 0.2, 0.1 over 4."""
    logits = logits_of([[0.4, 0.3, 0.2, 0.1]] * 3)
    labels = torch.zeros(3, dtype=torch.int64)
    assert metrics.classwise_calibration_error(logits, labels).item() == pytest.approx((0.6 + 0.6) / 4)
    assert scored(Case(logits, labels), "cece") == pytest.approx((0.6 + 0.6) / 4)


def test_a_confidence_of_zero_joins_the_first_bin() -> None:
    confidence, correct = torch.tensor([0.0, 0.05], dtype=torch.float64), torch.tensor([True, False])
    assert metrics.expected_calibration_error(confidence, correct).item() == pytest.approx(0.95 / 2)
    assert metrics.maximum_calibration_error(confidence, correct).item() == pytest.approx(0.95 / 2)


def test_errors_are_averaged_over_samples_not_over_batches() -> None:
    """A batch without an error adds nothing; the mean is over the three errors, and Brier is a sum over classes."""
    right = Case(logits_of([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 0]))
    one = Case(logits_of([[0.9, 0.1]]), torch.tensor([1]))
    two = Case(logits_of([[0.6, 0.4], [0.7, 0.3]]), torch.tensor([1, 1]))
    nll = streamed([right, one, two], "nll_on_errors").values()["nll_on_errors"]
    assert nll == pytest.approx(-(math.log(0.1) + math.log(0.4) + math.log(0.3)) / 3)
    brier = streamed([right, one, two], "brier_on_errors").values()["brier_on_errors"]
    assert brier == pytest.approx(2 * (0.81 + 0.36 + 0.49) / 3)
    everywhere = streamed([right, one, two], "brier").values()["brier"]
    assert everywhere == pytest.approx(2 * (0.01 + 0.04 + 0.81 + 0.36 + 0.49) / 5)


def test_ks_error_does_not_depend_on_the_order_within_a_tie() -> None:
    confidence = torch.tensor([0.6] * 6, dtype=torch.float64)
    for correct in ([True] * 3 + [False] * 3, [False] * 3 + [True] * 3, [True, False] * 3):
        assert metrics.ks_error(confidence, torch.tensor(correct)).item() == pytest.approx(0.1)


# probmetrics


def test_classes_absent_from_the_labels_still_count_in_cece() -> None:
    """Class 2 is predicted at 1/4 and never seen: (0 + 1/4 + 1/4) / 3, not 1/8 over the two that occur."""
    case = Case(logits_of([[0.5, 0.25, 0.25]] * 2), torch.tensor([0, 1]))
    assert scored(case, "cece") == pytest.approx(1 / 6)
    parts = streamed(parts_of(Case(case.logits.repeat(5, 1), case.labels.repeat(5))), "cece")
    assert parts.values()["cece"] == pytest.approx(1 / 6)


# verified_calibration


def test_an_interval_of_90_percent_is_one_of_90_percent() -> None:
    """Of a mean the interval has a known width: 2 · 1.645 · sqrt(p(1 − p)/n); one of 99.9 % has twice that."""
    case = random_case(2000, 3, seed=52)
    card = calibrant.score(case.predictions())
    p = card.accuracy
    low, high = card.interval("accuracy", level=0.9)
    assert low < p < high
    assert high - low == pytest.approx(2 * 1.645 * math.sqrt(p * (1 - p) / 2000), rel=0.2)
    wide = card.interval("accuracy", level=0.99)
    assert wide[1] - wide[0] > 1.2 * (high - low)
    assert card.interval("accuracy", level=0.9, seed=0) == (low, high)


# OpenOOD


def test_the_probability_is_binned_not_the_logit() -> None:
    """Logits of 20 and 19: a confidence of 0.731."""
    logits = torch.tensor([[20.0, 19.0]] * 4, dtype=torch.float64)
    case = Case(logits, torch.tensor([0, 0, 0, 1]))
    assert scored(case, "ece") == pytest.approx(0.75 - 1 / (1 + math.exp(-1)))
    with pytest.raises(InvalidInputError, match="got 20"):
        metrics.expected_calibration_error(logits.amax(1), torch.tensor([True, True, True, False]))


# ties in the largest probability


def test_a_tie_for_the_largest_probability_is_right_for_the_first_class_only() -> None:
    """Comparing p_y with the largest would count all of them as right."""
    case = Case(torch.zeros(4, 4, dtype=torch.float64), torch.arange(4))
    assert scored(case, "accuracy") == 0.25
    assert metrics.accuracy(case.logits, case.labels).item() == 0.25
    assert scored(case, "ece") == pytest.approx(0, abs=1e-12)
    halves = Case(logits_of([[0.2, 0.4, 0.4]] * 2), torch.tensor([1, 2]))
    assert scored(halves, "accuracy") == 0.5
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert scored(halves.to(dtype), "accuracy") == 0.5
