"""Predictions: every way in, rows out, refusals, fingerprints, and files there and back."""

import json
import math
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calibrant import Predictions
from calibrant.errors import InvalidInputError, UnknownNameError
from made.predictions import HOSPITALS, N_CLASSES, N_ROWS, SEVERITIES, assert_same, example, rows_of

INF = math.inf
NAN = math.nan


# Ways in


FORMS: dict[str, Callable[[list[list[float]]], Any]] = {
    "torch": lambda rows: torch.tensor(rows, dtype=torch.float64),
    "torch_strided": lambda rows: torch.tensor(rows, dtype=torch.float64).T.contiguous().T,
    "torch_gradient": lambda rows: torch.tensor(rows, dtype=torch.float64, requires_grad=True),
    "numpy": lambda rows: np.array(rows),
    "numpy_reversed": lambda rows: np.array(rows[::-1])[::-1],
    "list": lambda rows: rows,
    "pyarrow_list": lambda rows: pa.array(rows, type=pa.list_(pa.float64())),
    "pyarrow_large_list": lambda rows: pa.array(rows, type=pa.large_list(pa.float64())),
    "pyarrow_fixed": lambda rows: pa.array(rows, type=pa.list_(pa.float64(), len(rows[0]))),
    "pyarrow_sliced": lambda rows: pa.array([rows[-1], *rows, rows[0]], type=pa.list_(pa.float64(), len(rows[0])))[
        1:-1
    ],
    "pyarrow_list_sliced": lambda rows: pa.array([rows[-1], *rows, rows[0]], type=pa.list_(pa.float64()))[1:-1],
    "pyarrow_chunked": lambda rows: pa.chunked_array([rows[:1], rows[1:]], type=pa.list_(pa.float64(), len(rows[0]))),
}
LABEL_FORMS: dict[str, Callable[[list[int]], Any]] = {
    "torch_int64": lambda labels: torch.tensor(labels),
    "torch_uint8": lambda labels: torch.tensor(labels, dtype=torch.uint8),
    "numpy_int32": lambda labels: np.array(labels, dtype=np.int32),
    "numpy_uint8": lambda labels: np.array(labels, dtype=np.uint8),
    "list": lambda labels: labels,
    "pyarrow_int64": lambda labels: pa.array(labels, type=pa.int64()),
    "pyarrow_uint8": lambda labels: pa.array(labels, type=pa.uint8()),
    "pyarrow_sliced": lambda labels: pa.array([0, *labels, 0], type=pa.int16())[1:-1],
    "pyarrow_chunked": lambda labels: pa.chunked_array([labels[:2], labels[2:]], type=pa.int32()),
}
PROBS = [[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.0, 0.0, 1.0], [0.25, 0.5, 0.25]]
LABELS = [0, 1, 2, 1]


@pytest.mark.parametrize("form", FORMS)
def test_every_constructor_takes_every_form(form: str) -> None:
    rows = [[0.5, -1.0, 2.0], [0.0, -INF, 3.0], [1.0, 1.0, 1.0], [-2.0, 0.25, 0.0]]
    preds = Predictions.from_logits(FORMS[form](rows), LABELS)
    assert (len(preds), preds.n_classes) == (4, 3)
    assert preds.logits.dtype in (torch.float32, torch.float64)
    assert not preds.logits.requires_grad
    assert preds.logits.tolist() == rows
    assert preds.labels.dtype == torch.int64
    assert preds.labels.tolist() == LABELS
    assert (preds.features, preds.class_names, preds.metadata, preds.columns.num_columns) == (None, None, {}, 0)
    probs = torch.tensor(PROBS, dtype=torch.float64)
    for found in (
        Predictions.from_probs(FORMS[form](PROBS), LABELS),
        Predictions.from_log_probs(FORMS[form](probs.log().tolist()), LABELS),
    ):
        torch.testing.assert_close(found.probs.double(), probs, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(found.log_probs.double(), probs.log(), rtol=1e-6, atol=1e-6)
        assert found.labels.tolist() == LABELS


def test_from_positive_probs() -> None:
    forms: list[Callable[[list[float]], Any]] = [torch.tensor, np.array, list, pa.array]
    wanted = torch.tensor([[0.75, 0.25], [1, 0], [0, 1], [0.5, 0.5]], dtype=torch.float64)
    for form in (*forms, lambda probs: pa.chunked_array([probs[:1], probs[1:]])):
        preds = Predictions.from_positive_probs(form([0.25, 0.0, 1.0, 0.5]), [0, 0, 1, 1])
        torch.testing.assert_close(preds.probs.double(), wanted)
        assert preds.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("form", LABEL_FORMS)
def test_labels(form: str) -> None:
    labels = [156, 1, 2, 0, 199, 2, 2, 1, 0, 0]  # 156 is −100 of a byte
    preds = Predictions.from_logits(torch.zeros(10, 200), LABEL_FORMS[form](labels))
    assert preds.labels.dtype == torch.int64
    assert preds.labels.tolist() == labels


def test_booleans_are_the_labels_of_two_classes() -> None:
    values = [True, False, False, True]
    for form in (list, np.array, torch.tensor, pa.array):
        assert Predictions.from_logits(torch.zeros(4, 2), form(values)).labels.tolist() == [1, 0, 0, 1]
        with pytest.raises(InvalidInputError, match=r"^labels must be integers for 3 classes, got booleans$"):
            Predictions.from_logits(torch.zeros(4, 3), form(values))


def test_null_labels_are_unknown() -> None:
    logits, _ = rows_of(4)
    assert Predictions.from_logits(logits, pa.array([0, None, 2, None])).labels.tolist() == [0, -1, 2, -1]
    sliced = pa.array([None, 1, None, 2, 0, None])[1:5]
    assert Predictions.from_logits(logits, sliced).labels.tolist() == [1, -1, 2, 0]
    assert Predictions.from_logits(logits).labels.tolist() == [-1] * 4


def test_precision() -> None:
    half = torch.float16, torch.bfloat16
    for dtype in (*half, torch.float32, torch.float64):
        logits = rows_of()[0].to(dtype)
        wanted = torch.float32 if dtype in half else dtype
        assert Predictions.from_logits(logits).logits.dtype == wanted
        assert torch.equal(Predictions.from_logits(logits).logits, logits.to(wanted))
    logits = rows_of()[0].half()
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(logits.numpy().ravel()), N_CLASSES)
    for given_logits in (logits.numpy(), fixed):
        assert Predictions.from_logits(given_logits).logits.dtype == torch.float32
        assert torch.equal(Predictions.from_logits(given_logits).logits, logits.float())


def test_probabilities_follow_the_logits() -> None:
    logits = torch.tensor([[1.0, 2.0, -INF], [1000.0, 0.0, -1000.0]], dtype=torch.float64)
    preds = Predictions.from_logits(logits)
    torch.testing.assert_close(preds.log_probs, torch.log_softmax(logits, 1))
    torch.testing.assert_close(preds.probs, torch.softmax(logits, 1))
    assert preds.probs[0, 2] == 0
    rounded = Predictions.from_probs([[0.5, 0.5005], [0.25, 0.7495]])
    torch.testing.assert_close(rounded.probs.sum(1), torch.ones(2, dtype=torch.float64))


def test_extras_are_kept() -> None:
    features = torch.randn(N_ROWS, 5, generator=torch.Generator().manual_seed(1))
    preds = example(features=features, class_names=["cat", "dog", "Ente"], metadata={"model": "resnet", "epoch": 3})
    assert preds.class_names == ("cat", "dog", "Ente")
    assert preds.metadata == {"model": "resnet", "epoch": 3}
    assert preds.features is not None
    assert preds.features.dtype == torch.float16
    assert torch.equal(preds.features, features.half())
    assert isinstance(preds.columns, pa.Table)
    columns = preds.columns.to_pydict()
    assert columns.pop("feature_norm") == pytest.approx(features.norm(dim=1).tolist())
    assert columns == {"hospital": HOSPITALS, "severity": SEVERITIES}


@pytest.mark.parametrize("form", [list, np.array, pa.array, torch.tensor])
def test_columns_in_every_form(form: Callable[[list[Any]], Any]) -> None:
    columns = {"severity": form(SEVERITIES)} | ({} if form is torch.tensor else {"hospital": form(HOSPITALS)})
    lists = {"severity": SEVERITIES} | ({} if form is torch.tensor else {"hospital": HOSPITALS})
    for given_columns in (columns, pa.table(lists)):
        assert example(columns=given_columns).columns.to_pydict() == lists


# Dense predictions


def test_every_position_of_a_dense_prediction_is_a_row() -> None:
    """Image-major, then row of the image, then column; a label of ignore_index takes its row along."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(2, 3, 4, 5, generator=generator)
    labels = torch.randint(3, (2, 4, 5), generator=generator)
    labels[0, 1, 2] = labels[1, 3, 4] = labels[0, 0, 0] = -100
    preds = Predictions.from_logits(logits, labels, columns={"image": ["a", "b"]})
    wanted = [
        (logits[i, :, y, x].tolist(), int(labels[i, y, x]), "ab"[i])
        for i in range(2)
        for y in range(4)
        for x in range(5)
        if labels[i, y, x] != -100
    ]
    assert len(preds) == 37
    assert preds.n_classes == 3
    assert preds.logits.tolist() == [row for row, _, _ in wanted]
    assert preds.labels.tolist() == [label for _, label, _ in wanted]
    assert preds.columns["image"].to_pylist() == [image for _, _, image in wanted]


def test_dense_in_every_form_and_kind() -> None:
    logits = rows_of(2 * 3 * 4, 1, seed=3)[0].reshape(2, 3, 4).double()
    labels = torch.tensor([[0, 1, 2, 255], [255, 2, 1, 0]])
    wanted = Predictions.from_logits(logits, labels, ignore_index=255)
    for as_form in (torch.Tensor.numpy, torch.Tensor.tolist):
        assert_same(Predictions.from_logits(as_form(logits), as_form(labels), ignore_index=255), wanted)
    for same in (Predictions.from_probs(logits.softmax(1)), Predictions.from_log_probs(logits.log_softmax(1))):
        torch.testing.assert_close(same.probs, Predictions.from_logits(logits).probs)
        assert same.labels.tolist() == [-1] * 8


def test_further_columns() -> None:
    rows = Predictions.from_logits(torch.eye(3), [0, 1, 2])
    named = rows.with_columns({"site": ["A", "B", "A"]})
    assert named.columns.to_pydict() == {"site": ["A", "B", "A"]}
    both = named.with_columns(pa.table({"age": [1, 2, 3], "sex": ["f", "m", "f"]}))
    assert both.columns.column_names == ["site", "age", "sex"]
    assert both.logits is rows.logits
    empty = rows[:0].with_columns({"site": pa.array([], pa.string())})
    assert (len(empty), empty.columns.column_names) == (0, ["site"])
    for columns, message in (
        ({"site": [1, 2, 3]}, r"must not have a column 'site' already"),
        ({"label": [1, 2, 3]}, r"'label', which is reserved"),
        ({"age": [1, 2]}, r"age"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            named.with_columns(columns)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.large_string())])
def test_texts_of_all_types_are_one(kind: pa.DataType) -> None:
    rows = Predictions.from_logits(torch.eye(2), columns={"site": ["A", "B"]})
    other = Predictions.from_logits(torch.eye(2), columns={"site": pa.array(["A", "C"]).cast(kind)})
    assert Predictions.concat([rows, other]).columns.schema == rows.columns.schema


def test_rows_without_columns_take_features() -> None:
    rows = Predictions.from_logits(*rows_of())[:5]
    assert rows.with_features(torch.ones(5, 2)).columns.to_pydict() == {"feature_norm": [pytest.approx(2**0.5)] * 5}


def test_ignored_rows_take_columns_and_features_along() -> None:
    logits, _ = rows_of(4)
    features = torch.arange(8.0).reshape(4, 2)
    for ignored, options in ((-100, {}), (255, {"ignore_index": 255})):
        preds = Predictions.from_logits(
            logits, [0, ignored, 2, ignored], columns={"id": [1, 2, 3, 4]}, features=features, **options
        )
        assert torch.equal(preds.logits, logits[[0, 2]])
        assert preds.labels.tolist() == [0, 2]
        assert preds.columns["id"].to_pylist() == [1, 3]
        assert preds.features is not None
        assert preds.features.tolist() == [[0, 1], [4, 5]]


# Rows out


@pytest.mark.parametrize(
    "selection",
    [
        slice(3, 7),
        slice(None, None, 3),
        slice(-2, None),
        slice(0, 0),
        torch.tensor([True, False, False, True, False, False, False, True, True, False]),
        torch.tensor([9, 0, 0, 4, -1, -10]),
        torch.tensor([5], dtype=torch.int32),
    ],
    ids=str,
)
def test_selection(selection: Any) -> None:
    features = torch.arange(20.0).reshape(10, 2)
    preds = example(features=features, class_names=["a", "b", "c"], metadata={"run": 1})
    at = torch.arange(N_ROWS)[selection].tolist()
    found = preds[selection]
    assert isinstance(found, Predictions)
    assert len(found) == len(at)
    assert found.n_classes == N_CLASSES
    assert torch.equal(found.logits, preds.logits[at])
    assert torch.equal(found.labels, preds.labels[at])
    assert found.columns["hospital"].to_pylist() == [HOSPITALS[i] for i in at]
    assert found.columns["severity"].to_pylist() == [SEVERITIES[i] for i in at]
    assert found.features is not None
    assert found.features.tolist() == features[at].tolist()
    assert found.class_names == ("a", "b", "c")
    assert found.metadata == {"run": 1}


def test_where() -> None:
    preds = example()
    assert_same(preds.where(hospital="A"), preds[torch.tensor([0, 2, 5, 7, 9])])
    assert_same(preds.where(severity=[1, 2]), preds[torch.tensor([0, 1, 3, 4, 6, 7, 9])])
    assert_same(preds.where(hospital="A", severity=[1, 2]), preds[torch.tensor([0, 7, 9])])
    assert_same(preds.where(hospital=["B", "C"]), preds[torch.tensor([1, 3, 4, 6, 8])])
    assert len(preds.where(hospital="Z")) == 0
    assert_same(preds.where(), preds)
    nulls = example(columns={"hospital": ["A", None] * 5})
    assert len(nulls.where(hospital="A")) == len(nulls.where(hospital=["A", "B"])) == 5


def test_concat() -> None:
    a, b = example(seed=1, class_names=["x", "y", "z"]), example(seed=2, class_names=["x", "y", "z"])
    both = Predictions.concat([a, b])
    assert torch.equal(both.logits, torch.cat([a.logits, b.logits]))
    assert torch.equal(both.labels, torch.cat([a.labels, b.labels]))
    assert both.columns["hospital"].to_pylist() == HOSPITALS * 2
    assert both.class_names == ("x", "y", "z")
    assert_same(Predictions.concat([a]), a)
    assert_same(both[:N_ROWS], a)
    assert_same(Predictions.concat([a[:3], a[3:3], a[3:]]), a)
    part = Predictions.from_logits(rows_of(2)[0], pa.array([None, 1]), features=[[1.0, 2.0], [3.0, 4.0]])
    both = Predictions.concat([part, part])
    assert both.labels.tolist() == [-1, 1, -1, 1]
    assert both.features is not None
    assert both.features.tolist() == [[1, 2], [3, 4], [1, 2], [3, 4]]


# Refusals


def with_value(row: int, column: int, value: float, n: int = 5, k: int = 4) -> torch.Tensor:
    """Uniform probabilities with one entry replaced."""
    probs = torch.full((n, k), 1 / k)
    probs[row, column] = value
    return probs


REFUSED_ROWS: list[tuple[str, Any, Any, str]] = [  # of a constructor: the rows, their labels, the message
    ("logits", with_value(3, 2, NAN), None, r"^logits must not be NaN, got nan at row 3, class 2$"),
    ("logits", with_value(1, 0, INF), None, r"logits .*inf at row 1, class 0"),
    ("logits", torch.tensor([[0.0, 1], [1, 0], [-INF, -INF]]), None, r"logits .*row 2\b"),
    ("logits", torch.zeros(50, 10), [0] * 37 + [10] + [3] * 12, r"^labels must lie in \[0, 9\], got 10 at row 37$"),
    ("logits", torch.zeros(5, 10), [0, 0, -7, 0, 0], r"labels must lie in \[0, 9\], got -7 at row 2"),
    ("logits", torch.zeros(2, 10), [0, 2**32], r"labels must lie in \[0, 9\], got 4294967296 at row 1"),
    ("logits", torch.zeros(2, 3), torch.tensor([0.0, 1.0]), r"labels must .*int"),
    ("logits", torch.zeros(3, 3), [0, 1], r"labels must have shape \(3,\), got \(2,\)"),
    ("logits", torch.zeros(2, 3, 4), [0, 1], r"labels must have shape \(2, 4\), got \(2,\)"),
    ("logits", torch.zeros(3), None, r"logits must have shape"),
    ("logits", [[1.0, 2.0], [1.0]], None, r"logits must be numbers"),
    ("logits", pa.array([[1.0, 2.0], [3.0, 4.0], [1.0]]), None, r"logits .*row 2\b"),
    ("logits", pa.array([[1.0, 2.0], None]), None, r"logits .*row 1\b"),
    ("logits", pa.array([[1.0, 2.0], [None, 1.0]]), None, r"logits .*row 1\b"),
    ("logits", [["a", "b"]], None, r"^logits must be numbers: can't convert np\.ndarray of type numpy\.str_$"),
    ("logits", torch.eye(3).to_sparse(), None, r"^logits must be a dense tensor, got torch\.sparse_coo$"),
    ("logits", torch.eye(3, device="meta"), None, r"^logits must be a dense tensor, got meta$"),
    ("logits", np.eye(3, dtype=complex), None, r"^logits must be real numbers, got torch\.complex128$"),
    ("logits", torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64, device="meta"), r"labels must be a dense tensor"),
    ("logits", np.ma.masked_equal(np.ones((2, 3)), 1), None, r"logits must be numbers, got masked values"),
    *(
        ("logits", form, None, r"logits must be numbers, got masked values")
        for form in ([np.ma.array([1.0, 2.0], mask=[1, 0]), [1.0, 2.0]], [[np.ma.array([1.0, 2.0], mask=[1, 0])]])
    ),
    ("logits", pa.array([], pa.list_(pa.float32())), None, r"logits must have shape \(n, k\) with k > 1, got \(0, 0\)"),
    *(
        (kind, numbers, None, rf"got \({shape}\): of class 1 of two, they are for from_positive_{kind}$")
        for kind in ("logits", "probs")
        for numbers, shape in (([0.5, 0.5], "2,"), ([[0.5], [0.5]], "2, 1"))
    ),
    ("probs", [[0.5, 0.5], [0.5, 0.25]], None, r"probs .*0\.75.* row 1\b"),
    ("probs", [[0.5, 0.5], [0.5, 0.502]], None, r"probs .*row 1\b"),
    ("probs", [[0.5, 0.5, 0.0], [0.75, 0.5, -0.25]], None, r"probs .*-0\.25 at row 1\b"),
    ("probs", with_value(3, 2, NAN), None, r"probs must not be NaN, got nan at row 3"),
    ("probs", [[0.5, 0.5], [0.0, 0.0]], None, r"probs .*row 1\b"),
    ("log_probs", with_value(3, 2, NAN).log(), None, r"log_probs must not be NaN, got nan at row 3"),
    ("log_probs", [[0.0, -INF], [INF, 0.0]], None, r"log_probs .*row 1\b"),
    ("log_probs", [[0.0, -INF], [0.0, 0.0]], None, r"^exp\(log_probs\) must sum to 1, got 2 at row 1$"),
    ("log_probs", [[0.0, -INF], [0.7, -2.0]], None, r"^exp\(log_probs\) must lie in \[0, 1\], got 2\.0.* at row 1"),
    ("positive_probs", [0.5, 1.5], None, r"probs .*1\.5 at row 1\b"),
    ("positive_probs", [0.5, -0.5], None, r"probs .*-0\.5 at row 1\b"),
    ("positive_probs", [0.5, NAN], None, r"probs .*nan at row 1\b"),
    ("positive_probs", [[0.5, 0.5]], None, r"probs must have shape \(n,\) or \(n, 1\), got \(1, 2\)"),
    ("positive_logits", [[0.5, 0.5]], None, r"logits must have shape \(n,\) or \(n, 1\), got \(1, 2\)"),
    ("positive_logits", 0.5, None, r"logits must have shape \(n,\) or \(n, 1\), got \(\)"),
    ("positive_logits", [0.5, INF], None, r"logits must be less than infinity, got inf at row 1"),
    ("positive_logits", [[0.5], [NAN]], None, r"logits must not be NaN, got nan at row 1"),
    ("probs", [[0.5, 0.5]] * 2, [[0.5, 0.5], [0.5, 0.4]], r"labels must sum to 1, got 0\.9 at row 1"),
    (
        "probs",
        [[0.5, 0.5]] * 2,
        [[0.5, 0.5], [1.25, -0.25]],
        r"labels must lie in \[0, 1\], got 1\.25 at row 1, class 0",
    ),
    ("probs", [[0.5, 0.5]] * 2, [[0.5, 0.5], [NAN, 0.5]], r"labels must not be NaN, got nan at row 1, class 0"),
    ("probs", [[0.5, 0.5]] * 2, [[0.5, 0.25, 0.25]] * 2, r"labels .* must have shape \(2, 2\), got \(2, 3\)"),
    ("probs", [[0.5, 0.5]] * 2, [0.0, 1.0], r"labels must be integers, got torch\.float64"),
    ("positive_probs", [0.5, 0.5], [0, 2], r"labels must lie in \[0, 1\], got 2 at row 1"),
    *(
        ("positive_probs", [0.5, 0.5], form, rf"labels must be less than 2\^63, got {2**64 - 100} at row 1")
        for form in (np.array([0, 2**64 - 100], np.uint64), pa.array([0, 2**64 - 100], pa.uint64()))  # −100 of int64
    ),
]
REFUSED_CALLS: list[tuple[Callable[[], Any], str]] = [
    (lambda: example(columns={"hospital": ["A"]}), r"columns must have 10 values, got 1 in 'hospital'"),
    (lambda: example(columns={"age": torch.zeros(10, dtype=torch.bfloat16)}), r"columns .* in 'age': .*BFloat16"),
    (
        lambda: example(columns=pa.Table.from_arrays(2 * [pa.array(SEVERITIES)], ["a", "a"])),
        r"columns must have distinct names, got 'a' more than once",
    ),
    (lambda: example(features=torch.zeros(3, 2)), r"features must have shape \(10, f\)"),
    (lambda: example(features=torch.zeros(N_ROWS, 0)), r"features must have shape .* f > 0, got \(10, 0\)"),
    (lambda: example(class_names=["a", "b"]), r"class_names must have one name for each of 3 classes, got 2"),
    (lambda: example(class_names=["a", "b", "a"]), r"class_names must be distinct, got 'a' more than once"),
    (
        lambda: example(class_names=["a", "b", "c"]).match_names(["a", "b", "d"]),
        r"predictions must have the class names of class_names: class 2 is 'c', not 'd'$",
    ),
    (lambda: example(class_names={"a", "b", "c"}), r"class_names must be strings in order, got set"),
    (lambda: example(columns=["A"] * N_ROWS), r"columns must be a mapping of names to values, got list"),
    (lambda: example(columns={"hospital": set(range(N_ROWS))}), r"columns must have values in order, got set in 'hosp"),
    (
        lambda: example(columns={"hospital": torch.zeros(N_ROWS, device="meta")}),
        r"column 'hospital' must be a dense tensor, got meta",
    ),
    (
        lambda: example(columns=pd.DataFrame([[1, 2]] * N_ROWS, columns=["a", "a"])),
        r"columns must have distinct names, got 'a' more than once",
    ),
    (lambda: example(metadata="x"), r"metadata must be Mapping, got str"),
    (lambda: example(ignore_index="x"), r"ignore_index must be an integer from .*, got x"),
    (lambda: example(ignore_index=True), r"ignore_index must be an integer from .*, got True"),
    (lambda: example(features=np.ma.masked_less(np.ones((N_ROWS, 2)), 2)), r"features must be numbers, got masked"),
    (lambda: example(features=np.zeros((N_ROWS, 2), "datetime64[s]")), r"features must be numbers: can't convert"),
    (lambda: example(features=torch.zeros(N_ROWS, 2, dtype=torch.complex64)), r"features must be real numbers"),
    (lambda: Predictions.concat("ab"), r"parts must be predictions in order, got str"),
    (lambda: Predictions.concat([None]), r"parts must be Predictions, got NoneType"),
    (lambda: Predictions.load({"a.parquet", "b.parquet"}), r"paths must be paths in order, got set"),
    *((lambda path=path: example().save(path), "path must be a path, got") for path in ("", "a\0b", "\ud800", b"a", 3)),
    (lambda: Predictions.load(""), r"paths must be a path, got ''"),
    (lambda: example()[torch.ones(N_ROWS + 1, dtype=torch.bool)], r"rows must be a slice, 10 booleans"),
    (lambda: example()[["a"]], r"rows must be row numbers: can't convert"),
    (
        lambda: example().where(hospital=[["A"]]),
        r"hospital must be compared with values of its type string, got \[\['A'",
    ),
    (lambda: example()[torch.tensor([0, N_ROWS])], r"rows must lie in \[0, 9\], got 10"),
    (
        lambda: example(columns={"time": pa.array([2**61] * N_ROWS, pa.timestamp("us"))}).groups("time"),
        r"column 'time' cannot be grouped by: .*out of range",
    ),
    (lambda: example().where(severity="mild"), r"severity must be compared with values of its type"),
    (lambda: example(metadata={"model": object()}).save("x.parquet"), r"metadata must be JSON values"),
    (lambda: Predictions.scan("x.parquet", batch_rows=0), r"batch_rows must be .* at least 1, got 0"),
    *(
        (lambda name=name: example(columns={name: [0.5] * N_ROWS}), f"columns must not be named '{name}'")
        for name in ("label", "logits", "features", "probs", "log_probs", "positive_probs")
    ),
]
FEWER = example(columns={"hospital": HOSPITALS})
REFUSED_PARTS: list[tuple[list[Predictions], str]] = [
    ([], r"parts must not be empty"),
    ([example(), Predictions.from_logits(torch.zeros(2, 4))], r"parts must have one number of classes, got 3 and 4"),
    ([example(), FEWER], r"parts must have the same columns, got .*severity"),
    ([FEWER, example()], r"parts must have the same columns, got .*severity"),
    (
        [example(), example(class_names=["x", "y", "z"]), example(class_names=["x", "z", "y"])],
        r"every part must have the class names of the first part: class 1 is 'z', not 'y'; .*match_names",
    ),
    (
        [example(columns={"feature_norm": torch.zeros(N_ROWS)}), example(columns=None, features=rows_of()[0])],
        r"^parts must all have features, or none$",
    ),
]


def test_misspelt_options_are_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colums'"):
        Predictions.from_logits(torch.zeros(2, 3), colums={"site": ["A", "B"]})  # type: ignore[call-arg]


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[tuple[Callable[[], Any], str]] = [
        *((partial(getattr(Predictions, f"from_{kind}"), *rows), message) for kind, *rows, message in REFUSED_ROWS),
        *((partial(Predictions.concat, parts), message) for parts, message in REFUSED_PARTS),
        *REFUSED_CALLS,
    ]
    for call, message in calls:
        with pytest.raises(InvalidInputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_column_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown column 'hospitl'; did you mean 'hospital'\?$"):
        example().where(hospitl="A")
    with pytest.raises(UnknownNameError, match=r"^unknown column 'nope'; known: hospital, severity$"):
        example().select(["nope"])


# Fingerprint


grids = st.tuples(st.integers(1, 6), st.integers(2, 4)).flatmap(
    lambda shape: st.tuples(
        hnp.arrays(np.float32, shape, elements=st.integers(-3, 3).map(float)),
        hnp.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)),
    )
)


@given(grids, st.data())
def test_fingerprint_changes_with_any_entry_but_not_with_the_order(
    rows: tuple[np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    logits, labels = rows
    preds = Predictions.from_logits(logits, labels)
    assert re.fullmatch(r"[0-9a-f]{16,}", preds.fingerprint)
    order = data.draw(st.permutations(range(len(labels))))
    assert preds[order].fingerprint == preds.fingerprint
    for same in (logits.astype(np.float64), np.where(logits == 0, np.float32(-0.0), logits)):
        assert Predictions.from_logits(same, labels).fingerprint == preds.fingerprint
    row = data.draw(st.integers(0, len(labels) - 1))
    column = data.draw(st.integers(0, logits.shape[1] - 1))
    moved, relabelled = logits.copy(), labels.copy()
    moved[row, column] = np.nextafter(np.float32(moved[row, column]), np.float32(9), dtype=np.float32)
    relabelled[row] = (relabelled[row] + 1) % logits.shape[1]
    unknown = pa.array([None if i == row else int(label) for i, label in enumerate(labels)], type=pa.int64())
    changed = [(moved, labels), (logits, relabelled), (logits, unknown)]
    found = {Predictions.from_logits(*pair).fingerprint for pair in changed}
    assert preds.fingerprint not in found
    assert len(found) == 3


def test_fingerprint_of_rows_that_cancel() -> None:
    """Repeated rows count, and labels or classes that change places are seen."""
    prints = [
        Predictions.from_logits(torch.tensor(logits), labels).fingerprint
        for logits, labels in [
            ([[1.0, 2.0], [1.0, 2.0], [0.0, 5.0]], [0, 0, 1]),
            ([[3.0, 4.0], [3.0, 4.0], [0.0, 5.0]], [0, 0, 1]),
            ([[0.0, 5.0]], [1]),
            ([[1.0, 2.0], [0.0, 5.0]], [0, 1]),
            ([[1.0, 2.0], [0.0, 5.0]], [1, 0]),
            ([[2.0, 1.0], [0.0, 5.0]], [0, 1]),
            ([[1.0, 5.0], [0.0, 2.0]], [0, 1]),
        ]
    ]
    assert len(set(prints)) == len(prints)


def test_fingerprint_is_that_of_the_rows_of_a_file(tmp_path: Path) -> None:
    """Not that of the header."""
    preds, path = example(), tmp_path / "x.parquet"
    preds.save(path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata(None), path)
    assert Predictions.load(path).fingerprint == preds.fingerprint
    labels = pa.array([(label + 1) % N_CLASSES for label in preds.labels.tolist()], type=pa.int32())
    pq.write_table(table.set_column(table.column_names.index("label"), "label", labels), path)
    assert Predictions.load(path).fingerprint != preds.fingerprint


# Files, there and back


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
CELLS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), texts),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.null(), st.none()),
]


@st.composite
def predictions(draw: st.DrawFn) -> Predictions:
    """Any shape, with −inf among the logits, unknown labels, nulls in columns of any type, and every extra."""
    n, k = draw(st.integers(1, 8)), draw(st.integers(2, 5))
    finite = st.floats(-(2.0**99), 2.0**99, width=32)
    logits = draw(hnp.arrays(np.float32, (n, k), elements=finite | st.just(-INF)))
    logits[:, draw(st.integers(0, k - 1))] = draw(finite)
    labels = draw(st.none() | st.lists(st.none() | st.integers(0, k - 1), min_size=n, max_size=n))
    names = draw(st.lists(st.sampled_from(["hospital", "größe", "a column", "日本", "p.q", "🦆"]), unique=True))
    columns = {}
    for name in names:
        kind, cells = draw(st.sampled_from(CELLS))
        columns[name] = pa.array(draw(st.lists(st.none() | cells, min_size=n, max_size=n)), type=kind)
    widths = st.integers(1, 3)
    features = draw(
        st.none() | widths.flatmap(lambda d: hnp.arrays(np.float16, (n, d), elements=st.floats(-9, 9, width=16)))
    )
    return Predictions.from_logits(
        logits,
        None if labels is None else pa.array(labels, type=pa.int64()),
        columns=columns or None,
        features=features,
        class_names=draw(st.none() | st.lists(texts.filter(bool), min_size=k, max_size=k, unique=True)),
        metadata=draw(st.none() | st.dictionaries(texts, json_values, max_size=3)),
    )


@pytest.mark.slow
@settings(max_examples=60)
@given(predictions(), st.integers(1, 9))
def test_round_trip(preds: Predictions, batch_rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        preds.save(path)
        loaded = Predictions.load(path)
        assert_same(loaded, preds)
        assert loaded.logits.dtype == torch.float32
        assert loaded.metadata == preds.metadata
        assert loaded.columns.schema.types == preds.columns.schema.types
        batches = list(Predictions.scan(path, batch_rows=batch_rows))
        assert all(batch.metadata == preds.metadata for batch in batches)
        assert_same(Predictions.concat(batches), preds)


def test_round_trip_of_column_types(tmp_path: Path) -> None:
    columns = pa.table(
        {
            "taken": pa.array([0, None, 86_400_000_000], type=pa.timestamp("us")),
            "day": pa.array([0, 1, None], type=pa.date32()),
            "site": pa.array(["A", "B", "A"]).dictionary_encode(),
            "tags": pa.array([["x"], [], None], type=pa.list_(pa.string())),
        }
    )
    preds = Predictions.from_logits(torch.zeros(3, 2), columns=columns)
    preds.save(tmp_path / "x.parquet")
    loaded = Predictions.load(tmp_path / "x.parquet")
    assert loaded.columns.to_pydict() == columns.to_pydict()
    assert loaded.where(site="A").labels.tolist() == [-1, -1]


def test_double_precision_is_saved_as_single(tmp_path: Path) -> None:
    """Rows too large for it are shifted."""
    preds = Predictions.from_logits(rows_of()[0].double() / 3)
    preds.save(tmp_path / "x.parquet")
    assert_same(Predictions.load(tmp_path / "x.parquet"), preds)
    large = Predictions.from_logits(torch.tensor([[1e300, 0.0], [-1e300, -1e300]], dtype=torch.float64))
    large.save(tmp_path / "x.parquet")
    assert Predictions.load(tmp_path / "x.parquet").probs.tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_the_schema_is_as_promised(tmp_path: Path) -> None:
    logits, _ = rows_of(4)
    labels = pa.array([0, None, 2, 1])
    features = torch.arange(8.0).reshape(4, 2)
    about: Any = {"class_names": ["cat", "dog", "żółw"], "metadata": {"epoch": 3}}
    preds = Predictions.from_logits(logits, labels, columns={"hospital": HOSPITALS[:4]}, features=features, **about)
    preds.save(tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    assert {column.name: column.type for column in table.schema} == {
        "label": pa.int32(),
        "logits": pa.list_(pa.float32(), 3),
        "features": pa.list_(pa.float16(), 2),
        "hospital": pa.string(),
        "feature_norm": pa.float32(),
    }
    lists = {"label": labels.to_pylist(), "logits": logits.tolist(), "features": features.tolist()}
    assert {name: table[name].to_pylist() for name in lists} == lists
    assert table["hospital"].to_pylist() == HOSPITALS[:4]
    assert json.loads(table.schema.metadata[b"calibrant"]) == {**about, "fingerprint": preds.fingerprint}


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are hashed and written a few at a time."""
    preds = example(features=rows_of()[0])
    monkeypatch.setattr("calibrant.predictions.BATCH_ELEMENTS", 4 * N_CLASSES)
    monkeypatch.setattr("calibrant._arrays.HASHED_WORDS", 7)
    again = example(features=rows_of()[0])
    again.save(tmp_path / "x.parquet")
    assert pq.ParquetFile(tmp_path / "x.parquet").num_row_groups == 3
    assert_same(again, preds)
    assert_same(Predictions.load(tmp_path / "x.parquet"), preds)


def test_save_may_replace_what_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    example().save(path)
    loaded = Predictions.load(path)
    loaded[2:5].save(path)
    assert_same(Predictions.load(path), example()[2:5])
    assert_same(loaded, example())


def test_pandas_reads_ours_and_we_read_that_of_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    logits, labels = rows_of()
    example().save(tmp_path / "x.parquet")
    frame = pandas.read_parquet(tmp_path / "x.parquet")
    assert frame["label"].tolist() == labels.tolist()
    assert np.array_equal(np.stack(frame["logits"]), logits.numpy())
    pandas.DataFrame({"label": labels, "logits": list(logits.double().numpy()), "hospital": HOSPITALS}).to_parquet(
        tmp_path / "x.parquet"
    )
    loaded = Predictions.load(tmp_path / "x.parquet")
    assert torch.equal(loaded.logits.float(), logits)
    assert len(loaded.where(hospital="A")) == HOSPITALS.count("A")
