"""The average of several models' predictions for the same rows, in memory or from files to a file."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from calibrant._checks import check_columns
from calibrant._files import check_output
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator
from calibrant.ensembles.members import (
    Member,
    MemberLike,
    check_n_classes,
    equal_columns,
    in_step,
    match_rows,
    merge_labels,
    open_members,
)
from calibrant.ensembles.mixture import Mixture, mixture
from calibrant.predictions import RESERVED, Predictions, check_replaceable

DISAGREEMENT, INFORMATION = "member_disagreement", "mutual_information"  # the columns of an average
ENSEMBLE = "ensemble"  # its entry of the metadata


@checked
def average(
    members: Sequence[MemberLike],
    *,
    calibrators: Sequence[Calibrator] | None = None,
    id: str | None = None,
    match_names: bool = False,
    allow_same_rows: bool = False,
) -> Predictions:
    """The mean of the members' probabilities (a deep ensemble, Lakshminarayanan et al. 2017).

    The mean is arithmetic, of probabilities, and computed from log-probabilities. Files are read in step, batch by
    batch.

    Args:
        members: Predictions of several models for the same rows: in memory, as scans or as paths.
        calibrators: A fitted calibrator for each member, applied before averaging. To calibrate after it, call a
            calibrator on the result.
        id: A column that names the rows. Without it they are matched by their order, and known labels must agree.
        match_names: Whether to reorder the classes of members that have the same class names in another order.
        allow_same_rows: Whether the rows may be those that a calibrator was fitted on.

    Returns:
        The rows of the first member with the log-probabilities of the ensemble, and the labels that any member knows.
        Columns that are equal in all members stay, others and features are left out. Two are added:
        ``member_disagreement``, the share of the members that predict another class than the ensemble, and
        ``mutual_information``, the entropy of the mean minus the mean entropy, in nats. The metadata have what all
        members share, and in ``ensemble`` those of each.

    Raises:
        InvalidInputError: The members have other rows, labels, classes or ids; or a calibrator does not match its
            member, or was fitted on these rows.
        UnknownNameError: A member has no such column.

    >>> a = Predictions.from_probs([[0.9, 0.1], [0.2, 0.8]], [0, 1])
    >>> b = Predictions.from_probs([[0.7, 0.3], [0.8, 0.2]], [0, 1])
    >>> ensemble = average([a, b])
    >>> ensemble.probs
    tensor([[0.8000, 0.2000], [0.5000, 0.5000]], dtype=torch.float64)
    >>> ensemble.column("member_disagreement").to_pylist()
    [0.0, 0.5]
    """
    opened = open_members(members, calibrators, match_names=match_names, allow_same_rows=allow_same_rows)
    return Predictions.concat(_average(opened, id))


@checked
def save_average(
    members: Sequence[MemberLike],
    output: str | os.PathLike[str],
    *,
    calibrators: Sequence[Calibrator] | None = None,
    id: str | None = None,
    match_names: bool = False,
    allow_same_rows: bool = False,
    progress: Callable[[float], None] | None = None,
) -> int:
    """Average the predictions of several models, and write them to one Parquet file in bounded memory.

    A file that an earlier call wrote is replaced atomically, another one is not. The memory depends neither on the
    number of rows nor on that of the members. Three things are held in memory: the ids of two members, where there are
    ids; a member whose ids are in another order than those of the first; and a member with a calibrator of whole sets.

    Args:
        members: As for `average`.
        output: The file to write.
        calibrators: As for `average`.
        id: As for `average`.
        match_names: As for `average`.
        allow_same_rows: As for `average`.
        progress: Called after each batch with the number of rows.

    Returns:
        The number of rows.

    Raises:
        InvalidInputError: As for `average`; or the output is a member, or a file that was not written so.
        UnknownNameError: A member has no such column.
    """
    opened = open_members(members, calibrators, match_names=match_names, allow_same_rows=allow_same_rows)
    check_output(output, "a Parquet file", [file for member in opened for file in member.files])
    check_replaceable(output, ENSEMBLE)
    labels = any(member.may_have_labels() for member in opened)
    return Predictions.save_all(output, _average(opened, id, progress), labels=labels)


def _average(
    members: Sequence[Member], id: str | None, progress: Callable[[float], None] | None = None
) -> Iterator[Predictions]:
    """The batches of the average."""
    matched = match_rows(members, id)
    kept = equal_columns(matched)
    origins = [member.origin for member in matched]
    start = 0
    for rows in in_step([member.batches(() if i else kept) for i, member in enumerate(matched)]):
        check_n_classes([member.name for member in matched], [part.n_classes for part in rows])
        found = mixture([part.logits for part in rows])
        kept_columns = {name: rows[0].column(name) for name in kept}
        yield Predictions(
            logits=found.log_probs,
            labels=merge_labels(matched, rows, start),
            columns=check_columns(kept_columns | disagreement_columns(found), len(rows[0]), RESERVED),
            class_names=next((part.class_names for part in rows if part.class_names is not None), None),
            metadata=_metadata(origins, rows),
        )
        start += len(rows[0])
        if progress is not None:
            progress(len(rows[0]))


def disagreement_columns(found: Mixture) -> dict[str, Tensor]:
    """The columns that a mixture adds to its rows."""
    return {DISAGREEMENT: found.disagreement, INFORMATION: found.mutual_information}


def _metadata(origins: Sequence[dict[str, Any]], rows: Sequence[Predictions]) -> dict[str, Any]:
    """What all members share, and under `ENSEMBLE` where each is from, with all of its own."""
    first, *others = [part.metadata for part in rows]
    shared = {key: value for key, value in first.items() if all(key in o and o[key] == value for o in others)}
    shared.pop("calibrator", None)  # of the members: the average is calibrated by none
    return {**shared, ENSEMBLE: [origin | dict(part.metadata) for origin, part in zip(origins, rows, strict=True)]}
