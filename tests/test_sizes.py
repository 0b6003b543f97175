"""Sizes that cannot be meant are refused at once, in one line that says how large they may be, or what they need."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import calibrant as cb
from calibrant import Predictions, _checks
from calibrant._checks import check_memory
from calibrant.calibrators import perturb_gaussian
from calibrant.data import open_dataset
from calibrant.errors import CalibrantError, CorruptFileError, ResourceError
from calibrant.features import read_features
from calibrant.losses import MaxEntLoss
from calibrant.maxent import solve
from calibrant.models import build_model
from calibrant.training.settings import read_settings
from made.calibrator_data import draw


def many_classes(n_classes: int) -> Predictions:
    return Predictions.from_logits(torch.zeros(2, n_classes), [0, 1])


TOO_LARGE: dict[str, tuple[Callable[[], object], str]] = {
    "bins": (lambda: cb.score(draw(9), n_bins=10**9), "n_bins .* to 10000, got 1000000000"),
    "bins of a calibrator": (lambda: cb.CALIBRATORS["histogram"].fit(draw(9), n_bins=10**9), "n_bins .* to 10000"),  # type: ignore[call-arg]
    "bins of all classes": (
        lambda: cb.score(many_classes(10**6), metrics=["cece"], n_bins=10_000),
        "10,000 bins of 1,000,000 classes needs 960.0 GB of memory",
    ),
    "knots": (lambda: cb.CALIBRATORS["spline"].fit(draw(9), n_knots=10**6), "n_knots .* to 100, got 1000000"),  # type: ignore[call-arg]
    "knots of a score": (
        lambda: cb.CALIBRATORS["conditional_temperature"].fit(draw(9), n_knots=10**6),  # type: ignore[call-arg]
        "n_knots .* to 100, got 1000000",
    ),
    "a matrix": (
        lambda: cb.CALIBRATORS["matrix"].fit(many_classes(100_000)),
        "matrix scaling of 100,000 classes needs 5,600.1 GB of memory",
    ),
    "levels": (
        lambda: perturb_gaussian(lambda x: x, torch.zeros(2, 2), torch.zeros(2).long(), n_levels=10**9),
        "n_levels .* to 100, got 1000000000",
    ),
    "classes of labels": (lambda: MaxEntLoss.from_labels([0, 1], 10**9), "n_classes .* to 100000, got 1000000000"),
    "classes of a prior": (lambda: solve(torch.full((10**6,), 1e-6)), "prior .* 2 to 100,000 classes, got 1,000,000"),
    "classes of a model": (lambda: build_model("mlp", 10**9, image_size=8), "n_classes .* to 1000000"),
    "pixels of a model": (lambda: build_model("mlp", 10, image_size=10**6), "image_size .* to 4096"),
    "channels of a model": (lambda: build_model("mlp", 10, image_size=8, channels=10**9), "channels .* to 1000"),
    "pixels of a data set": (lambda: open_dataset("digits", image_size=10**6), "image_size"),
    "padding": (lambda: read_settings(crop_padding=10**6), "crop_padding .* 256"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_sizes_that_cannot_be_meant(name: str) -> None:
    act, message = TOO_LARGE[name]
    with pytest.raises(CalibrantError, match=message) as caught:
        act()
    assert "\n" not in str(caught.value)


NPY_HEADERS = {
    "elements": "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 3), }\n",
    "beyond int64": f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**30}, 2), }}\n",
    "length": "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }" + " " * 20_000 + "\n",
    "brackets": "(" * 9000,
    "signs": "-" * 9000 + "1",
}


@pytest.mark.parametrize("name", NPY_HEADERS)
def test_arrays_with_a_huge_header(name: str, tmp_path: Path) -> None:
    header = NPY_HEADERS[name].encode()
    path = tmp_path / "features.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(CorruptFileError, match=r"features\.npy") as caught:
        read_features(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"])
def test_the_memory_of_a_container_is_a_limit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "CONTROL_GROUP", tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("10000000\n")
    check_memory("a matrix", 10_000_000)
    with pytest.raises(ResourceError, match=r"a matrix needs 0\.1 GB of memory, .* has 0\.0 GB"):
        check_memory("a matrix", 50_000_001)
    (tmp_path / name).write_text("max\n")
    check_memory("a matrix", 50_000_001)
