"""The default training settings of each data set: those of the paper, and smaller ones for small data sets."""

from typing import Any

PAPER_SYNTHETIC: dict[str, Any] = {
    "epochs": 100,
    "batch_size": 512,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "lr_warmup": 0.0,
    "crop_padding": 4,
    "flip": True,
}
PAPER_WILDS: dict[str, Any] = {
    "epochs": 50,
    "batch_size": 256,
    "optimizer": "adam",
    "lr": 2.5e-4,
    "momentum": 0.9,
    "weight_decay": 0.0,
    "schedule": "constant",
    "lr_warmup": 0.0,
    "crop_padding": 0,
    "flip": False,
}
# Not from the paper: one core trains them in a minute or two. Digits are not flipped.
SMALL_RECIPE: dict[str, Any] = PAPER_SYNTHETIC | {"epochs": 10, "batch_size": 128, "crop_padding": 2}
DIGITS_RECIPE: dict[str, Any] = SMALL_RECIPE | {"flip": False}

RECIPES: dict[str, dict[str, Any]] = {
    "fashion_mnist_mini": SMALL_RECIPE,
    "digits": DIGITS_RECIPE | {"epochs": 30, "batch_size": 64, "crop_padding": 1},
    "fashion_mnist": SMALL_RECIPE,
    "mnist": DIGITS_RECIPE,
    "cifar10": PAPER_SYNTHETIC,
    "cifar100": PAPER_SYNTHETIC,
    "tiny_imagenet": PAPER_SYNTHETIC,
    "camelyon17": PAPER_WILDS,
    "iwildcam": PAPER_WILDS,
    "fmow": PAPER_WILDS,
    # without the warm-up, small_convnet stays at chance on images of 64 pixels
    "image_folder": PAPER_SYNTHETIC | {"epochs": 50, "batch_size": 128, "lr_warmup": 5.0},
}
