"""A table in any format: text, Markdown, LaTeX, CSV, HTML."""

import csv
import io
from collections.abc import Callable

from calibrant.errors import printable
from calibrant.report.html import table_html
from calibrant.report.latex import as_latex
from calibrant.report.summary import Cell, Key
from calibrant.report.tables import MEASURES, Entry, Table, check_known
from calibrant.report.text import as_text


def as_markdown(table: Table) -> str:
    parts = [f"**{markdown(table.title)}**"]
    for block in table.blocks:
        headings = [f"{group.title} {heading}" for group in block.groups for heading in group.headings]
        head = " | ".join(map(markdown, [table.corner, *headings]))
        body = [" | ".join([markdown(line.label), *map(markdown_entry, line.entries)]) for line in block.lines]
        rule = " | ".join([":--", *("--:" for _ in headings)])
        parts.append("\n".join(f"| {line} |" for line in (head, rule, *body)))
    parts.append("\n".join(f"- {markdown(note)}" for note in table.legend(best="bold", paper="in brackets")))
    return "\n\n".join(parts) + "\n"


def markdown_entry(entry: Entry) -> str:
    text = "↓" * entry.improved + (f"**{entry.text}**" if entry.is_best else entry.text) + markdown(entry.signs)
    return f"{text} ({entry.published_text})" if entry.published_text else text


def markdown(text: str) -> str:
    return "".join(f"\\{letter}" if letter in r"\`*_{}[]<>#|~$&" else letter for letter in printable(text))


def as_csv(table: Table) -> str:
    """A line per entry, with all digits, in the units of the table."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    numbers = ("mean", "error", "n_seeds", "n_tests", "complete", "best", "significant")
    writer.writerow(["table", *Key._fields, *numbers, "published_mean", "published_error"])
    for entry in table.entries:
        scale = 100 if MEASURES[entry.key.metric].in_percent else 1
        cell = entry.cell or Cell(None, None, 0, 0, False, {})
        scores = [None if score is None else scale * score for score in (cell.mean, cell.error)]
        about = [cell.n_seeds, cell.n_tests, cell.complete, entry.is_best, entry.is_significant]
        writer.writerow([table.name, *entry.key, *scores, *about, *(entry.published or (None, None))])
    return file.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
    "html": table_html,
}


def render(table: Table, format: str, *, width: int = 100) -> str:
    """The table as text (in so many columns where its groups allow it), markdown, latex, csv or html."""
    check_known("format", format, FORMATS)
    return as_text(table, width) if format == "text" else FORMATS[format](table)
