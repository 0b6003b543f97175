"""Checkpoints: everything a run needs to resume bit-for-bit, in one file that is replaced atomically."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from calibrant._paths import first_line
from calibrant.errors import CorruptFileError
from calibrant.models import read_tensors, write_tensors


@dataclass
class TrainingState:
    """How far a run is, and the sums over the current epoch so far."""

    rows: str  # a hash of the training rows
    epoch: int = 0  # finished epochs
    step: int = 0  # finished steps of the current epoch
    loss_sum: float = 0.0
    n_correct: int = 0
    n_seen: int = 0
    seconds: float = 0.0
    waiting: float = 0.0  # seconds spent waiting for images
    best_value: float | None = None  # of the metric that `keep` names
    best_nll: float | None = None
    stale_epochs: int = 0  # since the best NLL
    log: list[dict[str, Any]] = field(default_factory=list)

    def next_epoch(self, record: dict[str, Any]) -> None:
        self.epoch, self.step = self.epoch + 1, 0
        self.loss_sum, self.n_correct, self.n_seen, self.seconds, self.waiting = 0.0, 0, 0, 0.0, 0.0
        self.log.append(record)


def save_checkpoint(
    path: Path, modules: dict[str, nn.Module], optimizer: Optimizer, state: TrainingState, scaler: dict[str, Any]
) -> None:
    """Write the state of a run. modules: the model, and the average of its weights if there is one, by name."""
    tensors = {f"{part}.{name}": t for part, module in modules.items() for name, t in module.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in values.items() if value is not None}
    write_tensors(path, tensors, {"progress": asdict(state), "scaler": scaler})


def load_checkpoint(
    path: Path, modules: dict[str, nn.Module], optimizer: Optimizer
) -> tuple[TrainingState, dict[str, Any]]:
    """Load modules and optimizer in place; returns the state of the run and that of the gradient scaler."""
    tensors, record = read_tensors(path)
    try:
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in (*modules, "optimizer")}
        for key, tensor in tensors.items():
            part, name = key.split(".", 1)
            parts[part][name] = tensor
        for part, module in modules.items():
            module.load_state_dict(parts[part])
        _load_optimizer(optimizer, parts["optimizer"])
        return TrainingState(**record["progress"]), record["scaler"]
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CorruptFileError(f"{path} is no checkpoint of this run: {first_line(error)}") from None


def _load_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        like = parameters[int(number)]
        # with the memory format of the parameter, which file and state_dict lose
        same = tensor.shape == like.shape
        state.setdefault(int(number), {})[name] = torch.empty_like(like).copy_(tensor) if same else tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
