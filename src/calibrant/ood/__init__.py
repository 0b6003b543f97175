"""Out-of-distribution detection: scores of how unlike the training data a row is, and how well they detect others."""

from collections.abc import Callable, Sequence
from typing import Unpack

from torch import Tensor

from calibrant._checks import check_level
from calibrant._signatures import checked
from calibrant.calibrators.leakage import RowSketch
from calibrant.errors import CalibrantError, InvalidInputError
from calibrant.ood.results import Detection, DetectionComparison
from calibrant.ood.scores import (
    OOD_SCORES,
    OodOptions,
    OodScore,
    check_comparable,
    check_method,
    check_not_empty,
    check_rows,
    fit_scorer,
)
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

__all__ = ["OOD_SCORES", "Detection", "DetectionComparison", "OodScore", "compare_ood_scores", "detection", "ood_score"]


@checked
@one_thread()
def ood_score(
    predictions: Predictions,
    method: str = "max_probability",
    *,
    reference: Predictions | None = None,
    allow_same_rows: bool = False,
    **options: Unpack[OodOptions],
) -> Tensor:
    """How unlike the training data each row is: a higher score means more likely out of distribution.

    Args:
        predictions: The rows. Labels are not used.
        method: A name in `OOD_SCORES`.
        reference: Rows of known, inside data with features, of the same model, for nearest_neighbors and mahalanobis
            (which also needs their labels).
        allow_same_rows: Whether predictions may hold rows of the reference, which are too near to it.
        options: ``k`` of nearest_neighbors: which neighbor the distance is measured to; by default 1 % of the reference
            rows, at most 50.

    Returns:
        (n,) float64.

    Raises:
        UnknownNameError: There is no such method.
        InvalidInputError: The rows or the reference lack what the method needs, or do not match.

    >>> rows = Predictions.from_logits([[4.0, 0.0], [1.0, 1.0]])
    >>> ood_score(rows, "max_logit")
    tensor([-4., -1.], dtype=torch.float64)
    """
    check_not_empty("predictions", predictions)
    check_method(method, tuple(options))
    rows = {"predictions": predictions}
    return _scores(method, rows, _reference_of(method, rows, reference, allow_same_rows), options)["predictions"]


@checked
@one_thread()
def detection(
    inside: Predictions,
    outside: Predictions,
    method: str = "max_probability",
    *,
    reference: Predictions | None = None,
    level: float = 0.95,
    allow_same_rows: bool = False,
    **options: Unpack[OodOptions],
) -> Detection:
    """How well a score detects rows from outside the distribution of the training data.

    Args:
        inside: Rows of known data, such as the test set. Labels are not used.
        outside: Rows of other data, by the same model. Labels are not used.
        method: A name in `OOD_SCORES`.
        reference: Other rows of known data, as for `ood_score`.
        level: The level of the intervals.
        allow_same_rows: Whether inside, outside and the reference may share rows.
        options: Those of `ood_score`.

    Returns:
        AUROC, average precision and FPR at 95 % TPR, each with an interval.

    Raises:
        UnknownNameError: There is no such method.
        InvalidInputError: Inside and outside differ in classes or share rows, or lack what the method needs.
    """
    check_level(level)
    check_method(method, tuple(options))
    rows = _check_pair(inside, outside, allow_same_rows)
    scores = _scores(method, rows, _reference_of(method, rows, reference, allow_same_rows), options)
    return Detection.of(scores["inside"], scores["outside"], method=method, level=level)


@checked
@one_thread()
def compare_ood_scores(
    inside: Predictions,
    outside: Predictions,
    methods: Sequence[str] | None = None,
    *,
    reference: Predictions | None = None,
    level: float = 0.95,
    allow_same_rows: bool = False,
    progress: Callable[[str], None] | None = None,
) -> DetectionComparison:
    """How well several scores detect the same rows.

    Args:
        inside: Rows of known data, such as the test set. Labels are not used.
        outside: Rows of other data, by the same model. Labels are not used.
        methods: Names in `OOD_SCORES`, all of which must be possible; by default all that are.
        reference: Other rows of known data, as for `ood_score`.
        level: The level of the intervals.
        allow_same_rows: Whether inside, outside and the reference may share rows.
        progress: Called with each method's name.

    Returns:
        The findings of each score, the best first, and why the others are left out.

    Raises:
        UnknownNameError: There is no such method.
        InvalidInputError: Inside and outside differ in classes or share rows, or lack what a named method needs.
    """
    check_level(level)
    names = list(OOD_SCORES if methods is None else dict.fromkeys(methods))
    if not names:
        raise InvalidInputError("methods must name at least one score")
    for name in names:
        check_method(name)
    rows = _check_pair(inside, outside, allow_same_rows)
    scores: dict[str, dict[str, Tensor]] = {}
    left_out: dict[str, str] = {}
    for name in names:
        if progress is not None:
            progress(name)
        try:
            scores[name] = _scores(name, rows, _reference_of(name, rows, reference, allow_same_rows), {})
        except CalibrantError as error:
            if methods is not None:
                raise
            left_out[name] = str(error)
    found = [Detection.of(part["inside"], part["outside"], method=name, level=level) for name, part in scores.items()]
    return DetectionComparison(
        detections=tuple(sorted(found, key=lambda one: -one.auroc)),
        left_out=left_out,
        inside={name: part["inside"] for name, part in scores.items()},
        outside={name: part["outside"] for name, part in scores.items()},
    )


def _scores(
    method: str, rows: dict[str, Predictions], reference: Predictions | None, options: OodOptions
) -> dict[str, Tensor]:
    """The scores of the rows of each argument."""
    scorer = fit_scorer(method, reference, **options)
    for argument, part in rows.items():
        check_rows(method, argument, part, reference)
    return {argument: scorer(part) for argument, part in rows.items()}


def _check_pair(inside: Predictions, outside: Predictions, allow_same_rows: bool) -> dict[str, Predictions]:
    check_not_empty("inside", inside)
    check_not_empty("outside", outside)
    check_comparable("outside", outside, "inside", inside)
    if not allow_same_rows:
        _check_disjoint("outside", outside, "inside", inside)
    return {"inside": inside, "outside": outside}


def _reference_of(
    method: str, rows: dict[str, Predictions], reference: Predictions | None, allow_same_rows: bool
) -> Predictions | None:
    """The reference that the method needs, with the classes of the rows, none of which are in it; else None."""
    if reference is None or not OOD_SCORES[method].needs_reference:
        return None
    for argument, part in rows.items():
        check_comparable(argument, part, "reference", reference)
        if not allow_same_rows:
            _check_disjoint(argument, part, "reference", reference)
    return reference


def _check_disjoint(argument: str, rows: Predictions, first: str, other: Predictions) -> None:
    if shared := RowSketch.of(other).shared_rows(rows):
        raise InvalidInputError(
            f"{argument} must hold other rows than {first}, it holds {shared} of it; use other rows, or "
            "allow_same_rows=True (--allow-same-rows)"
        )
