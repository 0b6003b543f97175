"""Figures: their numbers against slow sums, charts that are valid and drawn, files that need no network."""

import io
import json
import math
import re
from base64 import b64decode
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa
import pytest
from made_rows import Experiment, curves_table, rows_table
from PIL import Image

from calibrant.errors import InvalidInputError, NoDataError, UnknownNameError
from calibrant.report.figures import (
    FIGURES,
    calibrated,
    feature_norm,
    gibbs,
    heat_map,
    label_smoothing,
    local_constraints,
    reliability,
    risk_coverage,
    samples,
    severity,
)
from calibrant.report.figures.averages import mean_over_seeds
from calibrant.report.figures.look import COLUMN, PAGE, ramp
from calibrant.report.figures.render import FORMATS, save, to_svg
from calibrant.report.palette import colour_of

Row = dict[str, Any]

MADE = Experiment(
    data=("digits", "mnist"),
    losses=("maxent_mean", "focal", "cross_entropy"),
    calibrators=("none", "temperature"),
    variants=("", "global"),
    smoothing=(0.0, 0.01),
    severities=(1, 3),
)
ROWS, CURVES = MADE.tables
WILD = Experiment(data=("camelyon17",), wild=True)
PICTURES = {
    "digits": {"clean": np.zeros((8, 8), np.uint8), "fog 3": np.full((8, 8), 200, np.uint8)},
    "cifar10": {"clean": np.full((32, 32, 3), (255, 0, 0), np.uint8)},
}


def material(name: str) -> tuple[Any, ...]:
    return {"nothing": (), "rows": (ROWS,), "curves": (CURVES,), "pictures": (PICTURES,)}[FIGURES[name].needs]


def drawn(name: str, **options: Any) -> Any:
    return FIGURES[name].draw(FIGURES[name].prepare(*material(name), **options))


def options_of(name: str) -> dict[str, Any]:
    return {"data": ["digits"]} if FIGURES[name].needs in ("rows", "curves") else {}


@pytest.fixture(scope="module")
def charts() -> dict[str, Any]:
    return {name: drawn(name, **options_of(name)) for name in FIGURES}


@pytest.fixture(scope="module")
def pages(charts: dict[str, Any]) -> dict[str, str]:
    return {name: to_svg(chart) for name, chart in charts.items()}


def width_of(svg: str) -> float:
    found = re.search(r'<svg[^>]* width="([\d.]+)"', svg)
    assert found is not None
    return float(found[1])


def slow_mean(rows: list[Row], **equal: object) -> tuple[float, float]:
    """The mean over the tests of each run, then over runs, and its standard error."""
    runs = defaultdict(list)
    for row in rows:
        if all(row[name] == value for name, value in {"variant": "", "label_smoothing": 0.0, **equal}.items()):
            runs[row["run"]].append(row["value"])
    means = np.array([np.mean(values) for values in runs.values()])
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(len(means)))


def slow_pool(rows: list[Row], point: int, **equal: object) -> tuple[float, float, float]:
    """The mean x and y of one point, and the count, with every prediction counted once."""
    x = y = count = 0.0
    for row in rows:
        same = {"variant": "", "label_smoothing": 0.0, "calibrator": "none", "point": point, **equal}
        if row["weight"] and all(row[name] == value for name, value in same.items()):
            x, y, count = x + row["x"] * row["weight"], y + row["y"] * row["weight"], count + row["weight"]
    return (x / count, y / count, count) if count else (math.nan, math.nan, 0.0)


def without(rows: list[Row], **equal: object) -> pa.Table:
    kept = [row for row in rows if not all(row[name] == value for name, value in equal.items())]
    return (rows_table if "metric" in rows[0] else curves_table)(kept)


def test_mean_over_seeds() -> None:
    found = mean_over_seeds([1.0, 2.0, 6.0])
    assert (found.mean, found.n_seeds) == (3.0, 3)
    assert found.high - found.mean == pytest.approx(np.std([1, 2, 6], ddof=1) / math.sqrt(3))
    assert mean_over_seeds([0.5]).low == mean_over_seeds([0.5]).high == 0.5


@pytest.mark.parametrize("level", [0, 1, 3])
def test_severity_against_slow_means(level: int) -> None:
    numbers = severity.prepare(ROWS)
    assert numbers.note == ""
    found = {(p.panel, p.loss, p.metric, p.severity): p for p in numbers.points}
    assert len(found) == len(numbers.points) == 2 * 3 * 3 * 3  # data sets, losses, metrics, severities
    for metric, source, sign in (("error", "accuracy", -1), ("ece", "ece", 1), ("kse", "kse", 1)):
        point = found["mnist", "focal", metric, level]
        mean, error = slow_mean(MADE.rows, data="mnist", loss="focal", metric=source, severity=level, calibrator="none")
        assert point.mean == pytest.approx(mean if sign > 0 else 1 - mean)
        assert (point.high - point.mean, point.mean - point.low) == pytest.approx((error, error))
        assert point.n_seeds == 2


def test_that_options_choose_rows() -> None:
    numbers = severity.prepare(ROWS, data=["mnist"], losses=["focal"], calibrator="temperature")
    assert {(p.panel, p.loss, p.calibrator) for p in numbers.points} == {("mnist", "focal", "temperature")}
    mean, _ = slow_mean(MADE.rows, data="mnist", loss="focal", metric="ece", severity=3, calibrator="temperature")
    assert next(p.mean for p in numbers.points if (p.metric, p.severity) == ("ece", 3)) == pytest.approx(mean)


def test_that_means_are_over_the_tests_that_all_runs_have() -> None:
    one_run = next(row["run"] for row in MADE.rows if row["data"] == "mnist" and row["loss"] == "focal")
    numbers = severity.prepare(without(MADE.rows, run=one_run, split="fog-3"))
    assert numbers.note == "mnist: only the 4 of 5 tests that all runs have"
    mean, _ = slow_mean(MADE.rows, data="mnist", loss="maxent_mean", metric="ece", split="snow-3", calibrator="none")
    found = next(
        p.mean for p in numbers.points if (p.panel, p.loss, p.metric, p.severity) == ("mnist", "maxent_mean", "ece", 3)
    )
    assert found == pytest.approx(mean)


def test_that_an_undefined_value_leaves_its_point_out() -> None:
    """As in a table: a mean over other seeds than the rest of the line would not be told apart."""
    rows = [dict(row) for row in MADE.rows]
    broken = next(row for row in rows if (row["loss"], row["metric"], row["severity"]) == ("focal", "ece", 3))
    broken["value"] = None
    found = severity.prepare(rows_table(rows), data=[broken["data"]], losses=["focal"], calibrator=broken["calibrator"])
    seeds = {(p.metric, p.severity): p.n_seeds for p in found.points}
    assert ("ece", 3) not in seeds
    assert seeds["ece", 1] == seeds["error", 3] == 2


def test_that_several_models_are_not_mixed() -> None:
    rows = [{**row, "model": model, "run": row["run"] + model} for row in MADE.rows for model in ("mlp", "cnn")]
    numbers = severity.prepare(rows_table(rows), data=["digits"])
    assert numbers.panels == ["digits, cnn", "digits, mlp"]


def test_local_constraints_pairs_the_variants() -> None:
    numbers = local_constraints.prepare(ROWS)
    assert {(p.loss, p.variant) for p in numbers.points} == {("maxent_mean", ""), ("maxent_mean", "global")}
    found = next(p for p in numbers.points if (p.panel, p.variant, p.severity) == ("digits", "global", 1))
    mean, error = slow_mean(
        MADE.rows, data="digits", loss="maxent_mean", variant="global", metric="ece", severity=1, calibrator="none"
    )
    assert (found.mean, found.high) == pytest.approx((mean, mean + error))


def test_calibrated_has_a_line_for_each_calibrator() -> None:
    numbers = calibrated.prepare(ROWS, data=["digits"])
    assert {p.calibrator for p in numbers.points} == {"none", "temperature"}
    assert {p.loss for p in numbers.points} == {"cross_entropy", "focal", "maxent_mean"}
    found = next(p for p in numbers.points if (p.loss, p.calibrator, p.severity) == ("focal", "temperature", 3))
    mean, _ = slow_mean(MADE.rows, data="digits", loss="focal", calibrator="temperature", metric="ece", severity=3)
    assert found.mean == pytest.approx(mean)
    assert {p.loss for p in calibrated.prepare(ROWS, losses=["focal"]).points} == {"focal"}


@pytest.mark.parametrize(
    ("losses", "shown"),
    [(("focal", "poly"), {"focal"}), (("poly", "avuc"), {"poly", "avuc"})],
    ids=["some of the default", "none of them"],
)
def test_that_calibrated_shows_a_few_losses(losses: tuple[str, ...], shown: set[str]) -> None:
    rows, _ = Experiment(losses=losses, seeds=1, calibrators=("none", "temperature")).tables
    assert {p.loss for p in calibrated.prepare(rows).points} == shown


def test_feature_norm_against_slow_means() -> None:
    numbers = feature_norm.prepare(ROWS)
    assert len(numbers.points) == 2 * 3 * 3
    found = next(p for p in numbers.points if (p.panel, p.loss, p.step) == ("digits", "focal", 3))
    means = [
        slow_mean(MADE.rows, data="digits", loss="focal", metric=metric, severity=3, calibrator="none")[0]
        for metric in ("feature_norm", "ece")
    ]
    assert (found.norm, found.ece) == pytest.approx(tuple(means))


@pytest.mark.parametrize("level", [None, 0, 3], ids=["all shifted", "unshifted", "one severity"])
def test_reliability_against_slow_sums(level: int | None) -> None:
    numbers = reliability.prepare(CURVES, losses=["focal"], severity=level)
    chosen = {"shifted": True} if level is None else {"severity": level}
    sums = [slow_pool(MADE.curves, b, data="mnist", loss="focal", curve="reliability", **chosen) for b in range(10)]
    total = sum(count for _, _, count in sums)
    found = [one for one in numbers.bins if one.panel == "mnist"]
    assert [one.low for one in found] == [b / 10 for b in range(10)]
    assert [one.high for one in found] == [(b + 1) / 10 for b in range(10)]
    for one, (_, accuracy, count) in zip(found, sums, strict=True):
        assert one.strength == pytest.approx(count / total)
        assert one.accuracy == (pytest.approx(accuracy) if count else None)


def test_that_an_empty_bin_has_no_accuracy() -> None:
    rows = [{**row, "x": None, "y": None, "weight": 0.0} if row["point"] == 0 else row for row in MADE.curves]
    numbers = reliability.prepare(curves_table(rows), data=["digits"], losses=["focal"])
    assert {(one.strength, one.accuracy) for one in numbers.bins if one.low == 0} == {(0.0, None)}
    assert to_svg(reliability.draw(numbers))


def test_label_smoothing_against_slow_sums() -> None:
    numbers = label_smoothing.prepare(CURVES)
    assert {(one.loss, one.label_smoothing) for one in numbers.bins} == {("maxent_mean", 0.0), ("maxent_mean", 0.01)}
    head = {"data": "digits", "loss": "maxent_mean", "curve": "reliability", "shifted": True, "label_smoothing": 0.01}
    counts = [slow_pool(MADE.curves, b, **head)[2] for b in range(10)]
    found = [one.strength for one in numbers.bins if (one.panel, one.label_smoothing) == ("digits", 0.01)]
    assert found == pytest.approx([count / sum(counts) for count in counts])


def test_risk_coverage_against_slow_sums() -> None:
    numbers = risk_coverage.prepare(CURVES, data=["digits"], losses=["cross_entropy"])
    assert len(numbers.points) == 20
    head = {"data": "digits", "loss": "cross_entropy", "curve": "risk_coverage", "shifted": True}
    for at in (0, 7, 19):
        coverage, error, _ = slow_pool(MADE.curves, at, **head)
        assert (numbers.points[at].coverage, numbers.points[at].error) == pytest.approx((coverage, error))


def test_heat_map_against_slow_means() -> None:
    numbers = heat_map.prepare(ROWS)
    found = {(cell.panel, cell.loss, cell.shift): cell for cell in numbers.cells}
    assert len(found) == len(numbers.cells) == 2 * 3 * 3
    assert list(dict.fromkeys(cell.shift for cell in numbers.cells)) == ["snow", "fog", "mean"]
    head = {"data": "digits", "loss": "focal", "metric": "ece", "shifted": True, "calibrator": "none"}
    assert found["digits", "focal", "fog"].ece == pytest.approx(slow_mean(MADE.rows, **head, shift="fog")[0])
    assert found["digits", "focal", "mean"].ece == pytest.approx(slow_mean(MADE.rows, **head)[0])
    top = max(cell.ece for cell in numbers.cells if cell.panel == "digits")
    assert {cell.dark for cell in numbers.cells if cell.panel == "digits" and cell.ece == top} == {True}
    assert not found["digits", "maxent_mean", "fog"].dark


def test_gibbs_has_the_moments_it_promises() -> None:
    masses = gibbs.prepare(8, means=[2.0, 5.0], variances=[1.5])
    by_target: dict[tuple[str, float], list[float]] = defaultdict(list)
    for mass in masses:
        by_target[mass.moment, mass.target].append(mass.probability)
    classes = np.arange(8)
    for (moment, target), probabilities in by_target.items():
        assert sum(probabilities) == pytest.approx(1)
        mean = float(classes @ probabilities)
        spread = float((classes - mean) ** 2 @ probabilities)
        assert (mean if moment == "mean" else spread) == pytest.approx(target)
        if moment == "variance":
            assert mean == pytest.approx(3.5)


def test_samples_are_the_pictures_enlarged() -> None:
    found = samples.prepare(PICTURES)
    assert [(s.row, s.column) for s in found] == [("digits", "clean"), ("digits", "fog 3"), ("cifar10", "clean")]
    pictures = [np.asarray(Image.open(io.BytesIO(b64decode(s.url.split(",")[1])))) for s in found]
    assert [picture.shape for picture in pictures] == [(192, 192), (192, 192), (192, 192, 3)]
    assert (pictures[1] == 200).all()
    assert (pictures[2] == (255, 0, 0)).all()


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (np.zeros((8, 8)), r"got float64 of \(8, 8\) for digits, clean"),
        (np.zeros((3, 8, 8), np.uint8), r"got uint8 of \(3, 8, 8\) for digits, clean"),
    ],
    ids=["float", "channels first"],
)
def test_that_samples_refuse_other_arrays(picture: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        samples.prepare({"digits": {"clean": picture}})


@pytest.mark.parametrize("name", FIGURES)
def test_that_figures_are_drawn_on_white(name: str, charts: dict[str, Any], pages: dict[str, str]) -> None:
    spec = charts[name].to_dict()  # which is valid, or altair refuses
    assert spec["config"]["background"] == "white"
    assert pages[name].count("<path") > 5 or pages[name].count("<image") == 3
    assert 'fill="white"' in pages[name]
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)px"', pages[name])]
    assert min(sizes) > 9.3  # pixels: 7 points


def test_that_figures_of_one_data_set_fit_a_column_or_a_page(pages: dict[str, str]) -> None:
    for name in ("gibbs", "samples", "local_constraints", "feature_norm", "risk_coverage", "heat_map"):
        assert 150 < width_of(pages[name]) < COLUMN + 10, name
    for name in ("severity", "reliability", "label_smoothing", "calibrated"):
        assert 150 < width_of(pages[name]) < PAGE + 10, name
    assert COLUMN < width_of(to_svg(drawn("risk_coverage"))) < PAGE + 10  # two data sets, side by side


def test_that_a_note_is_shown() -> None:
    numbers = risk_coverage.prepare(CURVES, data=["digits"], losses=["focal"])
    noted = to_svg(risk_coverage.draw(replace(numbers, note="digits: few tests; mnist: few tests")))
    assert ">digits: few tests<" in noted
    assert ">mnist: few tests<" in noted
    assert "few tests" not in to_svg(risk_coverage.draw(numbers))


def test_that_a_loss_has_its_colour_everywhere(pages: dict[str, str]) -> None:
    for name in ("severity", "reliability", "feature_norm", "risk_coverage"):
        for loss in ("cross_entropy", "focal", "maxent_mean"):
            assert colour_of(loss).lower() in pages[name].lower(), (name, loss)


def test_that_the_ramp_goes_from_dark_to_light() -> None:
    lines = ramp([str(n) for n in range(7)])
    assert (lines[0].colour, lines[-1].colour) == ("#0D0887", "#F89540")
    greys = [Image.new("RGB", (1, 1), line.colour).convert("L").getpixel((0, 0)) for line in lines]
    assert all(b - a > 10 for a, b in pairwise(greys))
    assert len({(line.dash, line.shape) for line in lines}) == 7
    assert [line.colour for line in ramp(["alone"])] == ["#0D0887"]


@pytest.mark.parametrize("suffix", [suffix for suffix in FORMATS if suffix != ".html"])
def test_that_every_format_is_written(suffix: str, charts: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / f"figure{suffix.upper()}"
    save(charts["samples"], path)
    content = path.read_bytes()
    starts = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF", ".json": b"{"}
    assert content.lstrip()[:20].startswith(starts[suffix])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    if suffix == ".json":
        assert alt.Chart.from_dict(json.loads(content)).to_dict()["config"]["background"] == "white"
    if suffix == ".png":
        assert Image.open(io.BytesIO(content)).width > 2.5 * 150


class Addresses(HTMLParser):
    """What the tags of a page point to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {value}" for name, value in attrs if name in ("src", "href", "srcset", "data")]


def test_that_a_page_fetches_nothing(charts: dict[str, Any], tmp_path: Path) -> None:
    save(charts["samples"], tmp_path / "samples.html")
    page = (tmp_path / "samples.html").read_text()
    assert page.lstrip().startswith("<!DOCTYPE html>")
    assert "data:image/png;base64" in page
    assert Addresses('<script src="https://x.org/y.js">').found == ["script https://x.org/y.js"]
    assert Addresses(page).found == []
    assert re.findall(r"@import|\bcdn\.|unpkg\.com|(?:from|import\()\s*[\"']https?:", page) == []


@pytest.mark.parametrize("path", ["figure.gif", "figure", "figure.svg.gz"])
def test_that_other_suffixes_are_refused(path: str, charts: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=rf"\.svg, \.png, \.pdf, \.html, \.json, got .*{re.escape(path)}"):
        save(charts["gibbs"], tmp_path / path)
    assert list(tmp_path.iterdir()) == []


PLAIN = Experiment(losses=("maxent_mean",), seeds=1, severities=(2,))
NO_CLEAN = [row for row in PLAIN.rows if row["shifted"]]
LACKING = {
    "severity, wild": ("severity", WILD.tables[0], "severity needs tests at several severities, .* corrupted tests"),
    "severity, one": ("severity", rows_table(NO_CLEAN), "several severities, and the experiment has only severity 2"),
    "severity, metrics": (
        "severity",
        Experiment(metrics=("feature_norm",)).tables[0],
        "needs the metrics accuracy, ece, kse, .* the experiment's metrics",
    ),
    "no global": ("local_constraints", PLAIN.tables[0], 'the variant "global", .* loss_options = { local = false }'),
    "no smoothing": ("label_smoothing", PLAIN.tables[1], r"label smoothing, .* label_smoothing = \[0.0, 0.01\]"),
    "no norms": (
        "feature_norm",
        Experiment(metrics=("ece",)).tables[0],
        "the metrics ece and feature_norm, .* keep the features",
    ),
    "no corruption": ("heat_map", WILD.tables[0], "the ece of corrupted tests"),
    "no calibrator": ("calibrated", PLAIN.tables[0], "calibrated rows, .* the experiment's calibrators"),
    "no shifted test": (
        "reliability",
        curves_table(row for row in PLAIN.curves if not row["shifted"]),
        "needs shifted tests that all runs have, .* curves.parquet",
    ),
    "no run": ("severity", rows_table([]), "none of its runs is done"),
}


@pytest.mark.parametrize("case", LACKING)
def test_that_a_figure_says_what_is_missing(case: str) -> None:
    name, table, message = LACKING[case]
    with pytest.raises(NoDataError, match=message) as caught:
        FIGURES[name].prepare(table)
    assert "\n" not in str(caught.value)


def test_refusals_of_options() -> None:
    with pytest.raises(UnknownNameError, match="unknown loss of the experiment 'focall'; did you mean 'focal'"):
        severity.prepare(ROWS, losses=["focall"])
    with pytest.raises(UnknownNameError, match="unknown calibrator of the experiment 'spline'"):
        heat_map.prepare(ROWS, calibrator="spline")
    with pytest.raises(InvalidInputError, match="severity must be an integer from 0 to 5, got 6"):
        reliability.prepare(CURVES, severity=6)
    with pytest.raises(NoDataError, match="tests of severity 5"):
        reliability.prepare(CURVES, severity=5)


@pytest.mark.parametrize("name", ["reliability", "risk_coverage", "feature_norm"])
def test_shifts_in_the_wild(name: str) -> None:
    rows, curves = WILD.tables
    numbers = FIGURES[name].prepare(rows if name == "feature_norm" else curves, losses=["focal"])
    assert numbers.panels == ["camelyon17"]
    if name == "feature_norm":
        assert {point.step for point in numbers.points} == {0, 1}
    assert "camelyon17" in to_svg(FIGURES[name].draw(numbers))


def test_that_severity_0_is_the_unshifted_test_of_wild_data() -> None:
    numbers = reliability.prepare(WILD.tables[1], losses=["focal"], severity=0)
    head = {"loss": "focal", "curve": "reliability", "split": "id_test"}
    counts = [slow_pool(WILD.curves, b, **head)[2] for b in range(10)]
    assert [one.strength for one in numbers.bins] == pytest.approx([count / sum(counts) for count in counts])


def test_that_wild_data_are_left_out_beside_corrupted() -> None:
    both = pa.concat_tables([ROWS, WILD.tables[0]])
    assert severity.prepare(both).panels == ["digits", "mnist"]
    assert feature_norm.prepare(both).panels == ["camelyon17", "digits", "mnist"]
