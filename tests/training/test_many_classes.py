"""Losses with a hundred classes: the form prior of MaxEnt loss learns as fast as the others."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from calibrant.data import DATASETS
from calibrant.data.arrays import ArrayData
from calibrant.data.embedded import read_digits
from calibrant.training import train
from made.training import log_of, quick


def read_a_hundred_classes(root: Path, part: str) -> tuple[Tensor, Tensor]:
    """The ten digits upright, turned, and shifted by half an image in three ways; each also as a negative."""
    images, labels = read_digits(root, part)
    forms = [images, images.rot90(1, (2, 3)), images.roll(4, 2), images.roll(4, 3), images.roll((4, 4), (2, 3))]
    forms += [255 - form for form in forms]
    return torch.cat(forms), torch.cat([labels + 10 * number for number in range(10)])


def test_the_prior_form_learns_a_hundred_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(map(str, range(100)))
    opens = partial(
        ArrayData,
        "digits",
        class_names=names,
        native_size=8,
        channels=1,
        read=read_a_hundred_classes,
        n_validation=2000,
    )
    monkeypatch.setitem(DATASETS, "digits", replace(DATASETS["digits"], opens=opens))

    def accuracy(loss: str, **options: Any) -> float:
        settings = quick(loss=loss, epochs=4, loss_options=options, shifts=("none",))
        run = train(settings, tmp_path / "-".join([loss, *options]), scored=False)
        return float(log_of(run)[-1]["val_accuracy"])

    prior = accuracy("maxent_prior")
    assert [accuracy(loss) for loss in ("cross_entropy", "focal")] == pytest.approx([prior] * 2, abs=0.05)
    assert prior > 0.7
    assert accuracy("maxent_prior", gibbs="paper") < 0.1  # at its scale, the constraints outweigh the first evidence
