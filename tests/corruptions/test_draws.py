"""Random numbers: independent between images, seeds, purposes and positions; uniform, normal, integers in a range."""

import math
from collections.abc import Sequence

import pytest
import torch
from scipy import stats
from torch import Tensor

import calibrant as cb
from calibrant.corruptions.draws import Draws
from made.corruption_check import NOISES, SEVERITIES


def draws(keys: Sequence[int | str], *context: int | str) -> Draws:
    return Draws.of(keys, *context, device=torch.device("cpu"))


def assert_uncorrelated(rows: Tensor) -> None:
    """No two of the rows correlate by more than 5.5 standard errors."""
    found = torch.corrcoef(rows.double()).fill_diagonal_(0).abs().max().item()
    assert found < 5.5 / math.sqrt(rows.shape[1]), found


@pytest.mark.parametrize("kind", ["words", "uniforms", "normals"])
def test_streams_are_independent(kind: str) -> None:
    def values(keys: Sequence[int | str], *context: int | str, purpose: str = "values") -> Tensor:
        numbers: Tensor = getattr(draws(keys, *context), kind)(purpose, 3, 32, 32)
        return numbers.flatten(1)

    assert_uncorrelated(values([*range(30), 2**32, 2**33, -1, -2, "0", "1", "a", "b"], 0))
    contexts = [(seed,) for seed in (*range(10), 2**32, 2**63, 2**64, "0")]
    assert_uncorrelated(torch.cat([values(range(8), *context).reshape(1, -1) for context in contexts]))
    others = [values([3], 4), values([4], 3), values([4], 3, 1), values([4], 3, purpose="others")]
    assert_uncorrelated(torch.cat(others))
    planes = values(range(64), 0).view(64, 3, 32, 32)
    assert_uncorrelated(planes.transpose(0, 1).flatten(1))
    for step in (1, 2, 16):
        assert_uncorrelated(torch.stack((planes[..., step:].flatten(), planes[..., :-step].flatten())))
        assert_uncorrelated(torch.stack((planes[:, :, step:].flatten(), planes[:, :, :-step].flatten())))


def test_distributions() -> None:
    many = draws(range(64), 0)
    uniforms = many.uniforms("values", 3072).flatten()
    assert 0 < uniforms.min() < uniforms.max() < 1
    assert stats.kstest(uniforms.numpy(), "uniform").pvalue > 0.001
    counts = many.integers("values", -3, 4, 3072).add(3).flatten().bincount()
    assert len(counts) == 7
    assert stats.chisquare(counts.numpy()).pvalue > 0.001
    normals = many.normals("values", 3071).double().flatten()  # an odd number of halves of words
    n = len(normals)
    assert abs(normals.mean()) < 5 / math.sqrt(n)
    assert normals.std() == pytest.approx(1, abs=5 / math.sqrt(2 * n))
    assert stats.kstest(normals.numpy(), "norm").pvalue > 0.001
    assert normals.pow(4).mean() == pytest.approx(3, abs=5 * math.sqrt(96 / n) + 0.01)
    assert 4 < normals.abs().max() < 6.5


def test_corruptions_and_severities_have_noise_of_their_own() -> None:
    flat = torch.full((8, 3, 32, 32), 128, dtype=torch.uint8)
    shifts = [(name, severity) for name in sorted(NOISES) for severity in SEVERITIES]
    assert_uncorrelated(torch.stack([cb.corrupt(flat, *shift, parameters="cifar").flatten() for shift in shifts]))
