"""The models: sizes known from their papers and from torchvision, shapes, features, seeds, refusals."""

import pytest
import torch
from torch import nn

from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.models import MODELS, Classifier, build_model, n_parameters

# Parameters of the published implementations: torchvision for 1,000 classes at 224 pixels; the usual stem of CIFAR
KNOWN = {
    ("resnet18", 1000, 224): 11_689_512,
    ("resnet50", 1000, 224): 25_557_032,
    ("densenet121", 1000, 224): 7_978_856,
    ("resnet18", 10, 32): 11_173_962,
    ("resnet18", 100, 32): 11_220_132,
    ("resnet50", 10, 32): 23_520_842,
    ("resnet50", 200, 64): 23_910_152,
}
N_FEATURES = {
    "resnet18": 512,
    "resnet50": 2048,
    "densenet121": 1024,
    "narrow_resnet": 128,
    "small_resnet": 96,
    "mlp": 128,
}
FLAT = {"small_convnet": 64}  # channels of those whose features are every place of the last stage
# Where the last stage works, for images of each size; convolutions only
LAST_SIDE = {
    "resnet18": {32: 4, 64: 4, 224: 7},
    "resnet50": {64: 4},
    "densenet121": {32: 4, 224: 7},
    "narrow_resnet": {32: 4},
    "small_resnet": {32: 4},
    "small_convnet": {28: 4, 32: 4, 64: 8},
}


def n_features(name: str, image_size: int) -> int:
    return N_FEATURES[name] if name in N_FEATURES else FLAT[name] * ((image_size + 7) // 8) ** 2


@pytest.mark.parametrize(("name", "n_classes", "image_size"), KNOWN)
def test_parameter_counts_are_the_known_ones(name: str, n_classes: int, image_size: int) -> None:
    with torch.device("meta"):
        model = build_model(name, n_classes, image_size=image_size)
    assert n_parameters(model) == KNOWN[name, n_classes, image_size]


def test_the_small_ones_are_small() -> None:
    for name in ("small_resnet", "narrow_resnet"):
        assert 250_000 < n_parameters(build_model(name, 10, image_size=32)) < 350_000
    # by hand: three convolutions with their normalisations, and the last layer of 64 channels in 4 × 4 places
    by_hand = 9 * (1 * 16 + 16 * 32 + 32 * 64) + 2 * (16 + 32 + 64) + (64 * 16 + 1) * 10
    assert n_parameters(build_model("small_convnet", 10, image_size=28, channels=1)) == by_hand


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image_size", "channels"), [(8, 1), (9, 3), (28, 1), (32, 3), (64, 1), (96, 3), (120, 1)], ids=str
)
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_head_of_the_features(name: str, image_size: int, channels: int) -> None:
    torch.manual_seed(0)
    model = build_model(name, 7, image_size=image_size, channels=channels).eval()
    images = torch.randn(2, channels, image_size, image_size)
    with torch.no_grad():
        logits, features = model(images), model.embed(images)
    assert logits.shape == (2, 7)
    assert features.shape == (2, n_features(name, image_size))
    assert logits.isfinite().all()
    assert torch.equal(model.head(features), logits)
    assert isinstance(model, Classifier)


@pytest.mark.parametrize(("name", "image_size"), [(name, size) for name, sides in LAST_SIDE.items() for size in sides])
def test_stems_leave_the_stages_the_same_sizes(name: str, image_size: int) -> None:
    with torch.device("meta"):
        model = build_model(name, 10, image_size=image_size)
        seen: list[torch.Size] = []
        last = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)][-1]
        last.register_forward_hook(lambda _module, _given, made: seen.append(made.shape))
        model(torch.zeros(1, 3, image_size, image_size))
    assert seen[0][2:] == (LAST_SIDE[name][image_size],) * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_the_seed_and_a_step_changes_each(name: str) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(5)
        models.append(build_model(name, 3, image_size=32))
    before, model = (dict(model.named_parameters()) for model in models)
    assert all(torch.equal(before[key], model[key]) for key in model)
    loss = nn.functional.cross_entropy(models[1](torch.randn(4, 3, 32, 32)), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    torch.optim.SGD(model.values(), lr=1.0).step()
    assert not [key for key in model if torch.equal(before[key], model[key])]


def test_names_are_those_of_torchvision() -> None:
    with torch.device("meta"):
        resnet = set(build_model("resnet18", 1000, image_size=224).state_dict())
        densenet = set(build_model("densenet121", 1000, image_size=224).state_dict())
    known = ("conv1.weight", "bn1.running_var", "layer2.0.downsample.1.bias", "layer4.1.conv2.weight", "fc.bias")
    assert set(known) <= resnet
    last = "features.denseblock3.denselayer24.conv2.weight"
    assert {"features.conv0.weight", last, "features.norm5.bias", "classifier.weight"} <= densenet
    assert len(resnet) == 122
    assert len(densenet) == 727


def test_bad_settings_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'resnet18'"):
        build_model("resnet-18", 10, image_size=32)
    with pytest.raises(InvalidInputError, match="n_classes must be an integer from 2 to 1000000, got 1"):
        build_model("mlp", 1, image_size=32)
    with pytest.raises(InvalidInputError, match="image_size must be an integer from 8 to 4096, got 4"):
        build_model("mlp", 10, image_size=4)
