"""Logits and penultimate features of a model for every row of a split."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from calibrant.data import DataSet, Split
from calibrant.ensembles.mixture import Mixture, mixture
from calibrant.errors import InvalidInputError
from calibrant.models import Classifier
from calibrant.training.batches import normalise, read_batches
from calibrant.training.views import View

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PREDICT_BATCH = 256

ModelLike = nn.Module | Callable[[Tensor], Tensor]


class FeatureExtractor(nn.Module):
    """Images to logits and penultimate features: the input of the linear layer whose output the model returns.

    The features are None where the model does not end in a linear layer.
    """

    def __init__(self, model: ModelLike) -> None:
        super().__init__()
        self.model = model
        self.parts = list(model.modules()) if isinstance(model, nn.Module) else []
        weights = [weight for part in self.parts for weight in part.parameters(recurse=False)]
        self.dtype = next((weight.dtype for weight in weights if weight.is_floating_point()), torch.float32)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        if isinstance(self.model, Classifier):
            features = self.model.embed(images)
            return self.model.head(features), features
        last: list[Tensor] = []  # input and output of the last linear layer that was called

        def hook(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            last[:] = [inputs[0], output]

        hooks = [part.register_forward_hook(hook) for part in self.parts if isinstance(part, nn.Linear)]
        logits = self.model(images.to(self.dtype))
        for handle in hooks:
            handle.remove()
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images):
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InvalidInputError(f"the model must return logits ({len(images)}, classes) for a batch, got {got}")
        return logits, last[0] if last and last[1] is logits and last[0].ndim == 2 else None


def model_outputs(
    fabric: "Fabric", model: ModelLike, split: Split, data: DataSet, *, workers: int, features: bool = False
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Logits (n, k), the norms of the features (n,) and, if asked for, the features (n, f) in float16.

    The rows are in the order of the split, and the same in every process.
    """
    extractor = FeatureExtractor(model)

    def outputs(images: Tensor) -> tuple[Tensor, ...]:
        with fabric.autocast():
            logits, embedded = extractor(normalise(images, data.mean, data.std))
        if features and embedded is None:
            raise InvalidInputError("the model has no features to store: it does not end in a linear layer")
        kept = () if embedded is None else (embedded.float().norm(dim=1), *((embedded.half(),) if features else ()))
        return logits.float(), *kept

    columns = _of_all_rows(fabric, extractor, split, workers, outputs)
    return columns[0], columns[1] if len(columns) > 1 else None, columns[2] if len(columns) > 2 else None


def view_outputs(
    fabric: "Fabric", model: ModelLike, split: Split, data: DataSet, views: Sequence[View], *, workers: int
) -> Mixture:
    """The mixture of the predictions for all views of each image; rows as in `model_outputs`."""
    extractor = FeatureExtractor(model)

    def outputs(images: Tensor) -> tuple[Tensor, ...]:
        with fabric.autocast():
            members = [extractor(normalise(view(images), data.mean, data.std))[0].float().cpu() for view in views]
        found = mixture(members)
        return found.log_probs, found.disagreement, found.mutual_information

    return Mixture(*_of_all_rows(fabric, extractor, split, workers, outputs))


@torch.inference_mode()
def _of_all_rows(
    fabric: "Fabric",
    extractor: FeatureExtractor,
    split: Split,
    workers: int,
    outputs: Callable[[Tensor], tuple[Tensor, ...]],
) -> list[Tensor]:
    """What a function finds of the uint8 images of each batch, in the order of the split, in every process."""
    modules = [module for module in extractor.modules() if module.training]
    extractor.eval()
    rows = torch.arange(len(split))[fabric.global_rank :: fabric.world_size]
    batches = [
        [tensor.cpu() for tensor in outputs(images.to(fabric.device))]
        for images in read_batches(split.images, rows.split(PREDICT_BATCH), workers)
    ]
    for module in modules:
        module.training = True
    return [_gather_rows(fabric, torch.cat(column), len(split)) for column in zip(*batches, strict=True)]


def _gather_rows(fabric: "Fabric", mine: Tensor, n_rows: int) -> Tensor:
    """The rows of all processes in order; process r of w has the rows r, r + w, r + 2 w, …"""
    world = fabric.world_size
    if world == 1:
        return mine
    padding = mine.new_zeros(-(-n_rows // world) - len(mine), *mine.shape[1:])
    padded = torch.cat([mine, padding]).to(fabric.device)
    gathered = [torch.empty_like(padded) for _ in range(world)]
    torch.distributed.all_gather(gathered, padded)
    return torch.stack(gathered, dim=1).flatten(0, 1)[:n_rows].cpu()
