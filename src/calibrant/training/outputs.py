"""What a model says of every row of a split: logits, and the features that its last layer sees."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from calibrant.data import DataSet, Split
from calibrant.models import Classifier
from calibrant.training.batches import normalised, read_batches

BATCH = 256

Model = nn.Module | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Outputs:
    """Logits (n, k), the norm of the features (n,), and these (n, f) in float16, of each row."""

    logits: Tensor
    feature_norm: Tensor | None = None
    features: Tensor | None = None


class Embedding(nn.Module):
    """Images to logits and penultimate features, of any model that ends in a linear layer.

    The features are what that layer is given; there are none where what it returns is not what the model returns.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.seen: tuple[Tensor, Tensor] | None = None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        if isinstance(self.model, Classifier):
            features = self.model.embed(images)
            return self.model.head(features), features
        hook = self._watch_last_layer()
        logits = self.model(images)
        if hook is not None:
            hook.remove()
        if self.seen is None or self.seen[1] is not logits or self.seen[0].ndim != 2:
            return logits, None
        return logits, self.seen[0]

    def _watch_last_layer(self) -> torch.utils.hooks.RemovableHandle | None:
        layers = (
            [m for m in self.model.modules() if isinstance(m, nn.Linear)] if isinstance(self.model, nn.Module) else []
        )

        def see(layer: nn.Module, given: tuple[Tensor, ...], returned: Tensor) -> None:
            self.seen = given[0], returned

        return layers[-1].register_forward_hook(see) if layers else None


@torch.inference_mode()
def outputs(
    fabric: Fabric, model: Model, split: Split, data: DataSet, *, workers: int, features: bool = False
) -> Outputs:
    """What the model says of every row of a split, in their order, on every process."""
    embedding = Embedding(model)
    modules = [module for module in embedding.modules() if module.training]
    embedding.eval()
    rows = torch.arange(len(split))[fabric.global_rank :: fabric.world_size]
    parts: list[tuple[Tensor, ...]] = []
    for images in read_batches(split.images, rows.split(BATCH), workers):
        with fabric.autocast():
            logits, seen = embedding(normalised(images.to(fabric.device), data.mean, data.std))
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
