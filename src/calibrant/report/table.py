"""A table for the terminal, files and pages: columns, rows of cells, and notes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from calibrant.report.numbers import MISSING

BEST = "best"  # the kind of cell that every format emphasises


@dataclass(frozen=True, slots=True)
class Column:
    """The header of a column.

    Args:
        heading: The header.
        numeric: Whether the cells are right-aligned.
        tooltip: The tooltip of the header on a page.
        group: The header above adjacent columns of the same group; a table that is too wide is split between groups.
    """

    heading: str
    numeric: bool = True
    tooltip: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Args:
        text: The formatted value.
        value: The value that a page sorts by and JSON contains; by default the text.
        kind: "best", "good", "bad" or "faint".
        marks: Marks after the text that a note explains, such as †.
        facts: The record of this cell in CSV and JSON, in full precision. A table without facts exports its rows.
    """

    text: str
    value: float | str | None = None
    kind: str = ""
    marks: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Columns, rows and notes. The first column names the rows; each part of a split table repeats it.

    Args:
        caption: The title.
        columns: The headers, one for each cell of a row.
        rows: The cells.
        notes: Sentences under the table.
        best: What the cells of kind "best" are the best of, for example "column"; "" where there are none.
        html_id: The id of the table on a page.
        menu_label: The label of the table in a drop-down list of the page.
    """

    caption: str
    columns: list[Column]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)
    best: str = ""
    html_id: str = ""
    menu_label: str = ""

    def footnotes(self, emphasis: str) -> list[str]:
        """The notes, preceded by the meaning of emphasised cells. emphasis: of the format, for example "bold"."""
        return [f"{emphasis}: best of its {self.best}.", *self.notes] if self.best else self.notes


def number_cell(value: float | None, text: str, kind: str = "") -> Cell:
    """A cell that is sorted by its value; None is a dash.

    >>> number_cell(0.25, "25 %").value, number_cell(None, "").text
    (0.25, '–')
    """
    return Cell(MISSING, kind="faint") if value is None else Cell(text, float(f"{value:.6g}"), kind)
