"""Predictions after training: of a run, with what was not asked for then, and of models from elsewhere."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import calibrant as cb
from calibrant.data import open_dataset
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.models import build_model
from calibrant.training import predict, predict_run, train
from calibrant.training.engine import new_fabric
from calibrant.training.predicting import Predictor
from made.training import quick, results_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two shifted tests; not to be changed."""
    return train(quick(shifts=("fog-3", "snow-1")), tmp_path_factory.mktemp("predicting") / "run")


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copied"))


def logits_of(path: Path) -> Tensor:
    return cb.Predictions.load(path).logits


# Of a run


def test_a_run_is_predicted_as_it_was(run: Path, tmp_path: Path) -> None:
    paths = predict_run(run, ["test", "fog-3"], output=tmp_path / "out")
    assert {Path(path) for path in paths} == {tmp_path / "out" / f"{name}.parquet" for name in ("test", "fog-3")}
    for path in paths:
        assert Path(path).read_bytes() == (run / "predictions" / Path(path).name).read_bytes()


def test_what_was_not_predicted_then(run: Path, tmp_path: Path) -> None:
    [path] = predict_run(str(run), ["contrast-5"], output=str(tmp_path / "out"))
    predictions = cb.Predictions.load(path)
    assert set(predictions.column("corruption").to_pylist()) == {"contrast"}
    assert set(predictions.column("severity").to_pylist()) == {5}
    assert predictions.labels.tolist() == open_dataset("digits").split("test").labels.tolist()
    assert predictions.metadata["model"] == "mlp"
    whole = train(quick(shifts=("contrast-5",)), tmp_path / "whole")
    assert Path(path).read_bytes() == (whole / "predictions" / "contrast-5.parquet").read_bytes()


def test_the_column_image_is_the_row_in_the_split_also_of_a_sample() -> None:
    model, digits = build_model("mlp", 10, image_size=8, channels=1), open_dataset("digits")
    whole = predict(model, digits, "fog-3", device="cpu")
    sample = Predictor(model, digits, new_fabric("cpu"), sample=50).predict("fog-3")
    assert whole.column("image").to_pylist() == list(range(600))
    numbers = sample.column("image").to_pylist()
    assert len(numbers) == 50
    assert numbers != list(range(50))
    torch.testing.assert_close(sample.logits, whole[numbers].logits)


def test_a_corruption_is_its_five_severities(run: Path, tmp_path: Path) -> None:
    paths = predict_run(run, ["fog"], output=tmp_path / "out")
    assert [Path(path).name for path in paths] == [f"fog-{severity}.parquet" for severity in range(1, 6)]


def test_features_beside_the_same_logits(run: Path, tmp_path: Path) -> None:
    [path] = predict_run(run, ["fog-3"], output=tmp_path / "out", features=True)
    predictions = cb.Predictions.load(path)
    assert predictions.features is not None
    assert predictions.features.shape == (600, 128)
    assert predictions.features.dtype == torch.float16
    assert torch.equal(predictions.logits, logits_of(run / "predictions" / "fog-3.parquet"))


def test_without_output_into_the_run(copied: Path, run: Path) -> None:
    (copied / "predictions" / "test.parquet").unlink()
    [path] = predict_run(copied, ["test"])
    assert Path(path) == copied / "predictions" / "test.parquet"
    assert results_of(copied) == results_of(run)


@pytest.mark.parametrize("missing", ["config.json", "weights.safetensors"])
def test_a_run_with_missing_files(copied: Path, tmp_path: Path, missing: str) -> None:
    (copied / missing).unlink()
    with pytest.raises(NoDataError, match=rf"copied .*{missing}"):
        predict_run(copied, ["test"], output=tmp_path / "out")


# Of any model


def trained(run: Path) -> nn.Module:
    model = build_model("mlp", 10, image_size=8, channels=1)
    model.load_state_dict(load_file(run / "weights.safetensors"))
    return model


def test_a_module_is_predicted_as_in_its_run(run: Path) -> None:
    predictions = predict(trained(run), open_dataset("digits"), "fog-3")
    assert torch.equal(predictions.logits, logits_of(run / "predictions" / "fog-3.parquet"))
    assert predictions.labels.tolist() == open_dataset("digits").split("fog-3").labels.tolist()
    assert predictions.class_names == open_dataset("digits").class_names


def test_a_function_sees_normalised_images() -> None:
    seen: list[Tensor] = []

    def brightness(images: Tensor) -> Tensor:
        seen.append(images)
        return images.flatten(1)[:, :10]

    predictions = predict(brightness, open_dataset("digits"), "val")
    images = torch.cat(seen)
    pixels = open_dataset("digits").split("val").images
    assert isinstance(pixels, Tensor)
    assert images.dtype == torch.float32
    torch.testing.assert_close(images, (pixels.float() / 255 - 0.5) / 0.5)
    torch.testing.assert_close(predictions.logits, images.flatten(1)[:, :10])


def test_a_model_is_evaluated_without_dropout_and_left_as_it_was() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    model.train()
    one, two = (predict(model, open_dataset("digits"), "val").logits for _ in range(2))
    assert torch.equal(one, two)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_features_of_a_plain_module() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).eval()
    data = open_dataset("digits")
    predictions = predict(model, data, "val", features=True)
    pixels = data.split("val").images
    assert isinstance(pixels, Tensor)
    with torch.no_grad():
        features = model[:3]((pixels.float() / 255 - 0.5) / 0.5)
    assert predictions.features is not None
    torch.testing.assert_close(predictions.features.float(), features, atol=2e-3, rtol=2e-3)


def test_a_model_of_ones_own_predicts_until_its_code_changes(tmp_path: Path) -> None:
    code = """
from torch import nn
def build(n_classes, image_size, channels): return nn.Sequential(nn.Flatten(), nn.Linear(64, n_classes))
"""
    (tmp_path / "nets.py").write_text(code)
    run = train(quick(model=f"{tmp_path}/nets.py:build", epochs=1, shifts=("none",)), tmp_path / "run")
    (written,) = predict_run(run, ["fog-3"])
    assert cb.Predictions.load(written).n_classes == 10
    (tmp_path / "nets.py").write_text(code.replace("nn.Flatten()", "nn.Flatten(), nn.Identity()"))
    with pytest.raises(InvalidInputError, match="was started with model_code = "):
        predict_run(run, ["fog-3"], output=tmp_path / "more")
