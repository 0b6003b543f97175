"""The tables of the paper from made-up rows: layout, digits, marks and notes; and the published numbers."""

import csv
import io
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from calibrant.errors import InvalidInputError, NoDataError, UnknownNameError
from calibrant.losses import LOSSES
from calibrant.metrics.table import METRICS
from calibrant.report.formats import TABLE_FORMATS, render
from calibrant.report.paper import DATA_TITLES, TABLES, make_table
from calibrant.report.published import PUBLISHED, published
from calibrant.report.scores import ScoreKey, filter_severity
from calibrant.report.table import Cell, Table
from made.rows import rows_table, run_rows

SHOWN = ("accuracy", "ece", "cece", "kse", "mce", "adaece", "nll_on_errors", "brier_on_errors")


def runs(scores: list[float], tests: tuple[str, ...] = ("fog-1", "fog-5"), **about: Any) -> list[dict[str, Any]]:
    """A run per score, which is the value of every test and metric."""
    metrics = [about.pop("metric")] if "metric" in about else SHOWN
    return [
        row
        for seed, score in enumerate(scores)
        for metric in metrics
        for row in run_rows(dict.fromkeys(tests, score), seed=seed, metric=metric, **about)
    ]


def table_of(*found: list[dict[str, Any]]) -> pa.Table:
    return rows_table(row for rows in found for row in rows)


def cell(table: Table, label: str, heading: str, group: str | None = None) -> Cell:
    """The cell by the labels of its row and column."""
    (row,) = (row for row in table.rows if row[0].text == label)
    columns = zip(table.columns, row, strict=True)
    return next(c for column, c in columns if column.heading == heading and group in (None, column.group))


def labels(table: Table) -> list[str]:
    return [row[0].text for row in table.rows]


def headings(table: Table) -> dict[str, list[str]]:
    """Those under each group."""
    found: dict[str, list[str]] = {}
    for column in table.columns[1:]:
        found.setdefault(column.group, []).append(column.heading)
    return found


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table_of(
        runs([0.1, 0.2, 0.3]),
        runs([0.3, 0.5, 0.7], loss="cross_entropy"),
        runs([0.2, 0.3], loss="maxent_mean"),
        runs([0.4, 0.4], loss="maxent_mean", variant="global"),
        runs([0.1, 0.2], loss="maxent_mean", calibrator="temperature"),
        runs([0.25, 0.35], loss="maxent_mean", label_smoothing=0.01),
        runs([0.9], loss="zeta"),
        runs([0.5], data="digits", tests=("fog-1",)),
        runs([0.125, 0.25], data="fmow", tests=("wild",), loss="maxent_variance"),
    )


def test_table_1_has_the_layout_of_the_paper(rows: pa.Table) -> None:
    table = make_table(rows, "1")
    assert list(headings(table)) == ["CIFAR10-C", "FMoW-Wilds", "digits"]  # those of the paper first
    assert headings(table)["CIFAR10-C"] == ["Accuracy", "ECE", "CECE", "KSE"]
    assert labels(table) == ["CE", "Focal", "MaxEnt M", "MaxEnt V", "zeta", "MaxEnt M (global)"]
    assert cell(table, "Focal", "ECE").text == "20.0±5.8"
    assert cell(table, "zeta", "ECE").text == "90.0"
    assert cell(table, "CE", "ECE", "digits").text == "–"
    assert cell(table, "MaxEnt V", "KSE", "FMoW-Wilds").text == "18.8±6.2"
    best = [(c.facts["loss"], c.facts["metric"]) for row in table.rows for c in row if c.kind == "best"]
    assert best == [("focal", "ece"), ("focal", "cece"), ("focal", "kse"), ("zeta", "accuracy")]
    assert {c.marks for row in table.rows for c in row} == {""}  # zeta has one seed, so no difference is significant
    assert table.footnotes("•")[0] == "•: best of its column."


def test_significance_is_against_every_other_loss() -> None:
    focal, near = runs([0.1, 0.2, 0.3]), runs([0.3, 0.5, 0.7], loss="cross_entropy")
    note = (
        "†: significantly better than every other score it is compared with, beyond the noise of seeds and test rows "
        "(5 % level for each comparison, unadjusted; training and validation images are taken as given)."
    )
    alone = make_table(table_of(focal, near), "1")
    assert cell(alone, "Focal", "ECE").marks == "†"
    assert note in alone.notes
    noisy = make_table(table_of(focal, near, runs([0.05, 2.5, 1.0], loss="poly")), "1")
    assert (cell(noisy, "Focal", "ECE").kind, cell(noisy, "Focal", "ECE").marks) == ("best", "")
    assert note not in noisy.notes


def test_shared_tests_are_noted() -> None:
    lacking = runs([0.1, 0.1], loss="poly", tests=("fog-1",))
    table = make_table(table_of(runs([0.3, 0.3]), lacking), "1")
    assert table.notes[:2] == [
        "Mean ± standard error over 2 seeds, on the shifted test set.",
        "cifar10: means are over the 1 of 2 test sets that all runs have.",
    ]
    assert cell(table, "Poly", "ECE").kind == "best"
    whole = make_table(table_of(runs([0.3, 0.3])), "1")
    mean = "mean over the 2 shifted test sets that all runs of the data set and model have."
    assert whole.notes[0] == f"Mean ± standard error over 2 seeds; the value of a seed is its {mean}"
    assert make_table(table_of(runs([0.3])), "1").notes[0] == f"One seed: {mean}"
    assert not any(note.startswith(("†", "‡", "–", "cifar10")) for note in whole.notes)


def test_a_natural_shift_is_not_averaged_with_corruptions() -> None:
    values = {"test": 0.9, "fog-1": 0.1, "fog-5": 0.3, "photos": 0.7}
    shown = [row for metric in SHOWN for row in run_rows(values, metric=metric, loss="maxent_mean")]
    table = make_table(table_of(shown, runs([0.5], data="fmow", tests=("wild",))), "1", with_paper=True)
    assert list(headings(table)) == ["CIFAR10-C", "cifar10, photos", "FMoW-Wilds"]
    texts = [cell(table, "MaxEnt M", "ECE", group).text for group in ("CIFAR10-C", "cifar10, photos")]
    assert (texts, cell(table, "Focal", "ECE", "FMoW-Wilds").text) == (["20.0", "70.0"], "50.0")
    assert "paper" not in headings(table)["cifar10, photos"]
    assert table.notes[0].startswith("One seed: mean over the 1 to 2 shifted test sets")
    assert "photos: a natural shift by itself, which is not in the mean over corruptions." in table.notes
    assert labels(make_table(table_of(shown), "2")) == ["CIFAR10-C", "cifar10, photos"]
    panel = rows_table(shown).append_column("panel", pa.array(["cifar10"] * len(shown)))
    assert set(filter_severity(panel, None)["split"].to_pylist()) == {"fog-1", "fog-5"}


def test_table_2_has_a_row_for_each_data_set(rows: pa.Table) -> None:
    table = make_table(rows, "2")
    assert list(headings(table)) == ["MaxEnt", "MaxEnt w/ TS", "MaxEnt w/ LS"]
    assert headings(table)["MaxEnt"] == ["Mean", "Var", "Mult"]
    assert labels(table) == ["CIFAR10-C", "FMoW-Wilds"]
    tempered = cell(table, "CIFAR10-C", "Mean", "MaxEnt w/ TS")
    assert (tempered.text, tempered.marks[:1], tempered.kind) == ("15.0±5.0", "‡", "best")
    assert cell(table, "CIFAR10-C", "Mean", "MaxEnt w/ LS").marks == ""
    assert cell(table, "CIFAR10-C", "Mean", "MaxEnt").marks == ""
    assert cell(table, "CIFAR10-C", "Var", "MaxEnt").text == "–"
    assert "‡: lower than for the same loss without a calibrator or label smoothing." in table.notes


def test_table_2_with_all_losses_has_a_row_for_each(rows: pa.Table) -> None:
    table = make_table(rows, "2", all_losses=True, data=["cifar10"])
    assert list(headings(table)) == ["CIFAR10-C"]
    assert headings(table)["CIFAR10-C"] == ["raw", "w/ TS", "w/ LS"]
    assert labels(table) == ["CE", "Focal", "MaxEnt M", "zeta", "MaxEnt M (global)"]
    assert cell(table, "MaxEnt M", "w/ TS").kind == "best"
    assert cell(table, "Focal", "w/ TS").text == "–"
    assert cell(table, "Focal", "raw").kind == ""  # nothing else was tried
    both = [
        runs([0.2], data=data) + runs([value], data=data, calibrator="vector")
        for data, value in (("a", 0.1), ("b", 0.3))
    ]
    table = make_table(table_of(*both), "2", all_losses=True)
    best = [(column.group, column.heading) for column, c in zip(table.columns, table.rows[0], strict=True) if c.kind]
    assert best == [("a", "w/ vector"), ("b", "raw")]  # within a data set
    assert table.best == "row within a data set"


def test_calibrators_label_smoothing_and_models_have_their_own_columns() -> None:
    names = ("vector", "temperature", "temperature_grid")
    calibrated = [runs([0.1], loss="maxent_mean", calibrator=name) for name in names]
    smoothed = [runs([0.1], loss="maxent_mean", label_smoothing=alpha) for alpha in (0.1, 0.01)]
    variant = runs([0.1], loss="maxent_mean", variant="global", calibrator="matrix")  # which table 2 does not show
    table = make_table(table_of(runs([0.2], loss="maxent_mean"), *calibrated, *smoothed, variant), "2")
    calibrators = ["w/ TS grid", "w/ TS exact", "w/ vector", "w/ LS 0.01", "w/ LS 0.1"]
    assert list(headings(table)) == ["MaxEnt", *(f"MaxEnt {name}" for name in calibrators)]
    table = make_table(table_of(runs([0.1]), runs([0.2], loss="poly", label_smoothing=0.1)), "1")
    assert labels(table) == ["Focal"]
    table = make_table(table_of(runs([0.1]), runs([0.2], model="densenet"), runs([0.3], data="fmow")), "1")
    assert list(headings(table)) == ["CIFAR10-C, densenet", "CIFAR10-C, resnet18", "FMoW-Wilds"]
    assert cell(table, "Focal", "ECE", "CIFAR10-C, densenet").text == "20.0"


def test_the_appendix_has_its_metrics_and_units(rows: pa.Table) -> None:
    table = make_table(rows, "appendix", data=["cifar10"])
    shown = ["MCE", "AdaECE", "NLL (err.)", "Brier (err.)"]
    assert headings(table)["CIFAR10-C"] == shown
    assert [cell(table, "Focal", name).text for name in shown] == ["20.0±5.8", "20.0±5.8", "0.200±0.06", "0.200±0.06"]


def test_against_the_paper_adds_the_published_numbers(rows: pa.Table) -> None:
    table = make_table(rows, "1", with_paper=True)
    assert headings(table)["CIFAR10-C"] == [n for name in ("Accuracy", "ECE", "CECE", "KSE") for n in (name, "paper")]
    assert "paper" not in headings(table)["digits"]  # of which it has none
    by_loss = {row[0].text: row for row in table.rows}
    assert [by_loss[label][4].text for label in ("Focal", "zeta", "MaxEnt M (global)")] == ["9.30±0.1", "–", "–"]
    facts = cell(table, "Focal", "ECE").facts
    assert (facts["published_mean"], facts["published_standard_error"]) == (9.3, 0.1)
    note = "paper: published values (Neo, Winkler and Chen, AAAI 2024); models and training may differ from "
    assert f"{note}this experiment." in table.notes
    for plain in (make_table(rows, "1"), make_table(rows, "1", with_paper=True, data=["digits"])):
        assert note not in plain.notes
        assert "paper" not in {column.heading for column in plain.columns}
    text = render(make_table(rows, "1", with_paper=True, data=["cifar10"]), "text")
    assert "20.0±5.8•  9.30±0.1" in text


def test_doubtful_published_numbers_have_notes(rows: pa.Table) -> None:
    def doubts(found: pa.Table, name: str) -> str:
        return " ".join(make_table(found, name, with_paper=True).notes)

    assert "AvUC" not in doubts(rows, "1")
    assert "published AvUC values are unreliable" in doubts(table_of(runs([0.1], loss="avuc")), "1")
    assert "number of classes" in doubts(rows, "appendix")
    assert "0.69" not in doubts(rows, "appendix")
    assert "0.69" in doubts(table_of(runs([0.1], data="tiny_imagenet")), "appendix")
    assert "best of four" in doubts(rows, "2")
    table = make_table(rows, "2", with_paper=True)
    for group, mean in (("MaxEnt w/ TS", 6.9), ("MaxEnt w/ LS", 9.6)):
        assert cell(table, "CIFAR10-C", "Mean", group).facts["published_mean"] == mean


def test_csv_is_tidy_and_precise(rows: pa.Table) -> None:
    lines = list(csv.DictReader(io.StringIO(render(make_table(rows, "1", with_paper=True), "csv"))))
    assert len(lines) == 6 * 3 * 4
    (focal,) = (line for line in lines if (line["data"], line["loss"], line["metric"]) == ("cifar10", "focal", "ece"))
    assert float(focal["mean"]) == pytest.approx(20, abs=1e-12)
    assert float(focal["standard_error"]) == pytest.approx(10 / 3**0.5, abs=1e-12)
    about = {"table": "1", "calibrator": "none", "n_seeds": "3", "n_tests": "2", "best": "True", "significant": "False"}
    assert about.items() <= focal.items()
    assert (focal["published_mean"], focal["published_standard_error"]) == ("9.3", "0.1")
    (absent,) = (line for line in lines if (line["data"], line["loss"], line["metric"]) == ("digits", "zeta", "ece"))
    assert (absent["mean"], absent["standard_error"], absent["n_seeds"], absent["published_mean"]) == ("", "", "0", "")


@pytest.mark.parametrize("name", TABLES)
def test_every_format_shows_every_number(rows: pa.Table, name: str) -> None:
    table = make_table(rows, name, with_paper=True)
    for format in TABLE_FORMATS:
        text = render(table, format, width=80)
        assert text.endswith("\n")
        plain = text.replace("$", "").replace(r"\pm", "±").replace(r"\textbf{", "").replace("}", "")
        if format not in ("csv", "json"):
            assert all(c.text == "–" or c.text in plain for row in table.rows for c in row[1:])
        if format == "text":
            assert max(map(len, text.splitlines())) <= 80


FOCAL = runs([0.1])
APART = runs([0.1], tests=("fog-1",)) + runs([0.1], tests=("fog-2",), loss="poly")
REFUSALS: list[tuple[list[dict[str, Any]], str, dict[str, Any], type[Exception], str]] = [
    (FOCAL, "apendix", {}, UnknownNameError, "unknown table 'apendix'; did you mean 'appendix'"),
    (FOCAL, "1", {"data": ["cifar"]}, UnknownNameError, "unknown data 'cifar'; did you mean 'cifar10'"),
    (FOCAL, "1", {"all_losses": True}, InvalidInputError, "belongs to table 2, got table 1"),
    (
        runs([0.1], tests=("test",)),
        "1",
        {},
        NoDataError,
        "no results for table 1 \\(accuracy, ece, cece, kse\\) on shifted test sets",
    ),
    (runs([0.1], metric="ece"), "appendix", {}, NoDataError, "table appendix \\(mce, adaece"),
    (runs([0.1], label_smoothing=0.1), "1", {}, NoDataError, "no results for table 1"),
    (FOCAL, "2", {}, NoDataError, "no run of maxent_mean"),
    ([], "1", {}, NoDataError, "on shifted test sets"),
    (APART, "1", {}, NoDataError, "cifar10: means are over the 0 of 2 test sets that all runs have"),
]


def test_refusals() -> None:
    for found, name, options, error, message in REFUSALS:
        with pytest.raises(error, match=message):
            make_table(rows_table(found), name, **options)


# The paper's numbers

with PUBLISHED.open(encoding="utf-8", newline="") as file:
    PRINTED = list(csv.DictReader(file))

PRINTS = [  # of Table 1, the appendix and Table 2, corners among them
    (("cifar10", "cross_entropy", "accuracy"), {}, (77.9, 0.3)),
    (("tiny_imagenet", "maxent_mean_variance", "kse"), {}, (10.5, 0.1)),
    (("camelyon17", "soft_avuc", "cece"), {}, (24.0, 1.5)),
    (("fmow", "maxent_variance", "kse"), {}, (4.7, 0.3)),
    (("cifar10", "cross_entropy", "mce"), {}, (34.9, 3.9)),
    (("cifar10", "soft_avuc", "nll_on_errors"), {}, (2.425, 0.1)),
    (("tiny_imagenet", "poly", "brier_on_errors"), {}, (0.006, 0.0)),
    (("iwildcam", "soft_avuc", "mce"), {}, (55.4, 22.1)),
    (("fmow", "maxent_mean_variance", "brier_on_errors"), {}, (0.01, 0.1)),
    (("cifar10", "maxent_variance", "ece"), {"calibrator": "temperature_grid"}, (6.7, 0.2)),
    (("fmow", "maxent_mean", "ece"), {"calibrator": "temperature_grid"}, (3.5, 0.4)),
    (("tiny_imagenet", "maxent_mean", "ece"), {"label_smoothing": 0.01}, (9.0, 1.0)),
    (("fmow", "maxent_mean_variance", "ece"), {"label_smoothing": 0.01}, (7.6, 2.3)),
]


def published_score(data: str, loss: str, metric: str, **options: Any) -> tuple[str, str] | None:
    key = ScoreKey(data, "resnet18", loss, "", 0.0, "none", metric)
    return published(key._replace(**options))


def test_published_numbers() -> None:
    for place, options, expected in PRINTS:
        digits = published_score(*place, **options)
        assert digits is not None
        assert tuple(map(float, digits)) == expected, place
    assert published_score("cifar10", "maxent_mean", "ece") == ("8.70", "0.2")  # digits stay as printed
    assert published_score("cifar10", "maxent_mean", "nll") is None
    assert published_score("cifar10", "cross_entropy", "ece", calibrator="temperature_grid") is None


def test_every_cell_of_the_paper_is_published_once() -> None:
    assert Counter(row["table"] for row in PRINTED) == {"1": 9 * 6 * 4, "2": 9 * 6, "appendix": 9 * 6 * 4}
    assert set(Counter(tuple(row.values())[:6] for row in PRINTED).values()) == {1}
    for name, (_, metrics) in TABLES.items():
        assert {row["metric"] for row in PRINTED if row["table"] == name} == set(metrics) <= set(METRICS)
    assert {row["data"] for row in PRINTED} == set(DATA_TITLES)
    assert {row["loss"] for row in PRINTED} <= set(LOSSES)


def test_the_plain_columns_of_table_2_repeat_table_1() -> None:
    def plain_ece(table: str) -> dict[tuple[str, str], tuple[str, str]]:
        plain = {"table": table, "metric": "ece", "calibrator": "none", "label_smoothing": "0"}
        return {(r["data"], r["loss"]): (r["mean"], r["standard_error"]) for r in PRINTED if plain.items() <= r.items()}

    assert len(plain_ece("2")) == 18
    assert plain_ece("2").items() <= plain_ece("1").items()
