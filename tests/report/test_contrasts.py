"""Ratios of mean scores and their intervals against loops; ratios in the tables of the paper."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from calibrant.errors import NoDataError
from calibrant.report.contrasts import GROUPS, SEEDS, TYPES, contrast, scores_by_type
from calibrant.report.formats import TABLE_FORMATS, render
from calibrant.report.paper import make_table
from calibrant.report.scores import Score, ScoreKey
from made.rows import rows_table, run_rows

TESTS = ("fog-1", "fog-2", "fog-5", "snow-3", "blur-1", "blur-4")  # of types with 3, 1 and 2 test sets
KEY = ScoreKey("cifar10", "resnet18", "focal", "", 0.0, "none", "ece")


def made_rows(**means: float) -> list[dict[str, Any]]:
    """Three seeds of each loss with noise of seeds, types and images."""
    random = np.random.default_rng(0)
    rows = []
    for loss, mean in means.items():
        by_type = {name: random.normal() for name in ("fog", "snow", "blur")}
        images = random.normal(size=20)
        for seed in (3, 5, 8):
            values = {test: mean + 0.03 * by_type[test.split("-")[0]] + 0.01 * random.normal() for test in TESTS}
            own = run_rows({"test": 0.02, **values}, seed=seed, loss=loss)
            rows += [row | {"jackknife": list(row["value"] + 0.001 * images)} for row in own]
    return rows


def by_type(rows: list[dict[str, Any]], loss: str = "focal", **changes: Any) -> dict[str, Score]:
    table = rows_table(rows)
    return scores_by_type(table.filter(table["shifted"]), ["ece"])[KEY._replace(loss=loss, **changes)]


def looped(rows: list[dict[str, Any]], of: Callable[[float, float], float]) -> tuple[float, float]:
    """The contrast of focal with cross-entropy and its margin, by leaving out rows."""

    def value(kept: Callable[[dict[str, Any]], bool], group: int | None = None) -> float:
        means = []
        for loss in ("focal", "cross_entropy"):
            own = [row for row in rows if row["loss"] == loss and row["shifted"] and kept(row)]
            means.append(
                np.mean([row["value"] if group is None else np.float32(row["jackknife"][group]) for row in own])
            )
        return of(*means)

    left_out = [
        [value(lambda row, seed=seed: row["seed"] != seed) for seed in (3, 5, 8)],
        [value(lambda row, name=name: row["corruption"] != name) for name in ("fog", "snow", "blur")],
        [value(lambda row: True, group) for group in range(20)],
    ]
    square = 0.0
    for found in left_out:
        n = len(found)
        square += stats.t.ppf(0.975, n - 1) ** 2 * (n - 1) / n * sum((x - np.mean(found)) ** 2 for x in found)
    return value(lambda row: True), math.sqrt(square)


def test_the_interval_leaves_out_each_seed_type_and_group() -> None:
    rows = made_rows(cross_entropy=0.3, focal=0.2)
    pair = by_type(rows), by_type(rows, "cross_entropy")
    value, margin = looped(rows, lambda a, b: math.log(a / b))
    found = contrast(pair[:1], pair[1:])
    assert found is not None
    assert found[:3] == pytest.approx([math.exp(value + sign * margin) for sign in (0, -1, 1)], rel=1e-6)
    assert found.levels == {SEEDS: 3, TYPES: 3, GROUPS: 20}
    value, margin = looped(rows, lambda a, b: a - b)
    found = contrast(pair[:1], pair[1:], ratio=False)
    assert found is not None
    assert found[:3] == pytest.approx([value, value - margin, value + margin], rel=1e-6)
    assert contrast(pair[:1], pair[:1]) == (1.0, 1.0, 1.0, found.levels)


def test_pairs_and_what_is_undefined() -> None:
    rows = [*run_rows({"fog-1": 0.2}, seed=0), *run_rows({"fog-1": 0.4}, seed=1)]
    rows += [*run_rows({"fog-1": 0.5}, seed=1, loss="poly"), *run_rows({"fog-1": 0.8}, seed=2, loss="poly")]
    rows += run_rows({"fog-1": 0.0}, loss="mmce") + run_rows({"fog-1": None}, loss="flsd")
    own, poly, zero, undefined = (by_type(rows, loss) for loss in ("focal", "poly", "mmce", "flsd"))
    common = contrast([own], [poly])  # of seed 1
    assert common is not None
    assert (common.value, common.levels) == (pytest.approx(0.4 / 0.5), {GROUPS: 20})
    apart = contrast([own], [poly], paired=False)
    assert apart is not None
    assert (apart.value, apart.levels[SEEDS]) == (pytest.approx(0.3 / 0.65), 3)
    for other in (zero, undefined, {}):
        assert contrast([own], [other]) is None
    unknown = [row | {"jackknife": None if row["loss"] == "poly" else [0.1, 0.3] * 10} for row in rows]
    noisy = contrast([by_type(unknown)], [by_type(unknown, "poly")])  # of one mean alone, the noise is not known
    assert noisy is not None
    assert noisy[1:] == (None, None, {})
    difference = contrast([own], [zero], ratio=False)
    assert difference is not None
    assert difference.value == pytest.approx(0.2)


def test_tables_as_ratios_to_cross_entropy() -> None:
    rows = made_rows(cross_entropy=0.3, maxent_mean=0.2)
    rows += [row | {"calibrator": "temperature_grid"} for row in rows]
    rows += run_rows(dict.fromkeys(("test", *TESTS), 0.1), loss="maxent_mean", variant="ensemble3")
    (seeds, *_) = make_table(rows_table(rows), "1").notes
    assert seeds.startswith("Mean ± standard error over 3 seeds")  # an ensemble is no seed
    table = make_table(rows_table(rows), "1", with_paper=True, relative=True)
    cells = {row[0].text: dict(zip([c.heading for c in table.columns], row, strict=True)) for row in table.rows}
    assert (cells["CE"]["ECE"].text, cells["MaxEnt M"]["ECE"].text) == ("1", "0.78 (0.59–1.03)")
    papers = [column for column, heading in enumerate(table.columns) if heading.heading == "paper"]
    assert [line[papers[1]].text for line in table.rows] == ["1", "0.60±0.02", "–"]
    facts = cells["MaxEnt M"]["ECE"].facts
    assert (facts["published_ratio"], facts["ratio_low"]) == pytest.approx((8.7 / 14.5, 0.59), abs=0.005)
    ensemble = cells["MaxEnt M × 3"]["ECE"]
    mean = np.mean([row["value"] for row in rows if row["loss"] == "cross_entropy" and row["shifted"]])
    assert (ensemble.kind, ensemble.facts["ratio"]) == ("best", pytest.approx(0.1 / mean))
    assert table.caption == "Table 1: test scores under shift, relative to cross-entropy"
    notes = " ".join(table.notes)
    assert "with the noise of 3 seeds, 3 types of shift and 20 groups of images" in notes
    assert "An ensemble is one run" in notes
    assert "standard error over 3 seeds" not in notes
    for format in TABLE_FORMATS:
        assert "0.78" in render(table, format)
    second = make_table(rows_table(rows), "2", relative=True)
    assert [cell.text for cell in second.rows[0]] == ["CIFAR10-C", *["0.78 (0.59–1.03)", "–", "–"] * 2]
    one = [row for row in rows if row["seed"] == 3]
    note = "All intervals are without the noise of seeds: there is one."
    assert note in make_table(rows_table(one), "1", relative=True).notes


def test_ratios_need_cross_entropy() -> None:
    rows = rows_table(made_rows(focal=0.2))
    with pytest.raises(NoDataError, match="no run of cross_entropy on shifted test sets"):
        make_table(rows, "1", relative=True)
