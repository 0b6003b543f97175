"""Checkpoints: all that a run needs to go on as if it had not been stopped, in one file that is replaced whole."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from calibrant._files import first_line
from calibrant.errors import CorruptFileError
from calibrant.models import read_tensors, write_tensors


@dataclass
class TrainingState:
    """How far a run has come, and the sums over the part of the current epoch that is done."""

    rows: str  # a hash of the training rows
    epoch: int = 0  # epochs that are finished
    step: int = 0  # steps of the next one that are
    loss_sum: float = 0.0
    n_correct: int = 0
    n_seen: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    best_value: float | None = None  # of what `keep` names
    best_nll: float | None = None
    stale_epochs: int = 0  # since the least NLL
    log: list[dict[str, Any]] = field(default_factory=list)

    def next_epoch(self, record: dict[str, Any]) -> None:
        self.epoch, self.step = self.epoch + 1, 0
        self.loss_sum, self.n_correct, self.n_seen, self.seconds, self.waiting = 0.0, 0, 0, 0.0, 0.0
        self.log.append(record)


@dataclass(frozen=True)
class Learner:
    """What learns: a model, its optimizer, and the average of the weights where one is kept."""

    model: nn.Module
    optimizer: Optimizer
    averaged: nn.Module | None

    @property
    def kept(self) -> nn.Module:
        """The model whose weights count."""
        return self.model if self.averaged is None else self.averaged

    def save(self, path: Path, progress: TrainingState, scaler: dict[str, Any]) -> None:
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.averaged is not None:
            tensors |= {f"averaged.{name}": tensor for name, tensor in self.averaged.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items() if value is not None}
        write_tensors(path, tensors, {"progress": asdict(progress), "scaler": scaler})

    def load(self, path: Path) -> tuple[TrainingState, dict[str, Any]]:
        """Go on from a checkpoint: fills model, average and optimizer."""
        tensors, record = read_tensors(path)
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "averaged": {}, "optimizer": {}}
        try:
            for name, tensor in tensors.items():
                part, rest = name.split(".", 1)
                parts[part][rest] = tensor
            self.model.load_state_dict(parts["model"])
            if self.averaged is not None:
                self.averaged.load_state_dict(parts["averaged"])
            self._load_optimizer(parts["optimizer"])
            return TrainingState(**record["progress"]), record["scaler"]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CorruptFileError(f"{path} is no checkpoint of this run: {first_line(error)}") from None

    def _load_optimizer(self, tensors: dict[str, Tensor]) -> None:
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            number, key = name.split(".", 1)
            like = parameters[int(number)]
            # laid out in memory as the parameter is, which file and state_dict forget
            same = tensor.shape == like.shape
            state.setdefault(int(number), {})[key] = torch.empty_like(like).copy_(tensor) if same else tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
