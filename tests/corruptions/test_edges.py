"""Canny edges against the loop: weak peaks are edges where any number of steps connects them to a strong one."""

import numpy as np
import torch

from calibrant.corruptions.edges import edges
from made.slow_corruptions import canny


def test_weak_edges_grow_from_strong_ones() -> None:
    """A weak step over all 40 rows, with a strong end and without it, and noise."""
    weak = np.zeros((40, 40), np.uint8)
    weak[:, 20:] = 20
    strong = weak.copy()
    strong[:3, 20:] = 55
    planes = np.stack([strong, weak, np.random.default_rng(0).integers(0, 40, (40, 40), np.uint8)])
    found = edges(torch.from_numpy(planes).permute(1, 2, 0).contiguous(), low=50, high=150).permute(2, 0, 1).bool()
    assert np.array_equal(found.numpy(), np.stack([canny(plane, 50, 150) for plane in planes]))
    assert found[0].any(1).all()
    assert not found[1].any()
