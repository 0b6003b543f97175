"""Certify a threshold: accepted rows are wrong at most so often, with a stated confidence."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant._checks import check_all_classes, check_integer, check_number, check_positive
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.calibrators.base import check_validation
from calibrant.calibrators.history import calibrators_of
from calibrant.calibrators.leakage import RowSketch
from calibrant.decisions.scores import score_values
from calibrant.decisions.threshold import AcceptedRows, Threshold, group_rows
from calibrant.errors import InvalidInputError
from calibrant.metrics.sample_scores import predicted_class
from calibrant.metrics.selection import MAX_ERROR, SELECTORS, Int64Array, cheapest, least_rows, rows_needed
from calibrant.predictions import Predictions

SMALLEST = 1e-6  # of max_error and of 1 − confidence


@checked
def certify(
    validation: Predictions,
    max_error: float | None = None,
    confidence: float = 0.95,
    by: str | None = None,
    score: str = "confidence",
    *,
    target_class: int | str | None = None,
    costs: Sequence[float] | None = None,
    method: str = "fixed_sequence",
) -> Threshold:
    """The lowest threshold above which the error is at most max_error, with a confidence over the draw of validation.

    With ``by``, each group has a threshold of its own, and the promise holds for all of them at once: the chance of a
    false one, 1 − confidence, is divided by the number of groups that have enough rows. The promise is for new rows
    drawn as those of validation were, independently of each other. Both methods also assume that surer rows are not
    wrong more often; costs need no such assumption. Choose the method before you see its result.

    Args:
        validation: Labelled rows that neither the model nor its calibrator was fitted on. Rows count alike: there are
            no weights, and rows of one patient or camera are not independent.
        max_error: The largest error of accepted rows, by default 0.05.
        confidence: The probability, over draws of validation, that the promise holds.
        by: A column, each of whose values has its own threshold.
        score: "confidence"; "margin", the difference of the two largest probabilities; "entropy", the negative one; or
            a column of numbers, larger where the prediction is surer.
        target_class: Accept predictions of this class alone, by number or name: a precision of 0.9 is a max_error of
            0.1.
        costs: In place of max_error, the cost of an error that is accepted and the lower cost of handing over a row:
            the bound of the expected cost per row is minimized, and certified.
        method: "fixed_sequence" or "sgr", of `SELECTORS`.

    Returns:
        The threshold. Where nothing can be certified it accepts nothing, and says how many rows it would take.

    Raises:
        InvalidInputError: An argument breaks its rule, or validation has no rows or lacks labels.
        UnknownNameError: There is no such score, column, class or method.

    >>> validation = Predictions.from_positive_probs([0.99] * 80 + [0.6] * 20, [1] * 80 + [0, 1] * 10)
    >>> threshold = certify(validation, max_error=0.05)
    >>> accepted = threshold.groups["overall"]
    >>> f"{accepted.n_accepted} of {accepted.n_rows} rows, those above {accepted.value:.2f}"
    '80 of 100 rows, those above 0.60'
    """
    check_validation(validation, "validation", "certify a threshold", of_confidence=True)
    if target_class is not None:
        check_all_classes("validation", validation, "certify a threshold of one class")
    check_choice("method", method, SELECTORS)
    chance = 1 - check_number("confidence", confidence, minimum=0.5, maximum=1 - SMALLEST)
    pair = None if costs is None else _check_costs(costs)
    if pair is not None and max_error is not None:
        raise InvalidInputError(f"give either max_error or costs, got {max_error} and {costs}")
    if pair is None:
        default = MAX_ERROR if max_error is None else max_error
        max_error = check_number("max_error", default, minimum=SMALLEST, maximum=1 - SMALLEST)
    target = None if target_class is None else _class_number(target_class, validation)
    values, predicted = score_values(validation, score).numpy(), predicted_class(validation)
    wrong = (predicted != validation.labels).numpy()
    numbers, names = group_rows(validation, by)
    kept = torch.ones_like(predicted, dtype=torch.bool) if target is None else predicted == target
    parts = [((numbers == i) & kept).numpy() for i in range(len(names))]
    sizes = [int(part.sum()) for part in parts]
    chance /= len(names) if max_error is None else n_testable(sizes, max_error, chance)
    groups = {}
    for name, part in zip(names, parts, strict=True):
        counts = distinct_scores(values[part], wrong[part])
        if pair is not None:
            groups[name] = _cheapest(*counts, pair, chance)
        elif max_error is not None:
            groups[name] = _lowest(*counts, max_error, chance, method)
    return Threshold(
        groups=groups,
        score=score,
        by=by,
        max_error=max_error,
        costs=pair,
        confidence=confidence,
        certified=True,
        method=method,
        target_class=target,
        calibrators=calibrators_of(validation),
        n_classes=validation.n_classes,
        class_names=validation.class_names,
        rows=RowSketch.of(validation),
        top_label=validation.top_label,
    )


def _lowest(
    scores: Any, rows: Int64Array, errors: Int64Array, max_error: float, chance: float, method: str
) -> AcceptedRows:
    accepted, n = SELECTORS[method](rows, errors, max_error, chance), int(rows.sum())
    return AcceptedRows(
        value=value_above(scores, accepted),
        bound=max_error,
        n_rows=n,
        n_accepted=int(rows[:accepted].sum()),
        n_errors=int(errors[:accepted].sum()),
        least_rows=least_rows(max_error, chance),
        rows_needed=rows_needed(rows, errors, max_error, chance) if n and not accepted else None,
    )


def _cheapest(
    scores: Any, rows: Int64Array, errors: Int64Array, costs: tuple[float, float], chance: float
) -> AcceptedRows:
    accepted, bound = cheapest(rows, errors, costs, chance)
    n_accepted, n_errors = int(rows[:accepted].sum()), int(errors[:accepted].sum())
    return AcceptedRows(value_above(scores, accepted), bound, int(rows.sum()), n_accepted, n_errors)


def distinct_scores(
    values: NDArray[np.float64], wrong: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], Int64Array, Int64Array]:
    """The distinct scores, the largest first, with their numbers of rows and of errors."""
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.zeros(0, np.int64)
    rows = np.diff(np.append(starts, len(ordered)))
    errors = np.diff(np.append(0, np.cumsum(wrong[order]))[np.append(starts, len(ordered))])
    return ordered[starts], rows, errors


def value_above(scores: NDArray[np.float64], accepted: int) -> float:
    """The threshold that so many distinct scores exceed: the next one, which is not accepted."""
    if accepted == 0:
        return math.inf
    return -math.inf if accepted == len(scores) else float(scores[accepted])


def n_testable(sizes: Sequence[int], max_error: float, chance: float) -> int:
    """The largest number of groups, at least 1, that each have enough rows for their part of the chance.

    It depends on the numbers of rows alone, so that the others need no part.
    """
    ordered = sorted(sizes, reverse=True)
    enough = [i for i, n in enumerate(ordered, 1) if n >= least_rows(max_error, chance / i)]
    return max(enough, default=1)


def _check_costs(costs: Sequence[float]) -> tuple[float, float]:
    if len(costs) != 2:
        raise InvalidInputError(f"costs must be two numbers, of an error and of handing over, got {len(costs)}")
    of_error, handing_over = (check_positive("costs", cost) for cost in costs)
    if handing_over >= of_error:
        raise InvalidInputError(
            f"costs must be that of an error and the lower one of handing over, got {of_error:g} and {handing_over:g}"
        )
    return of_error, handing_over


def _class_number(target_class: int | str, validation: Predictions) -> int:
    if isinstance(target_class, str):
        names = validation.class_names or tuple(map(str, range(validation.n_classes)))
        return names.index(check_choice("class", target_class, names))
    return check_integer("target_class", target_class, 0, validation.n_classes - 1)
