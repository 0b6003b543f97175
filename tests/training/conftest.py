"""A finished run, made once, and a setting of runs in which processors agree."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor

from calibrant.training import train
from made.training import quick


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of `quick()`; who changes it takes a copy."""
    return train(quick(), tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs in float64: processors take sums in different orders, which in float32 shows after a few steps."""

    def normalise(images: Tensor, mean: float, std: float) -> Tensor:
        return (images.double() / 255 - mean) / std

    for module in ("loop", "outputs"):
        monkeypatch.setattr(f"calibrant.training.{module}.normalise", normalise)
    monkeypatch.setattr("calibrant.training.run.reproducible_torch", nullcontext)  # which would set float32
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
