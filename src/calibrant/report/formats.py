"""Tables as text for a terminal, Markdown, LaTeX, CSV or JSON; pages use an HTML macro."""

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
from calibrant._signatures import checked
from calibrant.errors import printable, without_secrets
from calibrant.report.table import BEST, Cell, Column, Table

COLUMN_GAP, GROUP_GAP = 2, 3  # characters between columns, and between groups of columns
MIN_WRAPPED = 12  # characters of a column whose text is wrapped
LATEX_WIDTH = 92  # characters that fit on a page of article in \scriptsize
MAX_TABULARS = 3  # in one float
FORMULA_STARTS = tuple("=+-@＝＋－＠")  # for spreadsheets; tabs and line breaks are escaped


@checked
def render(table: Table, format: str, *, width: int = 100) -> str:
    """Format a table.

    Args:
        table: The table.
        format: "text", "markdown", "latex", "csv" or "json".
        width: Characters of a line of text; a wider table is split into parts.

    Returns:
        The table in this format, with a line break at the end.

    Raises:
        UnknownNameError: The format is unknown.
    """
    check_choice("format", format, TABLE_FORMATS)
    return as_text(table, width) if format == "text" else TABLE_FORMATS[format](table)


def as_text(table: Table, width: int = 100) -> str:
    """Text in aligned columns; a table that is wider than this is split into parts, one below the other."""
    parts = [_text_part(part) for part in _split_columns(_wrap_text(table, width), width)]
    notes = [textwrap.fill(printable(note), width, subsequent_indent="  ") for note in table.footnotes("•")]
    return "\n\n".join(filter(None, [textwrap.fill(printable(table.caption), width), *parts, "\n".join(notes)])) + "\n"


def _text_part(table: Table) -> str:
    grouped = any(column.group for column in table.columns)
    labels = ["", *_text_column(table, 0)]
    blocks = [_text_block(table, block) for block in _blocks(table)]
    gap = " " * (GROUP_GAP if grouped else COLUMN_GAP)
    titles, headings, *lines = [gap.join(line) for line in zip(_pad(labels, str.ljust), *blocks, strict=True)]
    rule = "─" * cell_len(headings)
    return "\n".join(line.rstrip() for line in ([titles] if grouped else []) + [headings, rule, *lines])


def _blocks(table: Table) -> list[list[int]]:
    """The positions of the columns after the first, those of one group together."""
    blocks: list[list[int]] = []
    for at, column in enumerate(table.columns[1:], 1):
        if column.group and blocks and table.columns[at - 1].group == column.group:
            blocks[-1].append(at)
        else:
            blocks.append([at])
    return blocks


def _text_block(table: Table, block: Sequence[int]) -> list[str]:
    """The group, the headings and the cells of a block of columns, padded to one width."""
    columns = [_text_column(table, at) for at in block]
    lines = [(" " * COLUMN_GAP).join(line) for line in zip(*columns, strict=True)]
    align = str.ljust if len(block) > 1 or not table.columns[block[0]].numeric else str.rjust
    return _pad([printable(table.columns[block[0]].group), *lines], align)


def _text_column(table: Table, at: int) -> list[str]:
    cells = [row[at] for row in table.rows]
    align = str.rjust if table.columns[at].numeric else str.ljust
    texts = _pad([printable(cell.text) for cell in cells], align)
    marks = _pad(["•" * (cell.kind == BEST) + cell.marks for cell in cells], str.ljust)
    return _pad([printable(table.columns[at].heading), *map("".join, zip(texts, marks, strict=True))], align)


def _pad(texts: Sequence[str], align: Callable[[str, int], str]) -> list[str]:
    """The texts padded to one width in cells of a terminal."""
    width = max(map(cell_len, texts), default=0)
    return [align(text, width - cell_len(text) + len(text)) for text in texts]


def _split_columns(table: Table, width: int) -> list[Table]:
    """The table in parts of as many blocks of columns as fit the width."""
    labels = cell_len(_text_column(table, 0)[0])
    gap = GROUP_GAP if any(column.group for column in table.columns) else COLUMN_GAP
    parts: list[list[int]] = []
    room = 0
    for block in chain.from_iterable(_halve(table, block, width - labels - gap) for block in _blocks(table)):
        size = cell_len(_text_block(table, block)[0]) + gap
        if not parts or size > room:
            parts.append([0])
            room = width - labels
        parts[-1] += block
        room -= size
    return [
        replace(
            table,
            columns=[table.columns[at] for at in part],
            rows=[[row[at] for at in part] for row in table.rows],
        )
        for part in parts
    ] or [table]


def _halve(table: Table, block: list[int], room: int) -> list[list[int]]:
    """The block, split in halves until each fits."""
    if len(block) == 1 or cell_len(_text_block(table, block)[0]) <= room:
        return [block]
    half = len(block) // 2
    return [*_halve(table, block[:half], room), *_halve(table, block[half:], room)]


def _wrap_text(table: Table, width: int) -> Table:
    """The table with the text of its widest column wrapped, where the table is wider than this."""
    widths = [cell_len(_text_column(table, at)[0]) for at in range(len(table.columns))]
    excess = sum(widths) + COLUMN_GAP * (len(widths) - 1) - width
    texts = [at for at, column in enumerate(table.columns) if at and not column.numeric]
    widest = max(texts, key=widths.__getitem__, default=0)
    if excess <= 0 or not widest:
        return table
    rows = []
    for row in table.rows:
        first, *rest = textwrap.wrap(printable(row[widest].text), max(MIN_WRAPPED, widths[widest] - excess)) or [""]
        rows.append([*row[:widest], replace(row[widest], text=first), *row[widest + 1 :]])
        rows += [[Cell(line if at == widest else "") for at in range(len(row))] for line in rest]
    return replace(table, rows=rows)


def as_markdown(table: Table) -> str:
    head = [escape_markdown(_full_heading(column)) for column in table.columns]
    rule = ["--:" if column.numeric else ":--" for column in table.columns]
    body = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    lines = "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))
    notes = "\n".join(f"- {escape_markdown(note)}" for note in table.footnotes("bold"))
    return "\n\n".join(filter(None, [f"**{escape_markdown(table.caption)}**", lines, notes])) + "\n"


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    return (f"**{text}**" if cell.kind == BEST else text) + escape_markdown(cell.marks)


def escape_markdown(text: str) -> str:
    r"""
    >>> escape_markdown("a_b | c")
    'a\\_b \\| c'
    """
    return "".join(f"\\{char}" if char in r"\`*_{}[]<>#|~$&" else char for char in printable(text))


LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "[": "{[}",  # after a line break, [ would begin an option
    "±": r"$\pm$",
    "–": "--",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "§": r"\S{}",
    "−": "$-$",
    "∞": r"$\infty$",
    "*": "$*$",
} | {char: f"\\{char}" for char in "{}$&#%_"}


def escape_latex(text: str) -> str:
    """Text for pdfLaTeX without packages; characters that it does not support become their code points."""
    return "".join(LATEX_ESCAPES.get(char, _latex_character(char)) for char in printable(text))


def _latex_character(char: str) -> str:
    accented = "À" <= char <= "ÿ" and char not in "ÐðÞþ×÷"
    return char if char.isascii() or accented else f"{{[}}U+{ord(char):04X}]"


def as_latex(table: Table) -> str:
    r"""Floats that compile with \usepackage{booktabs} alone, whatever the names."""
    parts = [_latex_part(part) for part in _split_columns(table, LATEX_WIDTH)]
    _, colon, title = table.caption.partition(": ")  # LaTeX numbers tables
    title = title if colon else table.caption
    notes = " ".join(map(escape_latex, table.footnotes("Bold")))
    between = "\n\\par\\medskip\n"
    floats = [
        rf"""\begin{{table}}[htb]
\centering\scriptsize\setlength{{\tabcolsep}}{{2pt}}
\caption{{{escape_latex(title[:1].upper() + title[1:])}}}
{between.join(parts[start : start + MAX_TABULARS])}
\par\medskip\footnotesize
{notes}
\end{{table}}
"""
        for start in range(0, len(parts), MAX_TABULARS)
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
    """The row of group names, and the rules under them."""
    if not any(column.group for column in table.columns):
        return []
    blocks = [(block[0] + 1, block[-1] + 1, table.columns[block[0]].group) for block in _blocks(table)]
    names = [rf"\multicolumn{{{last - first + 1}}}{{c}}{{{escape_latex(name)}}}" for first, last, name in blocks]
    rules = [rf"\cmidrule(lr){{{first}-{last}}}" for first, last, name in blocks if name]
    return [rf"{' & '.join(['', *names])} \\", "".join(rules)]


def _latex_cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    mean, *error = text.partition(r"$\pm$")
    text = "".join([rf"\textbf{{{mean}}}", *error]) if cell.kind == BEST else text
    return text + escape_latex(cell.marks)


def table_records(table: Table) -> list[dict[str, object]]:
    """The facts of the cells, or where no cell has facts, the rows by their headings."""
    headings = [_full_heading(column) for column in table.columns]
    rows = [[cell.text if cell.value is None else cell.value for cell in row] for row in table.rows]
    facts = [dict(cell.facts) for row in table.rows for cell in row if cell.facts]
    return facts or [dict(zip(headings, row, strict=True)) for row in rows]


def _full_heading(column: Column) -> str:
    return f"{column.group} {column.heading}".strip()


def as_csv(table: Table) -> str:
    """A line per record, in full precision and the units of the table; no cell is a formula for a spreadsheet."""
    found = table_records(table)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([map(_csv_cell, record) for record in (*found[:1], *(record.values() for record in found))])
    return file.getvalue()


def _csv_cell(value: object) -> object:
    """A spreadsheet computes a text that begins like a formula; an apostrophe before it keeps it a text.

    >>> [_csv_cell(value) for value in ("=1+1", "-0.5", -0.5)]
    ["'=1+1", '-0.5', -0.5]
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_json(table: Table) -> str:
    """The caption, the records and the notes; numbers that are not finite become strings."""
    return json_text({"caption": table.caption, "records": table_records(table), "notes": table.notes}) + "\n"


def json_text(value: object) -> str:
    """JSON in ASCII, which a terminal shows as it is; JSON has no infinities and NaN, which become strings."""
    return json.dumps(_json_ready(value), indent=2, allow_nan=False)


def _json_ready(value: object) -> object:
    if isinstance(value, dict):
        return {_json_ready(key): _json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(item) for item in value]
    if isinstance(value, str):
        return without_secrets(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


TABLE_FORMATS: dict[str, Callable[[Table], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
    "json": as_json,
}
