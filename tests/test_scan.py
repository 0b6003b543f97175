"""Scan: predictions batch by batch, from files of ours and of other writers, and what damaged files are refused for."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from calibrant import Predictions, audit, compare, score
from calibrant.calibrators import Identity, TransCal, compare_calibrators
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError
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


FLOATS = (pa.float16(), pa.float32(), pa.float64())
LISTS = [make(kind) for make in (pa.list_, pa.large_list, lambda kind: pa.list_(kind, 3)) for kind in FLOATS]


@pytest.mark.parametrize("column", ["logits", "log_probs", "probs"])
@pytest.mark.parametrize("lists", LISTS, ids=str)
def test_lists_of_any_float(lists: pa.DataType, column: str, tmp_path: Path) -> None:
    probs = torch.tensor(PROBS, dtype=torch.float64)
    values = probs if column == "probs" else probs.log()
    table = pa.table({"label": LABELS, column: pa.array(values.tolist(), type=lists), "site": list("abca")})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=3)
    batches = Predictions.scan(tmp_path / "x.parquet", batch_rows=2)
    for loaded in (Predictions.load(tmp_path / "x.parquet"), Predictions.concat(list(batches))):
        torch.testing.assert_close(loaded.probs.double(), probs, rtol=2e-3, atol=2e-3)
        assert loaded.labels.tolist() == LABELS
        assert loaded.columns.to_pydict() == {"site": list("abca")}
        assert loaded.class_names is None
        assert loaded.metadata == {}


def test_positive_probs_of_any_float_and_labels_of_any_integer(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for kind in FLOATS:
        pq.write_table(pa.table({"label": [0, 1, None], "positive_probs": pa.array([0.25, 1.0, 0.0], kind)}), path)
        loaded = Predictions.load(path)
        torch.testing.assert_close(loaded.probs.double()[:, 1], torch.tensor([0.25, 1.0, 0.0], dtype=torch.float64))
        assert (loaded.labels.tolist(), loaded.n_classes) == ([0, 1, -1], 2)
    logits = torch.zeros(4, 101).tolist()
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        pq.write_table(pa.table({"label": pa.array([0, 99, None, 100], name), "logits": logits}), path)
        assert Predictions.load(path).labels.tolist() == [0, 99, -1, 100], name


def test_boolean_labels_of_two_classes(tmp_path: Path) -> None:
    labels = pa.array([True, False, None, True])
    for column in (labels, labels.dictionary_encode()):
        pq.write_table(pa.table({"label": column, "positive_probs": [0.75, 0.25, 0.5, 0.5]}), tmp_path / "x.parquet")
        assert Predictions.load(tmp_path / "x.parquet").labels.tolist() == [1, 0, -1, 1]


def test_files_without_labels(three: Predictions, tmp_path: Path) -> None:
    """Their rows have no labels; a purpose that needs labels is told so before a row is read."""
    path = tmp_path / "b.parquet"
    pq.write_table(pq.read_table(path).drop_columns("label"), path, row_group_size=4)
    loaded = Predictions.load(path)
    wanted = replace(three[10:20], labels=torch.full((10,), -1))
    assert_same(loaded, wanted)
    loaded.save(tmp_path / "again.parquet")
    assert pq.read_schema(tmp_path / "again.parquet").names == ["logits", "hospital", "severity"]
    assert_same(Predictions.load(tmp_path / "again.parquet"), wanted)
    assert Predictions.load(tmp_path / "again.parquet").fingerprint == loaded.fingerprint
    scan = Predictions.scan([tmp_path / f"{name}.parquet" for name in "abc"])
    for batches in (scan, scan.batches(["severity"])):
        labels = torch.cat([batch.labels for batch in batches])
        assert labels.tolist() == [*three.labels[:10].tolist(), *[-1] * 10, *three.labels[20:].tolist()]
    message = r"b\.parquet has no column label: type --label .* \(its other columns are hospital, severity\)"
    bare = Predictions.scan(path)
    for needs_labels in (scan.check_labels, lambda: score(bare), lambda: audit(bare)):
        with pytest.raises(InvalidInputError, match=message):
            needs_labels()
    assert (score(scan).n_rows, score(scan).n_unlabelled) == (len(three) - 10, 10)
    assert len(list(Predictions.scan(tmp_path / "a.parquet").check_labels())) == 3


# Damaged files


READERS: dict[str, Callable[[Any], Any]] = {
    "load": Predictions.load,
    "scan": lambda paths: list(Predictions.scan(paths)),
    "scan_small": lambda paths: list(Predictions.scan(paths, batch_rows=2)),
}


def assert_refused(paths: Any, *parts: str, row: int | None = None, error: type[Exception] = CorruptFileError) -> None:
    """By every reader, in one line with all the parts and the row."""
    for name, reader in READERS.items():
        with pytest.raises(error) as caught:
            reader(paths)
        message = str(caught.value)
        assert "\n" not in message, name
        assert all(part in message for part in parts), (name, message)
        assert row is None or re.search(rf"\brow {row}\b", message), (name, message)


GOOD_LOGITS: list[Any] = [[0.5, float(i), -1.0] for i in range(N_ROWS)]
GOOD_PROBS: list[Any] = [[0.5, 0.25, 0.25]] * N_ROWS
GOOD_LABELS: list[Any] = [i % N_CLASSES for i in range(N_ROWS)]
GOOD: dict[str, list[Any]] = {
    "logits": GOOD_LOGITS,
    "probs": GOOD_PROBS,
    "log_probs": [[math.log(p) for p in row] for row in GOOD_PROBS],
    "positive_probs": [0.5] * N_ROWS,
}
FIXED = pa.list_(pa.float32(), N_CLASSES)
DAMAGED_ROWS: list[tuple[str, Any, pa.DataType | None]] = [  # the column, what stands in its row 7, its type
    ("logits", [0.0, NAN, 1.0], None),
    ("logits", [0.0, NAN, 1.0], FIXED),
    ("logits", [NAN] * 3, None),
    ("logits", [0.0, 1.0, INF], None),
    ("logits", [-INF] * 3, None),
    ("logits", [0.0, 1.0], None),
    ("logits", [0.0, 1.0, 2.0, 3.0], None),
    ("logits", [], None),
    ("logits", None, None),
    ("logits", None, FIXED),
    ("logits", None, pa.large_list(pa.float64())),
    ("logits", [0.0, None, 1.0], None),
    ("logits", [0.0, None, 1.0], FIXED),
    ("label", 3, None),
    ("label", -7, None),
    ("label", 2**32, None),
    ("label", 2**63 + 1, pa.uint64()),
    ("probs", [0.5, 0.5, 0.5], None),
    ("probs", [0.75, 0.5, -0.25], None),
    ("probs", [NAN, 0.5, 0.5], None),
    ("probs", None, None),
    ("log_probs", [NAN] * 3, None),
    ("log_probs", [0.0] * 3, None),
    ("positive_probs", 1.5, None),
    ("features", [0.0, 1e5], None),
    ("features", [0.0, NAN], None),
    ("features", None, None),
    ("positive_probs", None, None),
]


@pytest.mark.parametrize(("column", "value", "kind"), DAMAGED_ROWS, ids=str)
def test_damaged_rows(column: str, value: Any, kind: pa.DataType | None, tmp_path: Path) -> None:
    """The row is counted from the start of its file, over row groups and batches."""
    held = "logits" if column in ("label", "features") else column
    columns = {"label": [0] * N_ROWS if held == "positive_probs" else GOOD_LABELS, held: GOOD[held]}
    columns |= {"features": [[0.0, 1.0]] * N_ROWS} if column == "features" else {}
    columns[column] = pa.array([*columns[column][:7], value, *columns[column][8:]], type=kind)
    good, damaged = tmp_path / "a.parquet", tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"label": GOOD_LABELS, "logits": GOOD_LOGITS}), good)
    try:
        pq.write_table(pa.table(columns), damaged, row_group_size=3)
    except pa.ArrowNotImplementedError:
        pytest.skip("this version of pyarrow cannot write nulls in lists of fixed size")
    null = ["null"] if value is None or (isinstance(value, list) and None in value) else []
    assert_refused(damaged, "damaged.parquet", column, *null, row=7)
    if column == "logits" and len(value or [0] * N_CLASSES) in (0, N_CLASSES):
        assert_refused([good, damaged], "damaged.parquet", column, row=7)


UNCLEAR_COLUMNS: list[tuple[dict[str, list[Any]], list[str]]] = [  # the columns, and what the message names
    ({"label": GOOD_LABELS}, ["no columns whose names say that they are predictions", "--logits", "label"]),
    ({"y": GOOD_LABELS, "scores": GOOD_LOGITS}, ["--logits", "y, scores"]),
    ({"label": GOOD_LABELS, "logits": GOOD_LOGITS, "probs": GOOD_PROBS}, ["type --logits logits or --probs probs"]),
    ({"label": [0], "probs": [[0.5, 0.5]], "positive_probs": [0.5]}, ["--probs probs or --positive-probs"]),
    ({"label": GOOD_LABELS, "logits": ["[1, 2, 3]"] * N_ROWS}, ["no lists of numbers in its column logits"]),
    ({"label": GOOD_LABELS, "logits": [0.5] * N_ROWS}, ["no lists of numbers in its column logits"]),
    ({"label": [0] * N_ROWS, "positive_probs": [[0.5, 0.5]] * N_ROWS}, ["no columns whose names say"]),
]
DAMAGED_COLUMNS: list[tuple[dict[str, list[Any]], list[str]]] = [
    ({"label": GOOD_LABELS, "logits": [["1", "2"]] * N_ROWS}, ["logits"]),
    ({"label": [label + 0.5 for label in GOOD_LABELS], "logits": GOOD_LOGITS}, ["label", "row 0"]),
    ({"label": HOSPITALS, "logits": GOOD_LOGITS}, ["label", "type --class-names"]),
    ({"label": [[0]] * N_ROWS, "logits": GOOD_LOGITS}, ["label"]),
    ({"label": [True] * N_ROWS, "logits": GOOD_LOGITS}, ["label must be integers for 3 classes, got booleans"]),
]


def test_damaged_columns(tmp_path: Path) -> None:
    for columns, named in UNCLEAR_COLUMNS:
        pq.write_table(pa.table(columns), tmp_path / "damaged.parquet")
        assert_refused(tmp_path / "damaged.parquet", "damaged.parquet", *named, error=InvalidInputError)
    for columns, named in DAMAGED_COLUMNS:
        pq.write_table(pa.table(columns), tmp_path / "damaged.parquet")
        assert_refused(tmp_path / "damaged.parquet", "damaged.parquet", *named)


def test_columns_of_the_same_name(tmp_path: Path) -> None:
    for name in ("label", "logits", "site"):
        columns = [pa.array(GOOD_LABELS), pa.array(GOOD_LOGITS), pa.array(GOOD_LABELS)]
        columns += [columns[1] if name == "logits" else columns[0]]
        table = pa.Table.from_arrays(columns, ["label", "logits", "site", name])
        pq.write_table(table, tmp_path / "damaged.parquet")
        twice = f"damaged.parquet has more than one column {name!r}"
        assert_refused(tmp_path / "damaged.parquet", twice, error=InvalidInputError)


def test_times_that_python_lacks(tmp_path: Path) -> None:
    """Also in an ID column, whose values an audit shows."""
    year, zone = pa.array([0, 2**62], pa.timestamp("us")), pa.array([0, 1], pa.timestamp("s", "X/Y"))
    for column in (year, zone):
        table = pa.table({"label": [0, 1], "logits": [[1.0, 0.0]] * 2, "row_id": column})
        pq.write_table(table, tmp_path / "x.parquet")
        scan = Predictions.scan(tmp_path / "x.parquet")
        assert score(scan).n_rows == 2
        for reader in (partial(score, by="row_id"), audit, partial(audit, by="row_id")):
            with pytest.raises(InvalidInputError, match="column 'row_id' cannot be grouped by") as caught:
                reader(scan)
            assert "\n" not in str(caught.value)
    huge = Predictions.from_logits([[1.0, 0.0]], [0], columns={"time": pa.array([2**62], pa.timestamp("s"))})
    with pytest.raises(InvalidInputError, match="columns must be of types that Parquet has"):
        huge.save(tmp_path / "y.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


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
    assert scan.read(["severity"]).columns.column_names == ["severity"]
    assert [("hospital" in batch.columns.column_names) for batch in scan] == [not odd_first, odd_first]


def test_contradicting_class_names(tmp_path: Path) -> None:
    """They are refused wherever rows meet, or reordered where asked; unknown names contradict nothing."""
    rows = example(class_names=["cat", "dog", "eel"])
    turned = rows.match_names(["eel", "dog", "cat"])
    assert torch.equal(turned.logits, rows.logits.flip(1))
    assert torch.equal(turned.labels, 2 - rows.labels)
    assert (
        replace(rows, labels=torch.full((N_ROWS,), -1)).match_names(["eel", "dog", "cat"]).labels.tolist() == [-1] * 10
    )
    paths = [tmp_path / f"{name}.parquet" for name in ("a", "b", "other", "nameless")]
    others = [rows, turned, replace(rows, class_names=("cat", "dog", "fox")), replace(rows, class_names=None)]
    for path, saved in zip(paths, others, strict=True):
        saved.save(path)
    refused: list[Callable[[], object]] = [
        lambda: Predictions.scan(paths[:2]),
        lambda: Predictions.load(paths[:2]),
        lambda: audit(paths[:2]),
        lambda: audit(paths[0], other=paths[1]),
        lambda: compare(rows, turned),
        lambda: Predictions.concat([rows, turned]),
        lambda: Predictions.save_all(tmp_path / "x.parquet", [rows, turned]),
        lambda: score([rows, turned]),
        lambda: compare_calibrators(rows, turned),
        lambda: TransCal.fit(rows, target=turned),
        lambda: Identity.fit(rows)(turned, allow_same_rows=True),
    ]
    for number, call in enumerate(refused):
        with pytest.raises(InvalidInputError, match=r"class 0 is 'eel', not 'cat'; .*--match-names") as caught:
            call()
        assert number > 3 or re.search(r"b\.parquet must have the class names of .*a\.parquet:", str(caught.value))
    for match_names in (False, True):
        with pytest.raises(InvalidInputError, match=r"other\.parquet must .*a\.parquet: class 2 is 'fox', not 'eel'$"):
            audit(paths[0], other=paths[2], match_names=match_names)
    both = Predictions.scan(paths[:2], match_names=True)
    assert_same(both.read(), Predictions.concat([rows, rows]))
    assert_same(both.match_names(turned.class_names).read(), Predictions.concat([turned, turned]))
    found = audit(paths[0], other=paths[1], match_names=True, compare_metrics=["accuracy"])
    assert [row.difference for row in found.comparison[None]] == [0.0]
    assert_same(Predictions.load([paths[3], paths[0]]), Predictions.concat([rows, rows]))


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
    for text in (b"{", b"[]", b'{"class_names": 3}', b'{"class_names": ["a", "b", "a"]}', b'{"x":' + b"[" * 10**5):
        pq.write_table(table.replace_schema_metadata({b"calibrant": text}), tmp_path / "x.parquet")
        assert_refused(tmp_path / "x.parquet", "x.parquet has metadata that cannot be read")
    names = b'{"class_names": ["a", "b"]}'
    pq.write_table(table.replace_schema_metadata({b"calibrant": names}), tmp_path / "x.parquet")
    assert_refused(tmp_path / "x.parquet", "x.parquet: class_names must have one name for each of 3 classes, got 2")


def test_a_scan_is_shown_without_secrets() -> None:
    predictions = Predictions.from_logits([[0.0, 1.0]], [1])
    try:
        predictions.save("memory://key:SECRET@made/x.parquet")
        shown = repr(Predictions.scan("memory://key:SECRET@made/x.parquet"))
    finally:
        fsspec.filesystem("memory").rm("/", recursive=True)
    assert shown == "Scan(memory://…@made/x.parquet)"
