"""Calibrating the members of an ensemble before averaging, their average after it, both or neither, compared."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator, check_validation, mean_nll
from calibrant.calibrators.choice import N_STANDARD_ERRORS, row_folds
from calibrant.calibrators.table import CALIBRATORS
from calibrant.ensembles.averaging import average
from calibrant.ensembles.members import MemberLike, match_rows, open_members
from calibrant.errors import InvalidInputError
from calibrant.metrics import Difference, compare
from calibrant.predictions import Predictions

ORDERS = ("none", "after", "before", "both")  # from the fewest calibrators to the most


@dataclass(frozen=True)
class OrderScore:
    """What an ensemble scores with calibrators at this place.

    Args:
        order: One of `ORDERS`: without calibrators, one after averaging, one for each member before it, or both.
        nll: The cross-fitted NLL (``nll.a``), and its difference to the lowest, paired by rows, with an interval.
        ece: The same for the ECE, whose difference is to the order with the lowest NLL.
        chosen: Whether it is the order with the fewest calibrators whose NLL is as good as the lowest.
    """

    order: str
    nll: Difference
    ece: Difference
    chosen: bool

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values.

        Returns:
            The dictionary.
        """
        return asdict(self)


@checked
def compare_orders(
    members: Sequence[MemberLike],
    calibrator: str = "temperature",
    *,
    id: str | None = None,
    match_names: bool = False,
    folds: int = 5,
    cluster: str | None = None,
) -> list[OrderScore]:
    """Compare calibration before and after averaging, by cross-fitting on labelled rows.

    Each fold is calibrated by fits to the others. With ``both``, the calibrator of the average is fitted to the average
    of calibrated members. As good as the lowest NLL is a difference of at most 1 standard error.

    Args:
        members: As for `average`, with labels; all are held in memory.
        calibrator: A name in `CALIBRATORS`.
        id: As for `average`.
        match_names: As for `average`.
        folds: Number of folds.
        cluster: A column that is equal in all members; rows that share its value (a patient, a camera) share a fold and
            are not independent.

    Returns:
        The score of each order, in the order of `ORDERS`; one is ``chosen``.

    Raises:
        InvalidInputError: As for `average`; or labels are missing, there are fewer rows or clusters than folds, or the
            calibrator needs a target.
        UnknownNameError: There is no such calibrator or column.
        NotConvergedError: A fold cannot be fitted.
    """
    cls = CALIBRATORS[check_choice("calibrator", calibrator, CALIBRATORS)]
    if cls.needs_target:
        raise InvalidInputError(f"calibrator must not need a target, as {calibrator} does")
    matched = match_rows(open_members(members, match_names=match_names), id)
    rows = [Predictions.concat(member.batches()) for member in matched]
    plain = average(rows)
    check_validation(plain, "members", "be compared")
    rows = [replace(member, labels=plain.labels) for member in rows]
    fold = row_folds(plain, folds, cluster)
    found = {order: _cross_fit(rows, plain, cls, order, fold) for order in ORDERS}
    nll = {order: mean_nll(each) for order, each in found.items()}
    best = min(nll, key=nll.__getitem__)
    scores = []
    for order, each in found.items():
        by_metric = {row.metric: row for row in compare(each, found[best], metrics=("nll", "ece"), cluster=cluster)}
        scores.append(OrderScore(order, by_metric["nll"], by_metric["ece"], chosen=False))
    chosen = next(i for i, row in enumerate(scores) if row.order == best or _is_as_good(row.nll))
    scores[chosen] = replace(scores[chosen], chosen=True)
    return scores


def _is_as_good(difference: Difference) -> bool:
    return difference.difference <= N_STANDARD_ERRORS * difference.standard_error < math.inf


def _cross_fit(
    members: Sequence[Predictions], plain: Predictions, cls: type[Calibrator], order: str, fold: torch.Tensor
) -> Predictions:
    """The average of all rows, each fold calibrated in this order by fits to the others."""
    if order == "none":
        return plain
    logits = torch.empty_like(plain.logits)
    for number in fold.unique():
        inside = fold == number
        logits[inside] = _calibrate([(each[~inside], each[inside]) for each in members], cls, order).logits
    return replace(plain, logits=logits)


def _calibrate(members: Sequence[tuple[Predictions, Predictions]], cls: type[Calibrator], order: str) -> Predictions:
    """The average of the second rows of each pair, calibrated by fits to the first."""
    if order in ("before", "both"):
        fits = [cls.fit(known) for known, _ in members]
        members = [(fit.calibrate(known), fit.calibrate(new)) for fit, (known, new) in zip(fits, members, strict=True)]
    known, new = (average(side) for side in zip(*members, strict=True))
    return cls.fit(known).calibrate(new) if order in ("after", "both") else new
