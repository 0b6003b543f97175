"""One table in every format: complete, within the width, and with hostile names escaped."""

import csv
import io
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from calibrant.errors import UnknownNameError
from calibrant.report.formats import TABLE_FORMATS, as_text, render, table_records
from calibrant.report.page import _environment
from calibrant.report.table import Cell, Column, Table, number_cell
from made.page import Page

HOSTILE = 'a_b%&|<b>$^~#{}\\"[*`é日\n'
SCORES = Table(
    "Table 1: scores",
    [Column("Loss", numeric=False), *(Column(name, group=group) for group in ("A", "B") for name in ("ECE", "paper"))],
    [
        [Cell("CE"), Cell("20.0±5.8", 0.2, "best", "†", {"loss": "ce", "mean": 20.0}), *map(Cell, ("9.30", "–", "–"))],
        [Cell("Focal"), Cell("8.25", 0.0825, facts={"loss": "focal", "mean": None}), *map(Cell, ("–", "1.5", "–"))],
    ],
    ["A note."],
    best="column",
)
CARD = Table(
    "scores of a file",
    [Column("metric", numeric=False), Column("", numeric=False), Column("value"), Column("95 % interval")],
    [
        [Cell("ece"), Cell("expected calibration error of fifteen bins"), Cell("0.1", 0.1), Cell("0.05 to 0.15", 0.05)],
        [Cell("nll"), Cell("negative log-likelihood"), Cell("inf", float("inf")), Cell("–")],
    ],
)
NAMES = Table(
    HOSTILE,
    [Column(HOSTILE, numeric=False), Column(HOSTILE, group=HOSTILE, tooltip=HOSTILE), Column("x", group=HOSTILE)],
    [[Cell(HOSTILE), Cell(HOSTILE, HOSTILE), Cell("1", 1.0)]],
    [HOSTILE],
)


def test_text_is_aligned() -> None:
    assert as_text(SCORES, 80) == (
        "Table 1: scores\n\n"
        "        A                   B\n"
        "Loss           ECE  paper   ECE  paper\n"
        "──────────────────────────────────────\n"
        "CE      20.0±5.8•†   9.30     –      –\n"
        "Focal       8.25        –   1.5      –\n\n"
        "•: best of its column.\nA note.\n"
    )
    assert as_text(CARD, 80).splitlines()[2].split() == ["metric", "value", "95", "%", "interval"]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_wide_text_is_split_or_wrapped(width: int) -> None:
    for table in (SCORES, CARD):
        text = as_text(table, width)
        assert max(map(len, text.splitlines())) <= width
        for row in table.rows:
            for cell in row:
                assert all(word in text for word in cell.text.replace("-", "- ").split())
    halved = as_text(replace(SCORES, caption="", notes=[], best=""), 18)  # a group that is too wide is split
    assert max(map(len, halved.splitlines())) <= 18
    narrow = as_text(SCORES, 26).splitlines()
    assert [line.split()[:1] for line in narrow if line.startswith(("Loss", "CE"))] == [["Loss"], ["CE"]] * 2
    assert "paper" in narrow[3]  # columns of a group stay together
    assert len(as_text(CARD, 60).splitlines()) == len(as_text(CARD, 100).splitlines()) + 1


def test_csv_and_json_have_the_facts_or_the_rows() -> None:
    assert table_records(SCORES) == [{"loss": "ce", "mean": 20.0}, {"loss": "focal", "mean": None}]
    lines = list(csv.DictReader(io.StringIO(render(SCORES, "csv"))))
    assert lines == [{"loss": "ce", "mean": "20.0"}, {"loss": "focal", "mean": ""}]
    whole = json.loads(render(CARD, "json"))
    assert whole["records"][1] == {"metric": "nll", "": "negative log-likelihood", "value": "inf", "95 % interval": "–"}
    assert (whole["caption"], whole["notes"]) == ("scores of a file", [])


def test_markdown_keeps_its_columns_whatever_the_names() -> None:
    assert render(SCORES, "markdown").splitlines()[2:6] == [
        "| Loss | A ECE | A paper | B ECE | B paper |",
        "| :-- | --: | --: | --: | --: |",
        "| CE | **20.0±5.8**† | 9.30 | – | – |",
        "| Focal | 8.25 | – | 1.5 | – |",
    ]
    lines = [line for line in render(NAMES, "markdown").splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in lines} == {4}
    assert r"a\_b%\&\|\<b\>\$^\~\#\{\}" in lines[0]


def test_latex_is_escaped() -> None:
    text = render(NAMES, "latex")
    assert r"a\_b\%\&$|$$<$b$>$\$\textasciicircum{}\textasciitilde{}\#\{\}\textbackslash{}''{[}$*$`é{[}U+65E5]" in text
    assert text.count(r"\begin{table}") == 1
    text = render(SCORES, "latex")
    assert r"CE & \textbf{20.0}$\pm$5.8$\dagger$ & 9.30 & -- & -- \\" in text
    assert r"\begin{tabular}{lrrrr}" in text
    assert r"\multicolumn{2}{c}{A}" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text
    assert "Table 1" not in text  # LaTeX numbers it
    columns = [Column("Loss", numeric=False), *(Column(f"a heading {n}", group=f"group {n}") for n in range(40))]
    wide = render(Table("wide", columns, [[Cell("x" * 20)] * 41]), "latex")
    assert wide.count(r"\begin{tabular}") == 14  # of three columns each
    assert wide.count(r"\begin{table}") == 5  # of three parts each


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_latex_compiles_with_article_and_booktabs(tmp_path: Path) -> None:
    body = "\n".join(render(table, "latex") for table in (SCORES, CARD, NAMES))
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "tables.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=600)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "tables.pdf").stat().st_size > 10_000


def test_html_is_escaped_and_sorts_by_values() -> None:
    macro = _environment().get_template("parts.html.j2").module.table  # type: ignore[attr-defined]
    scores = Page(macro("scores", SCORES))
    assert scores.all("td")[1] == {"class": "number best", "data-value": "0.2"}  # behind that of the corner
    assert scores.all("th", scope="colgroup") == [{"scope": "colgroup", "colspan": "2"}] * 2
    assert {"20.0±5.8†", "Bold: best of its column.", "A note."} <= set(scores.texts)
    names = Page(macro("names", NAMES))
    assert {tag for tag, _ in names.tags} == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    shown = HOSTILE.replace("\n", "\\n")
    assert sum(text.strip() in (HOSTILE.strip(), shown) for text in names.texts) >= 5


def test_control_characters_numbers_and_unknown_formats() -> None:
    text = as_text(NAMES)
    assert "é日\\n" in text
    assert len(text.splitlines()) == 1 + 1 + 4 + 1 + 1
    assert number_cell(1 / 3, "33 %", "bad") == Cell("33 %", 0.333333, "bad")
    assert number_cell(None, "x") == Cell("–", kind="faint")
    with pytest.raises(UnknownNameError, match="unknown format 'pdf'"):
        render(SCORES, "pdf")


@pytest.mark.parametrize("format", TABLE_FORMATS)
def test_no_format_sends_what_a_terminal_obeys_or_a_secret(format: str) -> None:
    text = "s3://KEY:SECRET@bucket/a?sig=SECRET \x1b[31m\x07\r\x9b\u202e\u2066"
    rows = [[Cell(text), Cell(text, text), Cell(text, facts={"name": text})], [Cell(text)] * 3]
    for table in (Table(text, [Column(text, group=text)] * 3, rows, [text]), replace(NAMES, rows=rows[1:])):
        shown = render(table, format)
        assert all(line.isprintable() for line in shown.splitlines())
        assert "SECRET" not in shown


def test_no_cell_of_csv_is_a_formula() -> None:
    """Of the start of each, a spreadsheet computes what follows; OWASP lists them."""
    formulas = ["=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1", '=cmd|"/c calc"!A1']
    kept = ["-0.5", "+1", "-1e-5", "-inf", "a=1", "–", "−0.1"]
    for facts in (False, True):
        cells = [Cell(text, facts={"=name": text} if facts else {}) for text in (*formulas, *kept)]
        table = Table("", [Column("=name", numeric=False)], [[cell] for cell in cells])
        [[head], *found] = csv.reader(io.StringIO(render(table, "csv")))
        assert head == "'=name"
        assert [text for [text] in found][len(formulas) :] == kept
        assert all(text[0] in "'\\" for [text] in found[: len(formulas)])
    assert render(Table("", [Column("x")], [[Cell("a", -0.5)]]), "csv") == "x\n-0.5\n"
