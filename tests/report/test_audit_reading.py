"""The pass over the rows: counted in loops, the same for any batches, in any order what may be."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.predictions import Predictions
from calibrant.report.audit import reading, sample
from calibrant.report.audit.reading import N_ERRORS, Reading, id_columns, read


def made(
    n: int = 300, n_classes: int = 4, *, seed: int = 0, scale: float = 2.0, names: bool = False, **columns: Any
) -> Predictions:
    """Rows of an over-confident model (scale 1 is calibrated), with weights of which some are 0."""
    draw = torch.Generator().manual_seed(seed)
    honest = 1.5 * torch.randn(n, n_classes, generator=draw)
    labels = torch.multinomial(honest.softmax(1), 1, generator=draw).squeeze(1)
    weight = torch.rand(n, generator=draw, dtype=torch.float64)
    weight[::7] = 0
    table = {"w": weight, "site": ["ABC"[i % 3] for i in range(n)], "case_id": [f"case {i}" for i in range(n)]}
    class_names = [f"class {k}" for k in range(n_classes)] if names else None
    return Predictions.from_logits(scale * honest, labels, columns={**table, **columns}, class_names=class_names)


def saved(rows: Predictions, folder: Path, *, n_files: int = 3, row_group: int = 40) -> list[str]:
    """The rows in files of small row groups, as another writer may cut them."""
    whole = folder / "whole.parquet"
    rows.save(whole)
    table, paths = pq.read_table(whole), []
    whole.unlink()
    for i, start in enumerate(range(0, len(rows), -(-len(rows) // n_files))):
        paths.append(str(folder / f"{i}.parquet"))
        pq.write_table(table.slice(start, -(-len(rows) // n_files)), paths[-1], row_group_size=row_group)
    return paths


def plain(rows: Predictions, weighted: bool) -> list[tuple[int, int, int, float, float]]:
    """Row number, label, predicted class, confidence, weight; from a softmax in float64, without rows of weight 0."""
    probs = np.exp(rows.logits.double().numpy() - rows.logits.double().numpy().max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    weights = rows.column("w").to_pylist() if weighted else [1.0] * len(rows)
    found = []
    for i, (row, label, weight) in enumerate(zip(probs, rows.labels.tolist(), weights, strict=True)):
        if weight > 0:
            found.append((i, label, int(row.argmax()), float(row.max()), weight))
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_a_loop(weighted: bool) -> None:
    rows = made()
    found = read(rows, weights="w" if weighted else None)
    kept = plain(rows, weighted)
    assert (found.n_rows, found.n_left_out) == (len(kept), len(rows) - len(kept))
    for k in range(4):
        labelled, predicted = ([row for row in kept if row[at] == k] for at in (1, 2))
        right = math.fsum(row[4] for row in predicted if row[1] == k)
        sums = found.classes
        assert (sums.labelled[k], sums.predicted[k]) == (len(labelled), len(predicted))
        assert sums.labelled_weight[k] == pytest.approx(math.fsum(row[4] for row in labelled))
        assert sums.weight[k] == pytest.approx(math.fsum(row[4] for row in predicted))
        assert sums.squared[k] == pytest.approx(math.fsum(row[4] ** 2 for row in predicted))
        assert sums.right[k] == pytest.approx(right)
        assert sums.confidence[k] == pytest.approx(math.fsum(row[4] * row[3] for row in predicted), rel=1e-6)
    sure = [row for row in kept if row[3] >= 0.9]
    assert found.sure.count == len(sure) > 20
    assert found.sure.right == pytest.approx(math.fsum(row[4] for row in sure if row[1] == row[2]))
    assert found.sure.effective == pytest.approx(
        math.fsum(row[4] for row in sure) ** 2 / math.fsum(row[4] ** 2 for row in sure)
    )
    for bar in range(50):
        inside = [row for row in kept if bar < row[3] * 50 <= bar + 1]
        assert found.bars[bar].tolist() == [sum(row[1] != row[2] for row in inside), sum(r[1] == r[2] for r in inside)]
        assert found.bar_weights[bar].sum() == pytest.approx(math.fsum(row[4] for row in inside))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_most_confident_errors_are_those_of_a_sort(weighted: bool) -> None:
    rows = made(names=True)
    found = read(rows, weights="w" if weighted else None)
    wrong = sorted((row for row in plain(rows, weighted) if row[1] != row[2]), key=lambda row: -row[3])
    assert len(wrong) > N_ERRORS
    assert [(e.row, e.label, e.predicted) for e in found.errors] == [row[:3] for row in wrong[:N_ERRORS]]
    assert [1 - e.doubt for e in found.errors] == pytest.approx([row[3] for row in wrong[:N_ERRORS]], abs=1e-6)
    assert [e.ids for e in found.errors] == [(f"case {e.row}",) for e in found.errors]
    assert found.id_columns == ("case_id",)
    assert found.class_name(2) == "class 2"


def same(a: Reading, b: Reading) -> bool:
    arrays = [(getattr(a.classes, name), getattr(b.classes, name)) for name in vars(a.classes)]
    arrays += [(a.bars, b.bars), (a.bar_weights, b.bar_weights)]
    arrays += [(a.sample.logits, b.sample.logits), (a.sample.labels, b.sample.labels)]
    return (
        all(np.array_equal(x, y) for x, y in arrays)
        and (a.sure, a.errors, a.fingerprint, a.n_rows) == (b.sure, b.errors, b.fingerprint, b.n_rows)
        and a.sample.columns.equals(b.sample.columns)
    )


@pytest.mark.parametrize("weights", [None, "w"])
def test_batches_of_any_size_give_the_same_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str | None
) -> None:
    monkeypatch.setattr(sample, "LEAST_ROWS", 50)
    monkeypatch.setattr(sample, "MOST_ELEMENTS", 1)
    paths = saved(made(), tmp_path)
    readings = [read(Predictions.scan(paths, batch_rows=rows), weights=weights) for rows in (None, 1, 7, 64)]
    assert all(same(readings[0], other) for other in readings[1:])
    assert len(readings[0].sample) == 50
    assert {e.file for e in readings[0].errors} == set(paths)
    assert max(e.row for e in readings[0].errors) < 100  # numbers in their file


def test_the_sample_does_not_depend_on_the_order_but_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "LEAST_ROWS", 60)
    monkeypatch.setattr(sample, "MOST_ELEMENTS", 1)
    rows = made()
    order = np.random.default_rng(0).permutation(len(rows))
    first, shuffled, other = read(rows), read(rows[order]), read(rows, seed=1)
    assert torch.equal(first.sample.logits, shuffled.sample.logits)
    assert first.fingerprint == shuffled.fingerprint
    everyone = {tuple(row) for row in rows.logits.tolist()}
    assert {tuple(row) for row in first.sample.logits.tolist()} < everyone
    assert not torch.equal(first.sample.logits, other.sample.logits)


def test_equal_rows_of_different_weight_are_sampled_alike_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "LEAST_ROWS", 25)
    monkeypatch.setattr(sample, "MOST_ELEMENTS", 1)
    rows = made(n=2)[[i % 2 for i in range(240)]]
    weight = 0.1 + torch.rand(240, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = Predictions.from_logits(rows.logits, rows.labels, columns={"w": weight})
    blocks = [Predictions.concat([rows[order] for order in (range(k, 240), range(k))]) for k in (0, 50, 133)]
    readings = []
    for block in blocks:
        collected = reading._Collected(4, (), "w", 0)
        for start in range(0, 240, 10):
            collected.add(reading.Block("", start, block[start : start + 10]))
        readings.append(collected.reading().sample)
    for other in readings[1:]:
        assert torch.equal(readings[0].logits, other.logits)
        assert readings[0].columns.equals(other.columns)


def test_a_sample_has_each_row_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "LEAST_ROWS", 30)
    monkeypatch.setattr(sample, "MOST_ELEMENTS", 1)
    rows = made(n=120)
    place = {tuple(row): i for i, row in enumerate(rows.logits.tolist())}
    times = np.zeros(120)
    for seed in range(100):
        times[[place[tuple(row)] for row in read(rows, seed=seed).sample.logits.tolist()]] += 1
    assert times.mean() == 25
    assert times.std() == pytest.approx(math.sqrt(100 * 0.25 * 0.75), rel=0.25)


def test_the_fingerprint_is_that_of_the_predictions(tmp_path: Path) -> None:
    paths = saved(made(), tmp_path)
    assert read(Predictions.scan(paths)).fingerprint == Predictions.load(paths).fingerprint
    assert read(Predictions.scan(paths), weights="w").fingerprint == Predictions.load(paths).fingerprint
    assert read(Predictions.scan(paths[:2])).fingerprint != Predictions.load(paths).fingerprint


def test_columns_that_say_which_row_it_is() -> None:
    assert id_columns(["site", "Image", "patient_id", "ID", "path"]) == ("Image", "patient_id", "ID")
    assert id_columns(["idea", "named", "files"]) == ()
    rows = made(path=[None, "x" * 500] * 150)
    texts = {text for error in read(rows).errors for text in error.ids if not text.startswith("case")}
    assert texts == {"–", "x" * 79 + "…"}


def test_files_that_name_their_classes_differently_go_by_numbers(tmp_path: Path) -> None:
    for name, named in (("a", True), ("b", False)):
        made(n=40, names=named).save(tmp_path / f"{name}.parquet")
    found = read(Predictions.scan(tmp_path))
    assert found.names_differ
    assert found.class_name(1) == "1"


def test_no_error_and_one_row() -> None:
    found = read(Predictions.from_logits([[3.0, 0.0]], [0]))
    assert found.errors == ()
    assert (found.n_rows, len(found.sample)) == (1, 1)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown column 'wait'"):
        read(made(), weights="wait")
    with pytest.raises(InvalidInputError, match="at least one row"):
        read(made()[:0])
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"label": [0, None], "logits": [[0.0, 1.0]] * 2}), path)
    with pytest.raises(InvalidInputError, match=r"x\.parquet: predictions must have labels to be scored; 1 of 2 rows"):
        read(Predictions.scan(path))
