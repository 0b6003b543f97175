"""Settings: the recipes behind the defaults, TOML files, and refusals that name the setting and its value."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from calibrant.data import DATASETS
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError, UnknownNameError
from calibrant.training import Settings, read_settings
from calibrant.training.predicting import select_shifts
from calibrant.training.settings import open_data, run_key

RECIPE_FIELDS = (
    "epochs",
    "batch_size",
    "optimizer",
    "lr",
    "momentum",
    "weight_decay",
    "schedule",
    "lr_warmup",
    "crop_padding",
    "flip",
)
# as the paper trains: Neo et al., section on experiments and their published code
CIFAR = {
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "lr_warmup": 0.0,
    "epochs": 100,
    "batch_size": 512,
    "crop_padding": 4,
    "flip": True,
}
WILDS = {
    "optimizer": "adam",
    "lr": 2.5e-4,
    "weight_decay": 0.0,
    "schedule": "constant",
    "lr_warmup": 0.0,
    "epochs": 50,
    "batch_size": 256,
    "crop_padding": 0,
    "flip": False,
}
PAPER = {
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "tiny_imagenet": CIFAR,
    "camelyon17": WILDS,
    "iwildcam": WILDS,
    "fmow": WILDS,
}
DEFAULTS = {
    "data": "fashion_mnist_mini",
    "root": None,
    "image_size": None,
    "model": "small_resnet",
    "weights": None,
    "loss": "cross_entropy",
    "loss_options": {},
    "label_smoothing": 0.0,
    "loss_warmup": None,
    "seed": 0,
    "augment": None,
    "accumulate": 1,
    "clip": None,
    "precision": "32",
    "ema": None,
    "keep": "last",
    "patience": None,
    "train_sample": None,
    "hold_out": "train",
    "test_folders": (),
    "shifts": ("all",),
    "test_sample": None,
    "features": False,
    "device": "auto",
    "workers": None,
    "checkpoint_minutes": 10.0,
    "logger": None,
}


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "x.toml"


# Defaults and recipes


def test_defaults() -> None:
    settings = Settings().model_dump()
    assert {name: settings[name] for name in DEFAULTS} == DEFAULTS
    assert set(settings) == {*DEFAULTS, *RECIPE_FIELDS}


@pytest.mark.parametrize("data", PAPER)
def test_recipe_of_the_paper(data: str) -> None:
    settings = Settings(data=data).model_dump()
    assert {name: settings[name] for name in PAPER[data]} == PAPER[data]


def test_every_data_set_has_a_whole_recipe() -> None:
    for data in DATASETS:
        assert all(Settings(data=data).model_dump()[name] is not None for name in RECIPE_FIELDS), data
    assert all(Settings(data=data).epochs < 100 for data in ("fashion_mnist_mini", "mnist", "fashion_mnist", "digits"))
    assert not Settings(data="digits").flip
    assert not Settings(data="mnist").flip


@pytest.mark.parametrize("field", RECIPE_FIELDS)
def test_a_given_value_wins_over_the_recipe(field: str) -> None:
    other = Settings(data="cifar10" if Settings().model_dump()[field] != CIFAR[field] else "fmow").model_dump()[field]
    settings = Settings(**{field: other}).model_dump()
    expected = Settings().model_dump() | {field: other}
    assert settings == expected


def test_settings_are_frozen_and_know_no_other_keys() -> None:
    with pytest.raises(ValidationError):
        Settings().seed = 1
    with pytest.raises(UnknownNameError, match=r"^unknown setting 'epoch'; did you mean"):
        Settings(**{"epoch": 3})


def test_avuc_warms_up_for_a_fifth_by_default() -> None:
    given = (
        {"loss": "avuc"},
        {"loss": "avuc", "loss_warmup": 2},
        {"loss": "focal"},
        {"loss": "focal", "loss_warmup": 3},
    )
    assert [Settings(epochs=11, **values).warmup_epochs for values in given] == [2, 2, 0, 3]


def test_the_key_of_a_run() -> None:
    settings = Settings(data="digits", model="timm:vit_tiny", label_smoothing=0.01, seed=12)
    assert run_key(settings) == ("digits", "timm:vit_tiny", "cross_entropy", "", 0.01, 12)
    assert run_key(settings, "global").variant == "global"


def test_settings_come_back_from_their_json() -> None:
    settings = Settings(data="digits", shifts=("fog-3", "snow"), loss="focal", loss_options={"gamma": 2.0}, clip=1.0)
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


# Files


def test_a_file_then_the_given_values(toml: Path) -> None:
    toml.write_text('data = "digits"\nepochs = 7\nseed = 3\nshifts = ["fog-3"]\n[loss_options]\ngamma = 2.0\n')
    settings = read_settings(toml, loss="focal", epochs=4)
    assert (settings.data, settings.epochs, settings.seed, settings.shifts) == ("digits", 4, 3, ("fog-3",))
    assert settings.loss_options == {"gamma": 2.0}
    assert settings.batch_size == Settings(data="digits").batch_size


def test_no_file_is_the_defaults() -> None:
    assert read_settings() == Settings()
    assert read_settings(data="cifar10") == Settings(data="cifar10")


def test_whole_numbers_serve_as_numbers(toml: Path) -> None:
    toml.write_text("lr = 1\nclip = 2\n")
    assert (read_settings(toml).lr, read_settings(toml).clip) == (1.0, 2.0)


# Refusals

IN_FILES: dict[str, tuple[str | bytes | None, type[CalibrantError], list[str]]] = {
    "misspelt": ("epoch = 3", UnknownNameError, ["unknown setting 'epoch'; did you mean 'epochs'?"]),
    "nothing like it": ("[zzz]\nq = 1", UnknownNameError, ["unknown setting 'zzz'"]),
    "text for a number": ('epochs = "three"', InvalidInputError, ["epochs", "'three'"]),
    "a number as text": ('epochs = "3"', InvalidInputError, ["epochs", "'3'"]),
    "truth for a number": ("epochs = true", InvalidInputError, ["epochs", "True"]),
    "no epoch": ("epochs = 0", InvalidInputError, ["epochs", "0"]),
    "a fraction": ("epochs = 2.5", InvalidInputError, ["epochs", "2.5"]),
    "number for a truth": ("flip = 1", InvalidInputError, ["flip", "1"]),
    "not a number": ("lr = nan", InvalidInputError, ["lr", "nan"]),
    "infinite": ("weight_decay = inf", InvalidInputError, ["weight_decay", "inf"]),
    "a text for a list": ('shifts = "fog-3"', InvalidInputError, ["shifts", "'fog-3'"]),
    "a text for a table": ('loss_options = "gamma"', InvalidInputError, ["loss_options", "'gamma'"]),
    "a list for a text": ("data = [1]", InvalidInputError, ["data must be"]),
    "a table for a text": ("[data]\nname = 1", InvalidInputError, ["data must be"]),
    "a word for a truth": (
        "loss = 'maxent_mean'\n[loss_options]\nlocal = 'no'",
        InvalidInputError,
        ["loss_options.local must be"],
    ),
    "no file": (None, NoDataError, ["there is no file"]),
    "no value": ("epochs = ", CorruptFileError, ["is not TOML"]),
    "a key twice": ("epochs = 1\nepochs = 2", CorruptFileError, ["is not TOML"]),
    "bytes": (b"\xff\xfe\x00", CorruptFileError, ["is not TOML"]),
    "nested": ("epochs = " + 5000 * "[", CorruptFileError, ["is not TOML"]),
    "an option of text": (
        'loss = "focal"\n[loss_options]\ngamma = "three"',
        InvalidInputError,
        ["loss_options.gamma must be a number, got 'three'"],
    ),
    "an option of a list": (
        'loss = "focal"\n[loss_options]\ngamma = [1, 2]',
        InvalidInputError,
        ["loss_options.gamma must be a number, got [1, 2]"],
    ),
}


@pytest.mark.parametrize("case", IN_FILES)
def test_refused_in_a_file(toml: Path, case: str) -> None:
    text, error, parts = IN_FILES[case]
    if text is not None:
        toml.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error) as refusal:
        read_settings(toml)
    message = str(refusal.value)
    assert "\n" not in message
    assert str(toml) in message
    for part in parts:
        assert part in message


OUT_OF_RANGE: list[dict[str, Any]] = [
    {"epochs": 0},
    {"epochs": -3},
    {"batch_size": 0},
    {"lr": 0.0},
    {"lr": -0.1},
    {"weight_decay": -1.0},
    {"momentum": -0.1},
    {"label_smoothing": 1.0},
    {"label_smoothing": -0.1},
    {"loss_warmup": -1},
    {"seed": -1},
    {"crop_padding": -1},
    {"accumulate": 0},
    {"clip": 0.0},
    {"ema": 1.0},
    {"ema": -0.5},
    {"patience": 0},
    {"image_size": 0},
    {"workers": -1},
    {"checkpoint_minutes": -1.0},
    {"optimizer": "sdg"},
    {"schedule": "linear"},
    {"precision": "64"},
    {"keep": "best"},
    {"device": "tpu"},
    {"logger": "excel"},
]


@pytest.mark.parametrize("given", OUT_OF_RANGE, ids=lambda given: "{}={}".format(*next(iter(given.items()))))
def test_out_of_range(given: dict[str, Any]) -> None:
    [(name, value)] = given.items()
    with pytest.raises(CalibrantError, match=name) as refusal:
        read_settings(**given)
    assert str(value) in str(refusal.value)
    assert "\n" not in str(refusal.value)


UNKNOWN_NAMES: dict[str, dict[str, Any]] = {
    "'digit'; did you mean 'digits'": {"data": "digit"},
    "'mpl'; did you mean 'mlp'": {"model": "mpl"},
    "'cross_entrop'; did you mean 'cross_entropy'": {"loss": "cross_entrop"},
    "'gama' of the loss focal; did you mean 'gamma'": {"loss": "focal", "loss_options": {"gama": 2.0}},
    "'label_smoothing' of the loss cross_entropy": {"loss_options": {"label_smoothing": 0.1}},
}


@pytest.mark.parametrize("message", UNKNOWN_NAMES)
def test_unknown_names_get_the_nearest(message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        read_settings(**UNKNOWN_NAMES[message])


def test_a_warm_up_is_shorter_than_the_training() -> None:
    assert [Settings(data="image_folder", epochs=n).lr_warmup for n in (3, 50, 500)] == [0.3, 5, 5]
    with pytest.raises(InvalidInputError, match="lr_warmup must be less than the 3 epochs, got 5"):
        Settings(epochs=3, lr_warmup=5.0)


def test_the_code_of_an_own_model_decides_the_results(tmp_path: Path) -> None:
    file = tmp_path / "nets.py"
    file.write_text("def build(n_classes, image_size, channels): ...")
    settings = Settings(model=f"{file}:build")
    before = settings.identity
    file.write_text("def build(n_classes, image_size, channels): return None")
    assert {name for name, value in settings.identity.items() if before[name] != value} == {"model_code"}


def test_tests_in_folders_are_predicted_whatever_the_shifts(tmp_path: Path) -> None:
    for shifts in (("none",), ("fog",), ("all",)):
        settings = Settings(data="digits", root=str(tmp_path), shifts=shifts, test_folders=("wild/photos",))
        assert select_shifts(open_data(settings), settings)[-1] == "photos"
