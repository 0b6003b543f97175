"""A callback that writes and scores the predictions of every evaluation of a Lightning Trainer, on all its processes.

Needs the extra `integrations`; takes part in `lightning.pytorch` and in `pytorch_lightning`.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from calibrant._checks import check_integer, check_path, check_tensor
from calibrant._files import filesystem_of, first_line
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.integrations.transformers import HEADLINE, defined_scores  # which needs no transformers
from calibrant.metrics.table import check_metrics
from calibrant.predictions import Predictions

STEPS = {"val": "validation_step", "test": "test_step", "predict": "predict_step"}  # by stage
LOOPS = {"val": "validate_loop", "test": "test_loop", "predict": "predict_loop"}
POSITION = "_position"  # a column, for as long as rows are not yet in order


def callback_classes() -> tuple[type, ...]:
    """`Callback` of every Lightning that is there: each Trainer wants its own."""
    packages = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
    found = tuple(import_module(home).Callback for package, home in packages.items() if find_spec(package))
    if not found:
        raise ImportError("lightning is not installed: pip install 'calibrant[integrations]'")
    return found


@dataclass(frozen=True, slots=True)
class Shard:
    """The items of a data set that a process sees: every n_shards-th from its rank on; beyond n_items they repeat."""

    rank: int = 0
    n_shards: int = 1
    n_items: int | None = None


@dataclass(slots=True)
class Collected:
    """The rows of a shard, each with the position of its item in the data set."""

    shard: Shard
    n_items: int = 0
    parts: list[Predictions] = field(default_factory=list)

    def positions(self, n: int) -> Tensor:
        """Of the next n items."""
        return (self.n_items + torch.arange(n)) * self.shard.n_shards + self.shard.rank


def in_order(shards: Iterable[Collected]) -> Predictions | None:
    """The rows of all shards in the order of the data set, each once; None where there are none.

    A sampler that gives every process as many items repeats some at the end. Processes that share one shard, as those
    of a model in parts, have the same rows.
    """
    by_rank = {collected.shard.rank: collected for collected in shards}
    parts = [part for collected in by_rank.values() for part in collected.parts]
    if not parts:
        return None
    rows = Predictions.concat(parts)
    position = rows.column(POSITION).to_numpy()
    order = np.argsort(position, kind="stable")
    n_items = next(iter(by_rank.values())).shard.n_items
    if n_items is not None:
        order = order[position[order] < n_items]
    rows = rows[order]
    return replace(rows, columns=rows.columns.drop_columns(POSITION))


class CalibrationCallback(*callback_classes()):  # type: ignore[misc]
    """Writes ``folder/val.parquet`` and logs ``val/ece`` and so on after every validation; so too for test and predict.

    ``validation_step``, ``test_step`` and ``predict_step`` return logits (n, k) or (n, k, d1, …) and labels, as a pair
    or as "logits" and "labels" of a dict; ``predict_step`` may return logits alone. Rows are kept in float32 on the CPU
    until the epoch ends. The next epoch replaces the file; what the sanity check sees is not kept.

    folder: where files go, a path or URL; None to log only. metrics: names, or None for all; undefined ones are not
    logged, and Lightning allows no log in predict. name: of the files, from ``{stage}``, ``{epoch}`` and ``{step}``.
    columns: further keys of the dict, n values each, that become columns of the file. stages: among "val", "test" and
    "predict". With several loaders files and logs are called ``val-0``, ``val-1`` and so on.

    With several processes the rows of all come to the first, in the order of the sampler, each once although it may
    have been repeated to fill the last batches. Every item must give one row (or one grid of rows) of its batch.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        metrics: Iterable[str] | None = HEADLINE,
        n_bins: int = 15,
        name: str = "{stage}",
        columns: Sequence[str] = (),
        class_names: Sequence[str] | None = None,
        stages: Collection[str] = tuple(STEPS),
    ) -> None:
        super().__init__()
        self.folder = None if folder is None else check_path("folder", folder)
        self.metrics = None if metrics is None else check_metrics(metrics, 2)  # with two classes all are allowed
        self.n_bins = check_integer("n_bins", n_bins, 1)
        self.name = name
        self.columns = tuple(columns)
        self.class_names = class_names
        self.stages = tuple(check_choice("stages", stage, STEPS) for stage in stages)
        self._file_name("val", 0, 0)
        self._seen: dict[int, Collected] = {}

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._seen.clear()

    def on_test_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._seen.clear()

    def on_predict_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._seen.clear()

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._add(trainer, "val", outputs, dataloader_idx)

    def on_test_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._add(trainer, "test", outputs, dataloader_idx)

    def on_predict_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._add(trainer, "predict", outputs, dataloader_idx)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._finish(trainer, pl_module, "val")

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._finish(trainer, pl_module, "test")

    def on_predict_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._finish(trainer, pl_module, "predict")

    def _wants(self, stage: str) -> bool:
        return stage in self.stages and (stage != "predict" or self.folder is not None)

    def _add(self, trainer: Any, stage: str, outputs: Any, loader: int) -> None:
        """Keep a batch; in the sanity check look at it only."""
        if not self._wants(stage):
            return
        if loader not in self._seen:
            self._seen[loader] = Collected(shard_of(trainer, loaders_of(trainer, stage)[loader]))
        collected = self._seen[loader]
        logits, labels, columns = self._taken(stage, outputs)
        columns[POSITION] = collected.positions(len(logits))
        rows = Predictions.from_logits(logits, labels, columns=columns, class_names=self.class_names)
        if not trainer.sanity_checking:
            collected.n_items += len(logits)
            collected.parts.append(rows)

    def _taken(self, stage: str, outputs: Any) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
        """Logits, labels and columns of what a step returned."""
        pair = isinstance(outputs, tuple | list) and len(outputs) == 2 and not self.columns
        found = dict(zip(("logits", "labels"), outputs, strict=True)) if pair else outputs
        if stage == "predict" and isinstance(outputs, Tensor):  # what Lightning's own predict_step returns
            found = {"logits": outputs}
        needed = ("logits", *self.columns) if stage == "predict" else ("logits", "labels", *self.columns)
        if not isinstance(found, Mapping) or not all(found.get(key) is not None for key in needed):
            wanted = " and ".join(f'"{key}"' for key in needed)
            got = f"a dict with {', '.join(map(str, found))}" if isinstance(found, Mapping) else type(found).__name__
            rule = f"{STEPS[stage]} must return a dict with {wanted}" + ("" if self.columns else " or such a pair")
            raise InvalidInputError(f"{rule}, got {got}; or leave {stage!r} out of stages")
        check_tensor("logits", found["logits"])
        columns = {key: _copied(found[key]) for key in self.columns}
        return _copied(found["logits"]).float(), _copied(found.get("labels")), columns

    def _finish(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Bring the rows of all processes together, write and score them, and log the scores on every process."""
        if not self._wants(stage):
            return
        n_loaders = len(loaders_of(trainer, stage))
        for loader in range(n_loaders):
            shards = gathered(trainer, self._seen.pop(loader, None))
            suffix = f"-{loader}" if n_loaders > 1 else ""
            rows = in_order(shards)
            scores = {} if rows is None else self._report(trainer, stage, suffix, rows)
            if stage != "predict":
                scores = trainer.strategy.broadcast(scores)
                named = {f"{stage}{suffix}/{name}": value for name, value in scores.items()}
                pl_module.log_dict(named, sync_dist=True)  # all are equal, but Lightning warns without

    def _report(self, trainer: Any, stage: str, suffix: str, rows: Predictions) -> dict[str, float]:
        epoch, step = trainer.current_epoch, trainer.global_step
        if self.folder is not None:
            url = os.path.join(self.folder, f"{self._file_name(stage, epoch, step)}{suffix}.parquet")
            _make_folder(url)
            replace(rows, metadata={"stage": stage, "epoch": epoch, "step": step}).save(url)
        return {} if stage == "predict" else defined_scores(rows, self.metrics, self.n_bins)

    def _file_name(self, stage: str, epoch: int, step: int) -> str:
        try:
            return self.name.format(stage=stage, epoch=epoch, step=step)
        except (AttributeError, KeyError, IndexError, ValueError):
            raise InvalidInputError(
                f"name must be made of {{stage}}, {{epoch}} and {{step}}, got {self.name!r}"
            ) from None


def _make_folder(url: str) -> None:
    """The folder of a file."""
    filesystem, path = filesystem_of(url)
    folder = os.path.dirname(path)
    try:
        filesystem.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise NoDataError(f"{folder} cannot be made a folder: {first_line(error)}") from None


def _copied(values: Any) -> Any:
    """Off the device, and out of the memory that the loader's processes share: it would be used up."""
    return values.detach().to("cpu", copy=True) if isinstance(values, Tensor) else values


def loaders_of(trainer: Any, stage: str) -> list[Any]:
    """The loaders of a stage in the order of their numbers, with the samplers that the Trainer gave them."""
    if stage == "val" and trainer.state.fn == "fit":
        loop = trainer.fit_loop.epoch_loop.val_loop
    else:
        loop = getattr(trainer, LOOPS[stage])
    return list(loop._combined_loader.flattened)  # trainer.val_dataloaders are those of fit, also in a later validate


def shard_of(trainer: Any, loader: Any) -> Shard:
    """Which items this process sees. Raises: InvalidInputError where processes may see the same ones."""
    if trainer.world_size == 1:
        return Shard()
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return Shard(trainer.global_rank, trainer.world_size)  # nobody but the user can have split these
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if not isinstance(sampler, DistributedSampler):
        got = type(sampler).__name__
        rule = f"a loader of {trainer.world_size} processes must have a DistributedSampler"
        raise InvalidInputError(f"{rule}, as use_distributed_sampler=True gives it, got {got}")
    return Shard(sampler.rank, sampler.num_replicas, len(sampler.dataset))  # type: ignore[arg-type]


def gathered(trainer: Any, mine: Collected | None) -> list[Collected]:
    """What all processes collected, on the first one; nothing on the others."""
    found: list[Collected | None] = [mine]
    if trainer.world_size > 1:
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            strategy = type(trainer.strategy).__name__
            raise InvalidInputError(f"strategy must use torch.distributed with several processes, got {strategy}")
        found = [None] * trainer.world_size if trainer.is_global_zero else []
        torch.distributed.gather_object(mine, found or None, dst=0)
    return [collected for collected in found if collected is not None]
