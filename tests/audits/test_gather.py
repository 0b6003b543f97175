"""The one pass over the rows: counted in loops, the same bits for any batches and workers, in any order what may be."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from calibrant.audits import gather as module
from calibrant.audits import sample
from calibrant.audits.gather import N_ERRORS, Gathered, gather_rows, id_columns
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, UnknownNameError
from calibrant.metrics import score
from calibrant.predictions import Predictions
from made.audits import made, plain, saved

WEIGHTS = pytest.mark.parametrize("weights", [None, "w"])


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Everything that a value is made of, by its path."""
    if isinstance(value, Predictions):
        value = {"logits": value.logits, "labels": value.labels, "columns": value.columns.to_pydict()}
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        yield f"{name}.keys", list(value)
        for key, item in value.items():
            yield from leaves(item, f"{name}[{key!r}]")
    elif isinstance(value, tuple | list):
        yield f"{name}.len", len(value)
        for i, item in enumerate(value):
            yield from leaves(item, f"{name}[{i}]")
    else:
        yield name, value


def assert_same_bits(found: Gathered, wanted: Gathered, only: tuple[str, ...] = ()) -> None:
    """Equality of every count, sum, key and name, to the last bit. only: fields."""
    keys = only or tuple(field.name for field in fields(Gathered) if field.name != "sample")
    values = [{key: getattr(value, key) for key in keys} for value in (found, wanted)]
    for value, other in zip(values, (found, wanted), strict=True):
        value["sample"] = other.sample.predictions(weighted=True)
    pairs = list(zip(*map(leaves, values), strict=True))
    assert len(pairs) > 40
    for (name, value), (wanted_name, expected) in pairs:
        assert name == wanted_name
        same = torch.equal(value, expected) if isinstance(expected, Tensor) else np.array_equal(value, expected)
        assert same, name


# Counted in loops


@WEIGHTS
def test_sums_are_those_of_a_loop(weights: str | None) -> None:
    rows = made()
    found, kept = gather_rows(rows, weights=weights), plain(rows, weights)
    assert (found.n_rows, found.card.n_rows) == (len(rows), len(kept))

    def check(tally: Any, inside: list[tuple[int, int, int, float, float]]) -> None:
        correct = [row[1] == row[2] for row in inside]
        weight = [row[4] for row in inside]
        assert tally.count.tolist() == [correct.count(False), correct.count(True)]
        assert float(tally.weight[1]) == pytest.approx(math.fsum(np.compress(correct, weight)))
        assert float(tally.total) == pytest.approx(math.fsum(weight))
        assert float(tally.squared) == pytest.approx(math.fsum(w * w for w in weight))
        assert float(tally.confidence) == pytest.approx(math.fsum(row[3] * row[4] for row in inside), rel=1e-6)

    for k in range(4):
        check(found.labelled[k], [row for row in kept if row[1] == k])
        check(found.predicted[k], [row for row in kept if row[2] == k])
    for bar in range(50):
        check(found.histogram[bar], [row for row in kept if bar < row[3] * 50 <= bar + 1])


@WEIGHTS
def test_scores_are_those_of_the_library(tmp_path: Path, weights: str | None) -> None:
    rows = made(n_classes=2, dose=[math.nan, 1.0, None] * 100)
    for source in (rows, Predictions.scan(saved(rows, tmp_path))):
        found = gather_rows(source, by=["site", "dose"], weights=weights, n_bins=7)
        assert found.card.values() == pytest.approx(score(rows, weights=weights, n_bins=7).values(), abs=1e-7)
        for by, groups in zip(("site", "dose"), found.groups, strict=True):
            expected = score(rows, by=by, weights=weights, n_bins=7)
            assert list(map(str, groups)) == list(map(str, expected))  # NaN is one group over all parts
            for card, wanted in zip(groups.values(), expected.values(), strict=True):
                assert card.n_rows == wanted.n_rows
                assert card.values() == pytest.approx(wanted.values(), abs=1e-7)


@WEIGHTS
def test_the_most_confident_errors_are_those_of_a_sort(weights: str | None) -> None:
    rows = made(names=True)
    found = gather_rows(rows, weights=weights)
    wrong = sorted((row for row in plain(rows, weights) if row[1] != row[2]), key=lambda row: -row[3])
    assert len(wrong) > N_ERRORS
    assert [(e.row, e.label, e.predicted) for e in found.errors] == [row[:3] for row in wrong[:N_ERRORS]]
    assert [1 - e.doubt for e in found.errors] == pytest.approx([row[3] for row in wrong[:N_ERRORS]], abs=1e-6)
    assert [e.ids for e in found.errors] == [(f"case {e.row}",) for e in found.errors]
    assert found.class_name(2) == "class 2"


def test_of_equally_confident_errors_the_first_are_kept(tmp_path: Path) -> None:
    paths = saved(Predictions.from_logits([[2.0, 0.0]] * 45, [1] * 45), tmp_path, row_group=6)
    found = gather_rows(Predictions.scan(paths, batch_rows=4))
    assert [(e.file, e.row) for e in found.errors] == [(paths[i // 15], i % 15) for i in range(N_ERRORS)]


# Parts, batches, workers


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MIN_ROWS", 50)
    monkeypatch.setattr(sample, "MAX_ELEMENTS", 1)


@WEIGHTS
@pytest.mark.usefixtures("small_sample")
def test_batches_of_any_size_give_the_same_bits(tmp_path: Path, weights: str | None) -> None:
    """But for the scorecards, whose float32 sums within a batch differ in the last digits."""
    paths = saved(made(), tmp_path)
    first, *others = [gather_rows(Predictions.scan(paths, batch_rows=n), weights=weights) for n in (None, 1, 7, 64)]
    for other in others:
        only = tuple(field.name for field in fields(Gathered) if field.name not in ("scores", "sample"))
        assert_same_bits(other, first, only)
        assert other.card.values() == pytest.approx(first.card.values(), abs=1e-6)
    assert len(first.sample.predictions(weighted=False)) == 50
    assert {e.file for e in first.errors} == set(paths)
    assert max(e.row for e in first.errors) < 100  # numbers in their file


@WEIGHTS
@pytest.mark.usefixtures("small_sample")
def test_parts_add_up_to_the_whole(tmp_path: Path, weights: str | None) -> None:
    rows = made()
    scan = Predictions.scan(saved(rows, tmp_path))
    total = sum((gather_rows(Predictions.scan(file), by=["site"], weights=weights) for file in scan.files[1:]),
                start=gather_rows(Predictions.scan(scan.files[0]), by=["site"], weights=weights))  # fmt: skip
    whole, at_once = gather_rows(scan, by=["site"], weights=weights), gather_rows(rows, by=["site"], weights=weights)
    assert total.fingerprint == whole.fingerprint == at_once.fingerprint == rows.fingerprint
    for found in (total, whole):
        assert found.n_rows == len(rows)
        assert [(e.label, e.predicted, e.doubt, e.ids) for e in found.errors] == [
            (e.label, e.predicted, e.doubt, e.ids) for e in at_once.errors
        ]
        assert found.card.values() == pytest.approx(at_once.card.values(), abs=1e-7)
        for name in ("labelled", "predicted", "histogram"):
            for key in ("count", "weight", "confidence", "squared"):
                torch.testing.assert_close(
                    getattr(getattr(found, name), key), getattr(getattr(at_once, name), key), rtol=1e-12, atol=1e-12
                )
        mine, theirs = (value.sample.predictions(weighted=True) for value in (found, at_once))
        assert torch.equal(mine.logits, theirs.logits)
        assert mine.columns.equals(theirs.columns)


def test_local_processes_give_the_same_bits(tmp_path: Path) -> None:
    """Of parts of which one has no weight, and the first is by far the slowest."""
    weight = torch.rand(1300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight[1000:1040] = 0
    rows = made(n=1300, w=weight)
    (tmp_path / "rest").mkdir()
    first = saved(rows[:1000], tmp_path, n_files=1, row_group=900)
    scan = Predictions.scan([*first, *saved(rows[1000:], tmp_path / "rest")])
    assert len(scan.parts) > 8
    options: dict[str, Any] = {"by": ["site"], "weights": "w"}
    one = gather_rows(scan, **options)
    assert_same_bits(gather_rows(scan, jobs=2, **options), one)
    turned = gather_rows(Predictions.scan(scan.files[::-1]), **options)  # so that equality is no accident
    assert torch.equal(turned.predicted.count, one.predicted.count)
    assert not torch.equal(turned.predicted.confidence, one.predicted.confidence)


def test_the_threads_of_torch_do_not_change_a_bit(tmp_path: Path) -> None:
    scan = Predictions.scan(saved(made(n=60_000), tmp_path, n_files=1, row_group=60_000))
    one = gather_rows(scan, weights="w")
    torch.set_num_threads(4)
    try:
        several = gather_rows(scan, weights="w")
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(1)
    assert_same_bits(several, one)


def test_bytes_are_reported_as_they_are_read(tmp_path: Path) -> None:
    scan = Predictions.scan(saved(made(), tmp_path), batch_rows=25)
    done: list[float] = []
    gather_rows(scan, report=done.append)
    assert len(done) > len(scan.parts)
    assert sum(done) == pytest.approx(scan.n_bytes)


# The sample


@pytest.mark.usefixtures("small_sample")
def test_the_sample_does_not_depend_on_the_order_but_on_the_seed() -> None:
    rows = made()
    order = np.random.default_rng(0).permutation(len(rows))
    first, shuffled, other = (
        gather_rows(source, seed=seed).sample.predictions(weighted=False)
        for source, seed in ((rows, 0), (rows[order], 0), (rows, 1))
    )
    assert torch.equal(first.logits, shuffled.logits)
    assert {tuple(row) for row in first.logits.tolist()} < {tuple(row) for row in rows.logits.tolist()}
    assert not torch.equal(first.logits, other.logits)
    assert first.columns.column_names == []


@pytest.mark.usefixtures("small_sample")
def test_equal_rows_of_different_weight_are_sampled_alike_in_any_order() -> None:
    rows = made(n=2)[[i % 2 for i in range(240)]]
    weight = 0.1 + torch.rand(240, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    for start in (0, 50, 133):
        order = torch.tensor([*range(start, 240), *range(start)])
        turned = Predictions.from_logits(rows.logits[order], rows.labels[order], columns={"w": weight[order]})
        parts = [gather_rows(turned[at : at + 10], weights="w").sample for at in range(0, 240, 10)]
        found.append(sum(parts[1:], start=parts[0]).predictions(weighted=True))
    for other in found[1:]:
        assert torch.equal(found[0].logits, other.logits)
        assert found[0].columns.equals(other.columns)


@pytest.mark.usefixtures("small_sample")
def test_a_sample_has_each_row_alike() -> None:
    rows = made(n=200)
    place = {tuple(row): i for i, row in enumerate(rows.logits.tolist())}
    times = np.zeros(200)
    for seed in range(100):
        found = sample.Sample.of(rows, np.ones(200), rows.row_hashes[1], seed).predictions(weighted=False)
        times[[place[tuple(row)] for row in found.logits.tolist()]] += 1
    assert times.mean() == 25
    assert times.std() == pytest.approx(math.sqrt(100 * 0.25 * 0.75), rel=0.25)


# Names, edges, refusals


def test_columns_that_say_which_row_it_is() -> None:
    assert id_columns(["site", "Image", "patient_id", "ID", "path"]) == ("Image", "patient_id", "ID")
    assert id_columns(["idea", "named", "files", "id"], weights="id") == ()
    rows = made(path=[None, "x" * 500] * 150)
    texts = {text for error in gather_rows(rows).errors for text in error.ids if not text.startswith("case")}
    assert texts == {"–", "x" * 79 + "…"}


def test_files_that_name_their_classes_differently_go_by_numbers(tmp_path: Path) -> None:
    for name, named in (("a", True), ("b", False)):
        made(n=40, names=named).save(tmp_path / f"{name}.parquet")
    found = gather_rows(Predictions.scan(tmp_path))
    assert len(found.class_names) == 2
    assert found.class_name(1) == "1"


def test_no_error_one_row_and_rows_without_weight(tmp_path: Path) -> None:
    found = gather_rows(Predictions.from_logits([[3.0, 0.0]], [0]))
    assert (found.errors, found.card.n_rows, len(found.sample.predictions(weighted=False))) == ((), 1, 1)
    weight = torch.ones(120, dtype=torch.float64)
    weight[40:80] = 0  # a whole part
    rows = made(n=120, w=weight)
    found = gather_rows(Predictions.scan(saved(rows, tmp_path)), weights="w")
    assert (found.n_rows, found.card.n_rows, found.fingerprint) == (120, 80, rows.fingerprint)


def damaged(folder: Path, name: str) -> list[Path]:
    """Two files, of which the second is bad in this way."""
    made(n=40, n_classes=2).select(["site", "w"]).save(folder / "a.parquet")
    path = folder / "b.parquet"
    logits = [[0.0, 1.0]] * 10
    labels: list[int | None] = [0] * 10
    if name == "nan":
        logits[9] = [0.0, math.nan]
    if name == "label":
        labels[9] = None
    table = pa.table({"label": labels, "logits": pa.array(logits, pa.list_(pa.float32())), "w": [1.0] * 10})
    if name == "classes":
        table = table.set_column(1, "logits", pa.array([[0.0] * 3] * 10, pa.list_(pa.float32())))
    pq.write_table(table, path, row_group_size=4)
    return [folder / "a.parquet", path]


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("nan", {}, CorruptFileError, r"b\.parquet: logits must not be NaN, got nan at row 9, class 1$"),
        ("label", {}, InvalidInputError, r"b\.parquet, counting rows from 8: predictions must have labels"),
        ("classes", {}, CorruptFileError, r"b\.parquet has 3 classes, the files before it have 2$"),
        ("", {"by": ["sight"]}, UnknownNameError, "unknown column 'sight'"),
        ("", {"by": ["site"]}, InvalidInputError, r"b\.parquet has no column site; other files have it"),
        ("", {"weights": "weight"}, UnknownNameError, "unknown column 'weight'"),
        ("", {"jobs": 0}, InvalidInputError, "jobs must be an integer of at least 1, got 0"),
        ("", {"jobs": 2, "ray": "auto"}, InvalidInputError, "give either jobs or ray"),
    ],
)  # fmt: skip
def test_what_is_refused(
    tmp_path: Path, name: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gather_rows(Predictions.scan(damaged(tmp_path, name)), **options)


def test_files_that_change_and_rows_that_do_not_count_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="at least one row that counts"):
        gather_rows(made()[:0])
    with pytest.raises(InvalidInputError, match="at least one row that counts"):
        gather_rows(made(w=torch.zeros(300)), weights="w")
    [path] = saved(made(), tmp_path, n_files=1)
    scan = Predictions.scan(path)
    Path(path).write_bytes(Path(path).read_bytes()[:500])
    with pytest.raises(CorruptFileError, match=r"0\.parquet"):
        gather_rows(scan)
    Path(path).unlink()
    with pytest.raises(NoDataError, match=r"there is no file .*0\.parquet"):
        gather_rows(scan)


def test_no_secret_of_a_url_is_in_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = damaged(tmp_path, "label")
    monkeypatch.setattr(module, "without_secrets", lambda url: f"safe {url[-9:]}")
    with pytest.raises(InvalidInputError, match=r"^safe b\.parquet"):
        gather_rows(Predictions.scan(paths))
