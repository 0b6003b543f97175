"""The scorecard as a torchmetrics metric, whose state is sums of fixed size: for any number of processes and rows.

The state of a fine histogram is a fixed grid of 2^18 bins on its scale, which processes can add up.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module

from calibrant._arrays import to_device
from calibrant._checks import MAX_CLASSES, check_integer, check_n_bins
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, MissingExtraError
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.histogram import SCALE_BITS, FineHistogram
from calibrant.metrics.means import Means
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import check_metrics
from calibrant.predictions import Predictions

try:
    from torchmetrics import Metric
except ImportError:
    raise MissingExtraError("calibrant.integrations.torchmetrics", "integrations") from None

__all__ = ["CalibrationMetric", "CalibrationScore"]

GRID_BITS = 18
DROPPED_BITS = SCALE_BITS - GRID_BITS
CONSTRUCTORS: dict[str, Callable[..., Predictions]] = {
    "logits": Predictions.from_logits,
    "log_probs": Predictions.from_log_probs,
    "probs": Predictions.from_probs,
    "positive_probs": Predictions.from_positive_probs,
}


class CalibrationScore(Metric):
    """All metrics of `METRICS`, or some of them, as a torchmetrics metric.

    ``compute`` returns a dict of numbers, ``scorecard`` the scorecard. ``forward`` also scores the batch alone, which
    takes ten times as long as ``update``.

    Args:
        n_classes: The number of classes.
        inputs: What ``update(predictions, labels)`` receives: "logits", "log_probs" or "probs" of shape (n, k) or
            (n, k, d1, …), or "positive_probs", (n,) probabilities of class 1.
        metrics: Names in `METRICS`; all of them by default.
        n_bins: The number of bins of the binned calibration errors.
        ignore_index: The label of samples that are left out.
        **options: Options of `torchmetrics.Metric`.

    Raises:
        InvalidInputError: An argument is invalid.
        UnknownNameError: A metric does not exist.

    >>> score = CalibrationScore(n_classes=2, inputs="probs", metrics=["accuracy", "ece"])
    >>> score.update(torch.tensor([[0.75, 0.25], [0.25, 0.75]]), torch.tensor([0, 0]))
    >>> score.compute()
    {'accuracy': tensor(0.5000, dtype=torch.float64), 'ece': tensor(0.2500, dtype=torch.float64)}
    """

    is_differentiable = False
    full_state_update = False
    n_rows: Tensor

    def __init__(
        self,
        n_classes: int,
        *,
        inputs: Literal["logits", "log_probs", "probs", "positive_probs"] = "logits",
        metrics: Iterable[str] | None = None,
        n_bins: int = 15,
        ignore_index: int = -100,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.n_classes = check_integer("n_classes", n_classes, 2, MAX_CLASSES)
        self.names = check_metrics(metrics, n_classes)
        self.n_bins = check_n_bins(n_bins)
        self.inputs = check_choice("inputs", inputs, CONSTRUCTORS)
        self.ignore_index = check_integer("ignore_index", ignore_index, -(2**63), 2**63 - 1)
        self.add_state("n_rows", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        row = Predictions.from_logits(torch.zeros(1, n_classes), torch.zeros(1, dtype=torch.int64))
        sums_of_a_row = Scorecard.of(row, metrics=self.names, n_bins=n_bins).sums
        self.parts = tuple(sums_of_a_row)
        for part, sums in sums_of_a_row.items():
            tensors, bins = _tensors(sums)
            for name, tensor in tensors.items():
                shape = tensor.shape if bins is None else (2**GRID_BITS, *tensor.shape[1:])
                self.add_state(f"{part}_{name}", tensor.new_zeros(shape), dist_reduce_fx="sum")

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Module:
        """Move to another device, but keep the types: half precision cannot count."""
        device = fn(torch.zeros(1)).device
        return super()._apply(lambda tensor: tensor.to(device), exclude_state)

    def set_dtype(self, dst_type: str | torch.dtype) -> "CalibrationScore":
        """Does nothing: counts stay int64 and sums float64."""
        return self

    def update(self, predictions: Tensor, labels: Tensor) -> None:
        """Add a batch.

        Args:
            predictions: What ``inputs`` says.
            labels: (n,) or (n, d1, …) classes.

        Raises:
            InvalidInputError: The predictions have another number of classes, or an argument is invalid.
        """
        batch = CONSTRUCTORS[self.inputs](predictions, labels, ignore_index=self.ignore_index)
        if batch.n_classes != self.n_classes:
            raise InvalidInputError(f"predictions must have {self.n_classes} classes, got {batch.n_classes}")
        if len(batch) == 0:
            return
        card = Scorecard.of(batch, metrics=self.names, n_bins=self.n_bins)
        self.n_rows += card.n_rows
        for part, sums in card.sums.items():
            tensors, bins = _tensors(sums)
            for name, tensor in tensors.items():
                state, addend = getattr(self, f"{part}_{name}"), to_device(tensor, self.n_rows.device)
                if bins is None:
                    state += addend
                else:
                    state.index_add_(0, to_device(bins, state.device), addend)

    def scorecard(self) -> Scorecard:
        """The scorecard of all rows of this process, with intervals and noise floors.

        Returns:
            The scorecard.

        Raises:
            InvalidInputError: There is no row yet.
        """
        if int(self.n_rows) == 0:
            raise InvalidInputError("update must be called with at least one row first")
        sums = {part: self._sums(part) for part in self.parts}
        return Scorecard(self.names, int(self.n_rows), self.n_classes, self.n_bins, sums)

    def compute(self) -> dict[str, Tensor] | Tensor:
        """Every metric by name; NaN where it is undefined, such as ``nll_on_errors`` without errors."""
        values = self.scorecard().values()
        device = self.n_rows.device
        return {
            name: torch.tensor(float("nan") if value is None else value, dtype=torch.float64, device=device)
            for name, value in values.items()
        }

    def _sums(self, part: str) -> Means | BinSums | FineHistogram:
        kind: type[Means | BinSums] = Means if part == "means" else BinSums
        sums = kind(*(getattr(self, f"{part}_{name}").cpu() for name in kind.__slots__))
        if not part.endswith("histogram") or isinstance(sums, Means):
            return sums
        bins = sums.count.any(-1).nonzero().squeeze(1)
        return FineHistogram(bins << DROPPED_BITS, sums[bins], None, DROPPED_BITS)


def _tensors(sums: Means | BinSums | FineHistogram) -> tuple[dict[str, Tensor], Tensor | None]:
    """The tensors of a part of a scorecard; of a fine histogram also the bins of the grid that they belong to."""
    bins = None
    if isinstance(sums, FineHistogram):
        bins, sums = sums.rounded_key(DROPPED_BITS) >> DROPPED_BITS, sums.sums
    return {name: getattr(sums, name) for name in sums.__slots__}, bins


class CalibrationMetric(CalibrationScore):
    """One metric of `METRICS`; ``compute`` returns its value, NaN where it is undefined.

    Args:
        name: The metric.
        n_classes: The number of classes.
        **options: Options of `CalibrationScore`.

    >>> ece = CalibrationMetric("ece", n_classes=2, inputs="probs")
    >>> ece(torch.tensor([[0.75, 0.25]]), torch.tensor([0]))
    tensor(0.2500, dtype=torch.float64)
    """

    def __init__(self, name: str, n_classes: int, **options: Any) -> None:
        super().__init__(n_classes, metrics=[name], **options)

    def compute(self) -> Tensor:
        """The metric; NaN where it is undefined."""
        [value] = super().compute().values()
        return value
