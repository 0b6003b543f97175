"""A table as a part of a web page, for `calibrant table --format html`."""

from html import escape
from typing import TYPE_CHECKING

from calibrant.errors import printable

if TYPE_CHECKING:
    from calibrant.report.tables import Block, Entry, Table


def table_html(table: "Table") -> str:
    """A part of a page: a table for each block in a box that scrolls, then the notes."""
    blocks = "\n".join(f'<div class="scroll">{_block(block, table)}</div>' for block in table.blocks)
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.legend(best="Bold", paper="In brackets"))
    return f'<section class="table">\n{blocks}\n<ul class="legend">{notes}</ul>\n</section>\n'


def _safe(text: str) -> str:
    return escape(printable(text))


def _block(block: "Block", table: "Table") -> str:
    groups = "".join(
        f'<th scope="colgroup" colspan="{len(group.headings)}">{_safe(group.title)}</th>' for group in block.groups
    )
    headings = "".join(f'<th scope="col">{escape(h)}</th>' for group in block.groups for h in group.headings)
    body = "\n".join(
        f'<tr><th scope="row">{_safe(line.label)}</th>{"".join(map(_entry, line.entries))}</tr>' for line in block.lines
    )
    corner = f'<th scope="col" rowspan="2">{escape(table.corner)}</th>'
    head = f"<thead><tr>{corner}{groups}</tr><tr>{headings}</tr></thead>"
    return f"<table><caption>{escape(table.title)}</caption>{head}\n<tbody>\n{body}\n</tbody></table>"


def _entry(entry: "Entry") -> str:
    text = escape(entry.text)
    text = "↓" * entry.improved + (f"<strong>{text}</strong>" if entry.is_best else text) + entry.signs
    beside = f' <span class="paper">({escape(entry.published_text)})</span>' if entry.published_text else ""
    return f"<td>{text}{beside}</td>"
