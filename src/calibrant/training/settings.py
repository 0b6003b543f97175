"""Every setting of a training run, as a TOML key, a flag and an argument; each is checked before anything is done."""

import os
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from calibrant._files import data_folder, read_toml
from calibrant._names import suggestion
from calibrant.errors import CalibrantError, InvalidInputError, UnknownNameError
from calibrant.runs import RunKey
from calibrant.training.recipes import RECIPES, SMALL_RECIPE
from calibrant.training.toml import as_calibrant_error

PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]

# What changes how a run is done and not what comes of it; all else is compared when a run is taken up again.
NOT_COMPARED = frozenset({"device", "workers", "checkpoint_minutes", "logger", "root"})


class Settings(BaseModel):
    """What a run is made of; the defaults from epochs to flip are those of the data set's recipe.

    >>> Settings(data="cifar10").epochs, Settings(data="cifar10", epochs=3).epochs, Settings(data="fmow").optimizer
    (100, 3, 'adam')
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    data: str = "fashion_mnist_mini"
    """The data set; `calibrant data list` shows them."""
    root: str | None = None
    """The folder of the data sets, by default CALIBRANT_DATA or data."""
    image_size: Annotated[int, Field(ge=8)] | None = None
    """The side in pixels to which images in files are brought."""
    model: str = "small_resnet"
    """The model: resnet18, resnet50, densenet121, small_resnet, small_convnet, mlp, or timm:NAME."""
    weights: str | None = None
    """A safetensors file to start from; a last layer for other classes is not taken."""
    loss: str = "cross_entropy"
    """The loss, as maxent_mean; the prior of the training split goes into it by itself."""
    loss_options: dict[str, float | bool | str] = Field(default_factory=dict)
    """Options of the loss, as gamma: --loss-options.gamma 3."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of each label that is spread over all classes."""
    loss_warmup: Annotated[int, Field(ge=0)] | None = None
    """Epochs of cross-entropy before the loss; by default a fifth of all for avuc, none for others."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Fixes everything that is random."""
    epochs: PositiveInt = SMALL_RECIPE["epochs"]
    """Passes over the training images, by default as the data set's recipe says."""
    batch_size: PositiveInt = SMALL_RECIPE["batch_size"]
    """Images per step over all processes, by default as the recipe says."""
    optimizer: Literal["sgd", "adam", "adamw"] = SMALL_RECIPE["optimizer"]
    """By default as the recipe says."""
    lr: PositiveFloat = SMALL_RECIPE["lr"]
    """Learning rate, at its highest; by default as the recipe says."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = SMALL_RECIPE["momentum"]
    """Of sgd."""
    weight_decay: NonNegativeFloat = SMALL_RECIPE["weight_decay"]
    """By default as the recipe says."""
    schedule: Literal["cosine", "constant"] = SMALL_RECIPE["schedule"]
    """Whether the learning rate falls to 0 along a cosine, step by step, or stays."""
    crop_padding: Annotated[int, Field(ge=0)] = SMALL_RECIPE["crop_padding"]
    """Training images are moved by up to so many pixels."""
    flip: bool = SMALL_RECIPE["flip"]
    """Half of the training images are flipped."""
    accumulate: PositiveInt = 1
    """Into how many parts a step is divided, where a batch does not fit in memory."""
    clip: PositiveFloat | None = None
    """The largest norm of the gradient."""
    precision: Literal["32", "bf16", "16"] = "32"
    """Floating-point type of the heavy arithmetic."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Keep an average of the weights with this decay per step instead of the weights."""
    keep: Literal["last", "accuracy", "nll"] = "last"
    """Whose weights are kept: of the last epoch, or of the one that is best on the validation split."""
    patience: PositiveInt | None = None
    """Stop after so many epochs without a better validation NLL."""
    shifts: Annotated[tuple[str, ...], Field(strict=False)] = ("all",)
    """The shifted tests to predict: all, none, or names as fog-3, or fog for its five severities."""
    test_sample: PositiveInt | None = None
    """Predict only so many images of each test, and of validation under corruptions: the same ones in each."""
    features: bool = False
    """Store the penultimate features with the predictions."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU where there is one."""
    workers: Annotated[int, Field(ge=0)] | None = None
    """Processes that decode images, by default as many as there are cores, at most 8."""
    checkpoint_minutes: NonNegativeFloat = 10.0
    """A checkpoint is written after each epoch, and within one after so many minutes."""
    logger: Literal["tensorboard", "wandb", "mlflow"] | None = None
    """A second log beside log.jsonl."""

    @model_validator(mode="before")
    @classmethod
    def _with_recipe(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        name = given.get("data", "fashion_mnist_mini")
        return {**RECIPES.get(name if isinstance(name, str) else "", SMALL_RECIPE), **given}

    @property
    def warmup_epochs(self) -> int:
        """Epochs of cross-entropy alone: by default 20 of the paper's 100 for AvUC."""
        if self.loss_warmup is not None:
            return self.loss_warmup
        return self.epochs // 5 if self.loss == "avuc" else 0

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides what comes of the run; of a user's own images, the folder too."""
        decides = self.model_dump(mode="json", exclude=set(NOT_COMPARED))
        return decides | ({"root": os.path.abspath(data_folder(self.root))} if self.data == "image_folder" else {})


def read_settings(path: str | os.PathLike[str] | None = None, **given: Any) -> Settings:
    """The settings of a TOML file, where those that are given win; each is checked.

    Raises: InvalidInputError, UnknownNameError, NoDataError, CorruptFileError.
    """
    values = {} if path is None else read_toml(path)
    prefix = "" if path is None else f"{path}: "
    settings = validate_settings({**values, **given}, prefix, given)
    try:
        check_settings(settings)
    except CalibrantError as error:
        named = {"data", "model", "loss", "loss_options"} & given.keys()
        raise type(error)(f"{error}" if named else f"{prefix}{error}") from None
    return settings


def validate_settings(values: dict[str, Any], prefix: str, given: Iterable[str] = ()) -> Settings:
    """Settings from what a file says; the prefix stands before what is wrong with it, but not with what was given."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        blamed = error.errors()[0]["loc"][:1]
        given_by_hand = bool(blamed) and blamed[0] in list(given)
        raise as_calibrant_error(error, "" if given_by_hand else prefix, {"": Settings.model_fields}) from None


def run_key(settings: Settings, variant: str = "") -> RunKey:
    """The key of the run that has these settings."""
    return RunKey(settings.data, settings.model, settings.loss, variant, settings.label_smoothing, settings.seed)


def check_settings(settings: Settings) -> None:
    """That data set, model and loss are ones there are, and that the loss takes its options."""
    import torch

    from calibrant._names import check_choice
    from calibrant.data import DATASETS
    from calibrant.models import check_model
    from calibrant.training.criterion import build_criterion, loss_options

    check_choice("data", settings.data, DATASETS)
    check_model(settings.model)
    known = loss_options(settings.loss)
    for name in settings.loss_options:
        if name not in known:
            hint = suggestion(name, known) if known else "it has none"
            raise UnknownNameError(f"unknown option {name!r} of the loss {settings.loss}; {hint}")
    try:
        build_criterion(settings, torch.full((3,), 1 / 3))
    except InvalidInputError as error:
        raise InvalidInputError(f"loss_options.{error}") from None
