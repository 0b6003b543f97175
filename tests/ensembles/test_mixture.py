"""The mean of probabilities, and how far members disagree, against loops; and what both promise."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from calibrant import _arrays
from calibrant.ensembles import mixture as module
from calibrant.ensembles.mixture import Mixture, mixture

GRID = st.sampled_from([0.0, 0.0, 0.25, 1.0, 1.0, 2.0])  # unnormalised probabilities: ties and zeros occur


def plain_mixture(probs: NDArray[np.float64]) -> tuple[list[list[float]], list[float], list[float]]:
    """Probabilities, disagreement and mutual information of (m, n, k) probabilities, in loops."""
    m, n, k = probs.shape
    means, disagreements, informations = [], [], []
    for row in range(n):
        mean = [sum(probs[i, row, c] for i in range(m)) / m for c in range(k)]
        best = [max(range(k), key=lambda c: (values[c], -c)) for values in (mean, *probs[:, row])]
        means.append(mean)
        disagreements.append(sum(other != best[0] for other in best[1:]) / m)
        divergences = [
            p * math.log(p / mean[c]) for i in range(m) for c, p in enumerate(probs[i, row].tolist()) if p > 0
        ]
        informations.append(sum(divergences) / m)
    return means, disagreements, informations


@st.composite
def member_probs(draw: st.DrawFn) -> NDArray[np.float64]:
    """(m, n, k) probabilities in eighths and fractions of them, with ties and zeros."""
    m, n, k = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(2, 4))
    values = np.array(draw(st.lists(GRID, min_size=m * n * k, max_size=m * n * k))).reshape(m, n, k)
    values[values.sum(2) == 0] = 1.0
    return np.asarray(values / values.sum(2, keepdims=True))


def logits_of(probs: NDArray[np.float64]) -> list[Tensor]:
    return list(torch.from_numpy(probs).log())


def random_members(m: int, n: int = 50, k: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(m)
    return [3 * torch.randn(n, k, generator=generator, dtype=torch.float64) for _ in range(m)]


@given(member_probs())
def test_loops(probs: NDArray[np.float64]) -> None:
    found = mixture(logits_of(probs))
    means, disagreements, informations = plain_mixture(probs)
    assert found.log_probs.exp().numpy() == pytest.approx(np.array(means), abs=1e-12)
    assert found.mutual_information.numpy() == pytest.approx(np.array(informations), abs=1e-12)
    ties = [sorted(mean)[-1] - sorted(mean)[-2] < 1e-9 for mean in means]  # which is first, rounding decides
    clear = ~np.array(ties) & ~_tied(probs)
    assert found.disagreement.numpy()[clear] == pytest.approx(np.array(disagreements)[clear])


def _tied(probs: NDArray[np.float64]) -> NDArray[np.bool_]:
    two = np.sort(probs, 2)[:, :, -2:]
    return np.asarray(np.isclose(two[:, :, 0], two[:, :, 1]).any(0))


@given(member_probs())
def test_ranges(probs: NDArray[np.float64]) -> None:
    found = mixture(logits_of(probs))
    m = len(probs)
    assert bool((found.disagreement >= 0).all())
    assert bool((found.disagreement <= 1).all())
    assert bool((found.mutual_information >= 0).all())
    assert bool((found.mutual_information <= math.log(m) + 1e-12).all())
    assert found.log_probs.exp().sum(1).numpy() == pytest.approx(np.ones(probs.shape[1]), abs=1e-12)


@given(member_probs())
def test_the_nll_is_at_most_the_mean_of_the_members(probs: NDArray[np.float64]) -> None:
    """Jensen: −log is convex; so for every class that might be the label."""
    members = [logits.clamp_min(-50) for logits in logits_of(probs)]
    of_members = torch.stack([-logits.log_softmax(1) for logits in members]).mean(0)
    assert bool((-mixture(members).log_probs <= of_members + 1e-9).all())


@pytest.mark.parametrize("m", [1, 2, 3, 7])
def test_equal_members_are_each_of_them(m: int) -> None:
    [logits] = random_members(1)
    found = mixture([logits] * m)
    assert found.log_probs.numpy() == pytest.approx(logits.log_softmax(1).numpy(), abs=1e-14)
    assert found.mutual_information.numpy() == pytest.approx(np.zeros(50), abs=1e-14)
    assert bool((found.mutual_information >= 0).all())  # also after rounding
    assert found.disagreement.tolist() == [0.0] * 50


def test_the_order_of_the_members_does_not_matter() -> None:
    members = random_members(5)
    one, other = mixture(members), mixture(members[::-1])
    torch.testing.assert_close(one.log_probs, other.log_probs, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(one.mutual_information, other.mutual_information, rtol=1e-12, atol=1e-14)
    assert torch.equal(one.disagreement, other.disagreement)


def test_members_that_exclude_each_other() -> None:
    """The most that they can disagree: log m nats; and a class that none has stays at probability 0."""
    members = list(torch.eye(4, dtype=torch.float64)[:3].log()[:, None])
    found = mixture(members)
    assert found.log_probs.exp().tolist() == [pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])]
    assert found.mutual_information.item() == pytest.approx(math.log(3))
    assert found.disagreement.item() == pytest.approx(2 / 3)


def test_probabilities_below_the_smallest_number_do_not_vanish() -> None:
    tiny = torch.tensor([[0.0, -2000.0]], dtype=torch.float64)
    assert mixture([tiny, tiny - 5]).log_probs[0, 1].item() == pytest.approx(-2000)
    mixed = mixture([tiny, torch.tensor([[0.0, -math.inf]], dtype=torch.float64)])
    assert mixed.log_probs[0, 1].item() == pytest.approx(-2000 - math.log(2))


def test_logits_of_other_types_and_shifts() -> None:
    members = random_members(3)
    moved = mixture([logits + shift for logits, shift in zip(members, (-100.0, 0.0, 1e4), strict=True)])
    torch.testing.assert_close(moved.log_probs, mixture(members).log_probs, rtol=1e-9, atol=1e-9)
    single = mixture([logits.float() for logits in members])
    assert single.log_probs.dtype == torch.float32
    torch.testing.assert_close(single.log_probs.double(), mixture(members).log_probs, rtol=1e-5, atol=1e-5)


def test_blocks_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    members = random_members(3, n=23)
    whole = mixture(members)
    monkeypatch.setattr(module, "blocks", lambda n, width: _arrays.blocks(n, width, size=50))
    parts = mixture(members)
    for name in ("log_probs", "disagreement", "mutual_information"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=1e-14, atol=1e-14)


def test_no_rows() -> None:
    found = mixture([torch.empty(0, 3)] * 2)
    assert isinstance(found, Mixture)
    assert [len(found.log_probs), len(found.disagreement), len(found.mutual_information)] == [0, 0, 0]
