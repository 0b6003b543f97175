"""The classes of an audit, against loops."""

import math

import numpy as np
import pytest
import torch

from calibrant.audits.classes import ClassRow, class_rows, opposite_classes
from calibrant.audits.statistics import collect_statistics
from calibrant.metrics import score
from calibrant.predictions import Predictions
from made.audits import make_rows, plain_rows


def classes_of(rows: Predictions, weights: str | None = None) -> dict[str, ClassRow]:
    return {row.name: row for row in class_rows(collect_statistics(rows, weights=weights))}


@pytest.mark.parametrize("weights", [None, "w"])
def test_classes_are_counted_and_the_worst_comes_first(weights: str | None) -> None:
    rows = make_rows(names=True)
    found, kept = classes_of(rows, weights), plain_rows(rows, weights)
    for name, row in found.items():
        k = int(name.split()[1])
        predicted, labelled = ([r for r in kept if r[at] == k] for at in (2, 1))
        correct = math.fsum(r[4] for r in predicted if r[1] == k)
        weight = math.fsum(r[4] for r in predicted)
        confidence = math.fsum(r[4] * r[3] for r in predicted) / weight
        assert (row.labelled, row.predicted) == (len(labelled), len(predicted))
        assert row.recall == pytest.approx(correct / math.fsum(r[4] for r in labelled))
        assert row.precision == pytest.approx(correct / weight)
        assert row.gap == pytest.approx(confidence - correct / weight, abs=1e-6)
    errors = [row.ece for row in found.values()]
    assert np.mean(errors) == pytest.approx(score(rows, weights=weights).cece)
    assert errors == sorted(errors, reverse=True)


def test_a_class_that_is_never_predicted_or_labelled() -> None:
    found = classes_of(Predictions.from_logits([[2.0, 0.0, -9.0]] * 3, [0, 0, 1]))
    assert (found["2"].recall, found["2"].precision, found["2"].gap, found["2"].p_holm) == (None, None, None, 1)
    assert (found["1"].recall, found["1"].precision) == (0.0, None)
    assert found["0"].precision == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("n", "errors", "correct", "wanted"),
    [
        (500, 200, 450, ["0", "1"]),
        (500, 105, 352, None),  # not significant
        (500, 200, 350, None),  # one is calibrated
        (20, 6, 16, None),  # relevant, but not significant
    ],
)
def test_opposite_classes(n: int, errors: int, correct: int, wanted: list[str] | None) -> None:
    """Class 0 is predicted with a confidence of 80 %, class 1 with 70 %."""
    probs = torch.tensor([[0.8, 0.2]] * n + [[0.3, 0.7]] * n, dtype=torch.float64)
    labels = torch.tensor([1] * errors + [0] * (n - errors) + [1] * correct + [0] * (n - correct))
    found = opposite_classes(list(classes_of(Predictions.from_probs(probs, labels)).values()), 0.95)
    assert (found and [row.name for row in found]) == wanted
    if found:
        assert [row.gap for row in found] == pytest.approx([0.2, -0.2])
