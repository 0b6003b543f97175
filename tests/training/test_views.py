"""Views of test images, and predictions that are averaged over them."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import calibrant as cb
from calibrant.data import open_dataset
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.models import build_model
from calibrant.training import predict_model, predict_run, train
from calibrant.training.engine import new_fabric
from calibrant.training.predicting import Predictor
from calibrant.training.views import View, make_views
from made.cli import in_this_process
from made.training import quick


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained with mirror images; not to be changed."""
    return train(quick(flip=True, epochs=1, shifts=("none",)), tmp_path_factory.mktemp("views") / "run")


def images_of(n: int = 3, height: int = 5, width: int = 4) -> Tensor:
    return torch.randint(1, 256, (n, 2, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def slow_view(image: np.ndarray, padding: int, shift: tuple[int, int], flipped: bool) -> np.ndarray:
    """Of (c, h, w): moved, with zeros where it ends, then mirrored."""
    _, height, width = image.shape
    found = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            from_y, from_x = y + shift[0] * padding, (width - 1 - x if flipped else x) + shift[1] * padding
            if 0 <= from_y < height and 0 <= from_x < width:
                found[:, y, x] = image[:, from_y, from_x]
    return found


def test_views_are_moved_and_mirrored_images() -> None:
    images = images_of()
    views = make_views(("crop5", "flip"), 2)
    assert len(views) == len(set(views)) == 10
    assert {view.shift for view in views} == {(0, 0), (-1, -1), (-1, 1), (1, -1), (1, 1)}
    for view in views:
        wanted = [slow_view(image, 2, view.shift, view.flipped) for image in images.numpy()]
        assert np.array_equal(view(images).numpy(), np.stack(wanted)), view
    assert torch.equal(View(4)(images), images)


def test_an_unknown_view() -> None:
    with pytest.raises(UnknownNameError, match="unknown view 'flp'; did you mean 'flip'"):
        make_views(["flp"])
    with pytest.raises(InvalidInputError, match="views must be names in order, got str"):
        make_views("flip")


def test_a_predictor_averages_its_views() -> None:
    torch.manual_seed(0)
    model, digits = build_model("mlp", 10, image_size=8, channels=1), open_dataset("digits")
    model.train()
    predictor = Predictor(model, digits, new_fabric("cpu"), sample=300, views=("flip", "crop5"), crop_padding=1)
    found = predictor.predict("test")
    single = replace(predictor, views=())
    pixels = digits.split("test").images
    assert isinstance(pixels, Tensor)
    rows = torch.tensor(found.column("image").to_pylist())
    members = []
    with torch.inference_mode():
        model.eval()
        for view in make_views(("flip", "crop5"), 1):
            logits = model((view(pixels[rows]).float() / 255 - 0.5) / 0.5)
            members.append(cb.Predictions.from_logits(logits, found.labels))
    wanted = cb.average(members)
    torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-4, atol=1e-5)
    for name in ("member_disagreement", "mutual_information"):
        torch.testing.assert_close(found.numbers("x", name), wanted.numbers("x", name), rtol=1e-4, atol=1e-5)
    assert "logit_norm" not in found.columns.column_names
    assert found.metadata["views"] == ["flip", "crop5"]
    plain = single.predict("test")
    assert torch.equal(plain.labels, found.labels)
    assert "views" not in plain.metadata
    assert "mutual_information" not in plain.columns.column_names


def test_a_model_that_does_not_see_mirrors_predicts_as_without_views(tmp_path: Path) -> None:
    """Of a symmetric model all views are equal."""

    def total(images: Tensor) -> Tensor:
        return images.mean((1, 2, 3), keepdim=True).flatten(1) * torch.linspace(-1, 1, 10)

    [path] = predict_model(total, "digits", ["val"], output=tmp_path, views=("flip",), device="cpu")
    found = cb.Predictions.load(path)
    assert max(found.column("mutual_information").to_pylist()) < 1e-9
    assert set(found.column("member_disagreement").to_pylist()) == {0.0}


def test_a_run_predicts_views_into_another_folder(run: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in (run / "predictions").iterdir()}
    [path] = predict_run(run, ["test"], output=tmp_path / "views", views=("flip",), device="cpu")
    found, plain = cb.Predictions.load(path), cb.Predictions.load(run / "predictions" / "test.parquet")
    assert torch.equal(found.labels, plain.labels)
    assert 0 < max(found.column("mutual_information").to_pylist()) <= np.log(2)
    with pytest.raises(InvalidInputError, match="predictions over views must have an output"):
        predict_run(run, ["test"], views=("flip",))
    assert {path.name: path.read_bytes() for path in (run / "predictions").iterdir()} == before


def test_refused_views(run: Path, tmp_path: Path) -> None:
    unflipped = Path(shutil.copytree(run, tmp_path / "unflipped"))
    with pytest.raises(InvalidInputError, match="features are those of one image"):
        predict_run(run, ["test"], output=tmp_path / "out", views=("crop5",), features=True)
    with pytest.raises(UnknownNameError, match="unknown view 'crop6'; did you mean 'crop5'"):
        predict_run(run, ["test"], output=tmp_path / "out", views=("crop6",))
    with pytest.raises(UnknownNameError, match="unknown view 'crop6'"):
        predict_model(nn.Flatten(), "digits", ["test"], output=tmp_path / "out", views=("crop6",))
    shutil.rmtree(unflipped)
    digits = train(quick(epochs=1, shifts=("none",)), unflipped)
    with pytest.raises(
        InvalidInputError, match=r"views must not have flip: .*unflipped was trained without mirror images"
    ):
        predict_run(digits, ["test"], output=tmp_path / "out", views=("flip",))
    [path] = predict_run(digits, ["val"], output=tmp_path / "out", views=("crop5",), device="cpu")
    assert cb.Predictions.load(path).metadata["views"] == ["crop5"]


@pytest.mark.parametrize("given", [["flip,crop5"], ["flip", "crop5"]])
def test_views_on_the_command_line(
    given: list[str], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrant = in_this_process(monkeypatch, capsys)
    command: tuple[object, ...] = ("predict", run, "val", "-o", tmp_path / "out", "--device", "cpu", "--views")
    calibrant(*command, *given).done()
    assert cb.Predictions.load(tmp_path / "out" / "val.parquet").metadata["views"] == ["flip", "crop5"]
    calibrant(*command, "flip,crop6").refused("unknown view 'crop6'; did you mean 'crop5'")
    calibrant("predict", run, "val", "--views", "flip").refused("must have an output")
    calibrant("predict", "torch.nn:Flatten", "val", "--data", "digits", "-o", "x", "--views", "flp").refused("'flip'")
