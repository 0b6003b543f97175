"""Lightning Fabric for the training loop: device, precision, processes, loggers."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from calibrant._files import make_folder
from calibrant._names import check_choice
from calibrant._paths import first_line
from calibrant.errors import InvalidInputError, MissingExtraError, ResourceError

if TYPE_CHECKING:  # importing it takes seconds, which a plan or an evaluation need not wait
    from lightning_fabric import Fabric

DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS: dict[str, Literal["32-true", "bf16-mixed", "16-mixed"]] = {
    "32": "32-true",
    "bf16": "bf16-mixed",
    "16": "16-mixed",
}


def new_fabric(
    device: str = "auto", *, precision: str = "32", logger: str | None = None, folder: Path | None = None
) -> "Fabric":
    """A Fabric of one process on the device, or of all processes that torchrun started; the logger writes to folder."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise MissingExtraError("training", "train") from None
    device = _device(check_choice("device", device, DEVICES))
    if precision == "16" and device != "cuda":
        raise InvalidInputError("precision must be 32 or bf16 without a CUDA device, got 16")
    world, local = _launched("WORLD_SIZE"), _launched("LOCAL_WORLD_SIZE")
    if world % local:
        raise InvalidInputError(f"WORLD_SIZE must be a multiple of LOCAL_WORLD_SIZE, got {world} and {local}")
    for name in ("RANK", "LOCAL_RANK", "MASTER_PORT"):
        _launched(name, 0)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # hides a line for every process that joins
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on devices and launchers
        loggers = [_logger(logger, folder)] if logger and folder and is_main_process() else []
        try:
            fabric = Fabric(
                accelerator=device,
                devices=local,
                num_nodes=world // local,
                strategy="ddp" if world > 1 else "auto",
                precision=PRECISIONS[precision],
                loggers=loggers,
            )
            fabric.launch()
        except (ValueError, RuntimeError) as error:
            if "SLURM" not in str(error):
                raise
            raise InvalidInputError(f"the environment asks for impossible processes: {first_line(error)}") from None
    return fabric


def _launched(name: str, minimum: int = 1) -> int:
    """A number that torchrun sets for the processes it starts."""
    text = os.environ.get(name, str(minimum))
    if not text.isdecimal() or int(text) < minimum:
        raise InvalidInputError(f"{name} must be a whole number of at least {minimum}, got {text!r}")
    return int(text)


def is_main_process() -> bool:
    """Whether this process prints and writes for all that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def _device(wanted: str) -> str:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return next(name for name, is_available in available.items() if is_available)
    if not available[wanted]:
        raise InvalidInputError(f"device {wanted} is not on this machine")
    return wanted


def _logger(name: str, folder: Path) -> Any:
    make_folder(folder)
    try:
        if name == "tensorboard":
            from lightning_fabric.loggers.tensorboard import TensorBoardLogger

            return TensorBoardLogger(folder, name="tensorboard", version="")
        from pytorch_lightning import loggers

        if name == "wandb":
            return loggers.WandbLogger(folder.name, save_dir=folder, project="calibrant")
        uri = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{folder.absolute() / 'mlflow.db'}")
        return loggers.MLFlowLogger("calibrant", run_name=folder.name, tracking_uri=uri)
    except ImportError as error:  # ModuleNotFoundError among them
        raise ResourceError(f"logger {name} needs a package that is not installed: {error}") from None


@contextmanager
def reproducible_torch() -> Iterator[None]:
    """Enable gradients, float32 and deterministic algorithms; the settings of the caller are restored at the end."""
    cudnn, dtype = torch.backends.cudnn, torch.get_default_dtype()
    flags = cudnn.deterministic, cudnn.benchmark
    try:
        torch.set_default_dtype(torch.float32)
        cudnn.deterministic, cudnn.benchmark = True, False
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)
        cudnn.deterministic, cudnn.benchmark = flags


def seed_device(seed: int, device: torch.device) -> None:
    """Seed the generator of the device; torch.manual_seed takes milliseconds for devices that do not exist."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
