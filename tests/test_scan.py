"""Scan: predictions batch by batch, from files of ours and of other writers, and what damaged files are refused for."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from calibrant import Predictions
from calibrant.errors import CorruptFileError, NoDataError
from made.predictions import HOSPITALS, N_CLASSES, N_ROWS, SEVERITIES, assert_same, example, rows_of

INF = math.inf
NAN = math.nan
PROBS = [[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.0, 0.0, 1.0], [0.25, 0.5, 0.25]]
LABELS = [0, 1, 2, 1]


@pytest.fixture
def three(tmp_path: Path) -> Predictions:
    """Three files of ten rows in row groups of four; the whole of their rows."""
    parts = []
    for seed, name in enumerate("abc"):
        parts.append(example(seed=seed, class_names=["x", "y", "z"], metadata={"run": "same"}))
        parts[-1].save(tmp_path / f"{name}.parquet")
        table = pq.read_table(tmp_path / f"{name}.parquet")
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=4)
    return Predictions.concat(parts)


@pytest.mark.parametrize("batch_rows", [1, 3, 4, 7, 10, 11, 65536, None])
def test_batches(batch_rows: int | None, three: Predictions, tmp_path: Path) -> None:
    """However large, they are all rows in order, as often as one likes, also by two at once."""
    scan = Predictions.scan(tmp_path, batch_rows=batch_rows)
    assert scan.n_rows == 30
    batches = list(scan)
    assert all(0 < len(batch) <= (batch_rows or 4) for batch in batches)
    assert all(batch.class_names == ("x", "y", "z") for batch in batches)
    assert_same(Predictions.concat(batches), three)
    next(iter(scan))
    for a, b in zip(scan, scan, strict=True):
        assert_same(a, b)


def test_what_files_say_together(three: Predictions, tmp_path: Path) -> None:
    scan = Predictions.scan(tmp_path)
    sizes = [Predictions.scan(path).n_bytes for path in tmp_path.iterdir()]
    assert min(sizes) > 0
    assert scan.n_bytes == sum(sizes)
    assert scan.metadata == {"run": "same"}
    assert scan.column_names == ["hospital", "severity"]
    assert_same(
        Predictions.load([tmp_path / f"{name}.parquet" for name in "bac"]),
        three[[*range(10, 20), *range(10), *range(20, 30)]],
    )
    assert_same(Predictions.concat(list(Predictions.scan(tmp_path / "b.parquet"))), three[10:20])


def test_files_behind_urls(three: Predictions, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    try:
        for path in tmp_path.iterdir():
            memory.pipe(f"/runs/{path.name}", path.read_bytes())
        urls = ["memory://runs/*.parquet", "memory://runs", [f"memory://runs/{name}.parquet" for name in "abc"]]
        for paths in (*urls, tmp_path.as_uri()):
            scan = Predictions.scan(paths, batch_rows=4)
            assert scan.n_rows == 30
            for _ in range(2):
                assert_same(Predictions.concat(list(scan)), three)
        memory.pipe("/runs/d.parquet", b"PAR1 and no more")
        with pytest.raises(CorruptFileError, match=r"^memory://runs/d\.parquet is not a Parquet file"):
            Predictions.scan("memory://runs/d.parquet")
        with pytest.raises(NoDataError, match=r"^there is no file memory://runs/nowhere\.parquet$"):
            Predictions.scan("memory://runs/nowhere.parquet")
    finally:
        memory.rm("/runs", recursive=True)


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


# Damaged files


READERS: dict[str, Callable[[Any], Any]] = {
    "load": Predictions.load,
    "scan": lambda paths: list(Predictions.scan(paths)),
    "scan_small": lambda paths: list(Predictions.scan(paths, batch_rows=2)),
}


def assert_refused(paths: Any, *parts: str, row: int | None = None) -> None:
    """By every reader, in one line with all the parts and the row."""
    for name, reader in READERS.items():
        with pytest.raises(CorruptFileError) as caught:
            reader(paths)
        message = str(caught.value)
        assert "\n" not in message, name
        assert all(part in message for part in parts), (name, message)
        assert row is None or re.search(rf"\brow {row}\b", message), (name, message)


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


@pytest.mark.parametrize("case", DAMAGED_ROWS)
def test_damaged_rows(case: str, tmp_path: Path) -> None:
    """The row is counted from the start of its file, over row groups and batches."""
    column, table = DAMAGED_ROWS[case]
    pq.write_table(pa.table({"label": GOOD_LABELS, "logits": GOOD_LOGITS}), tmp_path / "a.parquet")
    pq.write_table(table(), tmp_path / "damaged.parquet", row_group_size=3)
    assert_refused(tmp_path / "damaged.parquet", "damaged.parquet", column, row=7)
    if column == "logits" and "more" not in case and "fewer" not in case:
        assert_refused([tmp_path / "a.parquet", tmp_path / "damaged.parquet"], "damaged.parquet", column, row=7)


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


@pytest.mark.parametrize("case", DAMAGED_COLUMNS)
def test_damaged_columns(case: str, tmp_path: Path) -> None:
    columns, table = DAMAGED_COLUMNS[case]
    pq.write_table(table(), tmp_path / "damaged.parquet")
    assert_refused(tmp_path / "damaged.parquet", "damaged.parquet", *columns)


def test_files_with_other_class_counts(tmp_path: Path) -> None:
    for name, k in (("a", 3), ("b", 3), ("odd", 4)):
        Predictions.from_logits(*rows_of(k=k)).save(tmp_path / f"{name}.parquet")
    assert_refused([tmp_path / f"{name}.parquet" for name in ("a", "b", "odd")], "odd.parquet", "logits", "3", "4")


@pytest.mark.parametrize("odd_first", [False, True])
def test_files_with_other_columns(odd_first: bool, tmp_path: Path) -> None:
    """They cannot be one value, but batch by batch each has what its file has."""
    example().save(tmp_path / "a.parquet")
    example(columns={"severity": SEVERITIES}).save(tmp_path / "odd.parquet")
    paths = [tmp_path / "a.parquet", tmp_path / "odd.parquet"]
    paths = paths[::-1] if odd_first else paths
    with pytest.raises(CorruptFileError, match=r"\.parquet.*hospital"):
        Predictions.load(paths)
    scan = Predictions.scan(paths)
    assert scan.column_names == ["severity"]
    assert [("hospital" in batch.columns.column_names) for batch in scan] == [not odd_first, odd_first]


def test_files_without_rows(tmp_path: Path) -> None:
    example()[:0].save(tmp_path / "x.parquet")
    loaded = Predictions.load(tmp_path / "x.parquet")
    assert (len(loaded), loaded.n_classes, loaded.columns.column_names) == (0, 3, ["hospital", "severity"])
    pq.write_table(
        pa.table({"label": pa.array([], pa.int32()), "positive_probs": pa.array([], pa.float32())}),
        tmp_path / "x.parquet",
    )
    assert Predictions.load(tmp_path / "x.parquet").n_classes == 2
    empty = pa.table({"label": pa.array([], pa.int32()), "logits": pa.array([], pa.list_(pa.float32()))})
    pq.write_table(empty, tmp_path / "x.parquet")
    with pytest.raises(CorruptFileError, match=r"x\.parquet has no rows, and its column does not say how many classes"):
        Predictions.load(tmp_path / "x.parquet")


def test_a_header_that_cannot_be_read(tmp_path: Path) -> None:
    table = pa.table({"label": GOOD_LABELS, "logits": GOOD_LOGITS})
    for text in (b"{", b"[]", b'{"class_names": 3}'):
        pq.write_table(table.replace_schema_metadata({b"calibrant": text}), tmp_path / "x.parquet")
        assert_refused(tmp_path / "x.parquet", "x.parquet has metadata that cannot be read")
    names = b'{"class_names": ["a", "b"]}'
    pq.write_table(table.replace_schema_metadata({b"calibrant": names}), tmp_path / "x.parquet")
    assert_refused(tmp_path / "x.parquet", "x.parquet: class_names must have one name for each of 3 classes, got 2")
