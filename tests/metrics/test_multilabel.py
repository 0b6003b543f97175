"""Multi-label scores: each class is a binary problem, and the pooled predictions of a row are not independent."""

import math

import pytest
import torch
from torch import Tensor

import calibrant
from calibrant.metrics import METRICS, Scorecard, score_multilabel
from calibrant.metrics.exact import clopper_pearson
from calibrant.predictions import Predictions


def draw(n: int, k: int, seed: int, sharpness: float = 0.6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = (torch.rand(n, k, generator=generator, dtype=torch.float64) < (sharpness * logits).sigmoid()).long()
    return logits, labels


def binary(logits: Tensor, labels: Tensor) -> Scorecard:
    card: Scorecard = calibrant.score(Predictions.from_positive_probs(logits.sigmoid(), labels))
    return card


def assert_close(card: Scorecard, other: Scorecard, tolerance: float = 1e-9) -> None:
    assert card.n_rows == other.n_rows
    assert card.names == other.names
    for name in card.names:
        assert card.get(name) == pytest.approx(other.get(name), abs=tolerance), name


# Values


@pytest.mark.parametrize("k", [1, 2, 5])
def test_each_class_is_a_binary_problem(k: int) -> None:
    logits, labels = draw(300, k, 300)
    scores = score_multilabel(logits, labels)
    assert list(scores) == list(range(k))
    for number in range(k):
        alone = binary(logits[:, number], labels[:, number])
        assert_close(scores[number], alone)
        assert scores[number].interval("ece_positive") == pytest.approx(alone.interval("ece_positive"), abs=1e-9)


def test_pooled_predictions() -> None:
    """All n·k binary predictions, except for the classwise error, which is a mean over the classes."""
    logits, labels = draw(200, 4, 301)
    scores = score_multilabel(logits, labels)
    pooled = binary(logits.flatten(), labels.flatten())
    for name in METRICS:
        if name != "cece":
            assert scores.overall[name] == pytest.approx(pooled[name], abs=1e-9), name
    assert scores.overall.cece == pytest.approx(sum(card.ece_positive for card in scores.values()) / 4, abs=1e-9)


def test_values_by_hand() -> None:
    """Sigmoids of 0.5 and 0.75, both present in the first row; of 0.5 and 0.25, none in the second."""
    logits = torch.tensor([[0.0, math.log(3)], [0.0, -math.log(3)]], dtype=torch.float64)
    scores = score_multilabel(logits, torch.tensor([[1, 1], [0, 0]]), class_names=["cat", "dog"])
    assert list(scores) == ["cat", "dog"]
    assert scores["cat"].ece_positive == pytest.approx(0)
    assert scores["dog"].ece_positive == pytest.approx(0.25)
    assert scores["dog"].accuracy == 1
    assert scores["cat"].accuracy == 0.5
    assert scores.overall.accuracy == 0.75
    assert scores.overall.cece == pytest.approx(0.125)
    assert scores.overall.brier == pytest.approx((2 * 2 * 0.25 + 2 * 2 * 0.0625) / 4)
    assert scores.worst("ece_positive")[0] == "dog"
    assert scores.worst("accuracy")[0] == "cat"


def test_options() -> None:
    """A probability of ½, the edge of a bin, belongs to the bin below it, of P(present) as of P(absent)."""
    logits, labels = draw(100, 3, 302)
    logits[:20] = 0
    names = ("ece", "cece", "ece_positive")
    scores = score_multilabel(logits, labels, metrics=names, n_bins=4)
    for number, card in scores.items():
        rows = Predictions.from_positive_probs(logits[:, number].sigmoid(), labels[:, number])
        assert_close(card, calibrant.score(rows, metrics=names, n_bins=4))
    assert scores.overall.names == names
    assert scores.overall.n_bins == 4
    assert scores.overall.cece == pytest.approx(sum(card.ece_positive for card in scores.values()) / 3, abs=1e-9)


def test_precision() -> None:
    """Half precision and other types of labels; a sigmoid of 40 is 1 in float32, yet the NLL of an error is 40."""
    logits, labels = draw(100, 2, 303)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        wanted = score_multilabel(logits.to(dtype).double(), labels).overall.nll
        assert score_multilabel(logits.to(dtype), labels.bool().int()).overall.nll == pytest.approx(wanted, abs=1e-6)
    scores = score_multilabel(torch.tensor([[40.0], [-40.0]]), torch.tensor([[0], [0]]))
    assert scores.overall.nll == pytest.approx(20)


# Intervals


@pytest.mark.slow
def test_pooled_intervals_and_floors_count_rows() -> None:
    """Three copies of a class have the interval of one, up to the 1/n of AURC and of the debiased error."""
    overall = score_multilabel(*draw(150, 6, 304)).overall
    assert overall.interval("accuracy") == pytest.approx(clopper_pearson(150 * overall.accuracy, 150, 0.95), abs=1e-9)
    logits, labels = draw(400, 1, 305)
    once = score_multilabel(logits, labels).overall
    three_times = score_multilabel(logits.repeat(1, 3), labels.repeat(1, 3)).overall
    for name in METRICS:
        assert three_times.interval(name) == pytest.approx(once.interval(name), abs=1e-3), name
        if name.startswith(("ece", "rmsce", "adaece", "kse")):
            assert three_times.noise_floor(name) == pytest.approx(once.noise_floor(name), rel=1e-6), name


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_order_of_classes_does_not_matter(k: int) -> None:
    """One class is miscalibrated, first or last."""
    logits, labels = draw(500, k, 307, sharpness=1.0)
    logits[:, 0] += 3
    forth, back = score_multilabel(logits, labels), score_multilabel(logits.flip(1), labels.flip(1))
    for name in ("accuracy", "nll", "ece", "ece_positive", "adaece", "kse", "aurc", "cece"):
        assert back.overall[name] == pytest.approx(forth.overall[name], abs=1e-9), name
        interval = back.overall.interval(name)
        assert interval == pytest.approx(forth.overall.interval(name), abs=1e-6), name


@pytest.mark.slow
def test_false_alarms_of_calibrated_classes() -> None:
    """The lower limit is above 0 one time in twenty: of 150 more than 17 by chance one time in a thousand."""
    above = dict.fromkeys(["cece", "ece_positive", "ece"], 0)
    for seed in range(150):
        overall = score_multilabel(*draw(300, 5, 3000 + seed, sharpness=1.0), metrics=above).overall
        for name in above:
            above[name] += overall.interval(name)[0] > 0
    assert max(above.values()) <= 17, above
