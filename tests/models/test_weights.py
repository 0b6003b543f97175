"""Weights on disk: what is written is read; files of other models and damaged ones are refused; timm's models."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from calibrant.errors import CorruptFileError, InvalidInputError, MissingExtraError, NoDataError
from calibrant.models import build_model, load_weights, read_tensors, write_tensors


def test_weights_are_read_as_they_were_written(tmp_path: Path) -> None:
    first, second = (build_model("small_resnet", 10, image_size=16) for _ in range(2))
    first.to(memory_format=torch.channels_last)
    write_tensors(tmp_path / "w.safetensors", first.state_dict(), {"seed": 3})
    load_weights(second, tmp_path / "w.safetensors")
    assert all(torch.equal(tensor, first.state_dict()[name]) for name, tensor in second.state_dict().items())
    assert read_tensors(tmp_path / "w.safetensors")[1] == {"seed": 3}


def test_a_head_of_other_classes_stays_random(tmp_path: Path) -> None:
    ten, three = (build_model("mlp", n, image_size=8, channels=1) for n in (10, 3))
    save_file(dict(ten.state_dict()), tmp_path / "w.safetensors")  # as another program writes it
    head = three.head.weight.clone()
    load_weights(three, tmp_path / "w.safetensors")
    assert torch.equal(three.head.weight, head)
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(three.embed(images), ten.embed(images))


def test_counts_of_batches_may_be_missing(tmp_path: Path) -> None:
    model = build_model("small_convnet", 3, image_size=8)
    weights = {name: tensor for name, tensor in model.state_dict().items() if "num_batches" not in name}
    write_tensors(tmp_path / "old.safetensors", weights, {})
    other = build_model("small_convnet", 3, image_size=8)
    load_weights(other, tmp_path / "old.safetensors")
    assert torch.equal(other.fc.weight, model.fc.weight)  # type: ignore[arg-type]


def test_weights_of_another_model_and_damaged_files_are_refused(tmp_path: Path) -> None:
    model = build_model("mlp", 10, image_size=8, channels=1)
    path, weights = tmp_path / "w.safetensors", dict(model.state_dict())
    with pytest.raises(NoDataError, match=r"w\.safetensors is not there"):
        load_weights(model, path)
    for others, message in (
        (weights | {"extra": torch.zeros(1)}, "'extra' is no weight of this one"),
        ({name: w for name, w in weights.items() if name != "hidden1.bias"}, r"has no weight 'hidden1\.bias'"),
        (weights | {"hidden1.bias": torch.zeros(7)}, r"its 'hidden1\.bias' is \(7,\), not \(256,\)"),
    ):
        save_file(others, path)
        with pytest.raises(InvalidInputError, match=message):
            load_weights(model, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CorruptFileError, match="cannot be read as safetensors"):
        load_weights(model, path)


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    """Anywhere in a file of ours: header, record, digest, tensors. Files of other programs have no digest."""
    path, weights = tmp_path / "w.safetensors", {"a": torch.arange(24.0), "b": torch.ones(2, 3)}
    record = {"seed": 3, "note": f"blake2b:{'0' * 32}"}
    write_tensors(path, weights, record)
    assert read_tensors(path)[1] == record
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(CorruptFileError, match=r"is damaged|cannot be read as safetensors"):
            read_tensors(path)
    path.write_bytes(content[:-8] + bytes(8))
    with pytest.raises(CorruptFileError, match="is damaged: its bytes do not have the digest"):
        read_tensors(path)
    save_file(weights, path, {"format": f"blake2b:{'a' * 32}"})
    assert read_tensors(path)[1] == {}
    save_file(weights, path, {"calibrant": "[" * 100_000})
    with pytest.raises(CorruptFileError, match="is not JSON"):
        read_tensors(path)


def test_timm_is_named_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"timm:resnet18 needs the extra timm: pip install 'calibrant\[timm\]'"):
        build_model("timm:resnet18", 10, image_size=32)


def test_the_size_of_images_is_given_to_the_models_of_timm_that_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the refusal of that option is tried without it; any other TypeError is a fault of the model."""

    class Net(torch.nn.Linear):
        def __init__(self, num_classes: int, in_chans: int) -> None:
            super().__init__(in_chans, num_classes)

        def get_classifier(self) -> torch.nn.Module:
            return self

    class Sized(Net):
        def __init__(self, num_classes: int, in_chans: int, img_size: int) -> None:
            super().__init__(num_classes, in_chans)
            self.img_size = img_size

    def fail(**_options: int) -> None:
        raise TypeError("unsupported operand")

    makers: dict[str, Any] = {"net": Net, "sized": Sized, "faulty": fail}
    fake = SimpleNamespace(
        list_models=lambda: list(makers), create_model=lambda name, **options: makers[name](**options), __version__="0"
    )
    monkeypatch.setitem(sys.modules, "timm", fake)
    assert build_model("timm:net", 7, image_size=64).head.out_features == 7
    assert build_model("timm:sized", 7, image_size=64).body.img_size == 64  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="unsupported operand"):
        build_model("timm:faulty", 7, image_size=64)


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_models_of_timm_keep_the_contract(name: str) -> None:
    timm = pytest.importorskip("timm", reason="timm needs torchvision, which has no build for every torch")
    model = build_model(f"timm:{name}", 7, image_size=64).eval()
    images = torch.randn(2, 3, 64, 64)
    assert torch.allclose(model(images), model.body(images), atol=1e-5)  # type: ignore[operator]
    with pytest.raises(InvalidInputError, match=f"timm:nothing is no model of timm {timm.__version__}"):
        build_model("timm:nothing", 7, image_size=64)
