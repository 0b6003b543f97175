"""The severities 1 to 5 of each corruption, for images of 32, 64 and 224 pixels.

The parameters are those of the published sets (Hendrycks and Dietterich, ICLR 2019): CIFAR-10/100-C, Tiny-ImageNet-C
and ImageNet-C. They are used as published, also where a higher severity changes an image less.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

Severities = Mapping[str, tuple[tuple[Any, ...], ...]]

SIZES = {"cifar": 32, "tiny_imagenet": 64, "imagenet": 224}


class Px(float):
    """A length in pixels, at the image size of its set of parameters; it is scaled for images of other sizes.

    Args:
        x: The length.
    """


def _severities(*severities: tuple[Any, ...], lengths: tuple[int, ...] = ()) -> tuple[tuple[Any, ...], ...]:
    """The parameters of each severity, those at the positions ``lengths`` in pixels."""
    return tuple(tuple(Px(v) if at in lengths else v for at, v in enumerate(row)) for row in severities)


def _each(*severities: float) -> tuple[tuple[float], ...]:
    return tuple((value,) for value in severities)


def _frost_rows(scale: float, *severities: tuple[float, float]) -> tuple[tuple[float, ...], ...]:
    return tuple((weight, share, Px(scale)) for weight, share in severities)


def _zooms(*severities: tuple[float, float]) -> tuple[tuple[tuple[float, ...]], ...]:
    """Factors from 1 up to a bound, by their step."""
    return tuple((tuple(float(factor) for factor in np.arange(1, bound, step)),) for bound, step in severities)


def _elastic(side: float, *severities: tuple[float, float, float]) -> tuple[tuple[float, ...], ...]:
    """Shares of the image's side; those of ImageNet-C refer to 244 pixels although its images have 224."""
    return tuple(tuple(share * side for share in severity) for severity in severities)


PARAMETERS: dict[str, Severities] = {
    "gaussian_noise": {
        "cifar": _each(0.04, 0.06, 0.08, 0.09, 0.10),
        "tiny_imagenet": _each(0.04, 0.08, 0.12, 0.15, 0.18),
        "imagenet": _each(0.08, 0.12, 0.18, 0.26, 0.38),
    },
    "shot_noise": {
        "cifar": _each(500, 250, 100, 75, 50),
        "tiny_imagenet": _each(250, 100, 50, 30, 15),
        "imagenet": _each(60, 25, 12, 5, 3),
    },
    "impulse_noise": {
        "cifar": _each(0.01, 0.02, 0.03, 0.05, 0.07),
        "tiny_imagenet": _each(0.01, 0.02, 0.05, 0.08, 0.14),
        "imagenet": _each(0.03, 0.06, 0.09, 0.17, 0.27),
    },
    "defocus_blur": {
        "cifar": _severities((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1), lengths=(0, 1)),
        "tiny_imagenet": _severities((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1), lengths=(0, 1)),
        "imagenet": _severities((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5), lengths=(0, 1)),
    },
    "glass_blur": {
        "cifar": _severities((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2), lengths=(0, 1)),
        "tiny_imagenet": _severities((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2), lengths=(0, 1)),
        "imagenet": _severities((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2), lengths=(0, 1)),
    },
    "motion_blur": {
        "cifar": _severities((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5), lengths=(0, 1)),
        "tiny_imagenet": _severities((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3), lengths=(0, 1)),
        "imagenet": _severities((10, 3), (15, 5), (15, 8), (15, 12), (20, 15), lengths=(0, 1)),
    },
    "zoom_blur": {
        "cifar": _zooms((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        "tiny_imagenet": _zooms((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        "imagenet": _zooms((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    },
    "snow": {
        "cifar": _severities(
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
            lengths=(2, 4, 5),
        ),
        "tiny_imagenet": _severities(
            (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
            lengths=(2, 4, 5),
        ),
        "imagenet": _severities(
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
            lengths=(2, 4, 5),
        ),
    },
    "frost": {
        "cifar": _frost_rows(0.2, (1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        "tiny_imagenet": _frost_rows(0.3, (1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
        "imagenet": _frost_rows(1, (1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    },
    "fog": {
        "cifar": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "tiny_imagenet": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        "imagenet": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    },
    "brightness": {
        "cifar": _each(0.05, 0.1, 0.15, 0.2, 0.3),
        "tiny_imagenet": _each(0.1, 0.2, 0.3, 0.4, 0.5),
        "imagenet": _each(0.1, 0.2, 0.3, 0.4, 0.5),
    },
    "contrast": {
        "cifar": _each(0.75, 0.5, 0.4, 0.3, 0.15),
        "tiny_imagenet": _each(0.4, 0.3, 0.2, 0.1, 0.05),
        "imagenet": _each(0.4, 0.3, 0.2, 0.1, 0.05),
    },
    "elastic_transform": {
        "cifar": _elastic(1, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        "tiny_imagenet": _elastic(
            1, (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)
        ),
        "imagenet": _elastic(
            244 / 224, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
        ),
    },
    "pixelate": {
        "cifar": _each(0.95, 0.9, 0.85, 0.75, 0.65),
        "tiny_imagenet": _each(0.9, 0.8, 0.7, 0.6, 0.5),
        "imagenet": _each(0.6, 0.5, 0.4, 0.3, 0.25),
    },
    "jpeg_compression": {
        "cifar": _each(80, 65, 58, 50, 40),
        "tiny_imagenet": _each(65, 58, 50, 40, 25),
        "imagenet": _each(25, 18, 15, 10, 7),
    },
    "speckle_noise": {
        "cifar": _each(0.06, 0.10, 0.12, 0.16, 0.20),
        "tiny_imagenet": _each(0.15, 0.20, 0.25, 0.30, 0.35),
        "imagenet": _each(0.15, 0.20, 0.35, 0.45, 0.60),
    },
    "gaussian_blur": {
        "cifar": _severities((0.4,), (0.6,), (0.7,), (0.8,), (1,), lengths=(0,)),
        "tiny_imagenet": _severities((0.5,), (0.75,), (1,), (1.25,), (1.5,), lengths=(0,)),
        "imagenet": _severities((1,), (2,), (3,), (4,), (6,), lengths=(0,)),
    },
    "spatter": {
        "cifar": _severities(
            (0.62, 0.1, 0.7, 0.7, 0.5, False),
            (0.65, 0.1, 0.8, 0.7, 0.5, False),
            (0.65, 0.3, 1, 0.69, 0.5, False),
            (0.65, 0.1, 0.7, 0.69, Px(0.6), True),
            (0.65, 0.1, 0.5, 0.68, Px(0.6), True),
            lengths=(2,),
        ),
        "tiny_imagenet": _severities(
            (0.62, 0.1, 0.7, 0.7, 0.6, False),
            (0.65, 0.1, 0.8, 0.7, 0.6, False),
            (0.65, 0.3, 1, 0.69, 0.6, False),
            (0.65, 0.1, 0.7, 0.68, Px(0.6), True),
            (0.65, 0.1, 0.5, 0.67, Px(0.6), True),
            lengths=(2,),
        ),
        "imagenet": _severities(
            (0.65, 0.3, 4, 0.69, 0.6, False),
            (0.65, 0.3, 3, 0.68, 0.6, False),
            (0.65, 0.3, 2, 0.68, 0.5, False),
            (0.65, 0.3, 1, 0.65, Px(1.5), True),
            (0.67, 0.4, 1, 0.65, Px(1.5), True),
            lengths=(2,),
        ),
    },
    "saturate": {
        "cifar": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        "tiny_imagenet": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
        "imagenet": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    },
}
