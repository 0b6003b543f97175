"""A callback that writes and scores the predictions of every evaluation of a Lightning Trainer, on all its processes.

Works with `lightning.pytorch` and with `pytorch_lightning`.
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

from calibrant._checks import check_n_bins, check_tensor
from calibrant._names import check_choice
from calibrant._paths import check_path, filesystem_of, first_line
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, MissingExtraError, ResourceError
from calibrant.integrations._one_logit import class_labels, is_one_logit, two_logits
from calibrant.integrations.transformers import (  # which does not import transformers
    LOGGED_METRICS,
    PADDING_LABEL,
    defined_scores,
)
from calibrant.metrics.table import check_metrics
from calibrant.predictions import Predictions

__all__ = ["CalibrationCallback"]

STEPS = {"val": "validation_step", "test": "test_step", "predict": "predict_step"}  # by stage
LOOPS = {"val": "validate_loop", "test": "test_loop", "predict": "predict_loop"}
POSITION = "_position"  # a temporary column: the position of the item in the data set


def _callback_classes() -> tuple[type, ...]:
    """`Callback` of every Lightning package that is installed: each Trainer accepts only its own."""
    packages = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
    classes = tuple(import_module(home).Callback for package, home in packages.items() if find_spec(package))
    if not classes:
        raise MissingExtraError("calibrant.integrations.lightning", "integrations")
    return classes


@dataclass(slots=True)
class ShardRows:
    """The rows of one process, which sees every n_shards-th item of the data set, from its rank on."""

    rank: int = 0
    n_shards: int = 1
    n_items: int | None = None  # of the data set; a sampler repeats some beyond that
    n_seen: int = 0
    parts: list[Predictions] = field(default_factory=list)

    def next_positions(self, n: int) -> Tensor:
        """The positions of the next n items in the data set."""
        return (self.n_seen + torch.arange(n)) * self.n_shards + self.rank


def merge_shards(shards: Iterable[ShardRows]) -> Predictions | None:
    """The rows of all shards in the order of the data set, each once; None where there are none.

    A sampler that gives every process the same number of items repeats some at the end. Processes of one shard, such as
    those of a model-parallel strategy, have the same rows.
    """
    by_rank = {shard.rank: shard for shard in shards}
    parts = [part for shard in by_rank.values() for part in shard.parts]
    if not parts:
        return None
    rows = Predictions.concat(parts)
    position = rows.column(POSITION).to_numpy()
    order = np.argsort(position, kind="stable")
    n_items = next(iter(by_rank.values())).n_items
    if n_items is not None:
        order = order[position[order] < n_items]
    rows = rows[order]
    return replace(rows, columns=rows.columns.drop_columns(POSITION))


class CalibrationCallback(*_callback_classes()):  # type: ignore[misc]
    """Writes ``folder/val.parquet`` and logs ``val/ece`` and other metrics after every validation; also test, predict.

    ``validation_step``, ``test_step`` and ``predict_step`` return logits (n, k) or (n, k, d1, …) and labels, as a pair
    or as "logits" and "labels" of a dict; ``predict_step`` may return logits alone. One logit, (n,) or (n, 1), is that
    of class 1 of two, as binary cross-entropy trains it. Rows are kept in float32 on the CPU
    until the epoch ends. The next epoch replaces the file; the sanity check writes and logs nothing.

    With several loaders, files and logs are named ``val-0``, ``val-1`` and so on. With several processes, the rows of
    all are collected on the first, in the order of the data set and without the items that a sampler repeats. Every
    item must give one row (or one grid of rows) of its batch.

    Args:
        folder: The folder of the files, a path or URL; None to log only.
        metrics: Names in `METRICS`, or None for all. Undefined ones are not logged, and Lightning allows no logging in
            predict.
        n_bins: The number of bins of the binned calibration errors.
        name: The name of the files, a format of ``{stage}``, ``{epoch}`` and ``{step}``.
        columns: Further keys of the dict, of n values each, that become columns of the file.
        class_names: The names of the classes, which the file stores.
        stages: Some of "val", "test" and "predict".

    Raises:
        InvalidInputError: An argument is invalid.
        UnknownNameError: A metric or a stage does not exist.
    """

    @checked
    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        metrics: str | Iterable[str] | None = LOGGED_METRICS,
        n_bins: int = 15,
        name: str = "{stage}",
        columns: Sequence[str] = (),
        class_names: Sequence[str] | None = None,
        stages: Collection[str] = tuple(STEPS),
    ) -> None:
        super().__init__()
        self.folder = None if folder is None else check_path("folder", folder)
        self.metrics = None if metrics is None else check_metrics(metrics, 2)  # two classes allow every metric
        self.n_bins = check_n_bins(n_bins)
        self.name = name
        self.columns = tuple(columns)
        self.class_names = class_names
        self.stages = tuple(check_choice("stages", stage, STEPS) for stage in stages)
        self._file_name("val", 0, 0)
        self._shards: dict[int, ShardRows] = {}  # by loader

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._shards.clear()

    on_test_epoch_start = on_predict_epoch_start = on_validation_epoch_start

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

    def _is_active(self, stage: str) -> bool:
        return stage in self.stages and (stage != "predict" or self.folder is not None)

    def _add(self, trainer: Any, stage: str, outputs: Any, loader: int) -> None:
        """Keep a batch; in the sanity check only check it."""
        if not self._is_active(stage):
            return
        if loader not in self._shards:
            self._shards[loader] = open_shard(trainer, loaders_of(trainer, stage)[loader])
        shard = self._shards[loader]
        logits, labels, columns = self._read_outputs(stage, outputs)
        columns[POSITION] = shard.next_positions(len(logits))
        rows = Predictions.from_logits(logits, labels, columns=columns, class_names=self.class_names)
        if not trainer.sanity_checking:
            shard.n_seen += len(logits)
            shard.parts.append(rows)

    def _read_outputs(self, stage: str, outputs: Any) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
        """Logits, labels and columns of what a step returned."""
        found = outputs
        if isinstance(outputs, tuple | list) and len(outputs) == 2 and not self.columns:
            found = dict(zip(("logits", "labels"), outputs, strict=True))
        elif stage == "predict" and isinstance(outputs, Tensor):  # Lightning's own predict_step returns logits
            found = {"logits": outputs}
        needed = ("logits", *self.columns) if stage == "predict" else ("logits", "labels", *self.columns)
        if not isinstance(found, Mapping) or not all(found.get(key) is not None for key in needed):
            wanted = " and ".join(f'"{key}"' for key in needed)
            got = f"a dict with {', '.join(map(str, found))}" if isinstance(found, Mapping) else type(found).__name__
            rule = f"{STEPS[stage]} must return a dict with {wanted}" + ("" if self.columns else " or such a pair")
            raise InvalidInputError(f"{rule}, got {got}; or leave {stage!r} out of stages")
        check_tensor("logits", found["logits"])
        columns = {key: _copy_to_cpu(found[key]) for key in self.columns}
        logits, labels = _copy_to_cpu(found["logits"]).float(), _copy_to_cpu(found.get("labels"))
        if is_one_logit(logits):
            labels = None if labels is None else class_labels(labels, logits, PADDING_LABEL)
            logits = two_logits(logits)
        return logits, labels, columns

    def _finish(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Collect the rows of all processes, write and score them, and log the scores on every process."""
        if not self._is_active(stage):
            return
        n_loaders = len(loaders_of(trainer, stage))
        for loader in range(n_loaders):
            suffix = f"-{loader}" if n_loaders > 1 else ""
            rows = merge_shards(gather_shards(trainer, self._shards.pop(loader, None)))
            if rows is not None and self.folder is not None:
                self._save(rows, stage, suffix, trainer.current_epoch, trainer.global_step)
            if stage != "predict":
                scores = {} if rows is None else defined_scores(rows, self.metrics, self.n_bins)
                scores = trainer.strategy.broadcast(scores)
                named = {f"{stage}{suffix}/{name}": value for name, value in scores.items()}
                pl_module.log_dict(named, sync_dist=True)  # all are equal, but Lightning warns without

    def _save(self, rows: Predictions, stage: str, suffix: str, epoch: int, step: int) -> None:
        assert self.folder is not None
        url = os.path.join(self.folder, f"{self._file_name(stage, epoch, step)}{suffix}.parquet")
        filesystem, path = filesystem_of(url)
        folder = os.path.dirname(path)
        try:
            filesystem.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise ResourceError(f"{folder} cannot be created: {first_line(error)}") from None
        replace(rows, metadata={"stage": stage, "epoch": epoch, "step": step}).save(url)

    def _file_name(self, stage: str, epoch: int, step: int) -> str:
        try:
            return self.name.format(stage=stage, epoch=epoch, step=step)
        except (AttributeError, KeyError, IndexError, ValueError):
            raise InvalidInputError(
                f"name must be made of {{stage}}, {{epoch}} and {{step}}, got {self.name!r}"
            ) from None


def _copy_to_cpu(values: Any) -> Any:
    """A copy: the shared memory of the loader's processes is limited."""
    return values.detach().to("cpu", copy=True) if isinstance(values, Tensor) else values


def loaders_of(trainer: Any, stage: str) -> list[Any]:
    """The loaders of a stage in the order of their numbers, with the samplers that the Trainer gave them."""
    if stage == "val" and trainer.state.fn == "fit":
        loop = trainer.fit_loop.epoch_loop.val_loop
    else:
        loop = getattr(trainer, LOOPS[stage])
    return list(loop._combined_loader.flattened)  # trainer.val_dataloaders are those of fit, also in a later validate


def open_shard(trainer: Any, loader: Any) -> ShardRows:
    """The shard of this process, still empty; InvalidInputError where processes may see the same items."""
    if trainer.world_size == 1:
        return ShardRows()
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return ShardRows(trainer.global_rank, trainer.world_size)  # the user has split these
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if not isinstance(sampler, DistributedSampler):
        got = type(sampler).__name__
        rule = f"a loader of {trainer.world_size} processes must have a DistributedSampler"
        raise InvalidInputError(f"{rule}, as use_distributed_sampler=True gives it, got {got}")
    return ShardRows(sampler.rank, sampler.num_replicas, len(sampler.dataset))  # type: ignore[arg-type]


def gather_shards(trainer: Any, mine: ShardRows | None) -> list[ShardRows]:
    """The shards of all processes, on the first one; nothing on the others."""
    shards: list[ShardRows | None] = [mine]
    if trainer.world_size > 1:
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            strategy = type(trainer.strategy).__name__
            raise InvalidInputError(f"strategy must use torch.distributed with several processes, got {strategy}")
        shards = [None] * trainer.world_size if trainer.is_global_zero else []
        torch.distributed.gather_object(mine, shards or None, dst=0)
    return [shard for shard in shards if shard is not None]
