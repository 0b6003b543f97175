"""Scores of prediction sets: the definition in loops, exact intervals, batches, what is promised, and refusals."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom, binomtest

import calibrant as cb
from calibrant.decisions import ConformalSets, Promise, SetScores, score_sets
from calibrant.errors import InvalidInputError, UnknownNameError
from made.calibrator_data import generator_of

K = 4
one_row = st.tuples(st.integers(0, K - 1), st.sets(st.integers(0, K - 1)), st.sampled_from(["A", "B", None]))


def with_sets(rows: list[tuple[int, Any, Any]]) -> cb.Predictions:
    labels, sets, sites = zip(*rows, strict=True)
    columns = {"prediction_set": pa.array([list(each) for each in sets], pa.list_(pa.int32())), "site": list(sites)}
    return cb.Predictions.from_logits(torch.zeros(len(rows), K), list(labels), columns=columns)


def made_sets(n: int, seed: int, coverage: float = 0.9) -> cb.Predictions:
    def draw(n_rows: int, seed: int) -> cb.Predictions:
        logits = torch.randn(n_rows, K, generator=generator_of(seed))
        labels = logits.softmax(1).multinomial(1, generator=generator_of(seed + 1))[:, 0]
        return cb.Predictions.from_logits(logits, labels)

    return ConformalSets.fit(draw(500, 10), coverage=coverage)(draw(n, seed))


@pytest.mark.slow
@given(rows=st.lists(one_row, min_size=1, max_size=30))
def test_scores_are_those_of_the_definition(rows: list[tuple[int, Any, Any]]) -> None:
    found = score_sets(with_sets(rows), by="site", level=0.9)
    held = [label in each for label, each, _ in rows]
    value, low, high = found.coverage
    exact = binomtest(sum(held), len(held)).proportion_ci(0.9, "exact")
    assert value == pytest.approx(np.mean(held))
    assert (low, high) == pytest.approx((exact.low, exact.high))
    lengths = [len(each) for _, each, _ in rows]
    assert found.mean_size == pytest.approx(np.mean(lengths))
    assert found.empty == pytest.approx(lengths.count(0) / len(rows))
    assert found.single == pytest.approx(lengths.count(1) / len(rows))
    parts = {
        "size": (found.by_size, lengths),
        "class": (found.by_class, [str(label) for label, _, _ in rows]),
    }
    for part, keys in parts.values():
        assert sorted(part) == sorted(set(keys))
        for key, scores in part.items():
            mine = [i for i, other in enumerate(keys) if other == key]
            assert scores.n_rows == len(mine)
            assert scores.coverage.value == pytest.approx(np.mean([held[i] for i in mine]))
            assert scores.mean_size == pytest.approx(np.mean([lengths[i] for i in mine]))
            level = 1 - 0.1 / len(part)
            limits = binomtest(sum(held[i] for i in mine), len(mine)).proportion_ci(level, "exact")
            assert scores.coverage[1:] == pytest.approx((limits.low, limits.high))
    sites = [str(site) for *_, site in rows]
    assert sorted(found.groups) == sorted(set(sites))
    worst = min(set(sites), key=lambda site: np.mean([h for h, s in zip(held, sites, strict=True) if s == site]))
    assert found.worst_group is not None
    assert found.worst_group[1].value == found.groups[worst].coverage.value
    assert found.groups[worst].level == pytest.approx(1 - 0.1 / len(found.groups))


def test_batches_and_files_are_scored_as_all_rows(tmp_path: Any) -> None:
    rows = made_sets(1000, 0)
    rows.save(tmp_path / "sets.parquet")
    whole = score_sets(rows).to_dict()
    assert json.loads(json.dumps(whole)) == whole
    for other in (cb.Predictions.scan(tmp_path / "sets.parquet", batch_rows=17), [rows[:3], rows[3:3], rows[3:]]):
        assert score_sets(other).to_dict() == whole
    assert whole["promise"]["coverage"] == 0.9
    assert score_sets([made_sets(10, 0), made_sets(10, 0, 0.8)]).promise is None
    large = pa.array(rows.column("prediction_set").to_pylist(), pa.large_list(pa.int64()))
    foreign = cb.Predictions.from_logits(rows.logits, rows.labels, columns={"mine": large})
    assert score_sets(foreign, column="mine").coverage == score_sets(rows).coverage


@pytest.mark.parametrize(("n", "m", "coverage"), [(500, 200, 0.9), (99, 5000, 0.8)])
def test_the_promise_is_judged_by_the_sizes_of_both_sets(n: int, m: int, coverage: float) -> None:
    """Against the exact law of the number of sets that hold the label, where (n + 1) · coverage is an integer."""
    rank = round((n + 1) * coverage)
    law = betabinom(m, rank, n + 1 - rank)
    for covered in (int(law.ppf(q)) for q in (0.001, 0.05, 0.5, 0.95)):
        sizes = np.array([[0, m], [0, covered]])
        found = Promise(rank / (n + 1), float(n)).p_value(SetScores(sizes, sizes, 0.95))
        assert found == pytest.approx(law.cdf(covered), abs=0.002)


def test_gates() -> None:
    rows = with_sets([(0, [0], "A"), (1, [0, 1], "A"), (2, [], "B"), (3, [3], "B")])
    found = score_sets(rows, by="site")
    assert found.failed(["coverage < 0.8", "mean_size > 1", "worst_group < 0.6", "worst_class <= 0"]) == [
        "coverage < 0.8 (coverage = 0.75)",
        "worst_group < 0.6 (worst_group = 0.5)",
        "worst_class <= 0 (worst_class = 0)",
    ]
    assert found.failed(["empty > 0.25", "single >= 0.5"]) == ["single >= 0.5 (single = 0.5)"]
    with pytest.raises(InvalidInputError, match="needs groups"):
        score_sets(rows).failed(["worst_group < 0.9"])
    with pytest.raises(UnknownNameError, match="coverage"):
        found.failed(["coverge < 0.9"])


def test_refusals() -> None:
    rows = with_sets([(0, [0], "A"), (1, [0, 1], "A")])

    def column(values: Any) -> cb.Predictions:
        return cb.Predictions.from_logits(rows.logits, rows.labels, columns={"prediction_set": values})

    wrong = [
        (column([[0], [4]]), r"'prediction_set' must lie in \[0, 3\], got 4 at row 1"),
        (column([[0], [-1, 2]]), r"got -1 at row 1"),
        (column([[0], [None]]), r"got None at row 1"),
        (column([[0, 2], [3, 1, 3]]), r"must have distinct classes, got 3 twice at row 1"),
        (column([[0], None]), r"must not be null, got null at row 1"),
        (column([[0.5], [1.0]]), r"must have lists of class indices, got list"),
        (column([1, 2]), r"must have lists of class indices, got int64"),
        (rows[:0], r"at least one row"),
        ([], r"at least one row"),
        (cb.Predictions.from_logits(rows.logits, columns=rows.columns), r"labels to be scored, got none at row 0"),
        (
            [rows, made_sets(5, 0), cb.Predictions.from_logits(torch.zeros(1, 3), [0], columns=rows[:1].columns)],
            r"got 3",
        ),
    ]
    for given_rows, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            score_sets(given_rows)
    with pytest.raises(UnknownNameError, match="prediction_set"):
        score_sets(rows, column="prediction_sets")
    with pytest.raises(UnknownNameError, match="site"):
        score_sets(rows, by="sight")
    with pytest.raises(InvalidInputError, match="level"):
        score_sets(rows, level=1.0)
