"""The battery that every corruption must pass: `check_corruption`, one aspect after the other."""

import hashlib
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import calibrant as cb
from calibrant.corruptions import Corrupt, frost

Aspect = Callable[[str], None]

SEVERITIES = range(1, 6)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SETS = {"cifar": 32, "tiny_imagenet": 64, "imagenet": 224}
# The set that is nearest to a size on a log scale, for sizes at which no set was published
NEAREST = {8: "cifar", 28: "cifar", 48: "tiny_imagenet", 96: "tiny_imagenet", 128: "imagenet"}

NOISES = {"gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"}
COLOURS = {"brightness", "contrast", "saturate"}
DETERMINISTIC = {"defocus_blur", "zoom_blur", "gaussian_blur", "pixelate", "jpeg_compression", *COLOURS}
# Elastic's lengths are shares of the image's side in the published tables
WITHOUT_LENGTHS = {"elastic_transform", "zoom_blur", "fog", "pixelate", "jpeg_compression", *COLOURS, *NOISES}
# A flat image has nothing that these could move or mix
BLURS = {"defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"}
KEEPS_FLAT_IMAGES = {"contrast", "elastic_transform", "pixelate", *BLURS}
KEEPS_BLACK_IMAGES = {"shot_noise", "speckle_noise", "fog", "saturate", *KEEPS_FLAT_IMAGES}
# Their tables and textures are made once and kept
WITH_TABLES = ("frost", "spatter", "jpeg_compression", "fog", "shot_noise")
# Small drops may miss a small image
MAY_MISS_AN_IMAGE = {"spatter"}


def check_corruption(name: str, aspect: str) -> None:
    """Check one aspect of the contract of a corruption."""
    ASPECTS[aspect](name)


# What is corrupted


@cache
def photographs() -> tuple[Tensor, ...]:
    from sklearn.datasets import load_sample_images  # slow to import, and not needed by the other process

    return tuple(torch.from_numpy(image.copy()).permute(2, 0, 1) for image in load_sample_images().images)


@cache
def shared_crops(n: int, height: int, width: int) -> Tensor:
    windows = []
    for i in range(n):
        photograph = photographs()[i % 2]
        top = (37 * i + 260) % (photograph.shape[1] - height)
        left = (91 * i + 200) % (photograph.shape[2] - width)
        windows.append(photograph[:, top : top + height, left : left + width])
    return torch.stack(windows)


def crops(n: int, height: int, width: int | None = None) -> Tensor:
    """Windows (n, 3, height, width) of real photographs, a copy for the caller alone."""
    return shared_crops(n, height, height if width is None else width).clone()


def as_pillow(image: Tensor) -> Image.Image:
    """The image (c, h, w) as Pillow has it."""
    return Image.fromarray((image[0] if len(image) == 1 else image.permute(1, 2, 0).contiguous()).numpy())


def as_tensor(image: Image.Image) -> Tensor:
    values = torch.from_numpy(np.array(image))
    return values[None] if values.ndim == 2 else values.permute(2, 0, 1)


def through_jpeg(image: Tensor, quality: int, **options: Any) -> Tensor:
    """The image (c, h, w) after Pillow has saved it as JPEG and opened it again."""
    file = io.BytesIO()
    as_pillow(image).save(file, "JPEG", quality=quality, **options)
    with Image.open(file) as opened:
        return as_tensor(opened)


def at_all_severities(images: Tensor, name: str, **options: Any) -> Tensor:
    return torch.stack([cb.corrupt(images, name, severity, **options) for severity in SEVERITIES])


# What is asked of the outcome


def assert_same(found: Tensor, wanted: Tensor) -> None:
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if not torch.equal(found, wanted):
        where = (found != wanted).nonzero()
        raise AssertionError(f"{len(where)} of {wanted.numel()} values differ, the first at {where[0].tolist()}")


def assert_image_like(found: Tensor, given: Tensor) -> None:
    assert found.shape == given.shape
    assert found.dtype == given.dtype
    assert found.device == given.device
    if given.is_floating_point():
        assert found.min() >= 0
        assert found.max() <= 1


# Aspects of the image


def kinds_of_numbers(name: str) -> None:
    """Every dtype gives the levels of uint8; floats are those levels / 255, and may stand beside a level."""
    images = crops(3, 32)
    for severity in SEVERITIES:
        wanted = cb.corrupt(images, name, severity)
        assert_image_like(wanted, images)
        for dtype in FLOATS:
            given = (images.double() / 255).to(dtype)
            found = cb.corrupt(given, name, severity)
            assert_image_like(found, given)
            levels = found.double() * 255
            assert_same(levels.round().to(torch.uint8), wanted)
            error = (levels - levels.round()).abs().max().item()
            assert error <= 255 * torch.finfo(dtype).eps / 2, (dtype, error)
        beside = images.double() + 0.8 * torch.rand(images.shape, generator=torch.Generator().manual_seed(1)) - 0.4
        found = cb.corrupt((beside.clamp(0, 255) / 255), name, severity)
        assert_same((found * 255).round().to(torch.uint8), wanted)


def one_image(name: str) -> None:
    """A single image is a batch of one, as a tensor and as a Pillow image, which stays as it is."""
    for channels, mode in ((3, "RGB"), (1, "L")):
        image = crops(1, 33, 17)[0, :channels]
        for options in ({}, {"keys": ["a/b.png"], "seed": 5}, {"save_quality": 85}, {"parameters": "imagenet"}):
            wanted = cb.corrupt(image[None], name, 4, **options)[0]
            assert_same(cb.corrupt(image, name, 4, **options), wanted)
            given = as_pillow(image)
            found = cb.corrupt(given, name, 4, **options)
            assert isinstance(found, Image.Image)
            assert found.mode == given.mode == mode
            assert_same(as_tensor(found), wanted)
            assert_same(as_tensor(given), image)


def sizes(name: str) -> None:
    """From 8 x 8 to elongated ones, with every set of parameters."""
    for height, width in ((8, 8), (9, 31), (33, 17), (8, 70), (70, 8)):
        images = crops(2, height, width)
        for parameters in (None, *SETS):
            for severity in SEVERITIES:
                assert_image_like(cb.corrupt(images, name, severity, parameters=parameters), images)
    image = crops(1, 100, 300)
    for severity in SEVERITIES:
        found = cb.corrupt(image, name, severity)
        assert_image_like(found, image)
        assert (found != image).any()


def flat_images(name: str) -> None:
    """Black, white and in between; what only moves or mixes pixels leaves them within a level."""
    for level in (0, 100, 255):
        for channels in (1, 3):
            images = torch.full((2, channels, 32, 32), level, dtype=torch.uint8)
            for severity in SEVERITIES:
                found = cb.corrupt(images, name, severity)
                assert_image_like(found, images)
                if name in KEEPS_FLAT_IMAGES:
                    assert (found.int() - level).abs().max() <= 1, (level, severity)
                if level == 0 and name in KEEPS_BLACK_IMAGES:
                    assert not found.any(), severity
                half = cb.corrupt(images.half() / 255, name, severity)
                assert_same((half.double() * 255).round().to(torch.uint8), found)


def natural_images(name: str) -> None:
    """Every severity changes a photograph, each in its own way."""
    for n, side in ((6, 32), (3, 64), (1, 224)):
        images = crops(n, side)
        found = at_all_severities(images, name)
        changed = (found != images).flatten(2).any(2)
        assert changed.any(1).all(), side
        assert changed.all() or name in MAY_MISS_AN_IMAGE, (side, changed)
        for first in SEVERITIES:
            for second in range(1, first):
                assert not torch.equal(found[first - 1], found[second - 1]), (side, first, second)


def layouts(name: str) -> None:
    """Strides, and where the numbers lie in memory, do not matter."""
    images = crops(3, 24, 40)
    wanted = cb.corrupt(images, name, 3)
    framed = torch.zeros(6, 4, 30, 90, dtype=torch.uint8)
    framed[::2, :3, 3:27, 5:85:2] = images
    for given in (
        images.to(memory_format=torch.channels_last),
        images.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1),
        images.transpose(2, 3).contiguous().transpose(2, 3),
        framed[::2, :3, 3:27, 5:85:2],
        torch.zeros(images.numel() + 1, dtype=torch.uint8)[1:].view(images.shape).copy_(images),
    ):
        assert torch.equal(given, images)
        assert_same(cb.corrupt(given, name, 3), wanted)
        assert_same((cb.corrupt(given.double() / 255, name, 3) * 255).round().to(torch.uint8), wanted)
    repeated = images[:1].expand(3, -1, -1, -1)
    assert_same(cb.corrupt(repeated, name, 3), cb.corrupt(repeated.contiguous(), name, 3))


def input_stays(name: str) -> None:
    """Neither the call nor what is done with its result reaches the input, or a later call; no gradient passes."""
    for images in (crops(2, 32), (crops(2, 32) / 255).requires_grad_()):
        before = images.detach().clone()
        for severity in SEVERITIES:
            found = cb.corrupt(images, name, severity)
            assert not found.requires_grad
            kept = found.clone()
            found.zero_()
            assert_same(images.detach(), before)
            assert_same(cb.corrupt(images * 1, name, severity), kept)
    with torch.inference_mode():
        assert_same(cb.corrupt(before.clone(), name, severity), kept)


def saved_as_jpeg(name: str) -> None:
    """A quality means: saved by Pillow as the published sets were, and opened again."""
    for channels in (1, 3):
        images = crops(2, 40, 33)[:, :channels]
        for severity, quality in ((1, 85), (3, 85), (5, 1), (2, 95)):
            found = cb.corrupt(images, name, severity, save_quality=quality)
            plain = cb.corrupt(images, name, severity)
            wanted = torch.stack([through_jpeg(image, quality, optimize=True) for image in plain])
            assert_same(found, wanted)
        floats = cb.corrupt(images / 255, name, 3, save_quality=85)
        assert_same((floats * 255).round().to(torch.uint8), cb.corrupt(images, name, 3, save_quality=85))


# Aspects of sameness


def batches(name: str) -> None:
    """Alone, in any part, in any order: the key decides, not the place."""
    for height, width in ((32, 32), (33, 17)):
        images = crops(7, height, width)
        for severity in SEVERITIES:
            whole = cb.corrupt(images, name, severity)
            for keys in (range(7), range(3), range(3, 7), [6, 5, 4, 3, 2, 1, 0], [2, 2, 5], *([i] for i in range(7))):
                part = cb.corrupt(images[list(keys)], name, severity, keys=keys)
                assert_same(part, whole[list(keys)])
    images = crops(180, 32)  # more than are corrupted at once
    whole = cb.corrupt(images, name, 4)
    for start, stop in ((0, 7), (97, 103), (171, 180)):
        assert_same(cb.corrupt(images[start:stop], name, 4, keys=range(start, stop)), whole[start:stop])


def threads(name: str) -> None:
    """The number of torch's threads changes nothing, and two calls at the same time do not meet."""
    first, second, large = crops(4, 32), crops(4, 33, 17), crops(1, 150, 225)
    wanted = at_all_severities(first, name), at_all_severities(second, name, seed=1)
    alone, before = cb.corrupt(large, name, 4), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert_same(cb.corrupt(large, name, 4), alone)
    finally:
        torch.set_num_threads(before)
    start = Barrier(2)

    def work(images: Tensor, seed: int) -> Tensor:
        start.wait(timeout=600)
        return at_all_severities(images, name, seed=seed)

    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(work, first, 0), pool.submit(work, second, 1)
        for found, expected in zip(running, wanted, strict=True):
            assert_same(found.result(timeout=600), expected)


def digest(name: str, photograph: Tensor) -> str:
    """Of what becomes of parts of the photograph at every severity."""
    found = hashlib.sha256()
    for height, width, keys in ((32, 32, None), (33, 17, ["a", "ß/é.png", -5]), (70, 90, [2**63 - 1, -(2**63), ""])):
        images = torch.stack([photograph[:, 40 * i : 40 * i + height, 60 * i : 60 * i + width] for i in range(3)])
        found.update(at_all_severities(images, name, keys=keys, seed=11).numpy().tobytes())
        found.update(Corrupt(name, 3)(images).numpy().tobytes())  # whose keys are hashes of the pixels
    return found.hexdigest()


def digest_of_frost() -> str:
    """Of the images of frost that are grown."""
    return hashlib.sha256(frost.read_frost()[0].numpy().tobytes()).hexdigest()


def devices_under_another_default() -> list[str]:
    """Where images are that were made while the default was another device, and afterwards; for a new process."""
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    made = []
    for device in ("meta", "cpu"):
        torch.set_default_device(device)
        made += [cb.corrupt(images, name, 1) for name in WITH_TABLES]
    torch.set_default_device(None)
    return [image.device.type for image in made]


def print_digests() -> None:
    """Print digests of all corruptions, and devices, as JSON; the photograph is the standard input."""
    photograph = torch.from_numpy(np.load(io.BytesIO(sys.stdin.buffer.read())))
    found: dict[str, Any] = {"devices": devices_under_another_default(), "grown frost": digest_of_frost()}
    print(json.dumps(found | {name: digest(name, photograph) for name in cb.CORRUPTIONS}))


@cache
def digests_elsewhere() -> dict[str, Any]:
    """The output of a process with other hashes of words and without vector instructions."""
    given = io.BytesIO()
    np.save(given, photographs()[0].numpy())
    found = subprocess.run(
        [sys.executable, "-c", "import corruption_check; corruption_check.print_digests()"],
        input=given.getvalue(),
        capture_output=True,
        timeout=600,
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONHASHSEED": "1234", "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr.decode()
    digests: dict[str, Any] = json.loads(found.stdout)
    return digests


def another_process(name: str) -> None:
    assert digest(name, photographs()[0]) == digests_elsewhere()[name]


def state_of_the_process(name: str) -> None:
    """Nobody's generator is read or moved, and no setting of torch reaches the bytes."""
    images = crops(2, 32)
    wanted = at_all_severities(images, name)
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
        assert_same(at_all_severities(images, name), wanted)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.random.get_state()[1].tolist() == before[1]
        assert random.getstate() == before[2]
    default = torch.get_default_dtype()
    try:
        torch.set_deterministic_debug_mode("error")
        for dtype in (torch.float64, torch.float16):
            torch.set_default_dtype(dtype)
            assert_same(at_all_severities(images, name), wanted)
    finally:
        torch.set_deterministic_debug_mode("default")
        torch.set_default_dtype(default)


# Aspects of chance


def seeds_and_keys(name: str) -> None:
    """Another seed or key is another draw; where nothing is drawn, they change nothing."""
    images = crops(4, 32)
    default = at_all_severities(images, name)
    others = [{"seed": seed} for seed in (1, 2**32, 2**40 + 1)]
    others += [{"keys": [offset + i for i in range(4)]} for offset in (4, 2**32, -(2**63), 2**63 - 4)]
    others += [{"seed": 1, "keys": [3, 2, 1, 0]}]
    found = [default, *(at_all_severities(images, name, **options) for options in others)]
    for i, first in enumerate(found):
        for second in found[:i]:
            for severity in SEVERITIES:
                same = torch.equal(first[severity - 1], second[severity - 1])
                assert same == (name in DETERMINISTIC), (i, severity)


def words_as_keys(name: str) -> None:
    """A word is a key as good as a number; equal images of one key stay equal, and of two keys part."""
    images = crops(4, 32)
    words = ["n01440764/ILSVRC2012_val_00000293.JPEG", "b", "", "ä/🐟.png"]
    found = at_all_severities(images, name, keys=words)
    for i, word in enumerate(words):
        assert_same(at_all_severities(images[i : i + 1], name, keys=[word])[:, 0], found[:, i])
    mixed = at_all_severities(images, name, keys=(words[0], 1, words[2], 3))
    assert_same(mixed[:, ::2], found[:, ::2])
    assert_same(mixed[:, 1::2], at_all_severities(images, name)[:, 1::2])
    equal = crops(1, 64).expand(4, -1, -1, -1)
    found = at_all_severities(equal, name, keys=["a", "a", "b", 3])
    assert_same(found[:, 0], found[:, 1])
    for i, j in ((0, 2), (0, 3), (2, 3)):
        assert torch.equal(found[:, i], found[:, j]) == (name in DETERMINISTIC), (i, j)


# Aspects of the parameters


def parameters(name: str) -> None:
    """At the size a set was published for it is the default; between sizes the nearest, its lengths in proportion."""
    for published, side in SETS.items():
        for height, width in ((side, side), (side, side + 9), (side + 9, side))[: 1 if side == 224 else 3]:
            images = crops(1, height, width)
            assert_same(at_all_severities(images, name), at_all_severities(images, name, parameters=published))
    images = crops(4, 32)
    assert not torch.equal(at_all_severities(images, name), at_all_severities(images, name, parameters="imagenet"))
    for side, nearest in NEAREST.items():
        images = crops(1, side, side + 3)
        same = torch.equal(at_all_severities(images, name), at_all_severities(images, name, parameters=nearest))
        assert same == (name in WITHOUT_LENGTHS), side


ASPECTS: dict[str, Aspect] = {
    aspect.__name__: aspect
    for aspect in (
        *(kinds_of_numbers, one_image, sizes, flat_images, natural_images, layouts, input_stays, saved_as_jpeg),
        *(batches, threads, another_process, state_of_the_process, seeds_and_keys, words_as_keys, parameters),
    )
}
