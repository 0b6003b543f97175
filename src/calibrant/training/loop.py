"""The training loop: epochs, steps, logging, checkpoints."""

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.optim import SGD, Adam, AdamW, Optimizer

from calibrant._arrays import to_device
from calibrant._checks import check_integer
from calibrant._signals import StopRequest
from calibrant.corruptions import Draws
from calibrant.data import DataSet, class_prior
from calibrant.errors import CorruptFileError, InterruptedRunError, InvalidInputError, NoDataError, NotConvergedError
from calibrant.losses import MaxEntLoss
from calibrant.metrics import score
from calibrant.metrics.chance import chance_limit
from calibrant.models import load_weights, read_tensors, write_tensors
from calibrant.predictions import Predictions
from calibrant.runs import RunFolder, remedy
from calibrant.training.augment import JS_WEIGHT, MIXES, augmix, js_divergence
from calibrant.training.batches import Epoch, default_workers, derive_seed, normalise, read_batches
from calibrant.training.callback import TrainingCallback
from calibrant.training.checkpoint import TrainingState, load_checkpoint, save_checkpoint
from calibrant.training.criterion import build_criterion, warmup_criterion
from calibrant.training.engine import seed_device
from calibrant.training.outputs import model_outputs
from calibrant.training.predicting import model_metadata, new_model
from calibrant.training.settings import Settings

if TYPE_CHECKING:
    from lightning_fabric import Fabric

LOG_STEPS = 25  # steps between logs where reading the loss is slow: on a GPU, and with many processes


class TrainingLoop:
    """A training run: model, loss, data and state."""

    def __init__(
        self,
        settings: Settings,
        data: DataSet,
        folder: RunFolder,
        fabric: "Fabric",
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
        if settings.train_sample is not None:
            check_integer("train_sample", settings.train_sample, 1, len(self.train))
            self.train = self.train.sample(settings.train_sample)
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
        # the modules of the checkpoint: the plain model, and the exponential moving average of its weights
        self.modules: dict[str, nn.Module] = {"model": model}
        if settings.ema is not None:
            self.modules["averaged"] = deepcopy(model).to(fabric.device)
        self.model, self.optimizer = fabric.setup(model, new_optimizer(model, settings))
        self.state = TrainingState(self.train.digest)
        self.log_every = 1 if fabric.device.type == "cpu" and fabric.world_size == 1 else LOG_STEPS

    @property
    def kept(self) -> nn.Module:
        """The module that is validated and saved."""
        return self.modules.get("averaged", self.modules["model"])

    def run(self) -> None:
        """Train from the last checkpoint to the end, and write the weights."""
        settings, state = self.settings, self.state
        if self.folder.last.is_file():
            state = self.state = self._resume()
        if self.fabric.is_global_zero:
            self.folder.rewrite_log(state.log)
        for logger in self.fabric.loggers:
            logger.log_hyperparams(settings.identity)
        self.callback.on_start(settings.epochs, settings.epochs * self.n_steps, state.epoch * self.n_steps + state.step)
        while state.epoch < settings.epochs and not self._is_stale():
            self._train_epoch()
            self._end_epoch()
        if not self.fabric.is_global_zero:
            return
        if settings.keep == "last":
            self._write_kept(self.folder.weights)
        else:
            with self._remedy():
                write_tensors(self.folder.weights, *self._read_best())

    def _is_stale(self) -> bool:
        return self.settings.patience is not None and self.state.stale_epochs >= self.settings.patience

    def _train_epoch(self) -> None:
        """The rest of the current epoch."""
        settings, state = self.settings, self.state
        criterion = self.warmup if state.epoch < settings.warmup_epochs else self.criterion
        batches = self._batches()
        self.model.train()
        self.saved_at = began = time.perf_counter()
        sums: list[Tensor] = []
        for step in range(state.step, self.n_steps):
            sums.append(self._step(step, batches, criterion))
            if (step + 1) % self.log_every == 0 or step + 1 == self.n_steps:
                state.seconds += time.perf_counter() - began
                self._log_progress(step + 1, sums)
                sums, began = [], time.perf_counter()  # without the time of the checkpoint

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of each micro-batch that is left of the epoch.

        With AugMix the images are followed by two views of each. With mixup and cutmix the labels are soft.
        """
        settings, state, fabric = self.settings, self.state, self.fabric
        padding, augment = settings.crop_padding, settings.augment
        plan = Epoch.draw(len(self.train), seed=settings.seed, epoch=state.epoch, padding=padding, flip=settings.flip)
        parts = plan.micro_batches(settings.batch_size, settings.accumulate, fabric.global_rank, fabric.world_size)
        left = parts[state.step * settings.accumulate :]
        if augment in MIXES:
            left = [torch.cat([rows, plan.partners[rows]]) for rows in left]
        for rows, read in zip(left, read_batches(self.images, left, self.workers), strict=True):
            images = plan.augment(to_device(read, fabric.device), rows, padding)
            labels = self.labels[to_device(rows, fabric.device)]
            if augment is not None:
                draws = Draws.of(rows.tolist(), settings.seed, state.epoch, augment, device=torch.device("cpu"))
                if augment == "augmix":
                    images = augmix(images, draws)
                else:
                    images, labels = MIXES[augment](images, one_hot(labels, self.data.n_classes), draws)
            yield normalise(images, self.data.mean, self.data.std), labels

    def _step(self, step: int, batches: Iterator[tuple[Tensor, Tensor]], criterion: nn.Module) -> Tensor:
        """One step of the optimizer; returns the sum of the losses and the number correct, in this process."""
        settings, fabric, optimizer = self.settings, self.fabric, self.optimizer
        number = self.state.epoch * self.n_steps + step
        # dropout, too, depends on the step alone
        seed_device(derive_seed(settings.seed, number) * fabric.world_size + fabric.global_rank, fabric.device)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings, number / (settings.epochs * self.n_steps))
        optimizer.zero_grad(set_to_none=True)
        sums = torch.zeros(2, device=fabric.device)
        for part in range(settings.accumulate):
            waited_since = time.perf_counter()
            images, labels = next(batches)
            self.state.waiting += time.perf_counter() - waited_since
            with fabric.no_backward_sync(self.model, enabled=part + 1 < settings.accumulate):
                outputs = self.model(images)
                if outputs.shape != (len(images), self.data.n_classes):  # of a model of your own
                    got = f"{tuple(outputs.shape)} for {len(images)} images and {self.data.n_classes} classes"
                    raise InvalidInputError(f"model must return logits (n, n_classes), got {got}")
                logits = outputs[: len(labels)]  # of the clean images
                loss = criterion(logits, labels)
                if settings.augment == "augmix":
                    loss = loss + JS_WEIGHT * js_divergence(outputs.reshape(-1, *logits.shape))
                fabric.backward(loss / settings.accumulate)
            # the class of a mixed image is that of its larger part
            classes = labels.argmax(1) if labels.is_floating_point() else labels
            sums += torch.stack([loss.detach() * len(labels), (logits.argmax(1) == classes).sum()])
        if settings.clip is not None:
            # without its own check, which waits for the device at every step: the next loss shows what is not finite
            fabric.clip_gradients(self.model, optimizer, max_norm=settings.clip, error_if_nonfinite=False)
        optimizer.step()
        self._average()
        return sums

    @torch.no_grad()
    def _average(self) -> None:
        """Update the moving average of the weights; integer buffers, as counts of batches, are copied."""
        if self.settings.ema is None:
            return
        own = self.modules["model"].state_dict()
        for name, mean in self.modules["averaged"].state_dict().items():
            if mean.is_floating_point():
                mean.lerp_(own[name], 1 - self.settings.ema)
            else:
                mean.copy_(own[name])

    def _log_progress(self, step: int, sums: list[Tensor]) -> None:
        """Add the steps since the last log to the state, save if it is time, stop if requested."""
        state, fabric = self.state, self.fabric
        asked = to_device(torch.tensor([[float(self.request.asked), 0.0]]), fabric.device)
        gathered = fabric.all_reduce(torch.cat([torch.stack(sums), asked]), reduce_op="sum")
        assert isinstance(gathered, Tensor)
        *steps, (stop, _) = gathered.tolist()
        for number, (loss, n_correct) in enumerate(steps, start=step - len(steps) + 1):
            if not math.isfinite(loss):
                where = f"epoch {state.epoch + 1}, step {number}"
                raise NotConvergedError(f"the loss is {loss / self.settings.batch_size} in {where}: try a smaller lr")
            state.loss_sum += loss
            state.n_correct += int(n_correct)
            state.n_seen += self.settings.batch_size
        state.step = step
        self.callback.on_log(
            epoch=state.epoch + 1,
            steps=len(steps),
            loss=state.loss_sum / state.n_seen,
            accuracy=state.n_correct / state.n_seen,
            images_per_second=state.n_seen / state.seconds,
        )
        is_due = time.perf_counter() - self.saved_at >= 60 * self.settings.checkpoint_minutes
        if stop or (is_due and step < self.n_steps):
            self._save()
        if stop:
            where = f"epoch {state.epoch + 1}, step {step} of {self.n_steps}"
            raise InterruptedRunError(f"stopped in {where}; the same command resumes there")

    def _save(self) -> None:
        if self.fabric.is_global_zero:
            scaler = self.fabric.strategy.precision.state_dict()
            save_checkpoint(self.folder.last, self.modules, self.optimizer, self.state, scaler)
        self.saved_at = time.perf_counter()

    def _resume(self) -> TrainingState:
        with self._remedy():
            state, scaler = load_checkpoint(self.folder.last, self.modules, self.optimizer)
            if state.best_value is not None:
                self._read_best()  # raises now, not after hours of training
        if state.rows != self.train.digest:
            where = f"{self.data.name} in {self.data.root}"
            raise InvalidInputError(f"the training images of {where} are not those of the run in {self.folder.path}")
        self.fabric.strategy.precision.load_state_dict(scaler)
        return state

    def _end_epoch(self) -> None:
        """Validate, keep the weights if they are the best, write the checkpoint, then the line of the log."""
        state = self.state
        record = self._record()
        self._keep_best(record)
        state.next_epoch(record)
        self._save()
        if self.fabric.is_global_zero:
            self.folder.append_log(record)
        self.fabric.log_dict({name: value for name, value in record.items() if isinstance(value, float)}, state.epoch)
        self.callback.on_epoch_end(record)

    def _record(self) -> dict[str, Any]:
        """The line of the log: training and validation scores of the epoch."""
        state, settings = self.state, self.settings
        self._share_statistics()
        logits, _, _ = model_outputs(self.fabric, self.kept, self.validation, self.data, workers=self.workers)
        if not logits.isfinite().all():
            raise NotConvergedError(f"the logits are not finite after epoch {state.epoch + 1}: try a smaller lr")
        labels = self.validation.labels
        card = score(Predictions.from_logits(logits, labels), metrics=("accuracy", "ece", "nll"))
        majority = float(labels.bincount().max()) / len(labels)
        record: dict[str, Any] = {
            "epoch": state.epoch + 1,
            "lr": learning_rate(settings, state.epoch / settings.epochs),
            "train_loss": state.loss_sum / state.n_seen,
            "train_accuracy": state.n_correct / state.n_seen,
            **{f"val_{name}": value for name, value in card.values().items()},
            "val_majority": majority,
            "val_constant": len(logits.argmax(1).unique()) == 1,
            "seconds": state.seconds,
            "images_per_second": state.n_seen / state.seconds,
            "waiting": state.waiting / state.seconds,
        }
        record["val_at_chance"] = record["val_accuracy"] <= chance_limit(majority, len(labels))
        if isinstance(self.criterion, MaxEntLoss):
            telemetry = self.criterion.telemetry(*self.fabric.to_device((logits, labels)))
            record |= {f"constraint_{name}": value for name, value in asdict(telemetry).items()}
        return record

    def _share_statistics(self) -> None:
        """Broadcast the batch-normalisation statistics of the main process, which are those it saves."""
        if self.fabric.world_size > 1:
            for module in (self.modules["model"], self.kept):  # the same order in every process
                for buffer in module.buffers():
                    torch.distributed.broadcast(buffer, 0)

    def _keep_best(self, record: dict[str, Any]) -> None:
        """Write the best weights so far, before the checkpoint that refers to them; count stale epochs."""
        state, keep = self.state, self.settings.keep
        improved = state.best_nll is None or record["val_nll"] < state.best_nll
        state.stale_epochs = 0 if improved else state.stale_epochs + 1
        state.best_nll = record["val_nll"] if improved else state.best_nll
        if keep == "last":
            return
        value = record["val_accuracy"] if keep == "accuracy" else -record["val_nll"]
        if state.best_value is None or value > state.best_value:
            state.best_value = value
            if self.fabric.is_global_zero:
                self._write_kept(self.folder.best)

    def _read_best(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if not self.folder.best.is_file():
            raise CorruptFileError(f"{self.folder.last} refers to {self.folder.best.name}, which is missing")
        return read_tensors(self.folder.best)

    def _remedy(self) -> AbstractContextManager[None]:
        return remedy(f"remove {self.folder.last.parent}, and the same command trains again (so does run --redo)")

    def _write_kept(self, path: Path) -> None:
        record = {**model_metadata(self.settings), "data": self.data.name, "class_names": list(self.data.class_names)}
        record |= {"image_size": self.data.image_size, "channels": self.data.channels}
        write_tensors(path, self.kept.state_dict(), record)


def steps_per_epoch(n_rows: int, settings: Settings, n_processes: int) -> int:
    """Steps in an epoch. Raises: InvalidInputError where a batch cannot be divided evenly."""
    size, parts = settings.batch_size, settings.accumulate * n_processes
    if size % parts:
        what = f"{n_processes} processes and accumulate = {settings.accumulate}"
        raise InvalidInputError(f"batch_size must be a multiple of {parts} for {what}, got {size}")
    if size > n_rows:
        raise InvalidInputError(f"batch_size must be at most the {n_rows} training images, got {size}")
    return n_rows // size


def check_batch_norm(n_images: int, model: nn.Module) -> None:
    """Raises: InvalidInputError where batch normalisation would get a single image."""
    if n_images == 1 and any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        raise InvalidInputError("batch_size must give each process and part at least 2 images for this model, got 1")


def learning_rate(settings: Settings, done: float) -> float:
    """The learning rate after this fraction of all steps: the schedule, times a linear rise over the warm-up."""
    lr = settings.lr * (0.5 + 0.5 * math.cos(math.pi * done)) if settings.schedule == "cosine" else settings.lr
    epoch = done * settings.epochs
    return lr * epoch / settings.lr_warmup if epoch < settings.lr_warmup else lr


def new_optimizer(model: nn.Module, settings: Settings) -> Optimizer:
    options: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        return SGD(model.parameters(), momentum=settings.momentum, **options)
    return (Adam if settings.optimizer == "adam" else AdamW)(model.parameters(), **options)
