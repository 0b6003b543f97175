"""The shell of every report: one HTML file with its style and script, which fetches nothing."""

import base64
import hashlib
import os
import re
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant._files import atomic_write
from calibrant.errors import MissingExtraError, printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
LONG_TABLE = 30  # rows from which on a table scrolls in a box of its own
XML_TAG = re.compile(r"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
IDENTIFIER = re.compile(r"""(\sid=["']|href=["']#|url\(["']?#)""")
SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')
WIDE_CHART = 640  # pixels
LARGER = 1.25  # than on paper: text of 10 pixels are small on a screen
BACKGROUND = re.compile(r'<rect width="[^"]*" height="[^"]*" fill="white"/>')


@dataclass(frozen=True)
class Drawing:
    """A chart as SVG of our own making.

    Args:
        svg: The chart.
        alt: What it is called where it is not seen; its marks say their numbers themselves.
        caption: What it shows, under it.
        name: What a switch chooses it by.
        title: What a switch and the heading above call it.
    """

    svg: str
    alt: str
    caption: str = ""
    name: str = ""
    title: str = ""


def write_page(path: str | os.PathLike[str], template: str, **content: Any) -> None:
    """Write a page; a file of that name is replaced whole, or stays as it was. Raises: MissingExtraError."""
    page = page_html(template, **content)
    with atomic_write(path) as file:
        file.write(page.encode())


def page_html(template: str, *, refresh: int | None = None, **content: Any) -> str:
    """A page as text. refresh: seconds after which a browser loads it anew, while what it shows still grows."""
    return _environment().get_template(template).render(refresh=refresh, **content)


@cache
def _environment() -> "Environment":
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("writing a page", "report") from None
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    environment.globals |= {
        "style": _as_is((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        "script": _as_is(script),
        "script_hash": _content_hash(script),
        "LONG_TABLE": LONG_TABLE,
    }
    environment.filters["column_groups"] = lambda columns: [
        (name, len(list(own))) for name, own in groupby(columns, key=lambda column: column.group)
    ]
    environment.filters["named"] = lambda items, *names: [tuple(getattr(item, n) for n in names) for item in items]
    environment.filters["drawn"] = lambda drawing, name: _as_is(inline_svg(drawing.svg, f"{name}-"))
    return environment


def _finalized(value: Any) -> Any:
    """What a template writes: of text, no character that a screen would obey."""
    return printable_lines(value) if type(value) is str else value


def printable_lines(text: str) -> str:
    r"""Printable line by line, so that a file that is shown keeps its lines.

    >>> printable_lines("a\x1b[0m\nb")
    'a\\x1b[0m\nb'
    """
    return "\n".join(map(printable, text.split("\n")))


def _as_is(text: str) -> "Markup":
    from markupsafe import Markup

    return Markup(text)


def _content_hash(script: str) -> str:
    """What the page's security policy calls its own script, the only one that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def inline_svg(svg: str, prefix: str) -> str:
    """The chart without prolog and white paper, made larger, its ids its own: no two may share a clip path.

    >>> inline_svg('<?xml version="1.0"?><svg><g id="a"/><use href="#a" fill="url(#a)"/></svg>', "f-")
    '<svg><g id="f-a"/><use href="#f-a" fill="url(#f-a)"/></svg>'
    """
    svg = BACKGROUND.sub("", svg[svg.index("<svg") :], count=1)
    svg = SIZE.sub(_larger, svg, count=1)
    return XML_TAG.sub(lambda tag: IDENTIFIER.sub(rf"\g<1>{prefix}", tag[0]), svg)


def _larger(size: re.Match[str]) -> str:
    """On a phone, what is wider than it by far is not made so small, but scrolls."""
    width, height = (LARGER * float(number) for number in size.groups())
    return f'data-wide="{"yes" if width > WIDE_CHART else "no"}" width="{width:g}" height="{height:g}"'
