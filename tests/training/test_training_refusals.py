"""What a run of training refuses: one line that says what and where, and a folder that stays free."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from calibrant.errors import CalibrantError
from calibrant.training import train
from made.training import quick, weights_of

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "parts that do not divide": ({"batch_size": 63, "accumulate": 2}, "batch_size must be a multiple of 2 .*, got 63"),
    "a batch too large": ({"batch_size": 998}, "batch_size must be at most the 997 training images, got 998"),
    "a single image": ({"model": "small_resnet", "batch_size": 1}, "at least 2 images"),
    "parts of one image": ({"model": "small_resnet", "accumulate": 64}, "at least 2 images"),
    "an option": ({"loss": "focal", "loss_options": {"gamma": -1.0}}, r"loss_options\.gamma must be"),
    "no data": ({"data": "cifar10", "root": "nowhere"}, "no train images of CIFAR in nowhere"),
    "no weights": ({"weights": "nowhere.safetensors"}, r"nowhere\.safetensors"),
    "a shift": ({"shifts": ("fogg-3",)}, "unknown shift 'fogg-3'; did you mean 'fog-3'"),
    "a corruption": ({"shifts": ("snow", "fogg")}, "'fogg'; did you mean 'fog'"),
    "no such severity": ({"shifts": ("fog-9",)}, "fog-9"),
    "severity 0": ({"shifts": ("fog-0",)}, "fog-0"),
    "half a severity": ({"shifts": ("fog-",)}, "fog-"),
    "no corruption": ({"shifts": ("-3",)}, "-3"),
}


def check_refused(run: Path, message: str, **changes: Any) -> None:
    with pytest.raises(CalibrantError, match=message) as refusal:
        train(quick(**changes), run)
    assert "\n" not in str(refusal.value)
    assert not (run / "DONE").exists()


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(tmp_path: Path, case: str) -> None:
    changes, message = REFUSED[case]
    check_refused(tmp_path / "run", message, **changes)
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_refusal_leaves_the_folder_free(tmp_path: Path) -> None:
    check_refused(tmp_path / "run", "batch_size", batch_size=998)
    assert (train(quick(), tmp_path / "run") / "DONE").exists()


def other_width(tensors: dict[str, Tensor]) -> None:
    tensors["hidden1.weight"] = torch.zeros(256, 192)


def too_few(tensors: dict[str, Tensor]) -> None:
    del tensors["hidden2.bias"]


def too_many(tensors: dict[str, Tensor]) -> None:
    tensors["hidden3.weight"] = torch.zeros(3)


@pytest.mark.parametrize(
    ("change", "layer"), [(other_width, "hidden1.weight"), (too_few, "hidden2.bias"), (too_many, "hidden3.weight")]
)
def test_weights_that_do_not_fit(
    tmp_path: Path, plain: Path, change: Callable[[dict[str, Tensor]], None], layer: str
) -> None:
    tensors, path = weights_of(plain), tmp_path / "other.safetensors"
    change(tensors)
    save_file(tensors, path)
    check_refused(tmp_path / "run", rf"other\.safetensors.*{re.escape(layer)}", weights=str(path))


def test_weights_that_are_none(tmp_path: Path) -> None:
    for content in (b"", b"no tensors at all"):
        (tmp_path / "w.safetensors").write_bytes(content)
        check_refused(tmp_path / "run", r"w\.safetensors", weights=str(tmp_path / "w.safetensors"))


# Folders that cannot be written


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(CalibrantError, match=str(path)) as refusal:
            train(quick(), path)
        assert "\n" not in str(refusal.value)
    assert (tmp_path / "file").read_text() == "kept"


def test_a_parent_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "mkdir", refuse)  # the superuser may write into any folder
    check_refused(tmp_path / "run", r"run.*Permission denied")


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real = tmp_path / "run", os.open

    def refuse(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and str(run) in os.fspath(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *rest, **options)

    run.mkdir()
    monkeypatch.setattr(os, "open", refuse)
    check_refused(run, r"run.*Permission denied")
