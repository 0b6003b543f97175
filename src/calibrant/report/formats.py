"""A table as text that fits a terminal, Markdown, LaTeX, CSV or JSON; pages have a macro for HTML."""

import csv
import io
import json
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from rich.cells import cell_len

from calibrant._names import check_choice
from calibrant.errors import printable
from calibrant.report.table import BEST, Cell, Column, Table

GAP, WIDER = 2, 3  # characters between columns, and between groups of them
MIN_WRAPPED = 12  # characters of a column of text that is broken into lines
LATEX_WIDTH = 92  # characters that fit a page of article in \scriptsize
MAX_PARTS, BETWEEN = 3, "\n\\par\\medskip\n"  # of a table in one float, and what stands between them


def render(table: Table, format: str, *, width: int = 100) -> str:
    """The table in a format of TABLE_FORMATS. width: characters of a line of text."""
    check_choice("format", format, TABLE_FORMATS)
    return as_text(table, width) if format == "text" else TABLE_FORMATS[format](table)


def as_text(table: Table, width: int = 100) -> str:
    """Text in columns, in parts one below the other where the width does not suffice for all."""
    parts = [_text_part(part) for part in _narrowed(_wrapped(table, width), width)]
    notes = [textwrap.fill(printable(note), width, subsequent_indent="  ") for note in table.legend("•")]
    return "\n\n".join(filter(None, [textwrap.fill(printable(table.caption), width), *parts, "\n".join(notes)])) + "\n"


def _text_part(table: Table) -> str:
    grouped = any(column.group for column in table.columns)
    labels = ["", *_text_column(table, 0)]
    blocks = [_text_block(table, block) for block in _blocks(table)]
    gap = " " * (WIDER if grouped else GAP)
    titles, headings, *lines = [gap.join(line) for line in zip(_padded(labels, str.ljust), *blocks, strict=True)]
    rule = "─" * cell_len(headings)
    return "\n".join(line.rstrip() for line in ([titles] if grouped else []) + [headings, rule, *lines])


def _blocks(table: Table) -> list[list[int]]:
    """The columns behind the first, those of one group together."""
    blocks: list[list[int]] = []
    for at, column in enumerate(table.columns[1:], 1):
        if column.group and blocks and table.columns[at - 1].group == column.group:
            blocks[-1].append(at)
        else:
            blocks.append([at])
    return blocks


def _text_block(table: Table, block: Sequence[int]) -> list[str]:
    """The name, the headings and the lines of a group, all of one width."""
    columns = [_text_column(table, at) for at in block]
    lines = [(" " * GAP).join(line) for line in zip(*columns, strict=True)]
    side = str.ljust if len(block) > 1 or not table.columns[block[0]].numeric else str.rjust
    return _padded([printable(table.columns[block[0]].group), *lines], side)


def _text_column(table: Table, at: int) -> list[str]:
    cells = [row[at] for row in table.rows]
    side = str.rjust if table.columns[at].numeric else str.ljust
    texts = _padded([printable(cell.text) for cell in cells], side)
    marks = _padded(["•" * (cell.kind == BEST) + cell.marks for cell in cells], str.ljust)
    return _padded([printable(table.columns[at].heading), *map("".join, zip(texts, marks, strict=True))], side)


def _padded(texts: Sequence[str], side: Callable[[str, int], str]) -> list[str]:
    """The texts in one width, as a terminal counts it."""
    width = max(map(cell_len, texts), default=0)
    return [side(text, width - cell_len(text) + len(text)) for text in texts]


def _narrowed(table: Table, width: int) -> list[Table]:
    """The table in parts of as many groups of columns as so many characters allow."""
    labels = cell_len(_text_column(table, 0)[0])
    gap = WIDER if any(column.group for column in table.columns) else GAP
    parts: list[list[int]] = []
    room = 0
    for block in chain.from_iterable(_halved(table, block, width - labels - gap) for block in _blocks(table)):
        size = cell_len(_text_block(table, block)[0]) + gap
        if not parts or size > room:
            parts.append([])
            room = width - labels
        parts[-1] += block
        room -= size
    return [_part(table, [0, *part]) for part in parts] or [table]


def _halved(table: Table, block: list[int], room: int) -> list[list[int]]:
    """The columns of a group, in halves until each fits."""
    if len(block) == 1 or cell_len(_text_block(table, block)[0]) <= room:
        return [block]
    half = len(block) // 2
    return [*_halved(table, block[:half], room), *_halved(table, block[half:], room)]


def _part(table: Table, places: Sequence[int]) -> Table:
    rows = [[row[at] for at in places] for row in table.rows]
    return replace(table, columns=[table.columns[at] for at in places], rows=rows)


def _wrapped(table: Table, width: int) -> Table:
    """The table with its widest column of text broken into lines, where it does not fit."""
    widths = [cell_len(_text_column(table, at)[0]) for at in range(len(table.columns))]
    over = sum(widths) + GAP * (len(widths) - 1) - width
    texts = [at for at, column in enumerate(table.columns) if at and not column.numeric]
    widest = max(texts, key=widths.__getitem__, default=0)
    room = max(MIN_WRAPPED, widths[widest] - over)
    if over <= 0 or not widest:
        return table
    rows = []
    for row in table.rows:
        first, *rest = textwrap.wrap(row[widest].text, room) or [""]
        rows.append([*row[:widest], replace(row[widest], text=first), *row[widest + 1 :]])
        rows += [[Cell(line if at == widest else "") for at in range(len(row))] for line in rest]
    return replace(table, rows=rows)


def as_markdown(table: Table) -> str:
    head = [escape_markdown(_heading(column)) for column in table.columns]
    rule = ["--:" if column.numeric else ":--" for column in table.columns]
    body = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    lines = "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))
    notes = "\n".join(f"- {escape_markdown(note)}" for note in table.legend("bold"))
    return "\n\n".join(filter(None, [f"**{escape_markdown(table.caption)}**", lines, notes])) + "\n"


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    return (f"**{text}**" if cell.kind == BEST else text) + escape_markdown(cell.marks)


def escape_markdown(text: str) -> str:
    r"""
    >>> escape_markdown("a_b | c")
    'a\\_b \\| c'
    """
    return "".join(f"\\{letter}" if letter in r"\`*_{}[]<>#|~$&" else letter for letter in printable(text))


LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "[": "{[}",  # a bare one behind a line break is its option
    "±": r"$\pm$",
    "–": "--",
    "†": r"$\dagger$",
    "↓": r"$\downarrow$",
    "*": "$*$",
} | {letter: f"\\{letter}" for letter in "{}$&#%_"}


def escape_latex(text: str) -> str:
    """Any text, for pdfLaTeX without packages: characters that it does not know are named by their number."""
    return "".join(LATEX_ESCAPES.get(letter, _latex_letter(letter)) for letter in printable(text))


def _latex_letter(letter: str) -> str:
    accented = "À" <= letter <= "ÿ" and letter not in "ÐðÞþ×÷"
    return letter if letter.isascii() or accented else f"{{[}}U+{ord(letter):04X}]"


def as_latex(table: Table) -> str:
    r"""Floats that compile with \usepackage{booktabs} alone, whatever a user has written."""
    parts = [_latex_part(part) for part in _narrowed(table, LATEX_WIDTH)]
    _, colon, title = table.caption.partition(": ")  # LaTeX numbers its tables itself
    title = title if colon else table.caption
    notes = " ".join(map(escape_latex, table.legend("Bold")))
    floats = [
        rf"""\begin{{table}}[htb]
\centering\scriptsize\setlength{{\tabcolsep}}{{2pt}}
\caption{{{escape_latex(title[:1].upper() + title[1:])}}}
{BETWEEN.join(parts[start : start + MAX_PARTS])}
\par\medskip\footnotesize
{notes}
\end{{table}}
"""
        for start in range(0, len(parts), MAX_PARTS)
    ]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(floats)


def _latex_part(table: Table) -> str:
    body = [[_latex_cell(cell) for cell in row] for row in table.rows]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in table.columns)}}}",
            r"\toprule",
            *_latex_groups(table),
            rf"{' & '.join(escape_latex(column.heading) for column in table.columns)} \\ \midrule",
            *(rf"{' & '.join(line)} \\" for line in body),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _latex_groups(table: Table) -> list[str]:
    """The names above the headings, and the lines between."""
    if not any(column.group for column in table.columns):
        return []
    blocks = [(block[0] + 1, block[-1] + 1, table.columns[block[0]].group) for block in _blocks(table)]
    names = [rf"\multicolumn{{{last - first + 1}}}{{c}}{{{escape_latex(name)}}}" for first, last, name in blocks]
    rules = [rf"\cmidrule(lr){{{first}-{last}}}" for first, last, name in blocks if name]
    return [rf"{' & '.join(['', *names])} \\", "".join(rules)]


def _latex_cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    mean, *error = text.partition("$")
    text = "".join([rf"\textbf{{{mean}}}", *error]) if cell.kind == BEST else text
    return text + escape_latex(cell.marks)


def table_records(table: Table) -> list[dict[str, object]]:
    """What is known of each cell, where cells have facts; else each row by its headings."""
    found = [dict(cell.facts) for row in table.rows for cell in row if cell.facts]
    return found or [
        {_heading(column): _value(cell) for column, cell in zip(table.columns, row, strict=True)} for row in table.rows
    ]


def _heading(column: Column) -> str:
    return f"{column.group} {column.heading}".strip()


def _value(cell: Cell) -> object:
    return cell.text if cell.value is None else cell.value


def as_csv(table: Table) -> str:
    """A line per record, with all digits, in the units of the table."""
    found = table_records(table)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(found[0]) if found else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return file.getvalue()


def as_json(table: Table) -> str:
    """The caption, the records and the notes; a number that is not finite becomes a string."""
    found = [{name: _finite(value) for name, value in record.items()} for record in table_records(table)]
    whole = {"caption": table.caption, "records": found, "notes": table.notes}
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


TABLE_FORMATS: dict[str, Callable[[Table], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
    "json": as_json,
}
