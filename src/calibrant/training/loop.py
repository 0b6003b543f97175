"""The training loop: epochs, steps, looks at them, checkpoints."""

import math
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from calibrant._files import atomic_write
from calibrant.data import DataSet, class_prior
from calibrant.errors import InterruptedRunError, InvalidInputError, NoDataError, NotConvergedError
from calibrant.losses import MaxEntLoss
from calibrant.metrics import score
from calibrant.models import load_weights, write_tensors
from calibrant.predictions import Predictions
from calibrant.runs import RunFolder
from calibrant.training.batches import Epoch, default_workers, derive_seed, normalise, read_batches
from calibrant.training.callback import TrainingCallback
from calibrant.training.checkpoint import Learner, TrainingState
from calibrant.training.criterion import build_criterion, warmup_criterion
from calibrant.training.engine import StopRequest, seed_device
from calibrant.training.outputs import outputs
from calibrant.training.predicting import model_metadata, new_model
from calibrant.training.settings import Settings

LOG_STEPS = 25  # steps between looks at the loss where looking costs: on a GPU, and with many processes


class TrainingLoop:
    """A training run: model, loss and data, and how far it has come."""

    def __init__(
        self,
        settings: Settings,
        data: DataSet,
        folder: RunFolder,
        fabric: Fabric,
        *,
        callback: TrainingCallback,
        request: StopRequest,
    ) -> None:
        self.settings, self.data, self.folder, self.fabric = settings, data, folder, fabric
        self.callback, self.request = callback, request
        self.train, self.validation = data.split("train"), data.split(data.validation)
        for name, split in (("train", self.train), (data.validation, self.validation)):
            if len(split) == 0:
                raise NoDataError(f"{data.name} in {data.root} has no rows in {name}")
        self.n_steps = steps_per_epoch(len(self.train), settings, fabric.world_size)
        self.criterion = build_criterion(settings, class_prior(self.train.labels, data.n_classes)).to(fabric.device)
        self.images = self.train.images
        if isinstance(self.images, Tensor):
            self.images = fabric.to_device(self.images)
        self.labels: Tensor = fabric.to_device(self.train.labels)
        self.workers = default_workers(fabric.world_size) if settings.workers is None else settings.workers
        self.warmup = warmup_criterion(settings).to(fabric.device)
        torch.manual_seed(settings.seed)
        model = new_model(settings, data)
        check_batch_norm(settings.batch_size // settings.accumulate // fabric.world_size, model)
        if settings.weights is not None and not self.folder.last.is_file():
            load_weights(model, settings.weights)
        averaged = None if settings.ema is None else deepcopy(model).to(fabric.device)
        self.model, optimizer = fabric.setup(model, new_optimizer(model, settings))
        self.learner = Learner(model, optimizer, averaged)
        self.progress = TrainingState(self.train.digest)
        self.log_every = 1 if fabric.device.type == "cpu" and fabric.world_size == 1 else LOG_STEPS

    def run(self) -> None:
        """Train from the last checkpoint to the end, and write the weights that are to be kept."""
        settings, progress = self.settings, self.progress
        if self.folder.last.is_file():
            progress = self.progress = self._resume()
        if self.fabric.is_global_zero:
            self.folder.rewrite_log(progress.log)
        for logger in self.fabric.loggers:
            logger.log_hyperparams(settings.identity)
        self.callback.on_start(
            settings.epochs, settings.epochs * self.n_steps, progress.epoch * self.n_steps + progress.step
        )
        while progress.epoch < settings.epochs and not self._is_stale():
            self._train_epoch()
            self._end_epoch()
        if not self.fabric.is_global_zero:
            return
        if settings.keep == "last":
            self._write_kept(self.folder.weights)
        else:
            with atomic_write(self.folder.weights) as file:
                file.write(self.folder.best.read_bytes())

    def _is_stale(self) -> bool:
        return self.settings.patience is not None and self.progress.stale_epochs >= self.settings.patience

    def _train_epoch(self) -> None:
        """The rest of the current epoch."""
        settings, progress = self.settings, self.progress
        criterion = self.warmup if progress.epoch < settings.warmup_epochs else self.criterion
        batches = self._batches()
        self.model.train()
        self.saved_at = began = time.perf_counter()
        sums: list[Tensor] = []
        for step in range(progress.step, self.n_steps):
            sums.append(self._step(step, batches, criterion))
            if (step + 1) % self.log_every == 0 or step + 1 == self.n_steps:
                progress.seconds += time.perf_counter() - began
                self._log_progress(step + 1, sums)
                sums, began = [], time.perf_counter()  # a checkpoint is not training

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of each part of each step that is left of the epoch."""
        settings, progress, fabric = self.settings, self.progress, self.fabric
        padding = settings.crop_padding
        plan = Epoch.draw(
            len(self.train), seed=settings.seed, epoch=progress.epoch, padding=padding, flip=settings.flip
        )
        parts = plan.micro_batches(settings.batch_size, settings.accumulate, fabric.global_rank, fabric.world_size)
        left = parts[progress.step * settings.accumulate :]
        for rows, images in zip(left, read_batches(self.images, left, self.workers), strict=True):
            moved = plan.augment(images.to(fabric.device), rows, padding)
            yield normalise(moved, self.data.mean, self.data.std), self.labels[rows.to(fabric.device)]

    def _step(self, step: int, batches: Iterator[tuple[Tensor, Tensor]], criterion: nn.Module) -> Tensor:
        """One step of the optimizer; returns the sum of the losses, and how many were right, in this process."""
        settings, fabric, optimizer = self.settings, self.fabric, self.learner.optimizer
        number = self.progress.epoch * self.n_steps + step
        # so that dropout, too, depends on the step alone
        seed_device(derive_seed(settings.seed, number) * fabric.world_size + fabric.global_rank, fabric.device)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings, number / (settings.epochs * self.n_steps))
        optimizer.zero_grad(set_to_none=True)
        sums = torch.zeros(2, device=fabric.device)
        for part in range(settings.accumulate):
            images, labels = self._next(batches)
            with fabric.no_backward_sync(self.model, enabled=part + 1 < settings.accumulate):
                logits = self.model(images)
                loss = criterion(logits, labels)
                fabric.backward(loss / settings.accumulate)
            sums += torch.stack([loss.detach() * len(labels), (logits.argmax(1) == labels).sum()])
        if settings.clip is not None:
            fabric.clip_gradients(self.model, optimizer, max_norm=settings.clip)
        optimizer.step()
        self._average()
        return sums

    def _next(self, batches: Iterator[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        began = time.perf_counter()
        batch = next(batches)
        self.progress.waiting += time.perf_counter() - began
        return batch

    @torch.no_grad()
    def _average(self) -> None:
        """Move the average of the weights towards them; what is counted in batch normalisation is taken over."""
        if self.learner.averaged is None or self.settings.ema is None:
            return
        own = self.learner.model.state_dict()
        for name, mean in self.learner.averaged.state_dict().items():
            if mean.is_floating_point():
                mean.lerp_(own[name], 1 - self.settings.ema)
            else:
                mean.copy_(own[name])

    def _log_progress(self, step: int, sums: list[Tensor]) -> None:
        """Add up what the steps since the last look have brought, save if it is time, stop if asked to."""
        progress, fabric = self.progress, self.fabric
        asked = torch.tensor([[float(self.request.asked), 0.0]], device=fabric.device)
        gathered = fabric.all_reduce(torch.cat([torch.stack(sums), asked]), reduce_op="sum")
        assert isinstance(gathered, Tensor)
        *steps, (stop, _) = gathered.tolist()
        for number, (loss, n_correct) in enumerate(steps, start=step - len(steps) + 1):
            if not math.isfinite(loss):
                where = f"epoch {progress.epoch + 1}, step {number}"
                raise NotConvergedError(f"the loss is {loss / self.settings.batch_size} in {where}: try a smaller lr")
            progress.loss_sum += loss
            progress.n_correct += int(n_correct)
            progress.n_seen += self.settings.batch_size
        progress.step = step
        self.callback.on_log(
            epoch=progress.epoch + 1,
            steps=len(steps),
            loss=progress.loss_sum / progress.n_seen,
            accuracy=progress.n_correct / progress.n_seen,
            images_per_second=progress.n_seen / progress.seconds,
        )
        late = time.perf_counter() - self.saved_at >= 60 * self.settings.checkpoint_minutes
        if stop or (late and step < self.n_steps):
            self._save()
        if stop:
            where = f"epoch {progress.epoch + 1}, step {step} of {self.n_steps}"
            raise InterruptedRunError(f"stopped in {where}; the same command resumes there")

    def _save(self) -> None:
        if self.fabric.is_global_zero:
            scaler = self.fabric.strategy.precision.state_dict()
            self.learner.save(self.folder.last, self.progress, scaler)
        self.saved_at = time.perf_counter()

    def _resume(self) -> TrainingState:
        progress, scaler = self.learner.load(self.folder.last)
        if progress.rows != self.train.digest:
            where = f"{self.data.name} in {self.data.root}"
            raise InvalidInputError(
                f"the training images of {where} are not those that {self.folder.path} was begun with"
            )
        self.fabric.strategy.precision.load_state_dict(scaler)
        return progress

    def _end_epoch(self) -> None:
        """Validate, keep the weights if they are the best, and write the checkpoint, then the line of the log."""
        progress = self.progress
        record = self._record()
        self._keep_best(record)
        progress.next_epoch(record)
        self._save()
        if self.fabric.is_global_zero:
            self.folder.append_log(record)
        self.fabric.log_dict(
            {name: value for name, value in record.items() if isinstance(value, float)}, progress.epoch
        )
        self.callback.on_epoch_end(record)

    def _record(self) -> dict[str, Any]:
        """What is known of an epoch at its end."""
        progress, settings = self.progress, self.settings
        self._share_statistics()
        found = outputs(self.fabric, self.learner.kept, self.validation, self.data, workers=self.workers)
        if not found.logits.isfinite().all():
            raise NotConvergedError(f"the logits are not finite after epoch {progress.epoch + 1}: try a smaller lr")
        card = score(Predictions.from_logits(found.logits, self.validation.labels), metrics=("accuracy", "ece", "nll"))
        record = {
            "epoch": progress.epoch + 1,
            "lr": learning_rate(settings, progress.epoch / settings.epochs),
            "train_loss": progress.loss_sum / progress.n_seen,
            "train_accuracy": progress.n_correct / progress.n_seen,
            **{f"val_{name}": value for name, value in card.values().items()},
            "seconds": progress.seconds,
            "images_per_second": progress.n_seen / progress.seconds,
            "waiting": progress.waiting / progress.seconds,
        }
        if isinstance(self.criterion, MaxEntLoss):
            seen = self.criterion.telemetry(*self.fabric.to_device((found.logits, self.validation.labels)))
            record |= {f"constraint_{name}": value for name, value in asdict(seen).items()}
        return record

    def _share_statistics(self) -> None:
        """Give all processes those of batch normalisation that the first one has, and will save."""
        if self.fabric.world_size > 1:
            for module in (self.learner.model, self.learner.kept):  # the same order in every process
                for buffer in module.buffers():
                    torch.distributed.broadcast(buffer, 0)

    def _keep_best(self, record: dict[str, Any]) -> None:
        """Whether these are the best weights so far; the file of the best is written before the checkpoint names it."""
        progress, keep = self.progress, self.settings.keep
        improved = progress.best_nll is None or record["val_nll"] < progress.best_nll
        progress.stale_epochs = 0 if improved else progress.stale_epochs + 1
        progress.best_nll = record["val_nll"] if improved else progress.best_nll
        if keep == "last":
            return
        value = record["val_accuracy"] if keep == "accuracy" else -record["val_nll"]
        if progress.best_value is None or value > progress.best_value:
            progress.best_value = value
            if self.fabric.is_global_zero:
                self._write_kept(self.folder.best)

    def _write_kept(self, path: Path) -> None:
        record = {**model_metadata(self.settings), "data": self.data.name, "class_names": list(self.data.class_names)}
        record |= {"image_size": self.data.image_size, "channels": self.data.channels}
        write_tensors(path, self.learner.kept.state_dict(), record)


def steps_per_epoch(n_rows: int, settings: Settings, n_processes: int) -> int:
    """Steps in an epoch; what is left over then is another few rows in each.

    Raises: InvalidInputError where a step cannot be divided evenly.
    """
    size, parts = settings.batch_size, settings.accumulate * n_processes
    if size % parts:
        what = f"{n_processes} processes and accumulate = {settings.accumulate}"
        raise InvalidInputError(f"batch_size must be a multiple of {parts} for {what}, got {size}")
    if size > n_rows:
        raise InvalidInputError(f"batch_size must be at most the {n_rows} training images, got {size}")
    return n_rows // size


def check_batch_norm(n_images: int, model: nn.Module) -> None:
    """Raises: InvalidInputError where batch normalisation would see a single image at a time."""
    if n_images == 1 and any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        raise InvalidInputError("batch_size must give each process and part at least 2 images for this model, got 1")


def learning_rate(settings: Settings, done: float) -> float:
    """The learning rate after this share of all steps."""
    return settings.lr * (0.5 + 0.5 * math.cos(math.pi * done)) if settings.schedule == "cosine" else settings.lr


def new_optimizer(model: nn.Module, settings: Settings) -> Optimizer:
    options: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        return SGD(model.parameters(), momentum=settings.momentum, **options)
    return (Adam if settings.optimizer == "adam" else AdamW)(model.parameters(), **options)
