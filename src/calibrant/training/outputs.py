"""What a model says of every row of a split: logits, and the features that its last layer sees."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from calibrant.data import DataSet, Split
from calibrant.errors import InvalidInputError
from calibrant.models import Classifier
from calibrant.training.batches import normalise, read_batches

PREDICT_BATCH = 256

ModelLike = nn.Module | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Outputs:
    """Logits (n, k), the norm of the features (n,), and these (n, f) in float16, of each row."""

    logits: Tensor
    feature_norm: Tensor | None = None
    features: Tensor | None = None


class FeatureExtractor(nn.Module):
    """Images to logits and penultimate features, of any model that ends in a linear layer.

    The features are what that layer is given; there are none where what it returns is not what the model returns.
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
        calls: list[tuple[Tensor, Tensor]] = []

        def see(layer: nn.Module, given: tuple[Tensor, ...], returned: Tensor) -> None:
            calls[:] = [(given[0], returned)]  # only the last one counts

        hooks = [part.register_forward_hook(see) for part in self.parts if isinstance(part, nn.Linear)]
        logits = self.model(images.to(self.dtype))
        for hook in hooks:
            hook.remove()
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images):
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InvalidInputError(f"the model must return logits ({len(images)}, classes) for a batch, got {got}")
        ends_so = bool(calls) and calls[0][1] is logits and calls[0][0].ndim == 2
        return logits, calls[0][0] if ends_so else None


@torch.inference_mode()
def outputs(
    fabric: Fabric, model: ModelLike, split: Split, data: DataSet, *, workers: int, features: bool = False
) -> Outputs:
    """What the model says of every row of a split, in their order, on every process."""
    embedding = FeatureExtractor(model)
    modules = [module for module in embedding.modules() if module.training]
    embedding.eval()
    rows = torch.arange(len(split))[fabric.global_rank :: fabric.world_size]
    parts: list[tuple[Tensor, ...]] = []
    for images in read_batches(split.images, rows.split(PREDICT_BATCH), workers):
        with fabric.autocast():
            logits, seen = embedding(normalise(images.to(fabric.device), data.mean, data.std))
        if features and seen is None:
            raise InvalidInputError("the model has no features to store: it does not end in a linear layer")
        kept = () if seen is None else (seen.float().norm(dim=1), *((seen.half(),) if features else ()))
        parts.append((logits.float().cpu(), *(tensor.cpu() for tensor in kept)))
    for module in modules:
        module.training = True
    return Outputs(*(_in_order(fabric, torch.cat(column), len(split)) for column in zip(*parts, strict=True)))


def _in_order(fabric: Fabric, mine: Tensor, n_rows: int) -> Tensor:
    """The rows of all processes, of which each has every world-th."""
    world = fabric.world_size
    if world == 1:
        return mine
    most = -(-n_rows // world)
    padded = torch.cat([mine, mine.new_zeros(most - len(mine), *mine.shape[1:])]).to(fabric.device)
    shares = [torch.empty_like(padded) for _ in range(world)]
    torch.distributed.all_gather(shares, padded)
    return torch.stack(shares, dim=1).flatten(0, 1)[:n_rows].cpu()
