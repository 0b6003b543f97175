"""What fits do with rows that they cannot take as they are: clip probabilities of 0, and expand soft labels."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, cast

from calibrant._checks import check_instance, check_number
from calibrant.calibrators.leakage import RowSketch
from calibrant.calibrators.modules import ClipModule
from calibrant.metrics.soft_labels import expand_soft_labels
from calibrant.predictions import Predictions

P = ParamSpec("P")
T = TypeVar("T")

MIN_CLIP = 1e-30  # far above the least float32


def check_clip(clip: float, n_classes: int) -> float:
    return check_number("clip", clip, minimum=MIN_CLIP, maximum=1 / n_classes)


def clip_probs(predictions: Predictions, clip: float) -> Predictions:
    """The same rows with smaller probabilities raised to ``clip``."""
    return replace(predictions, logits=ClipModule(clip)(predictions.logits))


def prepare_rows(fit: Callable[P, T]) -> Callable[P, T]:
    """A `fit` whose option ``clip`` is applied here, and kept in the calibrator, and which takes soft labels.

    Soft labels need the option ``weights``. The record of the fit names the rows that were given, not those made of
    them.
    """
    weighted = "weights" in signature(fit).parameters

    @wraps(fit)
    def prepared(cls: Any, validation: Predictions, *, clip: float | None = None, **options: Any) -> Any:
        check_instance("validation", validation, Predictions)
        rows = validation
        if weighted and validation.has_soft_labels:
            rows, options["weights"], _ = expand_soft_labels(validation, options.get("weights"), None)
        if clip is not None:
            clip = check_clip(clip, validation.n_classes)
            rows = clip_probs(rows, clip)
            others = {name: value for name, value in options.items() if isinstance(value, Predictions)}
            options |= {name: clip_probs(value, clip) for name, value in others.items()}
        fitted = fit(cls, rows, **options)  # type: ignore[arg-type]
        if rows is validation:
            return fitted
        record = replace(fitted.fitted, rows=RowSketch.of(validation), n_rows=len(validation))  # type: ignore[attr-defined]
        return replace(fitted, clip=clip, fitted=record)  # type: ignore[type-var]

    return cast("Callable[P, T]", prepared)
