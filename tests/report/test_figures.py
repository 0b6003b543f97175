"""Figures: records against slow sums, valid charts, and self-contained files."""

import io
import json
import math
import re
import sys
from base64 import b64decode
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from calibrant.errors import CalibrantError, InvalidInputError, MissingExtraError, NoDataError, UnknownNameError
from calibrant.experiments.folder import ExperimentFolder
from calibrant.report import figures
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
from calibrant.report.render import FIGURE_FORMATS, save, to_svg
from calibrant.report.scores import by_panel
from calibrant.report.style import COLUMN_WIDTH, PAGE_WIDTH, line_style
from made.page import Page
from made.rows import Experiment, curves_table, rows_table

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
IMAGES = {
    "digits": {"clean": np.zeros((8, 8), np.uint8), "fog 3": np.full((8, 8), 200, np.uint8)},
    "cifar10": {"clean": np.full((32, 32, 3), (255, 0, 0), np.uint8)},
}


def write(folder: Path, rows: pa.Table, curves: pa.Table) -> ExperimentFolder:
    made = ExperimentFolder(folder)
    made.write_tables(rows, curves)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ExperimentFolder:
    return write(tmp_path_factory.mktemp("runs"), ROWS, CURVES)


@pytest.fixture(scope="module")
def charts(folder: ExperimentFolder) -> dict[str, Any]:
    made, reasons = figures.make_figures(folder, images=lambda rows, **options: IMAGES, data=["digits"])
    assert reasons == {}
    return made


@pytest.fixture(scope="module")
def drawn(charts: dict[str, Any]) -> dict[str, str]:
    return {name: to_svg(chart) for name, chart in charts.items()}


def width_of(svg: str) -> float:
    found = re.search(r'<svg[^>]* width="([\d.]+)"', svg)
    assert found is not None
    return float(found[1])


def one(records: list[Row], **equal: object) -> Row:
    (record,) = (record for record in records if equal.items() <= record.items())
    return record


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


# The records


ON_DIGITS = {"data": "digits", "calibrator": "none", "metric": "ece"}
AT_3 = {"panel": "digits", "loss": "focal", "severity": 3}
TEMPERATURE = {"calibrator": "temperature"}
GLOBAL = {"loss": "maxent_mean", "variant": "global"}
NORM_AT_3 = {"panel": "digits", "loss": "focal", "shift_level": 3}
CELL = {"panel": "digits", "loss": "focal"}
MEANS: list[tuple[Any, Row, Row, str, Row]] = [  # figure, options, a record, its value, and the rows of this mean
    (severity, {}, {**AT_3, "severity": 0, "metric": "ece"}, "mean", {"severity": 0}),
    (severity, {}, {**AT_3, "metric": "kse"}, "mean", {"metric": "kse"}),
    (severity, TEMPERATURE, {**AT_3, "metric": "ece"}, "mean", TEMPERATURE),
    (local_constraints, {}, {**AT_3, **GLOBAL}, "mean", GLOBAL),
    (calibrated, {"data": ["digits"]}, {**AT_3, **TEMPERATURE}, "mean", TEMPERATURE),
    (feature_norm, {}, NORM_AT_3, "ece", {}),
    (feature_norm, {}, NORM_AT_3, "norm", {"metric": "feature_norm"}),
    (heat_map, {"severity": 3}, {**CELL, "corruption": "fog"}, "mean", {"corruption": "fog"}),
    (heat_map, {"severity": 3}, {**CELL, "corruption": "mean"}, "mean", {}),
]


@pytest.mark.parametrize(("figure", "options", "fields", "value", "rows"), MEANS)
def test_records_against_slow_means(figure: Any, options: Row, fields: Row, value: str, rows: Row) -> None:
    record = one(figure.prepare(ROWS, **options), **fields)
    mean, error = slow_mean(MADE.rows, **{**ON_DIGITS, "loss": "focal", "severity": 3, **rows})
    assert record[value] == pytest.approx(mean)
    if "high" in record:
        assert (record["high"] - record["mean"], record["mean"] - record["low"]) == pytest.approx((error, error))
        assert record["n_seeds"] == 2


def test_every_series_has_its_records() -> None:
    records = severity.prepare(ROWS)
    assert len(records) == 2 * 3 * 3 * 3  # data sets, losses, metrics, severities
    mean, error = slow_mean(MADE.rows, **{**ON_DIGITS, "metric": "accuracy"}, loss="focal", severity=3)
    point = one(records, **AT_3, metric="error")
    assert (point["low"], point["mean"], point["high"]) == pytest.approx((1 - mean - error, 1 - mean, 1 - mean + error))
    some = severity.prepare(ROWS, data=["mnist"], losses=["focal"], calibrator="temperature")
    assert {(p["panel"], p["loss"], p["calibrator"]) for p in some} == {("mnist", "focal", "temperature")}
    pairs = {("maxent_mean", ""), ("maxent_mean", "global")}
    assert {(p["loss"], p["variant"]) for p in local_constraints.prepare(ROWS)} == pairs
    assert len(feature_norm.prepare(ROWS)) == 2 * 3 * 3
    cells = heat_map.prepare(ROWS)
    assert len(cells) == 2 * 3 * 3
    assert list(dict.fromkeys(cell["corruption"] for cell in cells)) == ["snow", "fog", "mean"]


def test_calibrated_draws_the_default_losses() -> None:
    records = calibrated.prepare(ROWS, data=["digits"])
    assert {p["calibrator"] for p in records} == {"none", "temperature"}
    assert {p["loss"] for p in calibrated.prepare(ROWS, losses=["focal"])} == {"focal"}
    for losses, shown in ((("focal", "poly"), {"focal"}), (("poly", "avuc"), {"poly", "avuc"})):
        rows, _ = Experiment(losses=losses, seeds=1, calibrators=("none", "temperature"), metrics=("ece",)).tables
        assert {p["loss"] for p in calibrated.prepare(rows)} == shown


def test_an_undefined_value_leaves_its_point_out() -> None:
    """As in a table: the mean must not be over fewer seeds than the rest of the line."""
    rows = [dict(row) for row in MADE.rows]
    broken = next(row for row in rows if (row["loss"], row["metric"], row["severity"]) == ("focal", "ece", 3))
    broken["value"] = None
    found = severity.prepare(rows_table(rows), data=[broken["data"]], losses=["focal"], calibrator=broken["calibrator"])
    seeds = {(p["metric"], p["severity"]): p["n_seeds"] for p in found}
    assert ("ece", 3) not in seeds
    assert seeds["ece", 1] == seeds["error", 3] == 2


@pytest.mark.parametrize("level", [None, 0, 3], ids=["all shifted", "unshifted", "one severity"])
def test_reliability_against_slow_sums(level: int | None) -> None:
    records = reliability.prepare(CURVES, losses=["focal"], severity=level)
    chosen = {"shifted": True} if level is None else {"severity": level}
    sums = [slow_pool(MADE.curves, b, data="mnist", loss="focal", curve="reliability", **chosen) for b in range(10)]
    total = sum(count for _, _, count in sums)
    found = [record for record in records if record["panel"] == "mnist"]
    assert [(one["low"], one["high"]) for one in found] == [(b / 10, (b + 1) / 10) for b in range(10)]
    for bin_, (_, accuracy, count) in zip(found, sums, strict=True):
        assert bin_["share"] == pytest.approx(count / total)
        assert bin_["accuracy"] == (pytest.approx(accuracy) if count else None)


def test_an_empty_bin_has_no_accuracy() -> None:
    rows = [{**row, "x": None, "y": None, "weight": 0.0} if row["point"] == 0 else row for row in MADE.curves]
    records = reliability.prepare(curves_table(rows), data=["digits"], losses=["focal"])
    first = one(records, low=0.0)
    assert (first["share"], first["accuracy"]) == (0.0, None)
    assert "no predictions" in to_svg(reliability.draw(records))


def test_label_smoothing_and_risk_coverage_against_slow_sums() -> None:
    records = label_smoothing.prepare(CURVES)
    assert {(r["loss"], r["label_smoothing"]) for r in records} == {("maxent_mean", 0.0), ("maxent_mean", 0.01)}
    head = {"data": "digits", "loss": "maxent_mean", "curve": "reliability", "shifted": True, "label_smoothing": 0.01}
    counts = [slow_pool(MADE.curves, b, **head)[2] for b in range(10)]
    found = [r["share"] for r in records if (r["panel"], r["label_smoothing"]) == ("digits", 0.01)]
    assert found == pytest.approx([count / sum(counts) for count in counts])
    poly = [{**row, "loss": "poly", "run": f"{row['run']}-poly"} for row in MADE.curves if row["loss"] == "maxent_mean"]
    with_poly = curves_table([*MADE.curves, *poly])
    assert {r["loss"] for r in label_smoothing.prepare(with_poly)} == {"maxent_mean"}
    assert {r["loss"] for r in label_smoothing.prepare(with_poly, losses=["poly"])} == {"poly"}
    risks = risk_coverage.prepare(CURVES, data=["digits"], losses=["cross_entropy"])
    assert len(risks) == 20
    head = {"data": "digits", "loss": "cross_entropy", "curve": "risk_coverage", "shifted": True}
    for at in (0, 7, 19):
        coverage, error, _ = slow_pool(MADE.curves, at, **head)
        assert (risks[at]["coverage"], risks[at]["error"]) == pytest.approx((coverage, error))


def test_text_is_white_on_dark_cells(charts: dict[str, Any]) -> None:
    cells = {(c["line"], c["corruption"]): c for rows in charts["heat_map"].datasets.values() for c in rows}
    assert max(cells.values(), key=lambda cell: cell["mean"])["dark"]
    assert not cells["MaxEnt M", "fog"]["dark"]


def test_gibbs_has_the_moments_it_promises() -> None:
    by_target: dict[tuple[str, float], list[float]] = defaultdict(list)
    for mass in gibbs.prepare(8, means=[2.0, 5.0], variances=[1.5]):
        by_target[mass["moment"], mass["target"]].append(mass["probability"])
    classes = np.arange(8)
    for (moment, target), probabilities in by_target.items():
        assert sum(probabilities) == pytest.approx(1)
        mean = float(classes @ probabilities)
        spread = float((classes - mean) ** 2 @ probabilities)
        assert (mean if moment == "mean" else spread) == pytest.approx(target)
        if moment == "variance":
            assert mean == pytest.approx(3.5)


def test_samples_are_the_images_enlarged() -> None:
    found = samples.prepare(IMAGES)
    assert [(s["row"], s["column"]) for s in found] == [("digits", "clean"), ("digits", "fog 3"), ("cifar10", "clean")]
    images = [np.asarray(Image.open(io.BytesIO(b64decode(s["url"].split(",")[1])))) for s in found]
    assert [image.shape for image in images] == [(192, 192), (192, 192), (192, 192, 3)]
    assert (images[1] == 200).all()
    assert (images[2] == (255, 0, 0)).all()


def test_models_and_natural_shifts_have_their_own_panels() -> None:
    rows = [{**row, "model": model, "run": row["run"] + model} for row in MADE.rows for model in ("mlp", "cnn")]
    assert list(by_panel(severity.prepare(rows_table(rows), data=["digits"]))) == ["digits, cnn", "digits, mlp"]
    both = pa.concat_tables([ROWS, WILD.tables[0]])
    assert list(by_panel(severity.prepare(both))) == ["digits", "mnist"]
    assert list(by_panel(feature_norm.prepare(both))) == ["camelyon17", "digits", "mnist"]
    natural = feature_norm.prepare(WILD.tables[0])
    assert {point["shift_level"] for point in natural} == {0, 1}
    svg = to_svg(feature_norm.draw(natural))
    assert all(f": {test_set}, norm " in svg for test_set in ("unshifted test set", "shifted test set"))
    records = reliability.prepare(WILD.tables[1], losses=["focal"], severity=0)
    head = {"loss": "focal", "curve": "reliability", "split": "id_test"}
    counts = [slow_pool(WILD.curves, b, **head)[2] for b in range(10)]
    assert [r["share"] for r in records] == pytest.approx([count / sum(counts) for count in counts])
    assert "camelyon17" in to_svg(risk_coverage.draw(risk_coverage.prepare(WILD.tables[1])))


# The charts


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn_on_white(name: str, charts: dict[str, Any], drawn: dict[str, str]) -> None:
    spec = charts[name].to_dict()  # altair validates it
    assert spec["config"]["background"] == "white"
    assert drawn[name].count("<path") > 5 or drawn[name].count("<image") == 3
    assert 'fill="white"' in drawn[name]
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)px"', drawn[name])]
    assert min(sizes) > 9.3  # pixels: 7 points
    narrow = name in ("gibbs", "samples", "local_constraints", "feature_norm", "risk_coverage", "heat_map")
    assert 150 < width_of(drawn[name]) < (COLUMN_WIDTH if narrow else PAGE_WIDTH) + 10


def test_marks_have_descriptions_and_the_colour_of_their_loss(drawn: dict[str, str]) -> None:
    for name in ("severity", "reliability", "feature_norm", "risk_coverage"):
        for loss in ("cross_entropy", "focal", "maxent_mean"):
            assert line_style(loss).colour.lower() in drawn[name].lower(), (name, loss)
    labels = {name: re.findall(r' aria-label="([^"]*)"', svg) for name, svg in drawn.items()}
    descriptions = {
        "severity": r"Focal: severity 3, ECE [\d.]+ %, mean of 2 seeds",
        "reliability": r"Focal: confidence 90 to 100 %, accuracy [\d.]+ %, [\d.]+ % of the predictions",
        "heat_map": r"MaxEnt M: fog, ECE [\d.]+ %",
        "feature_norm": r"CE: severity 1, norm [\d.]+, ECE [\d.]+ %",
        "gibbs": r"μ = 1.5: class 0, probability [\d.]+ %",
        "samples": "digits: fog 3",
        "risk_coverage": "Focal",
    }
    for name, pattern in descriptions.items():
        assert any(re.fullmatch(pattern, label) for label in labels[name]), name


def test_two_data_sets_are_drawn_side_by_side_under_a_note(tmp_path: Path) -> None:
    """Means are over the tests that all runs have; other calibrators do not matter."""
    run = next(row["run"] for row in MADE.curves if row["data"] == "mnist" and row["loss"] == "focal")
    kept = [row for row in MADE.curves if (row["run"], row["split"], row["calibrator"]) != (run, "fog-3", "none")]
    folder = write(tmp_path, ROWS, curves_table(kept))
    svg = to_svg(figures.make_figure("risk_coverage", folder))
    assert ">mnist: means are over the 4 of 5 test sets that all runs have.<" in svg
    assert COLUMN_WIDTH < width_of(svg) < PAGE_WIDTH + 10
    assert "tests that all runs have" not in to_svg(
        figures.make_figure("risk_coverage", folder, calibrator="temperature")
    )


def test_figures_by_name_and_the_reasons_for_others(tmp_path: Path, folder: ExperimentFolder) -> None:
    seen: list[str] = []
    made, reasons = figures.make_figures(
        folder, ["samples", "gibbs", "severity"], progress=seen.append, losses=["poly"]
    )
    assert (seen, list(made)) == (["gibbs", "severity", "samples"], ["gibbs"])
    assert reasons["samples"] == "cannot draw samples: no images given"
    assert "unknown loss of the experiment 'poly'" in reasons["severity"]
    folder = write(tmp_path, ROWS, CURVES)
    folder.curves_file.unlink()
    _, reasons = figures.make_figures(folder.path, ["reliability"])
    assert "has no curves.parquet" in reasons["reliability"]


# The files


@pytest.mark.parametrize("suffix", [suffix for suffix in FIGURE_FORMATS if suffix != ".html"])
def test_every_format_is_written(suffix: str, charts: dict[str, Any], tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_html_is_self_contained(charts: dict[str, Any], tmp_path: Path) -> None:
    save(charts["samples"], tmp_path / "samples.html")
    page = (tmp_path / "samples.html").read_text()
    assert page.lstrip().startswith("<!DOCTYPE html>")
    assert "data:image/png;base64" in page
    tags = Page(page)
    assert len(tags.all("script")) > 0
    assert [value for name in ("src", "href", "srcset", "data") for value in tags.values(name)] == []
    assert re.findall(r"@import|\bcdn\.|unpkg\.com|(?:from|import\()\s*[\"']https?:", page) == []


# Refusals

PLAIN = Experiment(losses=("maxent_mean",), seeds=1, severities=(2,))
SHIFTED = rows_table(row for row in PLAIN.rows if row["shifted"])
CLEAN = curves_table(row for row in PLAIN.curves if not row["shifted"])
NORMS = Experiment(metrics=("feature_norm",)).tables[0]
ECES = Experiment(metrics=("ece",)).tables[0]
FLOAT, CHANNELS_FIRST = np.zeros((8, 8)), np.zeros((3, 8, 8), np.uint8)
REFUSALS: list[tuple[str, Any, dict[str, Any], type[CalibrantError], str]] = [
    ("severity", WILD.tables[0], {}, NoDataError, "no test sets at several severities. Use .* corrupted test sets"),
    ("severity", SHIFTED, {}, NoDataError, "all test sets of the experiment have severity 2"),
    ("severity", NORMS, {}, NoDataError, "accuracy, ece, kse. Add them to the experiment's metrics"),
    ("local_constraints", PLAIN.tables[0], {}, NoDataError, 'variant "global". Add a grid .* { local = false }'),
    ("label_smoothing", PLAIN.tables[1], {}, NoDataError, r"label_smoothing = \[0.0, 0.01\]"),
    ("feature_norm", ECES, {}, NoDataError, "no rows of both ece and feature_norm. Add ece"),
    ("heat_map", WILD.tables[0], {}, NoDataError, "no ECE on corrupted test sets"),
    ("calibrated", PLAIN.tables[0], {}, NoDataError, "calibrated rows. Add calibrators to the experiment"),
    ("reliability", CLEAN, {}, NoDataError, "no shifted test sets that all runs have. Use a data set"),
    ("reliability", CURVES, {"severity": 5}, NoDataError, "test sets of severity 5. Choose another"),
    ("severity", rows_table([]), {}, NoDataError, "no results: no run has finished"),
    ("severity", ROWS, {"losses": ["focall"]}, UnknownNameError, "'focall'; did you mean 'focal'"),
    ("heat_map", ROWS, {"calibrator": "spline"}, UnknownNameError, "experiment 'spline'"),
    ("reliability", CURVES, {"severity": 6}, InvalidInputError, "integer from 0 to 5, got 6"),
    ("samples", {"a": {"b": FLOAT}}, {}, InvalidInputError, r"got float64 of \(8, 8\) for a, b"),
    ("samples", {"a": {"b": CHANNELS_FIRST}}, {}, InvalidInputError, r"uint8 of \(3, 8, 8\) for a, b"),
    ("samples", {}, {}, InvalidInputError, "no images given"),
]


def test_refusals_of_prepare() -> None:
    for name, table, options, error, message in REFUSALS:
        with pytest.raises(error, match=message) as caught:
            FIGURES[name].module.prepare(table, **options)
        assert "\n" not in str(caught.value)


def test_refusals_of_make_and_save(folder: ExperimentFolder, charts: dict[str, Any], tmp_path: Path) -> None:
    refused: list[tuple[tuple[Any, ...], dict[str, Any], type[CalibrantError], str]] = [
        (("gibs",), {}, UnknownNameError, "unknown figure 'gibs'; did you mean 'gibbs'"),
        (("severity", folder), {"severity": 3}, InvalidInputError, "the figure severity has no option severity"),
        (("severity",), {}, InvalidInputError, "the figure severity needs the folder of an experiment"),
        (("reliability", folder), {"calibrator": "spline"}, UnknownNameError, "calibrator of the experiment 'spline'"),
    ]
    for arguments, options, error, message in refused:
        with pytest.raises(error, match=message):
            figures.make_figure(*arguments, **options)
    with pytest.raises(UnknownNameError, match="unknown figure 'gibs'"):
        figures.make_figures(folder, ["gibs"])
    for path in ("figure.gif", "figure", "figure.svg.gz"):
        with pytest.raises(InvalidInputError, match=rf"\.svg, \.png, \.pdf, \.html, \.json; got .*{re.escape(path)}"):
            save(charts["gibbs"], tmp_path / path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("module", "missing"), [("charts", "altair"), ("render", "vl_convert")])
def test_the_missing_extra_is_named(module: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, f"calibrant.report.{module}")
    with pytest.raises(MissingExtraError, match=r"drawing needs the extra report: pip install 'calibrant\[report\]'"):
        import_module(f"calibrant.report.{module}")


def test_a_loss_at_chance_is_named_above_the_figure(tmp_path: Path) -> None:
    """A constant prediction can have the lowest ECE: the figures say which loss it is."""
    rows = [
        {
            **row,
            "majority": 0.5,
            "value": 0.5 if (row["loss"], row["metric"]) == ("focal", "accuracy") else row["value"],
        }
        for row in MADE.rows
        if row["data"] == "digits"
    ]
    folder = write(tmp_path, rows_table(rows), CURVES)
    note = "digits: a run is at chance, so not to be compared: Focal."
    for name in ("severity", "heat_map"):
        assert note in figures.make_figure(name, folder).spec["title"]["text"], name
    assert "title" not in figures.make_figure("severity", folder, losses=["cross_entropy"]).spec
