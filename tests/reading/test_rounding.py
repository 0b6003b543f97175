"""Rounded probabilities: what d digits explain is accepted, whatever the batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant.errors import InvalidInputError
from calibrant.reading.rounding import Rounding


def added(*batches: np.ndarray) -> Rounding:
    rounding, row = Rounding(), 0
    for batch in batches:
        rounding.add(torch.from_numpy(batch), row)
        row += len(batch)
    return rounding


@given(st.integers(1, 6), st.integers(2, 40), st.integers(0, 9))
def test_what_was_rounded_is_accepted(digits: int, n_classes: int, seed: int) -> None:
    probs = np.random.default_rng(seed).dirichlet(np.ones(n_classes), 50).round(digits)
    found = added(probs)
    assert found.digits <= digits  # the oracle: as many decimals as Python prints
    assert found.digits == max(1, *(len(f"{x:.8f}".rstrip("0").partition(".")[2]) for x in probs.flat))
    if found.worst <= 0.5:
        added(probs).check("p")
    halves = added(probs[:20], probs[20:])
    assert (halves.digits, halves.worst, halves.row) == (found.digits, found.worst, found.row)


def test_single_precision_is_not_refused_nor_rounded() -> None:
    probs = np.random.default_rng(0).dirichlet(np.ones(100), 200).astype(np.float32)
    found = added(probs)
    found.check("p")
    assert found.digits > 6
    assert str(found) == ""
    assert added(probs.round(3)).digits == 3


def test_sums_that_rounding_does_not_explain() -> None:
    good = np.array([[0.33, 0.33, 0.33], [0.5, 0.25, 0.25]])
    added(good).check("p")
    assert str(added(good)) == "1 rows sum to 1 only within 0.01, as rounding to 2 digits explains: rescaled"
    with pytest.raises(InvalidInputError, match=r"p must sum to 1, got 0.98 at row 2 \(more than rounding to 2 digits"):
        added(good, np.array([[0.32, 0.33, 0.33]])).check("p")
    with pytest.raises(InvalidInputError, match=r"got 0.99 at row 0 \(more than rounding to 3 digits"):
        added(good, np.array([[0.333, 0.333, 0.334]])).check("p")  # one row with three digits: so have all
    with pytest.raises(InvalidInputError, match=r"got 0.9\d* at row 0 \(not rounded\)"):
        added(np.array([[1 / 3, 1 / 3, 1 / 4]])).check("p")
    with pytest.raises(InvalidInputError, match="got 0 at row 0"):
        added(np.zeros((1, 40))).check("p")
