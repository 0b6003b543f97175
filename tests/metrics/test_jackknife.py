"""The jackknife against scoring the rows that are left, its groups, and its variance against repeated draws."""

import numpy as np
import pytest
import torch

from calibrant import METRICS, Predictions, score
from calibrant.metrics.jackknife import jackknife, jackknife_groups

EXACT = ("accuracy", "confidence", "nll", "brier", "entropy", "ece", "overconfidence", "underconfidence")
CLOSE = {"cece": 0.1, "kse": 0.01, "smece": 0.1, "nll_on_errors": 0.05, "brier_on_errors": 0.05, "aurc": 0.05}
ROUGH = {"rmsce": 0.3, "adaece": 0.3}  # their bins or weights change with the rows


def made(n: int, seed: int = 0, n_classes: int = 4) -> Predictions:
    """Overconfident: the labels are drawn at a higher temperature."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_classes, generator=generator)
    labels = torch.multinomial((0.5 * logits).softmax(1), 1, generator=generator).squeeze(1)
    return Predictions.from_logits(logits, labels)


def standard_error(without: np.ndarray) -> float:
    return float(np.sqrt((len(without) - 1) / len(without) * np.sum((without - without.mean()) ** 2)))


def test_values_are_those_of_the_remaining_rows() -> None:
    predictions = made(600)
    card, groups = score(predictions), jackknife_groups(predictions)
    found = jackknife(predictions, card, groups)
    assert set(found) == {name for name in card.names if METRICS[name].comparable}
    rest = [score(predictions[np.flatnonzero(groups != group)]) for group in range(20)]
    for name in EXACT:
        assert found[name] == pytest.approx([card[name] for card in rest], rel=1e-6), name
    for name, tolerance in (CLOSE | ROUGH).items():
        slow = np.array([card[name] for card in rest])
        assert standard_error(found[name]) == pytest.approx(standard_error(slow), rel=tolerance), name


def test_the_variance_of_the_ece_is_that_of_other_rows() -> None:
    drawn, estimated = [], []
    for seed in range(60):
        predictions = made(400, seed)
        card = score(predictions, metrics=["ece"])
        drawn.append(card.ece)
        estimated.append(standard_error(jackknife(predictions, card, jackknife_groups(predictions))["ece"]))
    assert np.sqrt(np.mean(np.square(estimated))) == pytest.approx(np.std(drawn), rel=0.2)


def test_groups_are_of_rows_or_of_clusters() -> None:
    groups = jackknife_groups(made(90))
    assert sorted(np.bincount(groups)) == [4] * 10 + [5] * 10
    assert (groups == jackknife_groups(made(90, seed=1))).all()  # of any predictions of as many rows
    patients = Predictions.from_logits(torch.zeros(90, 2), torch.zeros(90).long(), columns={"patient": [*"abc"] * 30})
    groups = jackknife_groups(patients, "patient").reshape(30, 3)
    assert (groups == groups[0]).all()
    assert sorted(groups[0]) == [0, 1, 2]
    assert jackknife_groups(made(7)).max() == 6


def test_what_has_no_jackknife() -> None:
    one = made(1)
    assert jackknife(one, score(one), jackknife_groups(one)) == {}
    right = Predictions.from_logits([[9.0, 0.0]] * 30, [0] * 30)  # without errors
    assert "nll_on_errors" not in jackknife(right, score(right), jackknife_groups(right))
    never = Predictions.from_probs([[1.0, 0.0]] * 30, [1] * 30)
    assert "nll" not in jackknife(never, score(never), jackknife_groups(never))  # it is infinite
