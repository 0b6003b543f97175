"""Predictions as a data frame, with a column for each class."""

import numpy as np
import pyarrow as pa

from calibrant._arrays import UNKNOWN, as_lists
from calibrant._checks import check_columns
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions


def to_table(predictions: Predictions) -> pa.Table:
    """See `Predictions.to_frame`."""
    names = predictions.class_names
    n = len(predictions)
    columns: dict[str, pa.Array] = {}
    labels = predictions.labels.numpy()
    known = not n or bool((labels != UNKNOWN).any())
    if predictions.top_label and known:
        columns["correct"] = pa.array(labels == 1, mask=labels == UNKNOWN)
    elif known:
        numbers = pa.array(labels, pa.int32(), mask=labels == UNKNOWN)
        columns["label"] = numbers if names is None else pa.array(names, pa.string()).take(numbers)
    probs = predictions.logits.double().softmax(1).numpy()
    prob_names = [f"prob_{name}" for name in names or range(predictions.n_classes)]
    for number, name in enumerate(prob_names):
        if not predictions.top_label:
            columns[name] = pa.array(np.ascontiguousarray(probs[:, number]))
        elif number == 1:
            columns["confidence"] = pa.array(np.ascontiguousarray(probs[:, number]))
    if predictions.features is not None:
        columns["features"] = as_lists(predictions.features)
    for name in predictions.columns.column_names:
        if name in columns:
            raise InvalidInputError(f"predictions must not have a column {name!r}, the name of that of a class")
        columns[name] = predictions.columns.column(name)
    return check_columns(columns, n, ())
