"""One table for the terminal, files and pages: columns, rows of cells, and the notes under them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from calibrant.report.numbers import MISSING

BEST = "best"  # the kind of a cell that every format makes stand out


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column. Neighbours of one group stand under its name and are not parted where room is short."""

    heading: str
    numeric: bool = True
    title: str = ""  # what it means, where a page is pointed at it
    group: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a place of a table.

    Args:
        text: As a reader sees it.
        value: What a page sorts by and JSON has; the text where none is given.
        kind: "best", "good", "bad" or "faint".
        marks: Signs behind the text that a note explains, as †.
        facts: What CSV and JSON say of this cell, with all digits; where a table has none, they say the rows.
    """

    text: str
    value: float | str | None = None
    kind: str = ""
    marks: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Columns and rows; the first column names the rows, and stands again in each part of a table that is too wide.

    Args:
        caption: The title.
        columns: The heads, one for each cell of a row.
        rows: The cells.
        notes: Sentences under the table.
        best: What the cells of the kind "best" are the best of, as "column"; "" where there are none.
        name: The id of the table on a page.
        option: What a switch of the page calls it.
    """

    caption: str
    columns: list[Column]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)
    best: str = ""
    name: str = ""
    option: str = ""

    def legend(self, best: str) -> list[str]:
        """The notes, the first of which says what a format marks the best cells with."""
        return [f"{best}: best of its {self.best}.", *self.notes] if self.best else self.notes


def number_cell(value: float | None, text: str, kind: str = "") -> Cell:
    """A number with what it is sorted by, or a sign that there is none.

    >>> number_cell(0.25, "25 %").value, number_cell(None, "").text
    (0.25, '–')
    """
    return Cell(MISSING, kind="faint") if value is None else Cell(text, float(f"{value:.6g}"), kind)
