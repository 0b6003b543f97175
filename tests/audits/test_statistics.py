"""The statistics of the rows: against loops, and the same bits for any batches and workers."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from calibrant.audits.statistics import N_ERRORS, RowStatistics, collect_statistics, id_columns
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, UnknownNameError
from calibrant.metrics import score
from calibrant.metrics.bin_sums import BinSums
from calibrant.predictions import Predictions
from calibrant.scan import Scan
from made.audits import make_rows, plain_rows, save_parts

WEIGHTS = pytest.mark.parametrize("weights", [None, "w"])
FIELDS = ("n_rows", "hashes", "class_names", "labelled", "predicted", "histogram", "errors", "values", "probabilities")


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything inside a value, by its path."""
    if isinstance(value, Predictions):
        value = {"logits": value.logits, "labels": value.labels, "columns": value.columns.to_pydict()}
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict | tuple | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        yield f"{path}.len", len(value)
        for key, item in items:
            yield from flatten(item, f"{path}[{key!r}]")
    else:
        yield path, value


def assert_same_bits(
    found: RowStatistics, wanted: RowStatistics, names: tuple[str, ...] = (*FIELDS, "scores", "predicted_clusters")
) -> None:
    values = [{name: getattr(value, name) for name in names} for value in (found, wanted)]
    for record, statistics in zip(values, (found, wanted), strict=True):
        record["sample"] = statistics.sample.predictions()
    pairs = list(zip(*map(flatten, values), strict=True))
    assert len(pairs) > 40
    for (path, value), (wanted_path, expected) in pairs:
        assert path == wanted_path
        same = torch.equal(value, expected) if isinstance(expected, Tensor) else np.array_equal(value, expected)
        assert same, path


# Against loops


@WEIGHTS
def test_sums_are_those_of_a_loop(weights: str | None) -> None:
    rows = make_rows()
    found, kept = collect_statistics(rows, weights=weights), plain_rows(rows, weights)
    assert (found.n_rows, found.card.n_rows) == (len(rows), len(kept))

    def check(sums: Any, inside: list[tuple[int, int, int, float, float]]) -> None:
        correct = [row[1] == row[2] for row in inside]
        weight = [row[4] for row in inside]
        assert sums.count.tolist() == [correct.count(False), correct.count(True)]
        assert float(sums.weight[1]) == pytest.approx(math.fsum(np.compress(correct, weight)))
        assert float(sums.total) == pytest.approx(math.fsum(weight))
        assert float(sums.squared) == pytest.approx(math.fsum(w * w for w in weight))
        assert float(sums.confidence) == pytest.approx(math.fsum(row[3] * row[4] for row in inside), rel=1e-6)

    for k in range(4):
        check(found.labelled[k], [row for row in kept if row[1] == k])
        check(found.predicted[k], [row for row in kept if row[2] == k])
    for bar in range(50):
        check(found.histogram[bar], [row for row in kept if bar < row[3] * 50 <= bar + 1])


@WEIGHTS
def test_scores_are_those_of_the_library(tmp_path: Path, weights: str | None) -> None:
    rows = make_rows(n_classes=2, dose=[math.nan, 1.0, None] * 100)
    for source in (rows, Predictions.scan(save_parts(rows, tmp_path))):
        found = collect_statistics(source, by=["site", "dose"], weights=weights, n_bins=7)
        assert found.card.values() == pytest.approx(score(rows, weights=weights, n_bins=7).values(), abs=1e-7)
        for by, groups in zip(("site", "dose"), found.groups, strict=True):
            expected = score(rows, by=by, weights=weights, n_bins=7)
            assert list(map(str, groups)) == list(map(str, expected))  # NaN is one group over all parts
            for card, wanted in zip(groups.values(), expected.values(), strict=True):
                assert card.n_rows == wanted.n_rows
                assert card.values() == pytest.approx(wanted.values(), abs=1e-7)


@WEIGHTS
def test_the_most_confident_errors_are_those_of_a_sort(weights: str | None) -> None:
    rows = make_rows(names=True)
    found = collect_statistics(rows, weights=weights)
    wrong = sorted((row for row in plain_rows(rows, weights) if row[1] != row[2]), key=lambda row: -row[3])
    assert len(wrong) > N_ERRORS
    assert [(e.row, e.label, e.predicted) for e in found.errors] == [row[:3] for row in wrong[:N_ERRORS]]
    assert [1 - e.complement for e in found.errors] == pytest.approx([row[3] for row in wrong[:N_ERRORS]], abs=1e-6)
    assert [e.ids for e in found.errors] == [(f"case {e.row}",) for e in found.errors]
    assert found.class_name(2) == "class 2"


def test_of_equally_confident_errors_the_first_are_kept(tmp_path: Path) -> None:
    paths = save_parts(Predictions.from_logits([[2.0, 0.0]] * 45, [1] * 45), tmp_path, row_group=6)
    found = collect_statistics(Predictions.scan(paths, batch_rows=4))
    assert [(e.file, e.row) for e in found.errors] == [(paths[i // 15], i % 15) for i in range(N_ERRORS)]


# Parts, batches, workers


@pytest.mark.slow
@WEIGHTS
@pytest.mark.usefixtures("small_sample")
def test_batches_of_any_size_give_the_same_bits(tmp_path: Path, weights: str | None) -> None:
    """Except the scorecards, whose float32 sums within a batch differ in the last digits."""
    paths = save_parts(make_rows(), tmp_path)
    first, *others = [
        collect_statistics(Predictions.scan(paths, batch_rows=n), weights=weights) for n in (None, 1, 7, 64)
    ]
    for other in others:
        assert_same_bits(other, first, FIELDS)
        assert other.card.values() == pytest.approx(first.card.values(), abs=1e-6)
    assert len(first.sample.predictions()) == 50
    assert {e.file for e in first.errors} == set(paths)
    assert max(e.row for e in first.errors) < 100  # row numbers within a file


@WEIGHTS
@pytest.mark.usefixtures("small_sample")
def test_parts_add_up_to_the_whole(tmp_path: Path, weights: str | None) -> None:
    rows = make_rows()
    whole = collect_statistics(rows, by=["site"], weights=weights)
    found = collect_statistics(Predictions.scan(save_parts(rows, tmp_path)), by=["site"], weights=weights)
    assert found.n_rows == len(rows)
    assert found.fingerprint == whole.fingerprint == rows.fingerprint
    errors, expected = ([replace(error, file="", row=0) for error in value.errors] for value in (found, whole))
    assert errors == expected
    assert found.card.values() == pytest.approx(whole.card.values(), abs=1e-7)
    for name in ("labelled", "predicted", "histogram"):
        for field in fields(BinSums):
            mine, theirs = (getattr(getattr(value, name), field.name) for value in (found, whole))
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    mine, theirs = (value.sample.predictions() for value in (found, whole))
    assert torch.equal(mine.logits, theirs.logits)
    assert mine.columns.equals(theirs.columns)


@pytest.mark.slow
def test_local_processes_give_the_same_bits(tmp_path: Path) -> None:
    """One part has no weight, and the first takes by far the longest."""
    weight = torch.rand(1300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight[1000:1040] = 0
    rows = make_rows(n=1300, w=weight)
    (tmp_path / "rest").mkdir()
    first = save_parts(rows[:1000], tmp_path, n_files=1, row_group=900)
    scan = Predictions.scan([*first, *save_parts(rows[1000:], tmp_path / "rest")])
    assert len(scan.parts) > 8
    options: dict[str, Any] = {"by": ["site"], "weights": "w", "cluster": "case_id"}
    one = collect_statistics(scan, **options)
    assert_same_bits(collect_statistics(scan, jobs=2, **options), one)
    reverse = collect_statistics(Predictions.scan(scan.files[::-1]), **options)  # the order matters
    assert torch.equal(reverse.predicted.count, one.predicted.count)
    assert not torch.equal(reverse.predicted.confidence, one.predicted.confidence)


def test_the_threads_of_torch_do_not_change_a_bit(tmp_path: Path) -> None:
    scan = Predictions.scan(save_parts(make_rows(n=60_000), tmp_path, n_files=1, row_group=60_000))
    one = collect_statistics(scan, weights="w")
    torch.set_num_threads(4)
    try:
        several = collect_statistics(scan, weights="w")
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(1)
    assert_same_bits(several, one)


def test_progress_counts_all_bytes(tmp_path: Path) -> None:
    scan = Predictions.scan(save_parts(make_rows(), tmp_path), batch_rows=25)
    done: list[float] = []
    collect_statistics(scan, progress=done.append)
    assert len(done) > len(scan.parts)
    assert sum(done) == pytest.approx(scan.n_bytes)


# Names, edge cases, errors


def test_id_columns() -> None:
    assert id_columns(["site", "Image", "patient_id", "ID", "path"]) == ("Image", "patient_id", "ID")
    assert id_columns(["idea", "named", "files", "id"], weights="id") == ()
    rows = make_rows(path=[None, "x" * 500] * 150)
    texts = {text for error in collect_statistics(rows).errors for text in error.ids if not text.startswith("case")}
    assert texts == {"–", "x" * 79 + "…"}


def test_files_without_class_names_have_those_of_the_others(tmp_path: Path) -> None:
    Predictions.from_logits([[1.0, 0.0]], [0]).save(tmp_path / "a.parquet")
    assert collect_statistics(Predictions.scan(tmp_path)).class_name(1) == "1"
    Predictions.from_logits([[1.0, 0.0]], [0], class_names=["cat", "dog"]).save(tmp_path / "b.parquet")
    assert collect_statistics(Predictions.scan(tmp_path)).class_name(1) == "dog"


def test_no_error_one_row_and_rows_without_weight(tmp_path: Path) -> None:
    found = collect_statistics(Predictions.from_logits([[3.0, 0.0]], [0]))
    assert (found.errors, found.card.n_rows, len(found.sample.predictions())) == ((), 1, 1)
    weight = torch.ones(120, dtype=torch.float64)
    weight[40:80] = 0  # a whole part
    rows = make_rows(n=120, w=weight)
    found = collect_statistics(Predictions.scan(save_parts(rows, tmp_path)), weights="w")
    assert (found.n_rows, found.card.n_rows, found.fingerprint) == (120, 80, rows.fingerprint)
    for none in (rows[:0], rows[40:80]):
        with pytest.raises(InvalidInputError, match="at least one row that counts"):
            collect_statistics(none, weights="w")


def two_files(folder: Path, label: int | None = 0, n_classes: int = 2) -> Scan:
    """A scan of two files; the last row of the second one has this label."""
    make_rows(n=40, n_classes=2).select(["site", "w"]).save(folder / "a.parquet")
    logits = pa.array([[0.0] * n_classes] * 10, pa.list_(pa.float32()))
    table = pa.table({"label": [*[0] * 9, label], "logits": logits, "w": [1.0] * 10})
    pq.write_table(table, folder / "b.parquet", row_group_size=4)
    return Predictions.scan(folder)


@pytest.mark.parametrize(
    ("files", "options", "error", "message"),
    [
        ({"n_classes": 3}, {}, CorruptFileError, r"b\.parquet has 3 classes, the files before it have 2$"),
        ({}, {"by": ["sight"]}, UnknownNameError, "unknown column 'sight'"),
        ({}, {"by": ["site"]}, InvalidInputError, r"b\.parquet has no column site; other files have it"),
        ({}, {"weights": "weight"}, UnknownNameError, "unknown column 'weight'"),
    ],
)  # fmt: skip
def test_invalid_files_and_columns(
    tmp_path: Path, files: dict[str, Any], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        collect_statistics(two_files(tmp_path, **files), **options)


def test_files_that_change_after_the_scan(tmp_path: Path) -> None:
    [path] = map(Path, save_parts(make_rows(), tmp_path, n_files=1))
    scan = Predictions.scan(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CorruptFileError, match=r"0\.parquet"):
        collect_statistics(scan)
    path.unlink()
    with pytest.raises(NoDataError, match=r"there is no file .*0\.parquet"):
        collect_statistics(scan)


def test_too_many_groups_to_test(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows().with_columns({"number": list(range(len(make_rows())))})
    monkeypatch.setattr("calibrant.audits.statistics.MAX_AUDITED_GROUPS", len(rows) - 1)
    assert len(score(rows, by="number", metrics=["ece"])) == len(rows)
    with pytest.raises(InvalidInputError, match=f"at most {len(rows) - 1} values, got more in 'number'"):
        collect_statistics(rows, by=["number"])
