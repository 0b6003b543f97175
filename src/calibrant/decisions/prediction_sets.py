"""Prediction sets: the label is in a set with a stated probability, whatever the model (split conformal prediction)."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Self, final

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from calibrant._checks import check_all_classes, check_class_names, check_integer, check_number
from calibrant._paths import first_line
from calibrant._signatures import checked
from calibrant.calibrators.apply import write_batches
from calibrant.calibrators.base import check_validation
from calibrant.calibrators.checks import check_increasing, check_same_classes, check_shape
from calibrant.calibrators.history import calibrators_of, check_same_calibrators
from calibrant.calibrators.importance import (
    MIN_EFFECTIVE_ROWS,
    DensityRatio,
    check_overlap,
    check_target,
    effective_rows,
    importance_weights,
)
from calibrant.calibrators.leakage import RowSketch
from calibrant.calibrators.store import decode_fields, encode, read_record, write_record
from calibrant.decisions.set_methods import ConformityScore, SetModule
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions
from calibrant.scan import Scan

KIND = "conformal_predictor"  # of the JSON file
COLUMN = "prediction_set"
KEY = "prediction_sets"  # of the metadata of predictions with sets
BY_CLASS = "class"
MAX_NAMED = 5  # groups of too few rows in an error message


@dataclass(frozen=True)
class WeightedQuantile:
    """The quantile of validation scores under the weights of a target (Tibshirani et al., NeurIPS 2019, Eq. 7).

    Args:
        scores: (n,) in ascending order.
        mass: (n,) the sum of the weights of scores up to each.
        ratio: The weight of a new row, which stands at infinity.
        effective_rows: The effective number of validation rows.
    """

    scores: Tensor
    mass: Tensor
    ratio: DensityRatio
    effective_rows: float

    def __post_init__(self) -> None:
        check_shape("scores", self.scores, (None,))
        check_shape("mass", self.mass, tuple(self.scores.shape))
        check_increasing("scores", self.scores)
        check_increasing("mass", self.mass)
        check_shape("weight", self.ratio.weight, (None,))

    @classmethod
    def of(cls, scores: Tensor, weights: Tensor, ratio: DensityRatio) -> Self:
        ordered, order = scores.sort()
        return cls(ordered, weights[order].cumsum(0), ratio, effective_rows(weights))

    def __call__(self, weights: Tensor, coverage: float) -> Tensor:
        """(n,) the threshold of rows of these weights; infinite where even all scores have too little weight."""
        index = torch.searchsorted(self.mass, coverage * (self.mass[-1] + weights))
        return torch.cat([self.scores, self.scores.new_full((1,), math.inf)])[index]


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConformalSets:
    """Sets of classes that hold the label with a stated probability: made by `fit`, then ``sets(test)``.

    The probability is over validation and test rows that are exchangeable, such as independent draws of one
    population; with ``target``, test rows are of the target, and differ from validation in their inputs alone.

    Args:
        score: The conformity score.
        coverage: The probability.
        by: "class", a column, or None: the coverage then holds in each class, in each group, or over all rows.
        groups: The values of the column.
        thresholds: The largest score in a set: one, or one for each class or group; none if weighted.
        weighted: The thresholds for a target.
        n_classes: Number of classes.
        class_names: Their names, if validation had them.
        rows: Hashes of the validation rows.
        n_rows: Their number.
        calibrators: The calibrators of their logits, in order.
    """

    score: ConformityScore
    coverage: float
    by: str | None
    groups: tuple[str, ...]
    thresholds: Tensor
    weighted: WeightedQuantile | None
    n_classes: int
    class_names: tuple[str, ...] | None
    rows: RowSketch
    n_rows: int
    calibrators: tuple[str, ...]

    def __post_init__(self) -> None:
        check_coverage(self.coverage)
        check_class_names(self.class_names, check_integer("n_classes", self.n_classes, 2))
        n = {None: 0 if self.weighted else 1, BY_CLASS: self.n_classes}.get(self.by, len(self.groups))
        check_shape("thresholds", self.thresholds, (n,))

    @classmethod
    @checked
    @one_thread()
    def fit(
        cls,
        validation: Predictions,
        *,
        coverage: float = 0.9,
        method: str = "aps",
        by: str | None = None,
        randomized: bool = False,
        seed: int = 0,
        penalty: float | None = None,
        k_reg: int | None = None,
        target: Predictions | None = None,
    ) -> Self:
        """Fit to labelled rows that the model, and its calibrator, were not fitted on.

        Args:
            validation: At least coverage / (1 − coverage) rows (9 for 0.9), in each class or group of ``by``.
            coverage: The probability with which a set holds the label, from 0.01 to 0.9999.
            method: "lac", "aps" or "raps", the names of `SET_METHODS`.
            by: "class" (Mondrian) or a column, in whose groups each the coverage shall hold.
            randomized: Whether a random number of the row decides about the last class of a set of aps and raps.
                Sets may then be empty. Without it none is, and a model that is more accurate than the coverage
                has sets that hold the label more often.
            seed: Of the random numbers, which are functions of it and the row's logits.
            penalty: λ of raps, 0.01 by default.
            k_reg: The number of classes that raps does not penalize, 5 by default.
            target: Unlabelled predictions of a population whose inputs are distributed otherwise (covariate
                shift). Validation rows are weighted by the density ratio, as by TransCal: that of features, if both
                have them, otherwise of logits. It excludes ``by``.

        Returns:
            The fitted sets.

        Raises:
            InvalidInputError: There are too few rows, or labels are missing, or an option is not of the method.
            UnknownNameError: There is no such method or column.
            NotConvergedError: Validation and target hardly overlap.

        >>> validation = Predictions.from_probs([[0.7, 0.2, 0.1]] * 6 + [[0.5, 0.3, 0.2]] * 4, [0] * 6 + [0, 1, 1, 2])
        >>> sets = ConformalSets.fit(validation, coverage=0.8, method="lac")
        >>> round(sets.thresholds.item(), 6)
        0.7
        >>> sets(Predictions.from_probs([[0.65, 0.15, 0.2], [0.3, 0.4, 0.3]])).column("prediction_set").to_pylist()
        [[0], [1, 0, 2]]
        """
        check_validation(validation, "validation", "fit prediction sets")
        score = ConformityScore.of(method, randomized=randomized, seed=seed, penalty=penalty, k_reg=k_reg)
        check_coverage(coverage)
        if by is not None and target is not None:
            raise InvalidInputError(f"by (--by) and target (--target) exclude each other, got by={by!r}")
        number, groups = _groups(validation, by)
        weighted, thresholds = None, torch.zeros(0, dtype=torch.float64)
        if target is None:
            check_group_rows(number, groups, coverage)
            scores = score.of_labels(validation)[number.argsort()].split(number.bincount().tolist())
            thresholds = torch.tensor([conformal_quantile(part, coverage) for part in scores], dtype=torch.float64)
        else:
            weighted = _weighted_quantile(validation, target, score, coverage)
        return cls(
            score=score,
            coverage=float(coverage),
            by=by,
            groups=() if by in (None, BY_CLASS) else tuple(groups),
            thresholds=thresholds,
            weighted=weighted,
            n_classes=validation.n_classes,
            class_names=validation.class_names,
            rows=RowSketch.of(validation),
            n_rows=len(validation),
            calibrators=calibrators_of(validation),
        )

    @checked
    def __call__(self, predictions: Predictions, *, allow_same_rows: bool = False) -> Predictions:
        """Add the sets to predictions.

        Args:
            predictions: Rows of the same classes and calibrators. Labels are not needed.
            allow_same_rows: Whether to do it for rows of the fit.

        Returns:
            The same rows with the column prediction_set: lists of class indices, the most probable first.

        Raises:
            InvalidInputError: The rows are those of the fit, have such a column already, a group that the fit had
                not, other classes or other calibrators.
            UnknownNameError: They have no column ``by``.
        """
        if not allow_same_rows:
            self.rows.check_disjoint(predictions)
        return self.add_sets(predictions)

    @checked
    def add_sets(self, predictions: Predictions) -> Predictions:
        """Add the sets without checking for rows of the fit.

        Args:
            predictions: As for a call.

        Returns:
            The same rows with the column prediction_set.

        Raises:
            InvalidInputError: As for a call.
            UnknownNameError: They have no column ``by``.
        """
        check_all_classes("predictions", predictions, "have prediction sets")
        check_same_classes(
            type(self).__name__, self.n_classes, predictions.n_classes, self.class_names, predictions.class_names
        )
        check_same_calibrators(self.calibrators, calibrators_of(predictions))
        column = pa.chunked_array(self._lists(predictions), pa.list_(pa.int32()))
        found = predictions.with_columns({COLUMN: column})
        record = {"method": self.score.method, "coverage": self.coverage, "by": self.by}
        record |= {"effective_rows": self.effective_rows, "fitted_on": self.rows.fingerprint}
        return replace(found, metadata={**predictions.metadata, KEY: record})

    @property
    def effective_rows(self) -> float:
        """The number of validation rows, less if they are weighted."""
        return float(self.n_rows) if self.weighted is None else self.weighted.effective_rows

    def _lists(self, predictions: Predictions) -> list[pa.ListArray]:
        limits, found = self._row_thresholds(predictions), []
        for rows, scores, order in self.score.blocks(predictions):
            inside = (scores <= (self.thresholds[order] if limits is None else limits[rows].unsqueeze(1))).numpy()
            ends = np.append(0, inside.sum(1).cumsum()).astype(np.int32)
            classes = order.numpy()[inside].astype(np.int32)
            found.append(pa.ListArray.from_arrays(pa.array(ends), pa.array(classes)))
        return found

    def _row_thresholds(self, predictions: Predictions) -> Tensor | None:
        """(n,) the threshold of each row; None if it differs between classes."""
        if self.weighted is not None:
            return self.weighted(self.weighted.ratio(predictions), self.coverage)
        if self.by == BY_CLASS:
            return None
        if self.by is None:
            return self.thresholds.expand(len(predictions))
        number, names = _groups(predictions, self.by)
        known = dict(zip(self.groups, self.thresholds, strict=True))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InvalidInputError(f"{self.by} must be one of the groups of the fit, got {unknown[0]!r}")
        return torch.stack([known[name] for name in names])[number] if names else self.thresholds[:0]

    def module(self) -> nn.Module:
        """The sets as a module of logits (n, k), to run after the model.

        Returns:
            A module that returns a boolean mask (n, k), and scripts and exports.

        Raises:
            InvalidInputError: The sets depend on more than the logits: a group, a target or random numbers.
        """
        reasons = {
            f"by {self.by!r}": self.by not in (None, BY_CLASS),
            "weighted for a target": self.weighted is not None,
            "randomized": self.score.randomized,
        }
        for reason, holds in reasons.items():
            if holds:
                raise InvalidInputError(f"sets {reason} have no module: a module is a function of logits alone")
        return SetModule(self.score, self.thresholds, self.n_classes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file, atomically.

        Args:
            path: The file to write.
        """
        parameters = {item.name: getattr(self, item.name) for item in fields(self)}
        write_record(path, encode({KIND: self.score.method, "parameters": parameters}), KIND)

    @classmethod
    @checked
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote.

        Args:
            path: The file.

        Returns:
            The sets.

        Raises:
            NoDataError: There is no such file.
            CorruptFileError: The file is not of prediction sets.
        """
        record = read_record(path, KIND)
        try:
            return decode_fields(cls, record["parameters"])
        except (CalibrantError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CorruptFileError(f"{os.fspath(path)} is damaged: {first_line(error)}") from None

    def summary(self) -> dict[str, Any]:
        """The fit as a dictionary of JSON values.

        Returns:
            Method and options, coverage, rows, and the threshold, or that of each class or group.
        """
        found: dict[str, Any] = {item.name: getattr(self.score, item.name) for item in fields(self.score)}
        found |= {"coverage": self.coverage, "by": self.by, "n_rows": self.n_rows, "n_classes": self.n_classes}
        found |= {"calibrators": list(self.calibrators), "fingerprint": self.rows.fingerprint}
        if self.weighted is not None:
            return found | {"effective_rows": self.effective_rows}
        names = self.groups or (self.class_names or tuple(map(str, range(self.n_classes))))
        values = self.thresholds.tolist()
        return found | {"thresholds": values[0] if self.by is None else dict(zip(names, values, strict=True))}

    def __repr__(self) -> str:
        shown = [self.score.method, f"coverage={self.coverage:g}", f"{self.n_rows:,} rows"]
        shown += [f"by={self.by!r}"] if self.by else ["weighted"] if self.weighted else []
        return f"ConformalSets({', '.join(shown)})"


def write_sets(
    sets: ConformalSets,
    scan: Scan,
    output: str | os.PathLike[str],
    *,
    allow_same_rows: bool = False,
    progress: Callable[[float], None] = lambda _: None,
) -> int:
    """Add sets to the rows of a scan, batch by batch, and write them to one Parquet file; the number of rows.

    Raises: InvalidInputError as for a call, and where the output is an input or a file that this did not write.
    """
    return write_batches(
        lambda batch, _: sets.add_sets(batch),
        scan,
        output,
        key=KEY,
        fitted_on=None if allow_same_rows else sets.rows,
        progress=progress,
    )


def check_coverage(coverage: float) -> float:
    return check_number("coverage", coverage, minimum=0.01, maximum=0.9999)


def min_rows(coverage: float) -> int:
    """The least number of rows whose largest score has at least this coverage: n ≥ coverage / (1 − coverage).

    >>> min_rows(0.9), min_rows(0.95)
    (9, 19)
    """
    exact = Fraction(repr(float(coverage)))  # of the decimal number that was written
    return math.ceil(exact / (1 - exact))


def conformal_quantile(scores: Tensor, coverage: float) -> float:
    """The ⌈(n + 1) c⌉-th smallest of n scores: a new one is at most that with a probability ≥ c.

    >>> conformal_quantile(torch.arange(1.0, 100.0), 0.55)  # 0.55 · 100 is a little more than 55 in floating point
    55.0
    """
    rank = math.ceil((len(scores) + 1) * Fraction(repr(float(coverage))))
    return float(scores.kthvalue(rank).values)


def check_group_rows(number: Tensor, groups: list[str], coverage: float) -> None:
    """Enough rows for the coverage in each group. Raises: InvalidInputError."""
    needed, counts = min_rows(coverage), torch.bincount(number, minlength=len(groups)).tolist()
    few = [f"{name} has {n}" for name, n in zip(groups, counts, strict=True) if n < needed]
    if few:
        named = ", ".join(few[:MAX_NAMED]) + (
            f", and {len(few) - MAX_NAMED} more have too few" if len(few) > MAX_NAMED else ""
        )
        each = "" if len(groups) == 1 else " in each class or group"
        raise InvalidInputError(f"validation must have at least {needed} rows{each} for coverage {coverage:g}: {named}")


def _groups(predictions: Predictions, by: str | None) -> tuple[Tensor, list[str]]:
    """The number (n,) of each row's group, and the names of the groups."""
    if by is None:
        return torch.zeros(len(predictions), dtype=torch.int64), ["it"]
    if by == BY_CLASS:
        return predictions.labels, list(predictions.class_names or map(str, range(predictions.n_classes)))
    number, values = predictions.groups(by)
    if None in values:
        raise InvalidInputError(
            f"{by} must not be null to be grouped by, got null at row {int((number == values.index(None)).argmax())}"
        )
    return torch.from_numpy(number), list(map(str, values))


def _weighted_quantile(
    validation: Predictions, target: Predictions, score: ConformityScore, coverage: float
) -> WeightedQuantile:
    weights = importance_weights(validation, check_target("a weighted fit", validation, target))
    least = max(MIN_EFFECTIVE_ROWS, min_rows(coverage))
    check_overlap(weights, effective_rows(weights), f"no set can be promised with fewer than {least:g}", least)
    return WeightedQuantile.of(score.of_labels(validation), weights, DensityRatio.fit(validation, target))
