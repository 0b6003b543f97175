"""Predictions: logits, labels and columns of the same rows, in memory and in Parquet files.

The constructor states what the input is (logits, probabilities, log-probabilities); nothing is guessed from values. Any
framework can write the files (`docs/predictions.md`).
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._arrays import (
    UNKNOWN,
    ArrayLike,
    as_float32,
    as_lists,
    as_logits,
    blocks,
    floats,
    integers,
    list_matrix,
    python_values,
    row_hashes,
    sum_tolerance,
    to_tensor,
    two_classes,
)
from calibrant._checks import (
    check_class_names,
    check_columns,
    check_confidence,
    check_dense,
    check_distributions,
    check_features16,
    check_instance,
    check_integer,
    check_integer_labels,
    check_label_range,
    check_memory,
    check_same_class_names,
    check_same_kind,
    first_position,
    in_order,
)
from calibrant._names import check_choice
from calibrant._parquet import BATCH_ELEMENTS, write
from calibrant._paths import filesystem_of
from calibrant._progress import silent
from calibrant._signatures import checked
from calibrant.errors import CalibrantError, InvalidInputError

if TYPE_CHECKING:
    from calibrant.reading.columns import ColumnOptions
    from calibrant.scan import Scan

PREDICTION_COLUMNS = (
    "logits",
    "log_probs",
    "probs",
    "positive_probs",
    "positive_logits",
)  # columns of a prediction: the name says what it is
POSITIVE_COLUMNS = ("positive_probs", "positive_logits")  # those of class 1 of two classes
RESERVED = (*PREDICTION_COLUMNS, "label", "features")
LABEL_PROBS = "label_probs"  # the column of soft labels, lists of the probability of each class
LABEL_WEIGHT, LABEL_ROW = "label_weight", "label_row"  # columns of `Predictions.expand_labels`
MIN_LABEL_PROB = 1e-90  # of a soft label that is counted, as small weights are not
TOP_LABEL_COLUMNS = ("confidence", "correct")  # of rows with only the confidence of the predicted class
METADATA_KEY = b"calibrant"
Paths: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class PredictionsOptions(TypedDict, total=False):
    """What every constructor takes after predictions and labels; see `Predictions.from_logits`."""

    columns: Mapping[str, Any] | pa.Table | None
    features: ArrayLike | None
    class_names: Sequence[str] | None
    metadata: Mapping[str, Any] | None
    ignore_index: int


@dataclass(frozen=True, eq=False)
class Predictions:
    """Rows of predictions, made by `from_logits`, `from_probs`, `from_log_probs`, `from_positive_probs` and others.

    Attributes:
        logits: (n, k) float32 or float64: log-probabilities up to a constant for each row; −inf is probability 0.
        labels: (n,) int64, −1 where the label is not known.
        columns: An Arrow table of n rows: domain, corruption, severity, split, time.
        features: (n, f) float16, of the penultimate layer.
        class_names: The name of each class.
        metadata: What is known of all rows: model, loss, seed.
        top_label: Whether only the confidence of the predicted class is known, as `from_confidence` takes it. The two
            classes are then whether the prediction is incorrect (0) or correct (1), and class 1 counts as predicted.

    >>> predictions = Predictions.from_probs([[0.8, 0.2], [0.4, 0.6]], [0, 0], columns={"site": ["A", "B"]})
    >>> predictions
    Predictions(2 rows, 2 classes, columns: site)
    >>> predictions.where(site="B").probs
    tensor([[0.4000, 0.6000]], dtype=torch.float64)
    """

    logits: Tensor
    labels: Tensor
    columns: pa.Table
    features: Tensor | None = None
    class_names: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    top_label: bool = False

    @classmethod
    def from_logits(
        cls, logits: ArrayLike, labels: ArrayLike | None = None, **options: Unpack[PredictionsOptions]
    ) -> Self:
        """Predictions from logits.

        Args:
            logits: (n, k), or (n, k, d1, …) where every position becomes a row. Half precision becomes float32; others
                may share memory with the result.
            labels: Integers (n,) or (n, d1, …), or booleans for two classes. None, or null in an Arrow array, where
                they are not known. Floating point of the shape of the logits: soft labels, the distribution of each
                row's label over several annotators; they become the column `label_probs`.
            options: ``columns``: n values each, by name; ``features``: (n, f), of the penultimate layer;
                ``class_names``; ``metadata``: a mapping that JSON can represent; ``ignore_index``: rows with this
                label are left out, by default −100.

        Returns:
            Predictions of n rows, or of one for each position.

        Raises:
            InvalidInputError: A value breaks its rule; the message names the row.
        """
        return cls._build("logits", logits, labels, **options)

    @classmethod
    def from_log_probs(
        cls, log_probs: ArrayLike, labels: ArrayLike | None = None, **options: Unpack[PredictionsOptions]
    ) -> Self:
        """Predictions from log-probabilities whose exponentials sum to 1; arguments as in `from_logits`."""
        return cls._build("log_probs", log_probs, labels, **options)

    @classmethod
    def from_probs(
        cls, probs: ArrayLike, labels: ArrayLike | None = None, **options: Unpack[PredictionsOptions]
    ) -> Self:
        """Predictions from probabilities that sum to 1 (to 1e-3; they are rescaled); arguments as in `from_logits`."""
        return cls._build("probs", probs, labels, **options)

    @classmethod
    def from_positive_probs(
        cls, probs: ArrayLike, labels: ArrayLike | None = None, **options: Unpack[PredictionsOptions]
    ) -> Self:
        """Predictions of two classes from the probability of class 1, (n,) or (n, 1); arguments as in `from_logits`.

        >>> Predictions.from_positive_probs([0.75], [1]).probs
        tensor([[0.2500, 0.7500]], dtype=torch.float64)
        """
        return cls._build("positive_probs", probs, labels, **options)

    @classmethod
    def from_positive_logits(
        cls, logits: ArrayLike, labels: ArrayLike | None = None, **options: Unpack[PredictionsOptions]
    ) -> Self:
        """Predictions of two classes from one logit z, (n,) or (n, 1): P(class 1) = sigmoid(z).

        That is the output of a model that was trained with `torch.nn.BCEWithLogitsLoss`. Arguments as in `from_logits`.

        >>> Predictions.from_positive_logits([0.0], [1]).probs
        tensor([[0.5000, 0.5000]], dtype=torch.float64)
        """
        return cls._build("positive_logits", logits, labels, **options)

    @classmethod
    @checked
    def from_confidence(
        cls,
        confidence: ArrayLike,
        correct: ArrayLike | None = None,
        *,
        columns: Mapping[str, Any] | pa.Table | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Self:
        """Predictions of which only the confidence of the predicted class is known, and whether it is correct.

        Args:
            confidence: (n,) in [0, 1], also below 0.5.
            correct: (n,) booleans, or 0 and 1; None, or null in an Arrow array or a list, where it is not known.
            columns: n values each, by name.
            metadata: A mapping that JSON can represent.

        Returns:
            Predictions with ``top_label``: what needs the probabilities of all classes refuses them.

        Raises:
            InvalidInputError: A value breaks its rule; the message names the row.

        >>> predictions = Predictions.from_confidence([0.9, 0.4], [True, False])
        >>> predictions
        Predictions(2 rows, confidence of the predicted class)
        """
        from calibrant.reading.outcomes import correct_array, read_correct

        values = floats("confidence", confidence)
        if values.ndim != 1:
            raise InvalidInputError(f"confidence must have shape (n,), got {tuple(values.shape)}")
        check_confidence("confidence", values)
        table = check_columns(columns, len(values), (*RESERVED, *TOP_LABEL_COLUMNS))
        rows = cls.from_positive_probs(values, columns=table, metadata=metadata)
        if correct is None:
            return replace(rows, top_label=True)
        outcomes = correct_array(correct)
        if len(outcomes) != len(rows):
            raise InvalidInputError(f"correct must have {len(rows)} values, got {len(outcomes)}")
        return replace(rows, labels=read_correct("correct", outcomes), top_label=True)

    @classmethod
    def _build(
        cls,
        kind: str,
        values: ArrayLike,
        labels: ArrayLike | None,
        *,
        columns: Mapping[str, Any] | pa.Table | None = None,
        features: ArrayLike | None = None,
        class_names: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        ignore_index: int = -100,
    ) -> Self:
        argument = kind.removeprefix("positive_")
        tensor = floats(argument, values)
        if kind in POSITIVE_COLUMNS:
            kind, tensor = two_classes(kind, tensor, argument, 0)
        check_dense(argument, tensor)
        n, n_classes, *extent = tensor.shape
        names = check_class_names(class_names, n_classes)
        check_instance("metadata", {} if metadata is None else metadata, Mapping)
        check_integer("ignore_index", ignore_index, -(2**63), 2**63 - 1)
        table = check_columns(columns, n, RESERVED)
        halves = None
        if features is not None:
            matrix = floats("features", features)
            halves, table = check_features16(matrix, n, extent), _with_norm(table, matrix)
        if extent:
            tensor = tensor.movedim(1, -1).reshape(-1, n_classes)
            table = table.take(pa.array(np.repeat(np.arange(n), int(np.prod(extent)))))
        soft = None if labels is None else _soft_labels(labels, (n, n_classes, *extent))
        known, ignored = _labels(labels if soft is None else None, n_classes, (n, *extent), ignore_index)
        predictions = cls(
            logits=tensor,
            labels=known,
            columns=table,
            features=halves,
            class_names=names,
            metadata=dict(metadata or {}),
        )
        if ignored is not None:
            predictions = predictions[~ignored]
        if soft is not None:
            predictions = predictions.with_columns({LABEL_PROBS: as_lists(soft)})
        logits = as_logits(kind, predictions.logits, argument, 0, sum_tolerance(values))
        return replace(predictions, logits=logits)

    @classmethod
    @checked
    def from_frame(cls, frame: Any, **options: "Unpack[ColumnOptions]") -> Self:
        """Predictions from a data frame of pandas, polars, DuckDB or pyarrow: anything that exports Arrow.

        Args:
            frame: A row for each prediction.
            options: What the columns are, as for `calibrant.read`; those whose names say it need no options.

        Returns:
            The rows with all other columns.

        Raises:
            InvalidInputError: The columns are not clear, or a value breaks its rule; the message says what to type.
            UnknownNameError: There is no such column.
        """
        from calibrant.reading.columns import Request
        from calibrant.reading.source import open_frame

        return open_frame(frame, Request.of(options)).read()  # type: ignore[return-value]

    def to_frame(self) -> pa.Table:
        """The rows as an Arrow table, which every library of data frames reads; ``.to_pandas()`` makes one of pandas.

        Returns:
            A column ``prob_…`` for each class (its name, or its number), the column ``label`` where a label is known
            (names of classes, or numbers; null where not known), ``features``, and all columns. With ``top_label``, the
            columns ``confidence`` and ``correct`` in place of the first two. `from_frame` reads it.

        Raises:
            InvalidInputError: A column has the name of that of a class.

        >>> frame = Predictions.from_probs([[0.75, 0.25]], [0], class_names=["cat", "dog"]).to_frame()
        >>> frame.column_names
        ['label', 'prob_cat', 'prob_dog']
        """
        from calibrant.reading.frames import to_table

        return to_table(self)

    @property
    def n_classes(self) -> int:
        return self.logits.shape[1]

    def __len__(self) -> int:
        return len(self.logits)

    def __repr__(self) -> str:
        unknown = 0 if self.has_soft_labels else int((self.labels == UNKNOWN).sum())
        kind = "confidence of the predicted class" if self.top_label else f"{self.n_classes} classes"
        parts = [f"{len(self):,} rows", kind]
        parts += [f"{unknown:,} without label"] if unknown else []
        parts += [f"columns: {', '.join(self.columns.column_names)}"] if self.columns.column_names else []
        return f"Predictions({', '.join(parts)})"

    @property
    def log_probs(self) -> Tensor:
        """(n, k) log-probabilities."""
        return self.logits.log_softmax(1)

    @property
    def probs(self) -> Tensor:
        """(n, k) probabilities."""
        return self.logits.softmax(1)

    @property
    def has_soft_labels(self) -> bool:
        """Whether there is a column `label_probs`."""
        return LABEL_PROBS in self.columns.column_names

    def soft_labels(self, *, first_row: int = 0) -> Tensor:
        """The distributions of labels in the column `label_probs`.

        Args:
            first_row: The number of the first row in error messages.

        Returns:
            (n, k) float64, of which every row sums to 1.

        Raises:
            InvalidInputError: A row is no distribution over the classes, or has a label as well.
            UnknownNameError: There is no such column.
        """
        column = self.column(LABEL_PROBS)
        soft = list_matrix(pa.chunked_array(column).combine_chunks(), LABEL_PROBS, first_row, self.n_classes)
        if soft.shape[1] != self.n_classes:
            rule = f"have a number for each of {self.n_classes} classes"
            raise InvalidInputError(f"{LABEL_PROBS} must {rule}, got {soft.shape[1]} at row {first_row}")
        if (known := self.labels != UNKNOWN).any():
            raise InvalidInputError(
                f"rows must have a label or {LABEL_PROBS}, got both at {first_position(known, first_row)}: "
                f"leave one of the columns out, or rename {LABEL_PROBS}"
            )
        return check_distributions(LABEL_PROBS, soft, first_row)

    def expand_labels(self, *, weights: str | None = None, first_row: int = 0) -> Self:
        """Each row once for each label of positive probability: soft labels for what takes row weights and clusters.

        `score`, `audit` and `compare` do so themselves.

        Args:
            weights: A column of row weights, by which the probabilities are multiplied.
            first_row: The number of the first row.

        Returns:
            Labelled rows with the columns `label_weight`, the probability of the label, and `label_row`, the number of
            the row, by which they are clustered.

        Raises:
            InvalidInputError: A row of the column `label_probs` is no distribution over the classes.
            UnknownNameError: There is no such column.

        >>> rows = Predictions.from_probs([[0.8, 0.2]], [[0.75, 0.25]]).expand_labels()
        >>> rows.labels, rows.column("label_weight").to_pylist(), rows.column("label_row").to_pylist()
        (tensor([0, 1]), [0.75, 0.25], [0, 0])
        """
        soft = self.soft_labels(first_row=first_row)
        row, label = (soft >= MIN_LABEL_PROB).nonzero(as_tuple=True)
        size = 2 * len(row) * self.n_classes * self.logits.element_size()
        check_memory(f"{len(self):,} rows with {len(row):,} labels of positive probability", size)
        weight = soft[row, label] * (1 if weights is None else self.numbers("weights", weights)[row])
        others = [name for name in self.columns.column_names if name != LABEL_PROBS]
        expanded = replace(self, columns=self.columns.select(others))[row]
        added = {LABEL_WEIGHT: weight, LABEL_ROW: row + first_row}
        return replace(expanded, labels=label).with_columns(added)

    def __getitem__(self, rows: slice | Tensor | Sequence[int] | NDArray[Any]) -> Self:
        """The rows of a slice, a boolean mask or a list of row numbers."""
        try:
            index = np.arange(len(self))[rows] if isinstance(rows, slice) else rows
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"rows must be a slice of integers, got {rows}: {error}") from None
        chosen = to_tensor("rows", "row numbers", index)
        chosen = chosen.long() if chosen.numel() == 0 else chosen
        if chosen.ndim != 1 or chosen.is_floating_point() or (chosen.dtype == torch.bool and len(chosen) != len(self)):
            what = f"{chosen.dtype} of shape {tuple(chosen.shape)}"
            raise InvalidInputError(f"rows must be a slice, {len(self)} booleans or row numbers, got {what}")
        numbers = chosen.nonzero().squeeze(1) if chosen.dtype == torch.bool else chosen.long()
        low, high = map(int, numbers.aminmax()) if len(numbers) else (0, -1)
        if low < -len(self) or high >= len(self):
            raise InvalidInputError(f"rows must lie in [0, {len(self) - 1}], got {int(numbers.abs().max())}")
        if low < 0:
            numbers = torch.where(numbers < 0, numbers + len(self), numbers)
        return replace(
            self,
            logits=self.logits.index_select(0, numbers),
            labels=self.labels.index_select(0, numbers),
            columns=self.columns.take(pa.array(numbers.numpy())),
            features=None if self.features is None else self.features.index_select(0, numbers),
        )

    def column(self, name: str) -> pa.ChunkedArray:
        """One of the columns.

        Args:
            name: Its name.

        Returns:
            The values of all rows.

        Raises:
            UnknownNameError: There is no such column.
        """
        return self.columns.column(check_choice("column", name, self.columns.column_names))

    def numbers(self, argument: str, name: str) -> Tensor:
        """A column of numbers as float64.

        Args:
            argument: The argument that names the column, for the error message.
            name: The column.

        Returns:
            The values of all rows, (n,).

        Raises:
            InvalidInputError: The column has nulls, or is not numeric.
            UnknownNameError: There is no such column.
        """
        column = self.column(name)
        if column.null_count or not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            got = f"{column.type} with {column.null_count} nulls in {name!r}"
            raise InvalidInputError(f"{argument} must be numbers, got {got}")
        return torch.from_numpy(column.to_numpy().astype(np.float64))

    @checked
    def select(self, names: str | Sequence[str]) -> Self:
        """The same rows with these columns only, and without features."""
        wanted = [names] if isinstance(names, str) else names
        known = dict.fromkeys(check_choice("column", name, self.columns.column_names) for name in wanted)
        return replace(self, columns=self.columns.select(list(known)), features=None)

    def groups(self, name: str) -> tuple[NDArray[np.int64], list[Any]]:
        """Encode a column: the index of each row's value among the distinct values.

        Args:
            name: The column.

        Returns:
            The indices (n,), and the distinct values in order of appearance; nulls and NaN are one value, None.

        Raises:
            InvalidInputError: The column has a type whose values cannot be compared.
            UnknownNameError: There is no such column.
        """
        column = self.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)  # the precision of Python's times
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)  # NaN equals no other NaN
        try:
            encoded = pa.chunked_array(column).combine_chunks().dictionary_encode(null_encoding="encode")
        except pa.ArrowNotImplementedError:
            raise InvalidInputError(f"column {name!r} cannot be grouped by: its type is {column.type}") from None
        values = python_values(name, encoded.dictionary)
        return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), values

    def where(self, **conditions: Any) -> Self:
        """The rows whose columns have the given values: ``where(site="A", severity=[1, 2])``.

        Args:
            conditions: A value, or several, by column name.

        Returns:
            The rows that meet all conditions.

        Raises:
            InvalidInputError: A value has another type than its column.
            UnknownNameError: There is no such column.
        """
        mask = np.ones(len(self), dtype=bool)
        for name, wanted in conditions.items():
            column = self.column(name)
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            try:
                several = isinstance(wanted, Iterable) and not isinstance(wanted, str | bytes)
                values = list(wanted) if several else [wanted]
                if any(isinstance(value, list | tuple | dict) for value in values):
                    raise TypeError  # values that contain values; pyarrow crashes where one contains itself
                among = pa.array(values).cast(column.type)
            except (pa.ArrowException, TypeError, ValueError, RuntimeError, OverflowError):
                rule = f"be compared with values of its type {column.type}"
                raise InvalidInputError(f"{name} must {rule}, got {wanted!r}") from None
            mask &= pc.is_in(column, among).to_numpy(zero_copy_only=False)
        return self[mask]

    @classmethod
    def concat(cls, parts: Iterable[Self]) -> Self:
        """The rows of several predictions.

        Args:
            parts: Predictions with the same classes and columns. Those without class names are taken to have those of
                the others.

        Returns:
            All rows in order; of the metadata, the entries that are equal in all parts.

        Raises:
            InvalidInputError: The parts differ, or there are none.
        """
        parts = tuple(in_order("parts", "predictions", parts))
        if not parts:
            raise InvalidInputError("parts must not be empty")
        for part in parts:
            check_instance("parts", part, Predictions)
        first = parts[0]
        names = next((part.class_names for part in parts if part.class_names is not None), None)
        for part in parts[1:]:
            check_same_kind("the first part", first, "every part", part)
            if part.n_classes != first.n_classes:
                got = f"{first.n_classes} and {part.n_classes}"
                raise InvalidInputError(f"parts must have one number of classes, got {got}")
            check_same_class_names("the first part", names, "every part", part.class_names)
            if sorted(map(str, part.columns.schema)) != sorted(map(str, first.columns.schema)):
                got = f"{_describe(first.columns.schema)} and {_describe(part.columns.schema)}"
                raise InvalidInputError(f"parts must have the same columns, got {got}")
            if (part.features is None) != (first.features is None):
                raise InvalidInputError("parts must all have features, or none")
        return cls(
            logits=torch.cat([part.logits for part in parts]),
            labels=torch.cat([part.labels for part in parts]),
            columns=pa.concat_tables([part.columns.select(first.columns.column_names) for part in parts]),
            features=None if first.features is None else torch.cat([part.features for part in parts]),  # type: ignore[misc]
            class_names=names,
            metadata={
                k: v for k, v in first.metadata.items() if all(k in p.metadata and p.metadata[k] == v for p in parts)
            },
            top_label=first.top_label,
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes with any logit (in float32) or label, but not with the order of the rows."""
        low, high = (int(hashes.sum(dtype=np.uint64)) for hashes in self.row_hashes)
        return f"{len(self):010x}{low:016x}{high:016x}"

    @cached_property
    def row_hashes(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Two 64-bit hashes of each row: of its logits (in float32), and of its logits and label."""
        return row_hashes(self.logits, self.labels)

    @checked
    def with_columns(self, columns: Mapping[str, Any] | pa.Table) -> Self:
        """The same rows with further columns.

        Args:
            columns: n values each, by name.

        Returns:
            New predictions.

        Raises:
            InvalidInputError: A column of this name is there already, or has another number of values.
        """
        reserved = (*RESERVED, *TOP_LABEL_COLUMNS) if self.top_label else RESERVED
        added = check_columns(columns, len(self), reserved)
        for name in added.column_names:
            if name in self.columns.column_names:
                raise InvalidInputError(f"predictions must not have a column {name!r} already")
        tables = [table for table in (self.columns, added) if table.num_columns]
        every = {name: table.column(name) for table in tables for name in table.column_names}
        return replace(self, columns=check_columns(every, len(self), RESERVED))

    def with_features(self, features: ArrayLike) -> Self:
        """The same rows with other features.

        Args:
            features: (n, f); they replace the present ones and the column `feature_norm`.

        Returns:
            New predictions.

        Raises:
            InvalidInputError: The features have another number of rows, or exceed float16.
        """
        features = floats("features", features)
        halves = check_features16(features, len(self), ())
        others = [name for name in self.columns.column_names if name != "feature_norm"]
        return replace(self, features=halves, columns=_with_norm(self.columns.select(others), features))

    def match_names(self, class_names: Sequence[str] | None) -> Self:
        """The same rows with the classes in another order: logits and labels are reordered, columns are not.

        Args:
            class_names: The names of all classes in the new order. None changes nothing; nor does any order where the
                predictions have no names.

        Returns:
            New predictions.

        Raises:
            InvalidInputError: The names are others than those of the predictions.

        >>> predictions = Predictions.from_logits([[2.0, 0.0]], [0], class_names=["cat", "dog"])
        >>> predictions.match_names(["dog", "cat"]).logits
        tensor([[0., 2.]], dtype=torch.float64)
        """
        names = check_class_names(class_names, self.n_classes)
        if self.class_names is None or names is None or names == self.class_names:
            return self
        if set(names) != set(self.class_names):
            check_same_class_names("class_names", names, "predictions", self.class_names)
        place = {name: index for index, name in enumerate(names)}
        new = torch.tensor([*(place[name] for name in self.class_names), UNKNOWN])  # UNKNOWN is −1, the last
        order, columns = new[:-1].argsort(), self.columns
        if self.has_soft_labels:
            soft = as_lists(self.soft_labels()[:, order])
            columns = columns.set_column(columns.column_names.index(LABEL_PROBS), LABEL_PROBS, soft)
        return replace(self, logits=self.logits[:, order], labels=new[self.labels], columns=columns, class_names=names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file, atomically: after an error a file of that name is unchanged.

        Where no label is known, the file has no column label. With ``top_label`` it has the columns confidence and
        correct in place of logits and label.

        Args:
            path: A path or an fsspec URL.

        Raises:
            InvalidInputError: JSON cannot represent the metadata.
            ResourceError: The file cannot be written.
        """
        labels = len(self) == 0 or bool((self.labels != UNKNOWN).any())
        schema = self._schema(labels, fingerprint=self.fingerprint)
        write(path, self._batches(schema), schema, "a Parquet file")

    @classmethod
    @checked
    def save_all(cls, path: str | os.PathLike[str], parts: Iterable[Self], *, labels: bool = True) -> int:
        """Write several predictions into one file, as `save` does, with one of them in memory at a time.

        Args:
            path: A path or an fsspec URL.
            parts: Predictions with the same columns and classes; the metadata are those of the first.
            labels: Whether to write the column label.

        Returns:
            The number of rows.

        Raises:
            InvalidInputError: The parts differ, or there are none.
            ResourceError: The file cannot be written.
        """
        rest = in_order("parts", "predictions", parts)
        first = next(rest, None)
        if first is None:
            raise InvalidInputError("parts must not be empty")
        check_instance("parts", first, Predictions)
        schema, n_rows = first._schema(labels), 0

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal n_rows
            for part in chain([first], rest):
                check_instance("parts", part, Predictions)
                n_rows += len(part)
                check_same_kind("the first part", first, "every part", part)
                check_same_class_names("the first part", first.class_names, "every part", part.class_names)
                if not (other := part._schema(labels)).equals(schema, check_metadata=False):
                    got = f"{_describe(schema)} and {_describe(other)}"
                    raise InvalidInputError(f"parts must have the same columns, got {got}")
                yield from part._batches(schema)

        write(path, batches(), schema, "a Parquet file")
        return n_rows

    def _schema(self, labels: bool, **extra: str) -> pa.Schema:
        record = {"class_names": self.class_names, "metadata": dict(self.metadata), **extra}
        try:
            text = json.dumps(record, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(f"metadata must be JSON values: {error}") from None
        if self.top_label:
            fields = [pa.field("correct", pa.bool_())] if labels else []
            fields.append(pa.field("confidence", pa.float64()))
        else:
            fields = [pa.field("label", pa.int32())] if labels else []
            fields.append(pa.field("logits", pa.list_(pa.float32(), self.n_classes)))
        if self.features is not None:
            fields.append(pa.field("features", pa.list_(pa.float16(), self.features.shape[1])))
        return pa.schema([*fields, *self.columns.schema], metadata={METADATA_KEY: text})

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for rows in blocks(len(self), self.n_classes, size=BATCH_ELEMENTS):
            logits, labels = self.logits[rows], self.labels[rows].numpy()
            unknown = labels == UNKNOWN
            if self.top_label:
                arrays = [pa.array(labels == 1, mask=unknown)] if "correct" in schema.names else []
                arrays.append(pa.array(logits.double().softmax(1)[:, 1].contiguous().numpy()))
            else:
                arrays = [pa.array(labels, pa.int32(), mask=unknown)] if "label" in schema.names else []
                arrays.append(as_lists(as_float32(logits)))
            arrays += [] if self.features is None else [as_lists(self.features[rows])]
            arrays += [column.combine_chunks() for column in self.columns[rows].columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @classmethod
    def load(cls, paths: Paths) -> Self:
        """Read all rows of one or more files.

        Args:
            paths: As for `scan`.

        Returns:
            The rows in the order of the files.

        Raises:
            NoDataError: There is no such file.
            ResourceError: The system cannot read a file.
            CorruptFileError: A file breaks the format; the message names file and row.
        """
        return cls.scan(paths).read()  # type: ignore[return-value]

    @classmethod
    @checked
    def scan(
        cls,
        paths: Paths,
        *,
        batch_rows: int | None = None,
        match_names: bool = False,
        say: Callable[[str], None] | None = None,
        **options: "Unpack[ColumnOptions]",
    ) -> "Scan":
        """Open files for reading batch by batch, in bounded memory.

        Args:
            paths: Paths, globs, folders or fsspec URLs of files of any format that `calibrant.read` knows; in folders
                those that end with .parquet.
            batch_rows: The largest number of rows in a batch, by default 2^21 numbers' worth.
            match_names: Whether to reorder the classes of files that have the same class names in another order than
                the first; otherwise this is an error. Files without names are taken to have those of the others.
            say: Called with a line for each thing that a reader should know: what the columns of files that calibrant
                did not write are, and later which rows were rescaled.
            options: What the columns are, as for `calibrant.read`: of the files that calibrant did not write, where
                there are any.

        Returns:
            An iterable of predictions. It raises as `load` does when it reaches a bad row.

        Raises:
            NoDataError: There is no such file.
            ResourceError: The system cannot read a file.
            CorruptFileError: A file does not have the format that its name says.
            InvalidInputError: The columns are not clear, or the files have different class names.
            UnknownNameError: There is no such column.
        """
        from calibrant.reading.opening import open_scans

        if batch_rows is not None:
            check_integer("batch_rows", batch_rows, 1)
        (scan,) = open_scans([paths], batch_rows=batch_rows, match_names=match_names, say=say or silent, **options)
        return scan


def check_replaceable(path: str | os.PathLike[str], key: str) -> None:
    """Refuse a file that is there, is not empty, and has no predictions with this key of metadata.

    Raises: InvalidInputError.
    """
    filesystem, name = filesystem_of(os.fspath(path))
    if not filesystem.isfile(name) or not filesystem.size(name):
        return
    try:
        known = key in Predictions.scan(path).metadata
    except CalibrantError:
        known = False
    if not known:
        raise InvalidInputError(f"{os.fspath(path)} exists, and is of another kind: choose another name, or remove it")


def _labels(
    labels: ArrayLike | None, n_classes: int, shape: tuple[int, ...], ignore_index: int
) -> tuple[Tensor, Tensor | None]:
    """The labels of all rows, and a mask of those to ignore, if there are any."""
    if labels is None:
        return torch.full((int(np.prod(shape)),), UNKNOWN), None
    nullable = isinstance(labels, pa.Array | pa.ChunkedArray)
    if nullable and labels.null_count and ignore_index == UNKNOWN:
        raise InvalidInputError(f"ignore_index must not be {UNKNOWN} where labels are null")
    known = check_integer_labels("labels", integers(labels, n_classes), shape).flatten()
    if check_label_range(known, n_classes, ignore_index, UNKNOWN if nullable else None):
        return known, None
    return known, known == ignore_index


def _soft_labels(labels: ArrayLike, shape: tuple[int, ...]) -> Tensor | None:
    """Soft labels (n, k, …) as (rows, k) float64; None where the labels are of another kind, as type and shape say."""
    if isinstance(labels, pa.Array | pa.ChunkedArray):
        if not pa.types.is_nested(labels.type):
            return None
        tensor = floats("labels", labels)
    else:
        tensor = to_tensor("labels", "integers, or probabilities of each class", labels)
    if not tensor.is_floating_point() or tensor.ndim < 2:
        return None
    if tuple(tensor.shape) != shape:
        raise InvalidInputError(f"labels of floating point must have shape {shape}, got {tuple(tensor.shape)}")
    return check_distributions("labels", tensor.movedim(1, -1).reshape(-1, shape[1]))


def _with_norm(columns: pa.Table, features: Tensor) -> pa.Table:
    """With the L2 norm of each row's features, before they are rounded."""
    if "feature_norm" in columns.column_names:
        return columns
    norms = pa.array(features.float().norm(dim=1).numpy())
    # A table that has lost its last column, or never had one, may have lost its number of rows as well.
    return columns.append_column("feature_norm", norms) if columns.num_columns else pa.table({"feature_norm": norms})


def _describe(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{column.name}: {column.type}" for column in schema) + ")"
