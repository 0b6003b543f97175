"""The scorecard as a torchmetrics metric, whose state is sums of fixed size: for any number of processes and rows.

Needs the extra `integrations`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module

from calibrant._checks import check_integer
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError
from calibrant.integrations.grid import N_GRID, grid_numbers, occupied
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.events import Events
from calibrant.metrics.means import MEAN_COLUMNS, Means
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import METRICS, check_metrics, is_binary
from calibrant.predictions import Predictions

try:
    from torchmetrics import Metric
except ImportError:
    raise ImportError("torchmetrics is not installed: pip install 'calibrant[integrations]'") from None

CONSTRUCTORS: dict[str, Callable[..., Predictions]] = {
    "logits": Predictions.from_logits,
    "log_probs": Predictions.from_log_probs,
    "probs": Predictions.from_probs,
    "positive_probs": Predictions.from_positive_probs,
}


class CalibrationScore(Metric):
    """Every metric of the scorecard, or those named; ``compute`` gives a dict of numbers, ``scorecard`` the scorecard.

    inputs: what ``update(predictions, labels)`` gets, (n, k) or (n, k, d1, …), or "positive_probs" (n,) of class 1;
    nothing is guessed from values. Calling the metric itself also scores the batch alone, at ten times the cost.

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
        self.n_classes = check_integer("n_classes", n_classes, 2)
        self.names = check_metrics(metrics, n_classes)
        self.n_bins = check_integer("n_bins", n_bins, 1)
        self.inputs = check_choice("inputs", inputs, CONSTRUCTORS)
        self.ignore_index = ignore_index
        self.add_state("n_rows", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        for name, shape, dtype in self._layout():
            self.add_state(name, torch.zeros(shape, dtype=dtype), dist_reduce_fx="sum")

    def _layout(self) -> list[tuple[str, tuple[int, ...], torch.dtype]]:
        """Name, shape and type of every sum that the metrics asked for need."""
        parts = {part for name in self.names for part in METRICS[name].parts}
        whole, real = torch.int64, torch.float64
        layout: list[tuple[str, tuple[int, ...], torch.dtype]] = []
        if "means" in parts:
            layout += [("means_count", (2,), whole), ("means_weight", (2,), real), ("means_squared", (2,), real)]
            layout += [("means_sums", (2, len(MEAN_COLUMNS), 3), real)]
        tallies: dict[str, tuple[int, ...]] = {"classes": (self.n_classes, self.n_bins)} if "classes" in parts else {}
        for side in ("top", "positive") if is_binary(self.names) else ("top",):
            tallies |= {f"{side}_bins": (self.n_bins,)} if "bins" in parts else {}
            tallies |= {f"{side}_cells": (N_GRID,)} if "cells" in parts else {}
        for name, shape in tallies.items():
            layout += [(f"{name}_count", (*shape, 2), whole), (f"{name}_weight", (*shape, 2), real)]
            layout += [(f"{name}_confidence", shape, real), (f"{name}_squared", shape, real)]
        return layout

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Module:
        """Follow a module to another device, but not to another type: counts in half precision are no counts."""
        device = fn(torch.zeros(1)).device
        return super()._apply(lambda tensor: tensor.to(device), exclude_state)

    def set_dtype(self, dst_type: str | torch.dtype) -> "CalibrationScore":
        """Nothing: counts stay int64 and sums float64."""
        return self

    def update(self, predictions: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        batch = CONSTRUCTORS[self.inputs](predictions, labels, ignore_index=self.ignore_index)
        if batch.n_classes != self.n_classes:
            raise InvalidInputError(f"predictions must have {self.n_classes} classes, got {batch.n_classes}")
        if len(batch) == 0:
            return
        card = Scorecard.of(batch, metrics=self.names, n_bins=self.n_bins)
        self.n_rows += card.n_rows
        for part, sums, rows in _parts(card):
            for name in sums.__slots__:
                state, addend = getattr(self, f"{part}_{name}"), getattr(sums, name).to(self.n_rows.device)
                if rows is None:
                    state += addend
                else:
                    state.index_add_(0, rows.to(state.device), addend)

    def scorecard(self) -> Scorecard:
        """The scorecard of all rows so far, of this process alone; with intervals and noise floors."""
        if int(self.n_rows) == 0:
            raise InvalidInputError("update must be called with at least one row first")
        return Scorecard(
            self.names,
            int(self.n_rows),
            self.n_classes,
            self.n_bins,
            self._sums("means", Means),
            self._events("top"),
            self._events("positive") if is_binary(self.names) else None,
            self._sums("classes", BinSums),
        )

    def compute(self) -> dict[str, Tensor] | Tensor:
        """Every metric, NaN where it is undefined, as the NLL of the errors where there is none."""
        values = self.scorecard().values()
        device = self.n_rows.device
        return {
            name: torch.tensor(float("nan") if value is None else value, dtype=torch.float64, device=device)
            for name, value in values.items()
        }

    def _events(self, side: str) -> Events:
        cells = self._sums(f"{side}_cells", BinSums)
        return Events(self._sums(f"{side}_bins", BinSums), None if cells is None else occupied(cells))

    def _sums(self, part: str, kind: type[Any]) -> Any:
        if not hasattr(self, f"{part}_count"):
            return None
        return kind(*(getattr(self, f"{part}_{name}").cpu() for name in kind.__slots__))


def _parts(card: Scorecard) -> Iterable[tuple[str, Means | BinSums, Tensor | None]]:
    """The sums of a scorecard by name, with the rows of the state that they belong to, where not to all."""
    if card.means is not None:
        yield "means", card.means, None
    if card.classes is not None:
        yield "classes", card.classes, None
    for side, events in (("top", card.top), ("positive", card.positive)):
        if events is not None and events.bins is not None:
            yield f"{side}_bins", events.bins, None
        if events is not None and events.cells is not None:
            yield f"{side}_cells", events.cells.sums, grid_numbers(events.cells)


class CalibrationMetric(CalibrationScore):
    """One metric of the table; ``compute`` gives its value.

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
