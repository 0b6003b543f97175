"""A page that holds a whole report, with nothing to fetch and no script, and tables as HTML for it."""

import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant._files import replacing
from calibrant.errors import printable

if TYPE_CHECKING:
    from calibrant.report.tables import Block, Entry, Table

TEMPLATES = Path(__file__).parent / "templates"
TAG = re.compile(r"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
IDENTIFIER = re.compile(r"""(\sid=["']|href=["']#|url\(["']?#)""")


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


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    tables: "Sequence[Table]" = (),
    figures: Sequence[tuple[str, str]] = (),
    facts: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write a page of facts, tables, figures (caption and SVG of our own making) and notes, in one file.

    Raises: NoDataError where the file cannot be written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = jinja.get_template("report.html.j2").render(
        title=title,
        facts=facts or {},
        tables=[(table.title, Markup(table_html(table))) for table in tables],
        figures=[(caption, Markup(inline_svg(svg, f"figure-{n}-"))) for n, (caption, svg) in enumerate(figures, 1)],
        notes=notes,
    )
    with replacing(path) as file:
        file.write(page.encode())


def inline_svg(svg: str, prefix: str) -> str:
    """The picture without its prolog, its ids made its own: two pictures of a page must not share a clip path.

    >>> inline_svg('<?xml version="1.0"?><svg><g id="a"/><use href="#a" fill="url(#a)"/></svg>', "f-")
    '<svg><g id="f-a"/><use href="#f-a" fill="url(#f-a)"/></svg>'
    """
    svg = svg[svg.index("<svg") :]
    return TAG.sub(lambda tag: IDENTIFIER.sub(rf"\g<1>{prefix}", tag[0]), svg)
