"""The settings of a training run: keys of a TOML file, flags of `calibrant train`, fields of `Settings`."""

import os
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from calibrant._files import data_folder, read_toml
from calibrant._names import check_choice, known_names, suggestion
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.runs import RunKey
from calibrant.training.recipes import RECIPES, SMALL_RECIPE
from calibrant.training.toml import as_calibrant_error

if TYPE_CHECKING:
    from calibrant.data import DataSet

PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)]  # float32 ends at 3.4e38
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
MAX_PADDING = 256  # in pixels; of larger images, a crop would often hold nothing

MODEL_CODE = "model_code"  # in config.json: a hash of the file of a model of your own
# Settings that do not change the results; all others are compared when a run resumes.
NOT_COMPARED = frozenset({"device", "workers", "checkpoint_minutes", "logger", "root"})


class Settings(BaseModel):
    """The settings of a training run; the defaults from epochs to flip come from the recipe of the data set.

    >>> Settings(data="cifar10").epochs, Settings(data="cifar10", epochs=3).epochs, Settings(data="fmow").optimizer
    (100, 3, 'adam')
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    data: str = "fashion_mnist_mini"
    """The data set; `calibrant data list` shows them."""
    root: str | None = None
    """The folder of the data sets, by default CALIBRANT_DATA or data."""
    image_size: Annotated[int, Field(ge=8)] | None = None
    """The side in pixels to which image files are resized."""
    model: str = "small_resnet"
    """The model: resnet18, resnet50, densenet121, narrow_resnet, small_resnet, small_convnet, mlp, timm:NAME, or NAME
    of a model of your own as file.py:NAME."""
    weights: str | None = None
    """A safetensors file to start from; a last layer for other classes is ignored."""
    loss: str = "cross_entropy"
    """The loss, as maxent_mean; the class prior of the training split is passed to it."""
    loss_options: dict[str, float | bool | str] = Field(default_factory=dict)
    """Options of the loss, as gamma: --loss-options.gamma 3."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The fraction of each label that is spread over all classes."""
    loss_warmup: Annotated[int, Field(ge=0)] | None = None
    """Epochs of cross-entropy before the loss; by default a fifth of all epochs for avuc, none for others."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The seed of everything random."""
    epochs: PositiveInt = SMALL_RECIPE["epochs"]
    """Passes over the training images, by default as in the recipe of the data set."""
    batch_size: PositiveInt = SMALL_RECIPE["batch_size"]
    """Images per step over all processes, by default as in the recipe."""
    optimizer: Literal["sgd", "adam", "adamw"] = SMALL_RECIPE["optimizer"]
    """By default as in the recipe."""
    lr: PositiveFloat = SMALL_RECIPE["lr"]
    """The highest learning rate; by default as in the recipe."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = SMALL_RECIPE["momentum"]
    """The momentum of sgd."""
    weight_decay: NonNegativeFloat = SMALL_RECIPE["weight_decay"]
    """By default as in the recipe."""
    schedule: Literal["cosine", "constant"] = SMALL_RECIPE["schedule"]
    """Cosine decay of the learning rate to 0, step by step, or a constant one."""
    lr_warmup: NonNegativeFloat = SMALL_RECIPE["lr_warmup"]
    """Epochs over which the learning rate rises linearly from 0; by default as in the recipe, but at most a tenth."""
    crop_padding: Annotated[int, Field(ge=0, le=MAX_PADDING)] = SMALL_RECIPE["crop_padding"]
    """Training images are padded by this many pixels and cropped at random."""
    flip: bool = SMALL_RECIPE["flip"]
    """Whether training images are flipped at random, with probability 1/2."""
    augment: Literal["augmix", "mixup", "cutmix"] | None = None
    """What follows crops and flips: augmix with its Jensen-Shannon loss (three times the time), mixup or cutmix."""
    accumulate: PositiveInt = 1
    """The micro-batches of a step, where a batch does not fit in memory."""
    clip: PositiveFloat | None = None
    """Gradients are clipped to this norm."""
    precision: Literal["32", "bf16", "16"] = "32"
    """The floating-point precision of training and prediction."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Save an exponential moving average of the weights, with this decay per step."""
    keep: Literal["last", "accuracy", "nll"] = "last"
    """Which weights are saved: of the last epoch, or of the one with the best validation accuracy or NLL."""
    patience: PositiveInt | None = None
    """Stop after this many epochs without a better validation NLL."""
    train_sample: PositiveInt | None = None
    """Train on only this many of the training images: each class in proportion, the same ones for every seed."""
    hold_out: Literal["train", "test"] = "train"
    """Where validation images come from: the data set's split, or half of its test, for weights that saw all others."""
    shifts: Annotated[tuple[str, ...], Field(strict=False)] = ("all",)
    """The shifted tests to predict: all, none, or names as fog-3, or fog for its five severities."""
    test_folders: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Folders below root with images in folders of the classes' names: each is a further shifted test."""
    test_sample: PositiveInt | None = None
    """Predict only this many images of each test and of corrupted validation images: the same ones in each."""
    features: bool = False
    """Store the penultimate features with the predictions."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto uses a GPU if there is one."""
    workers: Annotated[int, Field(ge=0)] | None = None
    """Processes that decode images, by default one per core, at most 8."""
    checkpoint_minutes: NonNegativeFloat = 10.0
    """A checkpoint is written after each epoch, and within an epoch after this many minutes."""
    logger: Literal["tensorboard", "wandb", "mlflow"] | None = None
    """A logger in addition to log.jsonl."""

    if not TYPE_CHECKING:  # which infers the keywords from the fields

        def __init__(self, /, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise as_calibrant_error(error, "", {"": Settings.model_fields}) from None

    @model_validator(mode="before")
    @classmethod
    def _with_recipe(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        name = given.get("data", "fashion_mnist_mini")
        values = {**RECIPES.get(name if isinstance(name, str) else "", SMALL_RECIPE), **given}
        if "lr_warmup" not in given and isinstance(values["epochs"], int):
            values["lr_warmup"] = min(values["lr_warmup"], values["epochs"] / 10)
        return values

    @model_validator(mode="after")
    def _warms_up_in_time(self) -> Self:
        if self.lr_warmup and self.lr_warmup >= self.epochs:
            raise ValueError(f"lr_warmup must be less than the {self.epochs} epochs, got {self.lr_warmup:g}")
        return self

    @property
    def warmup_epochs(self) -> int:
        """Epochs of cross-entropy before the loss: by default a fifth for AvUC, as the paper's 20 of 100."""
        if self.loss_warmup is not None:
            return self.loss_warmup
        return self.epochs // 5 if self.loss == "avuc" else 0

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that decide the results, the folder of image_folder, and a hash of the file of the model."""
        compared = self.model_dump(mode="json", exclude=set(NOT_COMPARED))
        file = Path(self.model.rpartition(":")[0])
        if file.suffix == ".py" and file.is_file():
            compared[MODEL_CODE] = blake2b(file.read_bytes(), digest_size=8).hexdigest()
        return compared | ({"root": os.path.abspath(data_folder(self.root))} if self.data == "image_folder" else {})


def read_settings(path: str | os.PathLike[str] | None = None, **given: Any) -> Settings:
    """Read and check the settings of a TOML file.

    Args:
        path: The file; without one all settings come from the arguments and the defaults.
        **given: Settings that override those of the file.

    Returns:
        The settings.

    Raises:
        InvalidInputError: A setting has a wrong type or value.
        UnknownNameError: There is no such setting, data set, model or loss.
        NoDataError: The file does not exist.
        CorruptFileError: The file is not TOML.
    """
    values = {} if path is None else read_toml(path)
    prefix = "" if path is None else f"{path}: "
    validate_settings({name: value for name, value in values.items() if name not in given}, prefix)
    settings = Settings(**{**values, **given})
    try:
        check_settings(settings)
    except (InvalidInputError, UnknownNameError) as error:
        from_flags = {"data", "model", "loss", "loss_options"} & given.keys()
        raise type(error)(f"{error}" if from_flags else f"{prefix}{error}") from None
    return settings


def validate_settings(values: dict[str, Any], prefix: str) -> Settings:
    """Settings from the values of a file; the prefix stands before an error."""
    try:
        return Settings(**values)
    except (InvalidInputError, UnknownNameError) as error:
        raise type(error)(f"{prefix}{error}") from None


def open_data(settings: Settings, root: str | None = None) -> "DataSet":
    """The data set of the settings; root overrides theirs."""
    from calibrant.data import open_dataset

    return open_dataset(
        settings.data,
        root or settings.root,
        image_size=settings.image_size,
        hold_out=settings.hold_out,
        test_folders=settings.test_folders,
    )


def run_key(settings: Settings, variant: str = "") -> RunKey:
    """The key of the run with these settings; a model of your own has its name there, without the file."""
    file, _, name = settings.model.rpartition(":")
    return RunKey(
        data=settings.data,
        model=settings.model if file == "timm" else name,
        loss=settings.loss,
        variant=variant,
        label_smoothing=settings.label_smoothing,
        seed=settings.seed,
    )


def check_settings(settings: Settings) -> None:
    """Raises: UnknownNameError for an unknown data set, model, loss or option; InvalidInputError for its value."""
    check_choice("data", settings.data, known_names("DATASETS"))
    if ":" not in settings.model and not settings.model.endswith(".py"):
        check_choice("model", settings.model, known_names("MODELS"))
    check_choice("loss", settings.loss, known_names("LOSSES"))
    import torch

    from calibrant.models import check_model
    from calibrant.training.criterion import build_criterion, loss_options

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
