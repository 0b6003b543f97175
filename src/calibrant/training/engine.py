"""The engine under the loop, Lightning Fabric: device, precision, processes, loggers; and what asks a run to stop."""

import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from lightning_fabric import Fabric

from calibrant._files import make_folder
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, NoDataError

DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS: dict[str, Literal["32-true", "bf16-mixed", "16-mixed"]] = {
    "32": "32-true",
    "bf16": "bf16-mixed",
    "16": "16-mixed",
}


def new_fabric(
    device: str = "auto", *, precision: str = "32", logger: str | None = None, folder: Path | None = None
) -> Fabric:
    """One process on the device, or as many as torchrun has started; a logger writes in the folder."""
    device = _device(check_choice("device", device, DEVICES))
    if precision == "16" and device != "cuda":
        raise InvalidInputError("precision must be 32 or bf16 without a CUDA device, got 16")
    world, local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # which process has joined is no news
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its advice on other devices and launchers is not for our users
        fabric = Fabric(
            accelerator=device,
            devices=local,
            num_nodes=world // local,
            strategy="ddp" if world > 1 else "auto",
            precision=PRECISIONS[precision],
            loggers=[_logger(logger, folder)] if logger and folder and is_main_process() else [],
        )
        fabric.launch()
    return fabric


def is_main_process() -> bool:
    """Whether this process speaks and writes for all that torchrun has started."""
    return os.environ.get("RANK", "0") == "0"


def _device(wanted: str) -> str:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return next(name for name, is_there in there.items() if is_there)
    if not there[wanted]:
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
        raise NoDataError(f"logger {name} needs a package that is not installed: {error}") from None


@contextmanager
def reproducible_torch() -> Iterator[None]:
    """Gradients, float32 and repeatable algorithms, whatever the caller has set, and that again afterwards."""
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
    """Seed what the device draws from; torch.manual_seed takes milliseconds for devices that are not there."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


class StopRequest:
    """Whether a signal has asked the run to stop."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # who asks twice does not want to wait for a checkpoint
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def handle_signals() -> Iterator[StopRequest]:
    """Ctrl-C and SIGTERM ask to stop at the next step; where signals cannot be had, as in threads, nothing does."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
            if request.asked and isinstance(handler, StopRequest):  # of many runs: the next one must not begin
                handler.asked = True
