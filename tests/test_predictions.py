"""Predictions: every way in, rows out, files there and back, files of others, and every kind of damage."""

import contextlib
import json
import math
import os
import re
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calibrant import Predictions
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, UnknownNameError

INF = math.inf
NAN = math.nan
N_ROWS, N_CLASSES = 10, 3
HOSPITALS = ["A", "B", "A", "C", "B", "A", "C", "A", "B", "A"]
SEVERITIES = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]


def rows_of(n: int = N_ROWS, k: int = N_CLASSES, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (n, k) and labels (n,), the same on every call."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=generator), torch.randint(k, (n,), generator=generator)


def example(seed: int = 0, **options: Any) -> Predictions:
    """Ten rows of three classes with the columns hospital and severity."""
    logits, labels = rows_of(seed=seed)
    options.setdefault("columns", {"hospital": HOSPITALS, "severity": SEVERITIES})
    return Predictions.from_logits(logits, labels, **options)


def assert_same(found: Predictions, wanted: Predictions) -> None:
    """The same rows in the same order, to the bit."""
    assert len(found) == len(wanted)
    assert found.n_classes == wanted.n_classes
    assert torch.equal(found.logits, wanted.logits.float())
    assert torch.equal(found.labels, wanted.labels)
    assert found.columns.column_names == wanted.columns.column_names
    assert found.columns.to_pydict() == wanted.columns.to_pydict()
    assert found.class_names == wanted.class_names
    assert found.fingerprint == wanted.fingerprint
    assert (found.features is None) == (wanted.features is None)
    if found.features is not None and wanted.features is not None:
        assert found.features.dtype == torch.float16
        assert torch.equal(found.features, wanted.features)


def file_name(path: object) -> str:
    """Last part of a path or URL."""
    return str(path).rsplit("/", 1)[-1]


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
def test_from_logits(form: str) -> None:
    rows = [[0.5, -1.0, 2.0], [0.0, -INF, 3.0], [1.0, 1.0, 1.0], [-2.0, 0.25, 0.0]]
    preds = Predictions.from_logits(FORMS[form](rows), LABELS)
    assert (len(preds), preds.n_classes) == (4, 3)
    assert preds.logits.dtype in (torch.float32, torch.float64)
    assert not preds.logits.requires_grad
    assert preds.logits.tolist() == rows
    assert preds.labels.dtype == torch.int64
    assert preds.labels.tolist() == LABELS
    assert preds.features is None
    assert preds.class_names is None
    assert preds.metadata == {}
    assert preds.columns.num_columns == 0


@pytest.mark.parametrize("form", FORMS)
def test_from_probs(form: str) -> None:
    preds = Predictions.from_probs(FORMS[form](PROBS), LABELS)
    torch.testing.assert_close(preds.probs().double(), torch.tensor(PROBS, dtype=torch.float64), rtol=1e-6, atol=1e-7)
    assert preds.labels.tolist() == LABELS


@pytest.mark.parametrize("form", FORMS)
def test_from_log_probs(form: str) -> None:
    log_probs = torch.tensor(PROBS, dtype=torch.float64).log()
    preds = Predictions.from_log_probs(FORMS[form](log_probs.tolist()), LABELS)
    torch.testing.assert_close(preds.log_probs().double(), log_probs, rtol=1e-6, atol=1e-6)
    assert preds.labels.tolist() == LABELS


@pytest.mark.parametrize(
    "form",
    [torch.tensor, np.array, list, pa.array, lambda p: pa.chunked_array([p[:1], p[1:]])],
    ids=["torch", "numpy", "list", "arrow", "chunked"],
)
def test_from_positive_probs(form: Callable[[list[float]], Any]) -> None:
    preds = Predictions.from_positive_probs(form([0.25, 0.0, 1.0, 0.5]), [0, 0, 1, 1])
    assert (len(preds), preds.n_classes) == (4, 2)
    torch.testing.assert_close(preds.probs().double()[:, 1], torch.tensor([0.25, 0, 1, 0.5], dtype=torch.float64))
    torch.testing.assert_close(preds.probs().double()[:, 0], torch.tensor([0.75, 1, 0, 0.5], dtype=torch.float64))
    assert preds.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("form", LABEL_FORMS)
def test_labels(form: str) -> None:
    preds = Predictions.from_logits(rows_of()[0], LABEL_FORMS[form]([0, 1, 2, 0, 1, 2, 2, 1, 0, 0]))
    assert preds.labels.dtype == torch.int64
    assert preds.labels.tolist() == [0, 1, 2, 0, 1, 2, 2, 1, 0, 0]


def test_null_labels_are_unknown() -> None:
    logits, _ = rows_of(4)
    assert Predictions.from_logits(logits, pa.array([0, None, 2, None])).labels.tolist() == [0, -1, 2, -1]
    sliced = pa.array([None, 1, None, 2, 0, None])[1:5]
    assert Predictions.from_logits(logits, sliced).labels.tolist() == [1, -1, 2, 0]
    assert Predictions.from_logits(logits).labels.tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("given_dtype", "wanted"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_precision(given_dtype: torch.dtype, wanted: torch.dtype) -> None:
    logits = rows_of()[0].to(given_dtype)
    preds = Predictions.from_logits(logits)
    assert preds.logits.dtype == wanted
    assert torch.equal(preds.logits, logits.to(wanted))


def test_half_precision_of_numpy_and_pyarrow() -> None:
    logits = rows_of()[0].half()
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(logits.numpy().ravel()), N_CLASSES)
    for given_logits in (logits.numpy(), fixed):
        preds = Predictions.from_logits(given_logits)
        assert preds.logits.dtype == torch.float32
        assert torch.equal(preds.logits, logits.float())


def test_probabilities_follow_the_logits() -> None:
    logits = torch.tensor([[1.0, 2.0, -INF], [1000.0, 0.0, -1000.0]], dtype=torch.float64)
    preds = Predictions.from_logits(logits)
    torch.testing.assert_close(preds.log_probs(), torch.log_softmax(logits, 1))
    torch.testing.assert_close(preds.probs(), torch.softmax(logits, 1))
    assert preds.probs()[0, 2] == 0


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


@pytest.mark.parametrize(
    "columns",
    [
        {"hospital": HOSPITALS, "severity": SEVERITIES},
        {"hospital": np.array(HOSPITALS), "severity": np.array(SEVERITIES)},
        {"hospital": pa.array(HOSPITALS), "severity": pa.array(SEVERITIES)},
        pa.table({"hospital": HOSPITALS, "severity": SEVERITIES}),
    ],
    ids=["lists", "numpy", "pyarrow", "table"],
)
def test_columns_in_every_form(columns: Any) -> None:
    assert example(columns=columns).columns.to_pydict() == {"hospital": HOSPITALS, "severity": SEVERITIES}


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


@pytest.mark.parametrize("as_form", [torch.Tensor.numpy, torch.Tensor.tolist], ids=["numpy", "list"])
def test_dense_in_other_forms(as_form: Callable[[torch.Tensor], Any]) -> None:
    logits = rows_of(2 * 3 * 4, 1, seed=3)[0].reshape(2, 3, 4)
    labels = torch.tensor([[0, 1, 2, 255], [255, 2, 1, 0]])
    columns = {"image": [7, 8]}
    wanted = Predictions.from_logits(logits, labels, columns=columns, ignore_index=255)
    found = Predictions.from_logits(as_form(logits), as_form(labels), columns=columns, ignore_index=255)
    assert_same(found, wanted)
    assert found.columns["image"].to_pylist() == [7] * 3 + [8] * 3


def test_dense_probs_and_log_probs() -> None:
    logits = rows_of(2 * 3 * 4, 1, seed=3)[0].reshape(2, 3, 4).double()
    wanted = Predictions.from_logits(logits).probs()
    torch.testing.assert_close(Predictions.from_probs(logits.softmax(1)).probs(), wanted)
    torch.testing.assert_close(Predictions.from_log_probs(logits.log_softmax(1)).probs(), wanted)


def test_dense_without_labels_keeps_every_position() -> None:
    preds = Predictions.from_logits(torch.zeros(2, 3, 4), columns={"image": ["a", "b"]})
    assert preds.labels.tolist() == [-1] * 8
    assert preds.columns["image"].to_pylist() == ["a"] * 4 + ["b"] * 4


def test_ignored_rows_take_columns_and_features_along() -> None:
    logits, _ = rows_of(4)
    features = torch.arange(8.0).reshape(4, 2)
    preds = Predictions.from_logits(logits, [0, -100, 2, -100], columns={"id": [1, 2, 3, 4]}, features=features)
    assert torch.equal(preds.logits, logits[[0, 2]])
    assert preds.labels.tolist() == [0, 2]
    assert preds.columns["id"].to_pylist() == [1, 3]
    assert preds.features is not None
    assert preds.features.tolist() == [[0, 1], [4, 5]]


@pytest.mark.parametrize("form", ["torch_uint8", "numpy_uint8", "pyarrow_uint8"])
def test_label_156_is_not_minus_100_of_a_byte(form: str) -> None:
    preds = Predictions.from_logits(torch.zeros(3, 200), LABEL_FORMS[form]([156, 0, 199]))
    assert preds.labels.tolist() == [156, 0, 199]


def test_a_row_that_is_ignored_is_not_checked_against_the_classes() -> None:
    assert Predictions.from_logits(torch.zeros(2, 3), [255, 1], ignore_index=255).labels.tolist() == [1]


# Rows out


@pytest.mark.parametrize(
    "selection",
    [
        slice(3, 7),
        slice(None, None, 3),
        slice(-2, None),
        slice(0, 0),
        torch.tensor([True, False, False, True, False, False, False, True, True, False]),
        torch.tensor([9, 0, 0, 4]),
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


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises((InvalidInputError, IndexError)):
        example()[torch.ones(N_ROWS + 1, dtype=torch.bool)]


def test_an_index_beyond_the_rows_is_refused() -> None:
    with pytest.raises((InvalidInputError, IndexError)):
        example()[torch.tensor([0, N_ROWS])]


def test_where() -> None:
    preds = example()
    assert_same(preds.where(hospital="A"), preds[torch.tensor([0, 2, 5, 7, 9])])
    assert_same(preds.where(severity=[1, 2]), preds[torch.tensor([0, 1, 3, 4, 6, 7, 9])])
    assert_same(preds.where(hospital="A", severity=[1, 2]), preds[torch.tensor([0, 7, 9])])
    assert_same(preds.where(hospital=["B", "C"]), preds[torch.tensor([1, 3, 4, 6, 8])])
    assert len(preds.where(hospital="Z")) == 0
    assert_same(preds.where(), preds)


def test_where_does_not_match_null() -> None:
    preds = example(columns={"hospital": ["A", None] * 5})
    assert len(preds.where(hospital="A")) == 5
    assert len(preds.where(hospital=["A", "B"])) == 5


def test_where_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"hospitl.*hospital") as caught:
        example().where(hospitl="A")
    assert "\n" not in str(caught.value)


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


def test_concat_keeps_features_and_unknown_labels() -> None:
    logits, _ = rows_of(2)
    part = Predictions.from_logits(logits, pa.array([None, 1]), features=[[1.0, 2.0], [3.0, 4.0]])
    both = Predictions.concat([part, part])
    assert both.labels.tolist() == [-1, 1, -1, 1]
    assert both.features is not None
    assert both.features.tolist() == [[1, 2], [3, 4], [1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: Predictions.from_logits(torch.zeros(2, 4), [0, 1]), "4"),
        (lambda: example(columns={"hospital": HOSPITALS}), "severity"),
        (lambda: example(columns={"hospital": HOSPITALS, "severity": SEVERITIES, "age": SEVERITIES}), "age"),
    ],
    ids=["classes", "column_missing", "column_more"],
)
def test_concat_refusals(other: Callable[[], Predictions], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Predictions.concat([example(), other()])


def test_concat_of_nothing_is_refused() -> None:
    with pytest.raises((InvalidInputError, NoDataError)):
        Predictions.concat([])


# Refusals in memory


def with_value(row: int, column: int, value: float, n: int = 5, k: int = 4) -> torch.Tensor:
    """Uniform probabilities with one entry replaced."""
    probs = torch.full((n, k), 1 / k)
    probs[row, column] = value
    return probs


REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "nan": (
        lambda: Predictions.from_logits(with_value(3, 2, NAN)),
        r"^logits must not be NaN, got nan at row 3, class 2$",
    ),
    "plus_inf": (lambda: Predictions.from_logits(with_value(1, 0, INF)), r"logits .*inf at row 1, class 0"),
    "only_minus_inf": (
        lambda: Predictions.from_logits(torch.tensor([[0.0, 1], [1, 0], [-INF, -INF]])),
        r"logits .*row 2\b",
    ),
    "label_above": (
        lambda: Predictions.from_logits(torch.zeros(50, 10), [0] * 37 + [10] + [3] * 12),
        r"^labels must lie in \[0, 9\], got 10 at row 37$",
    ),
    "label_below": (
        lambda: Predictions.from_logits(torch.zeros(5, 10), [0, 0, -7, 0, 0]),
        r"labels must lie in \[0, 9\], got -7 at row 2",
    ),
    "label_wraps": (
        lambda: Predictions.from_logits(torch.zeros(2, 10), [0, 2**32]),
        r"labels must lie in \[0, 9\], got 4294967296 at row 1",
    ),
    "labels_float": (
        lambda: Predictions.from_logits(torch.zeros(2, 3), torch.tensor([0.0, 1.0])),
        r"labels must .*int",
    ),
    "labels_short": (lambda: Predictions.from_logits(torch.zeros(3, 3), [0, 1]), r"labels "),
    "labels_of_dense": (lambda: Predictions.from_logits(torch.zeros(2, 3, 4), [0, 1]), r"labels "),
    "logits_flat": (lambda: Predictions.from_logits(torch.zeros(3)), r"logits "),
    "logits_ragged_list": (lambda: Predictions.from_logits([[1.0, 2.0], [1.0]]), r"logits "),
    "logits_ragged_pyarrow": (
        lambda: Predictions.from_logits(pa.array([[1.0, 2.0], [3.0, 4.0], [1.0]])),
        r"logits .*row 2\b",
    ),
    "logits_null": (lambda: Predictions.from_logits(pa.array([[1.0, 2.0], None])), r"logits .*row 1\b"),
    "logits_null_inside": (lambda: Predictions.from_logits(pa.array([[1.0, 2.0], [None, 1.0]])), r"logits .*row 1\b"),
    "logits_text": (lambda: Predictions.from_logits([["a", "b"]]), r"logits "),
    "probs_sum": (lambda: Predictions.from_probs([[0.5, 0.5], [0.5, 0.25]]), r"probs .*0\.75.* row 1\b"),
    "probs_just_off": (lambda: Predictions.from_probs([[0.5, 0.5], [0.5, 0.502]]), r"probs .*row 1\b"),
    "probs_negative": (
        lambda: Predictions.from_probs([[0.5, 0.5, 0.0], [0.75, 0.5, -0.25]]),
        r"probs .*-0\.25 at row 1\b",
    ),
    "probs_nan": (lambda: Predictions.from_probs(with_value(3, 2, NAN)), r"probs must not be NaN, got nan at row 3"),
    "probs_zero": (lambda: Predictions.from_probs([[0.5, 0.5], [0.0, 0.0]]), r"probs .*row 1\b"),
    "log_probs_nan": (
        lambda: Predictions.from_log_probs(with_value(3, 2, NAN).log()),
        r"log_probs must not be NaN, got nan at row 3",
    ),
    "log_probs_plus_inf": (lambda: Predictions.from_log_probs([[0.0, -INF], [INF, 0.0]]), r"log_probs .*row 1\b"),
    "log_probs_sum": (lambda: Predictions.from_log_probs([[0.0, -INF], [0.0, 0.0]]), r"log_probs .*row 1\b"),
    "positive_above": (lambda: Predictions.from_positive_probs([0.5, 1.5]), r"probs .*1\.5 at row 1\b"),
    "positive_below": (lambda: Predictions.from_positive_probs([0.5, -0.5]), r"probs .*-0\.5 at row 1\b"),
    "positive_nan": (lambda: Predictions.from_positive_probs([0.5, NAN]), r"probs .*nan at row 1\b"),
    "positive_table": (lambda: Predictions.from_positive_probs([[0.5, 0.5]]), r"probs "),
    "positive_label": (
        lambda: Predictions.from_positive_probs([0.5, 0.5], [0, 2]),
        r"labels must lie in \[0, 1\], got 2 at row 1",
    ),
    "column_short": (lambda: example(columns={"hospital": ["A"]}), r"hospital"),
    "features_short": (lambda: example(features=torch.zeros(3, 2)), r"features "),
    "class_names_short": (lambda: example(class_names=["a", "b"]), r"class_names "),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    call, message = REFUSALS[case]
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_probabilities_within_the_tolerance_are_taken() -> None:
    preds = Predictions.from_probs([[0.5, 0.5005], [0.25, 0.7495]])
    torch.testing.assert_close(preds.probs().sum(1), torch.ones(2, dtype=preds.probs().dtype))


@pytest.mark.parametrize("name", ["label", "logits", "features", "probs", "log_probs", "positive_probs"])
def test_a_column_cannot_take_a_name_of_the_file(name: str, tmp_path: Path) -> None:
    """Such a file would say twice what its rows are."""
    with pytest.raises(InvalidInputError, match=name):
        example(columns={name: [0.5] * N_ROWS}).save(tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


# Fingerprint


grids = st.tuples(st.integers(1, 6), st.integers(2, 4)).flatmap(
    lambda shape: st.tuples(
        hnp.arrays(np.float32, shape, elements=st.integers(-3, 3).map(float)),
        hnp.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)),
    )
)


@given(grids, st.randoms(use_true_random=False))
def test_fingerprint_does_not_depend_on_the_order(rows: tuple[np.ndarray, np.ndarray], random: Any) -> None:
    preds = Predictions.from_logits(*rows)
    order = list(range(len(preds)))
    random.shuffle(order)
    assert re.fullmatch(r"[0-9a-f]{16,}", preds.fingerprint)
    assert preds[torch.tensor(order)].fingerprint == preds.fingerprint
    assert Predictions.from_logits(rows[0].astype(np.float64), rows[1]).fingerprint == preds.fingerprint


@given(grids, grids)
def test_fingerprints_agree_only_for_the_same_rows(
    a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]
) -> None:
    rows_a, rows_b = (
        sorted((*row, label) for row, label in zip(logits.tolist(), labels.tolist(), strict=True))
        for logits, labels in (a, b)
    )
    same = Predictions.from_logits(*a).fingerprint == Predictions.from_logits(*b).fingerprint
    assert same == (rows_a == rows_b)


@given(grids, st.data())
def test_fingerprint_changes_with_any_entry(rows: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    logits, labels = rows
    before = Predictions.from_logits(logits, labels).fingerprint
    row = data.draw(st.integers(0, len(labels) - 1))
    column = data.draw(st.integers(0, logits.shape[1] - 1))
    moved, relabelled = logits.copy(), labels.copy()
    moved[row, column] = np.nextafter(np.float32(moved[row, column]), np.float32(9), dtype=np.float32)
    relabelled[row] = (relabelled[row] + 1) % logits.shape[1]
    unknown = pa.array([None if i == row else int(label) for i, label in enumerate(labels)], type=pa.int64())
    found = [
        Predictions.from_logits(moved, labels).fingerprint,
        Predictions.from_logits(logits, relabelled).fingerprint,
        Predictions.from_logits(logits, unknown).fingerprint,
    ]
    assert before not in found
    assert len(set(found)) == 3


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


def test_fingerprint_survives_another_writer(tmp_path: Path) -> None:
    preds = example()
    pq.write_table(
        pa.table({"logits": preds.logits.double().tolist(), "label": preds.labels.tolist()}), tmp_path / "x.parquet"
    )
    assert Predictions.load(tmp_path / "x.parquet").fingerprint == preds.fingerprint


def test_fingerprint_is_that_of_the_rows_not_of_the_header(tmp_path: Path) -> None:
    """A file edited by hand keeps the old header: it is refused, or has the fingerprint of its new rows."""
    preds = example()
    preds.save(tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    labels = pa.array([(label + 1) % N_CLASSES for label in preds.labels.tolist()], type=pa.int32())
    edited = table.set_column(table.column_names.index("label"), table.schema.field("label"), labels)
    pq.write_table(edited, tmp_path / "x.parquet")
    with contextlib.suppress(CorruptFileError):
        assert Predictions.load(tmp_path / "x.parquet").fingerprint != preds.fingerprint


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


@settings(max_examples=150)
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
    preds = Predictions.from_logits(rows_of()[0].double() / 3)
    preds.save(tmp_path / "x.parquet")
    assert_same(Predictions.load(tmp_path / "x.parquet"), preds)


@pytest.mark.parametrize("row", [[1e300, 0.0], [-1e300, -1e300]], ids=str)
def test_a_saved_file_can_always_be_read(row: list[float], tmp_path: Path) -> None:
    """Logits beyond float32 are refused on the way in or out, not left in a file that load refuses."""
    path = tmp_path / "x.parquet"
    try:
        Predictions.from_logits(torch.tensor([row], dtype=torch.float64)).save(path)
    except InvalidInputError:
        assert not path.exists()
    else:
        assert len(Predictions.load(path)) == 1


def test_the_schema_is_as_promised(tmp_path: Path) -> None:
    logits, _ = rows_of(4)
    labels = pa.array([0, None, 2, 1])
    features = torch.arange(8.0).reshape(4, 2)
    preds = Predictions.from_logits(
        logits,
        labels,
        columns={"hospital": HOSPITALS[:4]},
        features=features,
        class_names=["cat", "dog", "żółw"],
        metadata={"epoch": 3},
    )
    preds.save(tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    schema = table.schema
    assert set(schema.names) == {"label", "logits", "features", "feature_norm", "hospital"}
    assert schema.field("label").type == pa.int32()
    assert pa.types.is_fixed_size_list(schema.field("logits").type)
    assert schema.field("logits").type.value_type == pa.float32()
    assert schema.field("logits").type.list_size == 3
    assert pa.types.is_fixed_size_list(schema.field("features").type)
    assert schema.field("features").type.value_type == pa.float16()
    assert schema.field("features").type.list_size == 2
    assert table["label"].to_pylist() == [0, None, 2, 1]
    assert table["logits"].to_pylist() == logits.tolist()
    assert table["features"].to_pylist() == features.tolist()
    assert table["hospital"].to_pylist() == HOSPITALS[:4]
    header = json.loads(schema.metadata[b"calibrant"])
    assert header["class_names"] == ["cat", "dog", "żółw"]
    assert header["metadata"] == {"epoch": 3}
    assert header["fingerprint"] == preds.fingerprint


def test_features_are_left_out_of_the_file_when_there_are_none(tmp_path: Path) -> None:
    example().save(tmp_path / "x.parquet")
    assert set(pq.read_schema(tmp_path / "x.parquet").names) == {"label", "logits", "hospital", "severity"}


def test_paths_may_be_text_and_may_look_like_a_glob(tmp_path: Path) -> None:
    preds = example()
    path = tmp_path / "run [1]*?.parquet"
    preds.save(str(path))
    assert_same(Predictions.load(str(path)), preds)
    assert_same(Predictions.concat(list(Predictions.scan(str(path)))), preds)


def test_load_of_several_files_keeps_their_order(tmp_path: Path) -> None:
    parts = {name: example(seed=seed) for seed, name in enumerate("bac")}
    for name, part in parts.items():
        part.save(tmp_path / f"{name}.parquet")
    loaded = Predictions.load([tmp_path / f"{name}.parquet" for name in "bac"])
    assert_same(loaded, Predictions.concat(list(parts.values())))


# Atomic save


@contextlib.contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("limit", [0, 1, 1000, 100_000])
def test_a_full_disk_leaves_the_old_file(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    old = example()
    old.save(path)
    before = path.read_bytes()
    new = Predictions.from_logits(rows_of(20_000)[0])
    with full_disk(limit), pytest.raises(OSError, match=r"."):
        new.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]
    new.save(path)
    assert_same(Predictions.load(path), new)


def test_a_failed_rename_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    example().save(path)
    before = path.read_bytes()

    def refuse(*_args: object, **_options: object) -> None:
        raise OSError("no rename today")

    with monkeypatch.context() as patch:
        for name in ("replace", "rename"):
            patch.setattr(os, name, refuse)
        with pytest.raises(OSError, match="no rename today"):
            example(seed=1).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


def test_a_failed_first_save_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(1000), pytest.raises(OSError, match=r"."):
        Predictions.from_logits(rows_of(20_000)[0]).save(tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_save_onto_a_folder_fails_without_leftovers(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").mkdir()
    (tmp_path / "x.parquet" / "kept").write_text("kept")
    with pytest.raises((OSError, InvalidInputError)):
        example().save(tmp_path / "x.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]
    assert [p.name for p in (tmp_path / "x.parquet").iterdir()] == ["kept"]


def test_metadata_that_json_cannot_hold_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    example().save(path)
    before = path.read_bytes()
    with pytest.raises((InvalidInputError, TypeError)):
        example(metadata={"model": object()}).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


def test_save_leaves_one_file_and_may_replace_what_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    example().save(path)
    loaded = Predictions.load(path)
    loaded[2:5].save(path)
    assert_same(Predictions.load(path), example()[2:5])
    assert_same(loaded, example())
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


# Scan


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """The in-memory file system of fsspec, emptied afterwards."""
    files = fsspec.filesystem("memory")
    yield files
    for name in files.find("/"):
        files.rm(name)


def three_files(folder: Path) -> Predictions:
    """Three files of ten rows in row groups of four; the whole of their rows."""
    parts = []
    for seed, name in enumerate("abc"):
        part = example(seed=seed, class_names=["x", "y", "z"], metadata={"run": "same"})
        part.save(folder / f"{name}.parquet")
        table = pq.read_table(folder / f"{name}.parquet")
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=4)
        assert pq.ParquetFile(folder / f"{name}.parquet").num_row_groups == 3
        parts.append(part)
    return Predictions.concat(parts)


WHERE: dict[str, Callable[[Path], Any]] = {
    "list_of_paths": lambda folder: [folder / f"{name}.parquet" for name in "abc"],
    "list_of_texts": lambda folder: [str(folder / f"{name}.parquet") for name in "abc"],
    "glob": lambda folder: str(folder / "*.parquet"),
    "glob_of_letters": lambda folder: str(folder / "[abc].parquet"),
    "folder": lambda folder: folder,
    "folder_as_text": lambda folder: str(folder),
}


@pytest.mark.parametrize("batch_rows", [1, 3, 4, 7, 10, 11, 65536])
@pytest.mark.parametrize("where", WHERE)
def test_scan(where: str, batch_rows: int, tmp_path: Path) -> None:
    whole = three_files(tmp_path)
    scan = Predictions.scan(WHERE[where](tmp_path), batch_rows=batch_rows)
    assert scan.n_rows == 30
    assert [file_name(f) for f in scan.files] == ["a.parquet", "b.parquet", "c.parquet"]
    batches = list(scan)
    assert all(0 < len(batch) <= batch_rows for batch in batches)
    assert all(batch.class_names == ("x", "y", "z") for batch in batches)
    assert_same(Predictions.concat(batches), whole)
    assert_same(Predictions.concat(list(scan)), whole)


def test_scan_of_one_file(tmp_path: Path) -> None:
    three_files(tmp_path)
    scan = Predictions.scan(tmp_path / "b.parquet")
    assert scan.n_rows == 10
    assert_same(Predictions.concat(list(scan)), example(seed=1, class_names=["x", "y", "z"]))


def test_bytes_add_up_over_the_files(tmp_path: Path) -> None:
    three_files(tmp_path)
    parts = [Predictions.scan(path).n_bytes for path in tmp_path.iterdir()]
    assert min(parts) > 0
    assert Predictions.scan(tmp_path).n_bytes == sum(parts)


def test_two_walks_over_one_scan_do_not_disturb_each_other(tmp_path: Path) -> None:
    three_files(tmp_path)
    scan = Predictions.scan(tmp_path, batch_rows=3)
    next(iter(scan))
    for a, b in zip(scan, scan, strict=True):
        assert_same(a, b)


def test_scan_of_a_folder_reads_parquet_only(tmp_path: Path) -> None:
    whole = three_files(tmp_path)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").write_text("not predictions")
    scan = Predictions.scan(tmp_path)
    assert [file_name(f) for f in scan.files] == ["a.parquet", "b.parquet", "c.parquet"]
    assert_same(Predictions.concat(list(scan)), whole)


@pytest.mark.parametrize(
    "url",
    [
        "memory://runs/*.parquet",
        "memory://runs",
        [f"memory://runs/{name}.parquet" for name in "abc"],
    ],
    ids=["glob", "folder", "list"],
)
def test_scan_of_a_url(url: str | list[str], tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
    whole = three_files(tmp_path)
    for path in tmp_path.iterdir():
        memory.pipe(f"/runs/{path.name}", path.read_bytes())
    scan = Predictions.scan(url, batch_rows=4)
    assert scan.n_rows == 30
    assert [file_name(f) for f in scan.files] == ["a.parquet", "b.parquet", "c.parquet"]
    for _ in range(2):
        assert_same(Predictions.concat(list(scan)), whole)


def test_scan_of_a_single_url(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
    example().save(tmp_path / "a.parquet")
    memory.pipe("/one/a.parquet", (tmp_path / "a.parquet").read_bytes())
    assert_same(Predictions.concat(list(Predictions.scan("memory://one/a.parquet"))), example())


def test_scan_of_a_file_url(tmp_path: Path) -> None:
    example().save(tmp_path / "a.parquet")
    assert_same(Predictions.concat(list(Predictions.scan(f"file://{tmp_path}/a.parquet"))), example())


def test_damage_behind_a_url_names_the_file(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe("/bad/a.parquet", b"PAR1 and no more")
    with pytest.raises(CorruptFileError, match=r"a\.parquet"):
        list(Predictions.scan("memory://bad/a.parquet"))
    with pytest.raises(NoDataError, match=r"nowhere\.parquet"):
        list(Predictions.scan("memory://bad/nowhere.parquet"))


@pytest.mark.parametrize("batch_rows", [0, -1])
def test_scan_needs_rows_in_a_batch(batch_rows: int, tmp_path: Path) -> None:
    example().save(tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=f"batch_rows .*{batch_rows}"):
        Predictions.scan(tmp_path, batch_rows=batch_rows)


# Files of other writers


LISTS: dict[str, Callable[[int], pa.DataType]] = {
    "list_double": lambda _: pa.list_(pa.float64()),
    "list_float": lambda _: pa.list_(pa.float32()),
    "list_half": lambda _: pa.list_(pa.float16()),
    "large_list_double": lambda _: pa.large_list(pa.float64()),
    "large_list_float": lambda _: pa.large_list(pa.float32()),
    "fixed_double": lambda k: pa.list_(pa.float64(), k),
    "fixed_half": lambda k: pa.list_(pa.float16(), k),
}


@pytest.mark.parametrize("column", ["logits", "log_probs", "probs"])
@pytest.mark.parametrize("lists", LISTS)
def test_lists_of_any_float(lists: str, column: str, tmp_path: Path) -> None:
    probs = torch.tensor(PROBS, dtype=torch.float64)
    values = probs if column == "probs" else probs.log()
    table = pa.table({"label": LABELS, column: pa.array(values.tolist(), type=LISTS[lists](3)), "site": list("abca")})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=3)
    batches = Predictions.scan(tmp_path / "x.parquet", batch_rows=2)
    for loaded in (Predictions.load(tmp_path / "x.parquet"), Predictions.concat(list(batches))):
        torch.testing.assert_close(loaded.probs().double(), probs, rtol=2e-3, atol=2e-3)
        assert loaded.labels.tolist() == LABELS
        assert loaded.columns.to_pydict() == {"site": list("abca")}
        assert loaded.class_names is None
        assert loaded.metadata == {}


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_positive_probs_of_any_float(kind: pa.DataType, tmp_path: Path) -> None:
    table = pa.table({"label": [0, 1, None], "positive_probs": pa.array([0.25, 1.0, 0.0], type=kind)})
    pq.write_table(table, tmp_path / "x.parquet")
    loaded = Predictions.load(tmp_path / "x.parquet")
    torch.testing.assert_close(loaded.probs().double()[:, 1], torch.tensor([0.25, 1.0, 0.0], dtype=torch.float64))
    assert loaded.labels.tolist() == [0, 1, -1]
    assert loaded.n_classes == 2


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], ids=str
)
def test_labels_of_any_integer(kind: pa.DataType, tmp_path: Path) -> None:
    labels = [0, 99, None, 100]
    table = pa.table({"label": pa.array(labels, type=kind), "logits": torch.zeros(4, 101).tolist()})
    pq.write_table(table, tmp_path / "x.parquet")
    assert Predictions.load(tmp_path / "x.parquet").labels.tolist() == [0, 99, -1, 100]


def test_a_file_of_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    logits, labels = rows_of()
    frame = pandas.DataFrame({"label": labels.numpy(), "logits": list(logits.double().numpy()), "hospital": HOSPITALS})
    frame.to_parquet(tmp_path / "x.parquet")
    loaded = Predictions.load(tmp_path / "x.parquet")
    assert torch.equal(loaded.logits.float(), logits)
    assert torch.equal(loaded.labels, labels)
    assert len(loaded.where(hospital="A")) == HOSPITALS.count("A")


def test_pandas_reads_ours(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    example().save(tmp_path / "x.parquet")
    frame = pandas.read_parquet(tmp_path / "x.parquet")
    assert frame["label"].tolist() == rows_of()[1].tolist()
    assert np.array_equal(np.stack(frame["logits"]), rows_of()[0].numpy())


# Damaged files


READERS: dict[str, Callable[[Any], Any]] = {
    "load": Predictions.load,
    "scan": lambda paths: list(Predictions.scan(paths)),
    "scan_small": lambda paths: list(Predictions.scan(paths, batch_rows=2)),
}
every_reader = pytest.mark.parametrize("reader", READERS)


def assert_refused(reader: str, paths: Any, *parts: str, row: int | None = None) -> None:
    """One line with all the parts and the row."""
    with pytest.raises(CorruptFileError) as caught:
        READERS[reader](paths)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    if row is not None:
        assert re.search(rf"\brow {row}\b", message), message


@every_reader
@pytest.mark.parametrize("missing", ["no.parquet", "no*.parquet", "folder", "list"])
def test_missing_files(missing: str, reader: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / ("no.parquet" if missing == "list" else missing)
    with pytest.raises(NoDataError) as caught:
        READERS[reader]([path] if missing == "list" else str(path))
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


@every_reader
def test_no_paths_at_all(reader: str) -> None:
    with pytest.raises((NoDataError, InvalidInputError)):
        READERS[reader]([])


@every_reader
@pytest.mark.parametrize("kept", [0, 1, 4, 8, 0.25, 0.5, 0.9, -9, -8, -4, -1], ids=str)
def test_truncated_files(kept: float, reader: str, tmp_path: Path) -> None:
    """So many bytes of the start, such a part of all bytes, or all bytes but so many."""
    path = tmp_path / "cut.parquet"
    example().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    assert_refused(reader, path, "cut.parquet")


@every_reader
@pytest.mark.parametrize(
    "content",
    [b"label,logits\n0,1\n", b"PAR1" + b"\xff" * 40 + b"PAR1", b"PAR1" * 20, "größe\n".encode() * 100],
    ids=["csv", "garbage", "magic_only", "text"],
)
def test_files_that_are_not_parquet(content: bytes, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    path.write_bytes(content)
    assert_refused(reader, path, "other.parquet")


@every_reader
def test_pages_destroyed_behind_a_good_footer(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "bitrot.parquet"
    Predictions.from_logits(*rows_of(1000)).save(path)
    content = bytearray(path.read_bytes())
    content[4:3000] = b"\xff" * 2996
    path.write_bytes(content)
    assert_refused(reader, path, "bitrot.parquet")


GOOD_LOGITS: list[Any] = [[0.5, float(i), -1.0] for i in range(N_ROWS)]
GOOD_PROBS: list[Any] = [[0.5, 0.25, 0.25]] * N_ROWS
GOOD_LABELS: list[Any] = [i % N_CLASSES for i in range(N_ROWS)]


def swapped(values: list[Any], value: Any, row: int = 7) -> list[Any]:
    """The values with one replaced."""
    return [*values[:row], value, *values[row + 1 :]]


def logits_table(value: Any, kind: pa.DataType | None = None) -> pa.Table:
    """A good table but for the logits of row 7."""
    return pa.table({"label": GOOD_LABELS, "logits": pa.array(swapped(GOOD_LOGITS, value), type=kind)})


def probs_table(value: Any) -> pa.Table:
    """A good table but for the probabilities of row 7."""
    return pa.table({"label": GOOD_LABELS, "probs": swapped(GOOD_PROBS, value)})


def log_probs_table(value: Any) -> pa.Table:
    """A good table but for the log-probabilities of row 7."""
    good = [[math.log(p) for p in row] for row in GOOD_PROBS]
    return pa.table({"label": GOOD_LABELS, "log_probs": swapped(good, value)})


def label_table(value: Any, kind: pa.DataType | None = None) -> pa.Table:
    """A good table but for the label of row 7."""
    return pa.table({"label": pa.array(swapped(GOOD_LABELS, value), type=kind), "logits": GOOD_LOGITS})


FIXED = pa.list_(pa.float32(), N_CLASSES)
DAMAGED_ROWS: dict[str, tuple[str, Callable[[], pa.Table]]] = {
    "nan": ("logits", lambda: logits_table([0.0, NAN, 1.0])),
    "nan_fixed": ("logits", lambda: logits_table([0.0, NAN, 1.0], FIXED)),
    "nan_row": ("logits", lambda: logits_table([NAN] * 3)),
    "plus_inf": ("logits", lambda: logits_table([0.0, 1.0, INF])),
    "only_minus_inf": ("logits", lambda: logits_table([-INF] * 3)),
    "fewer_classes": ("logits", lambda: logits_table([0.0, 1.0])),
    "more_classes": ("logits", lambda: logits_table([0.0, 1.0, 2.0, 3.0])),
    "no_classes": ("logits", lambda: logits_table([])),
    "null": ("logits", lambda: logits_table(None)),
    "null_fixed": ("logits", lambda: logits_table(None, FIXED)),
    "null_large": ("logits", lambda: logits_table(None, pa.large_list(pa.float64()))),
    "null_inside": ("logits", lambda: logits_table([0.0, None, 1.0])),
    "null_inside_fixed": ("logits", lambda: logits_table([0.0, None, 1.0], FIXED)),
    "label_above": ("label", lambda: label_table(3)),
    "label_below": ("label", lambda: label_table(-7)),
    "label_wraps_int32": ("label", lambda: label_table(2**32)),
    "label_wraps_int64": ("label", lambda: label_table(2**63 + 1, pa.uint64())),
    "probs_sum": ("probs", lambda: probs_table([0.5, 0.5, 0.5])),
    "probs_negative": ("probs", lambda: probs_table([0.75, 0.5, -0.25])),
    "probs_nan": ("probs", lambda: probs_table([NAN, 0.5, 0.5])),
    "probs_null": ("probs", lambda: probs_table(None)),
    "log_probs_nan": ("log_probs", lambda: log_probs_table([NAN] * 3)),
    "log_probs_sum": ("log_probs", lambda: log_probs_table([0.0] * 3)),
    "positive_above": (
        "positive_probs",
        lambda: pa.table({"label": [0] * N_ROWS, "positive_probs": swapped([0.5] * N_ROWS, 1.5)}),
    ),
    "positive_null": (
        "positive_probs",
        lambda: pa.table({"label": [0] * N_ROWS, "positive_probs": swapped([0.5] * N_ROWS, None)}),
    ),
}


@every_reader
@pytest.mark.parametrize("case", DAMAGED_ROWS)
def test_damaged_rows(case: str, reader: str, tmp_path: Path) -> None:
    """The row is counted from the start of its file, over row groups and batches."""
    column, table = DAMAGED_ROWS[case]
    path = tmp_path / "damaged.parquet"
    pq.write_table(table(), path, row_group_size=3)
    assert_refused(reader, path, "damaged.parquet", column, row=7)


@every_reader
def test_the_row_is_that_of_the_second_file(reader: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"label": GOOD_LABELS, "logits": GOOD_LOGITS}), tmp_path / "a.parquet")
    pq.write_table(logits_table([0.0, NAN, 1.0]), tmp_path / "b.parquet", row_group_size=4)
    assert_refused(reader, [tmp_path / "a.parquet", tmp_path / "b.parquet"], "b.parquet", "logits", row=7)


DAMAGED_COLUMNS: dict[str, tuple[tuple[str, ...], Callable[[], pa.Table]]] = {
    "no_logits": (("logits",), lambda: pa.table({"label": GOOD_LABELS})),
    "no_label": (("label",), lambda: pa.table({"logits": GOOD_LOGITS})),
    "nothing_known": (("logits",), lambda: pa.table({"y": GOOD_LABELS, "scores": GOOD_LOGITS})),
    "logits_and_probs": (
        ("logits", "probs"),
        lambda: pa.table({"label": GOOD_LABELS, "logits": GOOD_LOGITS, "probs": GOOD_PROBS}),
    ),
    "probs_and_positive_probs": (
        ("probs", "positive_probs"),
        lambda: pa.table({"label": [0] * 10, "probs": [[0.5, 0.5]] * 10, "positive_probs": [0.5] * 10}),
    ),
    "logits_text": (("logits",), lambda: pa.table({"label": GOOD_LABELS, "logits": ["[1, 2, 3]"] * N_ROWS})),
    "logits_lists_of_text": (("logits",), lambda: pa.table({"label": GOOD_LABELS, "logits": [["1", "2"]] * N_ROWS})),
    "logits_plain": (("logits",), lambda: pa.table({"label": GOOD_LABELS, "logits": [0.5] * N_ROWS})),
    "positive_probs_lists": (
        ("positive_probs",),
        lambda: pa.table({"label": [0] * N_ROWS, "positive_probs": [[0.5, 0.5]] * N_ROWS}),
    ),
    "label_float": (("label",), lambda: pa.table({"label": [float(i) for i in GOOD_LABELS], "logits": GOOD_LOGITS})),
    "label_text": (("label",), lambda: pa.table({"label": HOSPITALS, "logits": GOOD_LOGITS})),
    "label_lists": (("label",), lambda: pa.table({"label": [[0]] * N_ROWS, "logits": GOOD_LOGITS})),
}


@every_reader
@pytest.mark.parametrize("case", DAMAGED_COLUMNS)
def test_damaged_columns(case: str, reader: str, tmp_path: Path) -> None:
    columns, table = DAMAGED_COLUMNS[case]
    path = tmp_path / "damaged.parquet"
    pq.write_table(table(), path)
    assert_refused(reader, path, "damaged.parquet", *columns)


@every_reader
def test_files_with_other_class_counts(reader: str, tmp_path: Path) -> None:
    for name, k in (("a", 3), ("b", 3), ("odd", 4)):
        Predictions.from_logits(*rows_of(k=k)).save(tmp_path / f"{name}.parquet")
    paths = [tmp_path / f"{name}.parquet" for name in ("a", "b", "odd")]
    assert_refused(reader, paths, "odd.parquet", "logits", "3", "4")


@pytest.mark.parametrize("odd_first", [False, True])
def test_files_with_other_columns(odd_first: bool, tmp_path: Path) -> None:
    """They cannot be one value, but batch by batch each has what its file has."""
    example().save(tmp_path / "a.parquet")
    example(columns={"severity": SEVERITIES}).save(tmp_path / "odd.parquet")
    paths = [tmp_path / "a.parquet", tmp_path / "odd.parquet"]
    paths = paths[::-1] if odd_first else paths
    assert_refused("load", paths, ".parquet", "hospital")
    scan = Predictions.scan(paths)
    assert scan.column_names == ["severity"]
    assert [("hospital" in batch.columns.column_names) for batch in scan] == [not odd_first, odd_first]
