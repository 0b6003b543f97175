"""The tables of the paper from made-up rows: places, digits, marks, footnotes, and every format with hostile names."""

import csv
import io
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_summary import run_rows, table_of

from calibrant.errors import InvalidInputError, NoDataError, UnknownNameError
from calibrant.report.formats import FORMATS, render
from calibrant.report.tables import Entry, Table, error_text, make_table, mean_text

HOSTILE = 'a_b%&|<b>$^~#{}\\"[*`é日\n'
METRICS = ("accuracy", "ece", "cece", "kse", "mce", "adaece", "nll_on_errors", "brier_on_errors")


def runs(scores: list[float], tests: tuple[str, ...] = ("fog-1", "fog-5"), **about: Any) -> list[dict[str, Any]]:
    """A run per score, which it has on every test, in every metric unless told."""
    metrics = [about.pop("metric")] if "metric" in about else METRICS
    return [
        row
        for seed, score in enumerate(scores)
        for metric in metrics
        for row in run_rows(dict.fromkeys(tests, score), seed=seed, metric=metric, **about)
    ]


def entry(table: Table, label: str, heading: str, group: str | None = None) -> Entry:
    """The entry of a line and column, found by what stands over and before it."""
    for block in table.blocks:
        columns = [(g.title, name) for g in block.groups for name in g.headings]
        for line in block.lines:
            for column, found in zip(columns, line.entries, strict=True):
                if line.label == label and column[1] == heading and group in (None, column[0]):
                    return found
    raise AssertionError(f"no {label}, {heading}, {group}")


def labels(table: Table, block: int = 0) -> list[str]:
    return [line.label for line in table.blocks[block].lines]


def titles(table: Table) -> list[list[str]]:
    return [[group.title for group in block.groups] for block in table.blocks]


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


def test_table_1_stands_as_in_the_paper(rows: pa.Table) -> None:
    table = make_table(rows, "1")
    assert titles(table) == [["CIFAR10-C", "digits"], ["FMoW-Wilds"]]
    assert table.blocks[0].groups[0].headings == ("Accuracy", "ECE", "CECE", "KSE")
    assert labels(table) == ["CE", "Focal", "MaxEnt M", "zeta", "MaxEnt M (global)"]
    assert labels(table, 1) == ["MaxEnt V"]
    assert entry(table, "Focal", "ECE").text == "20.0±5.8"
    assert entry(table, "zeta", "ECE").text == "90.0"
    assert entry(table, "CE", "ECE", "digits").text == "–"
    assert entry(table, "MaxEnt V", "KSE").text == "18.8±6.2"
    assert not any(found.improved for found in table.entries)


def test_best_is_the_highest_accuracy_and_the_lowest_error(rows: pa.Table) -> None:
    table = make_table(rows, "1")
    best = [(found.key.loss, found.key.metric) for found in table.entries if found.is_best]
    assert best == [("focal", "ece"), ("focal", "cece"), ("focal", "kse"), ("zeta", "accuracy")]
    assert not any(found.is_significant for found in table.entries)  # zeta has one seed, so that none is ahead of it
    assert "•: best of its column." in render(table, "text")


def test_the_mark_of_significance_is_for_one_that_leads_all_others() -> None:
    focal, near = runs([0.1, 0.2, 0.3]), runs([0.3, 0.5, 0.7], loss="cross_entropy")
    note = "†: ahead of every other beyond the chance of seeds (paired t-test, 5 %)."
    alone = make_table(table_of(focal, near), "1")
    assert entry(alone, "Focal", "ECE").is_significant
    assert note in alone.footnotes
    assert {line["significant"] for line in csv.DictReader(io.StringIO(render(alone, "csv")))} == {"True", "False"}
    noisy = make_table(table_of(focal, near, runs([0.05, 2.5, 1.0], loss="poly")), "1")
    assert entry(noisy, "Focal", "ECE").is_best
    assert not entry(noisy, "Focal", "ECE").is_significant
    assert note not in noisy.footnotes


def test_cells_that_lack_tests_are_starred_and_do_not_compete() -> None:
    lacking = runs([0.1, 0.1], loss="poly", tests=("fog-1",))
    table = make_table(table_of(runs([0.3, 0.3]), runs([0.2, 0.2], loss="avuc"), lacking), "1")
    assert entry(table, "Poly", "ECE").is_partial
    assert [found.key.loss for found in table.entries if found.is_best and found.key.metric == "ece"] == ["avuc"]
    assert "10.0±0.0*" in render(table, "text")
    assert any(note.startswith("*: ") for note in table.footnotes)
    whole = make_table(table_of(runs([0.3, 0.3])), "1")
    assert not any(note.startswith(("*", "†", "↓", "–")) for note in whole.footnotes)


def test_table_2_has_a_line_for_each_data_set(rows: pa.Table) -> None:
    table = make_table(rows, "2")
    assert titles(table) == [["MaxEnt", "MaxEnt w/ TS", "MaxEnt w/ LS"]]
    assert table.blocks[0].groups[0].headings == ("Mean", "Var", "Mult")
    assert labels(table) == ["CIFAR10-C", "FMoW-Wilds"]
    tempered = entry(table, "CIFAR10-C", "Mean", "MaxEnt w/ TS")
    assert (tempered.text, tempered.improved, tempered.is_best) == ("15.0±5.0", True, True)
    assert not entry(table, "CIFAR10-C", "Mean", "MaxEnt w/ LS").improved
    assert not entry(table, "CIFAR10-C", "Mean", "MaxEnt").improved
    assert entry(table, "CIFAR10-C", "Var", "MaxEnt").text == "–"


def test_table_2_with_all_losses_has_a_line_for_each(rows: pa.Table) -> None:
    table = make_table(rows, "2", all_losses=True, data=["cifar10"])
    assert titles(table) == [["CIFAR10-C"]]
    assert table.blocks[0].groups[0].headings == ("raw", "w/ TS", "w/ LS")
    assert labels(table) == ["CE", "Focal", "MaxEnt M", "zeta", "MaxEnt M (global)"]
    assert entry(table, "MaxEnt M", "w/ TS").is_best
    assert entry(table, "Focal", "w/ TS").text == "–"
    assert not entry(table, "Focal", "raw").is_best  # nothing else was tried


def test_calibrators_are_told_apart() -> None:
    names = ("vector", "temperature", "temperature_grid")
    calibrated = [runs([0.1], loss="maxent_mean", calibrator=name) for name in names]
    smoothed = [runs([0.1], loss="maxent_mean", label_smoothing=alpha) for alpha in (0.1, 0.01)]
    variant = runs([0.1], loss="maxent_mean", variant="global", calibrator="matrix")  # which table 2 does not show
    table = make_table(table_of(runs([0.2], loss="maxent_mean"), *calibrated, *smoothed, variant), "2")
    remedies = ["w/ TS grid", "w/ TS exact", "w/ vector", "w/ LS 0.01", "w/ LS 0.1"]
    assert titles(table) == [["MaxEnt", *(f"MaxEnt {remedy}" for remedy in remedies)]]


def test_the_appendix_has_its_metrics_and_units(rows: pa.Table) -> None:
    table = make_table(rows, "appendix", data=["cifar10"])
    headings = ("MCE", "AdaECE", "NLL (err.)", "Brier (err.)")
    assert table.blocks[0].groups[0].headings == headings
    assert [entry(table, "Focal", name).text for name in headings] == [
        "20.0±5.8",
        "20.0±5.8",
        "0.200±0.06",
        "0.200±0.06",
    ]


def test_a_loss_with_smoothed_labels_alone_has_no_line_in_table_1() -> None:
    table = make_table(table_of(runs([0.1]), runs([0.2], loss="poly", label_smoothing=0.1)), "1")
    assert labels(table) == ["Focal"]


def test_models_on_the_same_data_stand_apart() -> None:
    table = make_table(table_of(runs([0.1]), runs([0.2], model="densenet"), runs([0.3], data="fmow")), "1")
    assert titles(table) == [["CIFAR10-C, densenet", "CIFAR10-C, resnet18", "FMoW-Wilds"]]
    assert entry(table, "Focal", "ECE", "CIFAR10-C, densenet").text == "20.0"


def test_at_most_three_data_sets_stand_side_by_side() -> None:
    table = make_table(table_of(*(runs([0.1], data=name) for name in "edcba")), "1")
    assert titles(table) == [["a", "b", "c"], ["d", "e"]]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.4, "0.40"), (9.994, "9.99"), (9.996, "10.0"), (99.94, "99.9"), (99.96, "100"), (100, "100")],
    ids=str,
)
def test_percentages_have_three_digits(value: float, text: str) -> None:
    assert mean_text(value, True) == text


def test_an_error_is_never_zero_that_is_not() -> None:
    for exponent in range(-20, 3):
        text = error_text(3 * 10.0**exponent)
        assert text == "<0.0001" or float(text) > 0
    assert [error_text(value) for value in (0, 0.1, 0.25, 0.05, 0.0004)] == ["0.0", "0.1", "0.2", "0.05", "0.0004"]


def test_against_the_paper_its_digits_stand_beside(rows: pa.Table) -> None:
    table = make_table(rows, "1", against="paper")
    focal = entry(table, "Focal", "ECE", "CIFAR10-C")
    assert (focal.published, focal.published_text) == ((9.3, 0.1), "9.30±0.1")
    for label, group in (("zeta", "CIFAR10-C"), ("MaxEnt M (global)", "CIFAR10-C"), ("Focal", "digits")):
        assert entry(table, label, "ECE", group).published is None
    assert entry(make_table(rows, "1"), "Focal", "ECE").published is None
    table = make_table(
        table_of(runs([0.1, 0.2, 0.3]), runs([0.3, 0.5, 0.7], loss="cross_entropy")), "1", against="paper"
    )
    assert "20.0±5.8•† 9.30±0.1" in render(table, "text")
    assert "**20.0±5.8**† (9.30±0.1)" in render(table, "markdown")
    assert r"\textbf{20.0}$\pm$5.8$\dagger$ {\tiny(9.30$\pm$0.1)}" in render(table, "latex")
    assert '<strong>20.0±5.8</strong>† <span class="paper">(9.30±0.1)</span>' in render(table, "html")


def test_the_paper_is_said_to_be_of_other_models_where_it_stands_beside(rows: pa.Table) -> None:
    note = "The paper's numbers are of its own models and training, not of this experiment's."
    assert note in make_table(rows, "1", against="paper").footnotes
    assert note not in make_table(rows, "1").footnotes
    assert note not in make_table(rows, "1", against="paper", data=["digits"]).footnotes  # of which it has none


def test_what_is_doubtful_in_the_paper_is_said_where_it_stands(rows: pa.Table) -> None:
    def doubts(found: pa.Table, name: str) -> str:
        return " ".join(make_table(found, name, against="paper").footnotes)

    assert "AvUC" not in doubts(rows, "1")
    assert "AvUC is doubtful" in doubts(table_of(runs([0.1], loss="avuc")), "1")
    assert "number of classes" in doubts(rows, "appendix")
    assert "0.69" not in doubts(rows, "appendix")
    assert "0.69" in doubts(table_of(runs([0.1], data="tiny_imagenet")), "appendix")
    assert "best of four" in doubts(rows, "2")
    assert entry(make_table(rows, "2", against="paper"), "CIFAR10-C", "Mean", "MaxEnt w/ TS").published == (6.9, 0.1)
    assert entry(make_table(rows, "2", against="paper"), "CIFAR10-C", "Mean", "MaxEnt w/ LS").published == (9.6, 0.7)


def test_refusals(rows: pa.Table) -> None:
    with pytest.raises(UnknownNameError, match="unknown table 'apendix'; did you mean 'appendix'"):
        make_table(rows, "apendix")
    with pytest.raises(UnknownNameError, match="unknown against 'papers'; did you mean 'paper'"):
        make_table(rows, "1", against="papers")
    with pytest.raises(UnknownNameError, match="unknown data 'cifar'; did you mean 'cifar10'"):
        make_table(rows, "1", data=["cifar"])
    with pytest.raises(UnknownNameError, match="unknown format 'pdf'"):
        render(make_table(rows, "1"), "pdf")
    with pytest.raises(InvalidInputError, match="all_losses belongs to table 2, got table 1"):
        make_table(rows, "1", all_losses=True)


@pytest.mark.parametrize(
    ("found", "name", "message"),
    [
        (runs([0.1], tests=("test",)), "1", "no accuracy, ece, cece, kse on shifted tests"),
        (runs([0.1], metric="ece"), "appendix", "no mce, adaece"),
        (runs([0.1], label_smoothing=0.1), "1", "that table 1 could show"),
        (runs([0.1]), "2", "no run of maxent_mean"),
        ([], "1", "on shifted tests"),
    ],
    ids=["no shift", "no metric", "smoothed alone", "no MaxEnt", "nothing"],
)
def test_nothing_to_show(found: list[dict[str, Any]], name: str, message: str) -> None:
    with pytest.raises(NoDataError, match=message):
        make_table(table_of(found), name)


def test_text_is_readable_in_a_hundred_columns() -> None:
    losses = ("cross_entropy", "soft_avuc", "maxent_mean_variance")
    found = table_of(*(runs([0.1, 0.2, 0.4], loss=loss, data=data) for loss in losses for data in ("cifar10", "fmow")))
    for name in ("1", "2", "appendix"):
        text = render(make_table(found, name, against="paper"), "text")
        assert max(map(len, text.splitlines())) <= 100
        wide = render(make_table(found, name), "text", width=200).splitlines()
        assert max(map(len, wide)) > 60
    lines = render(make_table(found, "1"), "text", width=200).splitlines()
    both = [line for line in lines if "CIFAR10-C" in line and "FMoW-Wilds" in line]
    assert len(both) == 1
    assert lines[3].startswith("Loss")
    assert {line.index("±") for line in lines[5:8]} == {lines[5].index("±")}


def test_csv_is_tidy_and_has_all_digits(rows: pa.Table) -> None:
    lines = list(csv.DictReader(io.StringIO(render(make_table(rows, "1", against="paper"), "csv"))))
    assert len(lines) == 5 * 2 * 4 + 4
    (focal,) = (line for line in lines if (line["data"], line["loss"], line["metric"]) == ("cifar10", "focal", "ece"))
    assert float(focal["mean"]) == pytest.approx(20, abs=1e-12)
    assert float(focal["error"]) == pytest.approx(10 / 3**0.5, abs=1e-12)
    about = {"table": "1", "calibrator": "none", "n_seeds": "3", "n_tests": "2", "best": "True", "significant": "False"}
    assert about.items() <= focal.items()
    assert (focal["published_mean"], focal["published_error"]) == ("9.3", "0.1")
    (absent,) = (line for line in lines if (line["data"], line["loss"], line["metric"]) == ("digits", "zeta", "ece"))
    assert (absent["mean"], absent["error"], absent["n_seeds"], absent["published_mean"]) == ("", "", "0", "")


@pytest.fixture(scope="module")
def hostile() -> Table:
    found = [runs([0.1], loss=loss, data=HOSTILE, variant=HOSTILE) for loss in (HOSTILE, "focal")]
    return make_table(table_of(*found, runs([0.1], data=HOSTILE)), "1")


def test_markdown_keeps_its_columns_whatever_the_names(hostile: Table) -> None:
    lines = [line for line in render(hostile, "markdown").splitlines() if line.startswith("|")]
    assert len(lines) == 5
    assert {line.replace(r"\|", "").count("|") for line in lines} == {6}
    assert r"a\_b%\&\|\<b\>\$^\~\#\{\}" in lines[0]


def test_html_is_well_formed_whatever_the_names(hostile: Table) -> None:
    seen: list[str] = []
    texts: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            seen.append(tag)

        def handle_data(self, data: str) -> None:
            texts.append(data)

    Parser().feed(render(hostile, "html"))
    made = {"section", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "strong", "ul", "li"}
    assert set(seen) == made
    assert (seen.count("tr"), seen.count("td")) == (2 + 3, 3 * 4)
    assert any(HOSTILE[:-1] in text for text in texts)


def test_text_shows_control_letters_and_does_not_obey_them(hostile: Table) -> None:
    text = render(hostile, "text")
    assert "é日\\n" in text
    assert len(text.splitlines()) == 2 + 6 + 1 + len(hostile.footnotes) + 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_latex_compiles_with_article_and_booktabs(hostile: Table, rows: pa.Table, tmp_path: Path) -> None:
    tables = [hostile, *(make_table(rows, name, against="paper") for name in ("1", "2", "appendix"))]
    body = "\n".join(render(table, "latex") for table in tables)
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "tables.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=600)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "tables.pdf").stat().st_size > 10_000


def test_latex_escapes_what_it_would_obey(hostile: Table) -> None:
    text = render(hostile, "latex")
    assert r"a\_b\%\&$|$$<$b$>$\$\textasciicircum{}\textasciitilde{}\#\{\}\textbackslash{}''{[}$*$`é{[}U+65E5]" in text
    assert r"\begin{tabular}{lrrrr}" in text
    assert text.count(r"\begin{table}") == 1
    assert "Table 1" not in text  # LaTeX numbers it


def test_each_block_of_the_appendix_is_a_float_of_its_own(rows: pa.Table) -> None:
    floats = {name: render(make_table(rows, name), "latex").count(r"\begin{table}") for name in ("1", "appendix")}
    assert floats == {"1": 1, "appendix": 2}


@pytest.mark.parametrize("name", ["1", "2", "appendix"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_shows_every_number(rows: pa.Table, name: str, format: str) -> None:
    table = make_table(rows, name)
    text = render(table, format).replace("$", "").replace(r"\pm", "±").replace(r"\textbf{", "").replace("}", "")
    if format != "csv":
        for found in table.entries:
            assert found.text == "–" or found.text in text
    assert text.endswith("\n")
