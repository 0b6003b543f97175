"""ECE: a slow oracle, the cases where peers go wrong, refusals."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant.errors import InvalidInputError
from calibrant.metrics import expected_calibration_error


def slow_ece(samples: list[tuple[float, bool]], n_bins: int) -> float:
    total = 0.0
    for b in range(n_bins):
        inside = [s for s in samples if b < round(s[0] * n_bins, 9) <= b + 1 or (b == 0 and s[0] == 0)]
        if inside:
            total += abs(sum(c for _, c in inside) - sum(r for r, _ in inside))
    return total / len(samples)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=30),
    st.sampled_from([1, 2, 10, 15]),
)
def test_oracle(grid: list[tuple[int, bool]], n_bins: int) -> None:
    samples = [(i / 30, c) for i, c in grid]
    confidence = torch.tensor([r for r, _ in samples], dtype=torch.float64)
    found = expected_calibration_error(confidence, torch.tensor([c for _, c in samples]), n_bins=n_bins)
    assert found.item() == pytest.approx(slow_ece(samples, n_bins), abs=1e-12)


def test_a_confidence_of_one_is_in_the_last_bin() -> None:
    found = expected_calibration_error(torch.tensor([1.0, 0.95]), torch.tensor([False, True]), n_bins=10)
    assert found.item() == pytest.approx(0.475)


def test_bin_edges_are_those_of_the_type() -> None:
    """0.2 is the edge of the third of fifteen bins, in float32 as in float64."""
    for dtype in (torch.float32, torch.float64):
        confidence = torch.tensor([0.2, 0.15], dtype=dtype)
        found = expected_calibration_error(confidence, torch.tensor([True, False]))
        assert found.item() == pytest.approx(abs(1 - 0.35) / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 1.5], [True, True], "confidence must lie in .0, 1., got 1.5 at row 1"),
        ([0.5, float("nan")], [True, True], "got nan at row 1"),
        ([0.5], [True, True], "same shape"),
        ([], [], "n > 0"),
        ([0.5], [1.0], "correct must be boolean"),
    ],
)
def test_refusals(confidence: list, correct: list, message: str) -> None:
    flags = torch.tensor(correct, dtype=torch.bool if not correct or isinstance(correct[0], bool) else torch.float32)
    with pytest.raises(InvalidInputError, match=message):
        expected_calibration_error(torch.tensor(confidence), flags)
