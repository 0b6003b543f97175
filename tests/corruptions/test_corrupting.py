"""What `corrupt` refuses; data sets and transforms that corrupt, one by one, in batches and by workers."""

import math
import pickle
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Subset, TensorDataset

import calibrant as cb
from calibrant.corruptions import Corrupt, CorruptedDataset
from calibrant.corruptions.frost import PHOTOGRAPHS
from calibrant.corruptions.noise import _shot_tables
from calibrant.errors import CalibrantError, InvalidInputError, NoDataError, UnknownNameError
from made.corruption_check import as_pillow, as_tensor, assert_same, crops


def zeros(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


def with_value(value: float) -> Tensor:
    images = torch.full((3, 3, 9, 10), 0.5)
    images[1, 2, 3, 4] = value
    return images


# Refusals


BAD_IMAGES: list[tuple[Any, str]] = [
    (zeros(16, 16), r"images must be .* got shape \(16, 16\)"),
    (zeros(2, 2, 16, 16), "images must have 1 or 3 channels, .* got 2"),
    (zeros(2, 16, 16, 3), "images must have 1 or 3 channels, .* got 16"),
    (zeros(0, 3, 16, 16), "images must not be an empty batch"),
    (zeros(2, 3, 16, 7), "images must have sides of at least 8 pixels, got 16 x 7"),
    (zeros(3, 7, 16), "images must have sides of at least 8 pixels, got 7 x 16"),
    *(
        (zeros(2, 3, 16, 16, dtype=dtype), f"images must be uint8 or floating point .* got {dtype}")
        for dtype in (torch.int64, torch.int32, torch.int8, torch.bool, torch.uint16)
    ),
    (zeros(2, 3, 16, 16, dtype=torch.complex64), "images must be real numbers, got torch.complex64"),
    *(
        (with_value(value), rf"images must lie in \[0, 1\], got {value:g} at image 1, channel 2, row 3, column 4")
        for value in (1.5, -0.25, math.nan, math.inf, -math.inf, 255.0)
    ),
    (with_value(1.5)[1], r"images must lie in \[0, 1\], got 1.5 at .*channel 2, row 3, column 4"),
    (torch.cat([with_value(-3.0), with_value(math.nan)]), "got -3 at image 1, channel 2, row 3, column 4"),
    (zeros(1, 3, 8, 8, dtype=torch.float32).to_sparse(), "images must be"),
    (zeros(1, 3, 8, 8).to(torch.float8_e5m2), "images must be"),
    (with_value(math.nan).half(), "got nan at image 1, channel 2, row 3, column 4"),
    (np.zeros((3, 16, 16), dtype=np.uint8), "images must be a tensor or a Pillow image, got ndarray"),
    ([[0]], "images must be a tensor or a Pillow image, got list"),
    *((Image.new(mode, (16, 16)), f"got mode {mode}") for mode in ("RGBA", "P", "LA", "1", "CMYK", "I", "F", "I;16")),
    (Image.new("RGB", (7, 16)), "images must have sides of at least 8 pixels, got 16 x 7"),
]


@pytest.mark.parametrize(("images", "message"), BAD_IMAGES, ids=[message for _, message in BAD_IMAGES])
def test_bad_images_are_refused(images: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        cb.corrupt(images, "gaussian_noise", 1)
    assert "\n" not in str(caught.value)


BAD_OPTIONS: list[tuple[dict[str, Any], type[CalibrantError], str]] = [
    *(
        ({"severity": bad}, InvalidInputError, f"severity must be an integer from 1 to 5, got {bad}")
        for bad in (0, 6, -1, 2.0, 2.5, "3", None, math.nan)
    ),
    ({"name": "fogg"}, UnknownNameError, "unknown .*'fogg'; did you mean 'fog'"),
    ({"name": "Fog"}, UnknownNameError, "unknown .*'Fog'"),
    ({"name": None}, UnknownNameError, "unknown .*None"),
    ({"seed": -1}, InvalidInputError, "seed must be an integer of at least 0, got -1"),
    ({"seed": 1.5}, InvalidInputError, "seed must be .* got 1.5"),
    ({"seed": None}, InvalidInputError, "seed must be .* got None"),
    ({"parameters": "imagnet"}, UnknownNameError, "'imagnet'; did you mean 'imagenet'"),
    ({"parameters": "mnist"}, UnknownNameError, "'mnist'; .*cifar"),
    ({"save_quality": 0}, InvalidInputError, "save_quality must be an integer from 1 to 95, got 0"),
    ({"save_quality": 96}, InvalidInputError, "save_quality must be .* got 96"),
    ({"save_quality": 85.0}, InvalidInputError, "save_quality must be .* got 85.0"),
    ({"name": "frost", "frost_dir": "none"}, NoDataError, r"frost1\.png in the folder none"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS, ids=[message for *_, message in BAD_OPTIONS])
def test_bad_options_are_refused(options: dict[str, Any], error: type[CalibrantError], message: str) -> None:
    image = zeros(3, 8, 8)
    for name in ("fog", "contrast"):
        given = {"name": name, "severity": 1} | options
        for act in (partial(cb.corrupt, image), Corrupt, partial(CorruptedDataset, [image])):
            with pytest.raises(error, match=message):
                act(**given)


BAD_KEYS: list[tuple[Any, str]] = [
    ([1, 2], "keys must be one for each of 3 images, got 2"),
    ([], "keys must be one for each of 3 images, got 0"),
    ([1, 2.5, 3], "keys must be integers or words, got 2.5 at row 1"),
    ([1, 2, None], "keys must be integers or words, got None at row 2"),
    ([b"a", 1, 2], "keys must be integers or words, got b'a' at row 0"),
    (5, "keys must be a sequence of integers or words, got int"),
    ("abc", "keys must be a sequence of integers or words, got str"),
]


def test_bad_keys_are_refused() -> None:
    for keys, message in BAD_KEYS:
        for name in ("fog", "contrast"):
            with pytest.raises(InvalidInputError, match=message):
                cb.corrupt(zeros(3, 3, 8, 8), name, 1, keys=keys)


def test_zero_with_a_sign_and_both_ends_are_levels() -> None:
    image = torch.tensor([0.0, -0.0, 1.0, 1.0]).repeat(3, 8, 2)
    found = cb.corrupt(image, "gaussian_noise", 1)
    levels = cb.corrupt((image * 255).to(torch.uint8), "gaussian_noise", 1)
    assert_same((found * 255).round().to(torch.uint8), levels)


# Frost photographs


def test_frost_of_a_folder(tmp_path: Path) -> None:
    """Flat images make the arithmetic plain: a share of 0.2 of level 100 at severity 1."""
    for name in PHOTOGRAPHS:
        Image.new("RGB", (400, 300), (100, 100, 100)).save(tmp_path / name, quality=100)
    images = crops(6, 32)
    for folder in (tmp_path, str(tmp_path)):
        found = cb.corrupt(images, "frost", 1, frost_dir=folder)
        assert (found.int() - (images.int() + 20).clamp(max=255)).abs().max() <= 1
        assert_same(Corrupt("frost", 1, frost_dir=folder)(images, keys=range(6)), found)
    assert_same(cb.corrupt(images, "fog", 1, frost_dir=tmp_path), cb.corrupt(images, "fog", 1))


# Data sets


def labelled(images: Tensor) -> TensorDataset:
    return TensorDataset(images, torch.arange(len(images)) + 100)


def loaded(loader: DataLoader[Any]) -> tuple[Tensor, Tensor]:
    parts = list(loader)
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


OPTIONS: list[dict[str, Any]] = [{"seed": 2**40}, {"parameters": "imagenet"}, {"save_quality": 85}]


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {"seed": 8}) for name in cb.CORRUPTIONS), *(("snow", o) for o in OPTIONS)]
)
def test_items_have_their_index_as_key(name: str, options: dict[str, Any]) -> None:
    images = crops(5, 32)
    shifted, wanted = CorruptedDataset(labelled(images), name, 3, **options), cb.corrupt(images, name, 3, **options)
    assert len(shifted) == 5
    for i in (4, 0, 2, 2):
        image, label = shifted[i]
        assert_same(image, wanted[i])
        assert label == i + 100
    items = shifted.__getitems__([3, 1, 1, 4])
    assert_same(torch.stack([image for image, _ in items]), wanted[[3, 1, 1, 4]])
    assert [int(label) for _, label in items] == [103, 101, 101, 104]
    assert_same(pickle.loads(pickle.dumps(shifted))[2][0], wanted[2])  # as it is sent to workers
    assert_same(Corrupt(name, 3, **options)(images, keys=range(5)), wanted)
    assert_same(images, crops(5, 32))


def test_loaders() -> None:
    images = crops(11, 32)
    for given, name in ((images, "glass_blur"), ((images / 255).half(), "frost"), (images / 255, "gaussian_noise")):
        shifted, wanted = CorruptedDataset(labelled(given), name, 4), cb.corrupt(given, name, 4)
        shuffled = {"batch_size": 3, "shuffle": True, "generator": torch.Generator().manual_seed(1)}
        chosen = {"batch_sampler": BatchSampler([7, 3, 3, 10, 0], batch_size=2, drop_last=False)}
        orders = []
        for options in ({"batch_size": 4}, shuffled, chosen):
            found, labels = loaded(DataLoader(shifted, **options))
            assert_same(found, wanted[labels - 100])
            orders.append([int(label) - 100 for label in labels])
        assert orders[0] == sorted(orders[1]) == list(range(11)) != orders[1]
        assert orders[2] == [7, 3, 3, 10, 0]
        assert_same(torch.stack([image for image, _ in DataLoader(shifted, batch_size=None)]), wanted)
    indices: list[Any] = [[5, 2], np.array([5, 2]), torch.tensor([5, 2])]
    for part in (Subset(shifted, one) for one in indices):  # the index in the whole, whatever kind of number it is
        assert_same(loaded(DataLoader(part, batch_size=2))[0], wanted[[5, 2]])
    with warnings.catch_warnings():  # newer Pythons warn of forks of a process with threads, as torch has
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
        found, _ = loaded(DataLoader(shifted, batch_size=3, num_workers=2, multiprocessing_context="fork"))
    assert_same(found, wanted)


def test_what_comes_with_an_image_stays() -> None:
    images, record = crops(2, 16), {"path": "a.png"}
    wanted = cb.corrupt(images, "fog", 3)
    found = CorruptedDataset([(images[0], 3, record, None)], "fog", 3)[0]
    assert isinstance(found, tuple)
    assert_same(found[0], wanted[0])
    assert (len(found), found[1], found[3]) == (4, 3, None)
    assert found[2] is record
    assert_same(torch.stack(CorruptedDataset(list(images), "fog", 3).__getitems__([1, 0])), wanted[[1, 0]])
    twice = CorruptedDataset(CorruptedDataset(labelled(images), "fog", 3), "gaussian_noise", 1)
    assert_same(loaded(DataLoader(twice, batch_size=2))[0], cb.corrupt(wanted, "gaussian_noise", 1))


def test_images_of_many_sizes_and_kinds_in_one_batch() -> None:
    one = crops(1, 32)[0]
    items = [one, crops(1, 33, 17)[0], as_pillow(crops(1, 20)[0]), one[:1], one / 255, as_pillow(one[:1])]
    together = CorruptedDataset(items, "elastic_transform", 3).__getitems__([5, 4, 3, 2, 1, 0])[::-1]
    for i, (given, found) in enumerate(zip(items, together, strict=True)):
        wanted = cb.corrupt(given, "elastic_transform", 3, keys=[i])
        assert type(found) is type(wanted) is type(given)
        if isinstance(given, Image.Image):
            assert found.mode == given.mode
            found, wanted = as_tensor(found), as_tensor(wanted)
        assert_same(found, wanted)


def test_indices_count_from_either_end_and_end_the_iteration() -> None:
    images = crops(4, 32)
    wanted = cb.corrupt(images, "gaussian_noise", 3)
    for dataset in (labelled(images), [(image, None) for image in images]):
        shifted = CorruptedDataset(dataset, "gaussian_noise", 3)
        assert_same(torch.stack([image for image, _ in shifted.__getitems__([-1, 0, -4])]), wanted[[3, 0, 0]])
        for indices in ([4], [-5], [2**40], [0, 4]):
            with pytest.raises(IndexError):
                shifted.__getitems__(indices)
        assert_same(torch.stack([image for image, _ in shifted]), wanted)


def test_items_that_are_no_images_are_refused() -> None:
    for item, message in (("image.png", 1), "got str"), ({"image": zeros(3, 16, 16)}, "got dict"):
        shifted = CorruptedDataset([item], "fog", 1)
        with pytest.raises(InvalidInputError, match=message):
            shifted[0]
        with pytest.raises(InvalidInputError, match=message):
            shifted.__getitems__([0])


# The transform


@pytest.mark.parametrize("name", cb.CORRUPTIONS)
def test_a_transform_gives_an_image_the_same_noise_everywhere(name: str) -> None:
    """In a batch, alone, in another order, in other memory, as floats."""
    images = crops(5, 33, 17)
    transform = Corrupt(name, 3, seed=2)
    found = transform(images)
    assert_same(torch.stack([transform(image) for image in images]), found)
    assert_same(transform(images.flip(0)), found.flip(0))
    assert_same(as_tensor(transform(as_pillow(images[1]))), found[1])
    assert_same(pickle.loads(pickle.dumps(transform))(images), found)
    assert_same(transform(images.to(memory_format=torch.channels_last)), found)
    assert_same((transform(images.double() / 255) * 255).round().to(torch.uint8), found)
    assert_same(
        transform(images, keys=["a", "b", 2, 3, 4]), cb.corrupt(images, name, 3, seed=2, keys=["a", "b", 2, 3, 4])
    )


def test_a_transform_gives_other_images_other_noise() -> None:
    images = torch.arange(100, 130, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 32, 32).contiguous()
    noise = (Corrupt("gaussian_noise", 3)(images).double() - images).flatten(1)
    assert torch.corrcoef(noise).fill_diagonal_(0).abs().max() < 5.5 / math.sqrt(3072)
    one_value = crops(1, 32).expand(2, -1, -1, -1).clone()
    one_value[1, 2, 31, 31] ^= 1
    first, second = Corrupt("gaussian_noise", 3)(one_value)
    assert (first != second).double().mean() > 0.5
    other_seed = Corrupt("gaussian_noise", 3, seed=1)(images)
    assert (other_seed != Corrupt("gaussian_noise", 3)(images)).double().mean() > 0.5
    assert Corrupt("fog", 2, seed=3) == Corrupt("fog", 2, seed=3) != Corrupt("fog", 2)


@pytest.mark.parametrize("name", ["gaussian_noise", "snow"])
def test_noise_does_not_depend_on_the_type_of_equal_values(name: str) -> None:
    images = crops(2, 32)
    plain = cb.corrupt(images, name, 3, seed=3, keys=["a", "b"])
    other = cb.corrupt(images, np.str_(name), np.int64(3), seed=np.uint8(3), keys=list(np.array(["a", "b"])))
    assert_same(plain, other)
    assert_same(cb.corrupt(images, name, 3), cb.corrupt(images, name, 3, keys=np.arange(2)))
    assert_same(cb.corrupt(images[:1], name, 3, keys=torch.tensor(3)), cb.corrupt(images[:1], name, 3, keys=[3]))


def test_five_hundred_photons_have_a_guide() -> None:
    guide = _shot_tables(500, torch.device("cpu"))[0]
    assert (guide < 0).float().mean() < 0.05  # the cells whose values are searched one by one


def test_large_photographs_have_no_overflow() -> None:
    """A disk of 45 pixels sums more than 16 bits hold."""
    images = torch.full((1, 1, 1008, 1008), 255, dtype=torch.uint8)
    assert cb.corrupt(images, "defocus_blur", 5).min() >= 254
