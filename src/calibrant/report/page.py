"""HTML pages: one self-contained file with its style and script, which makes no requests."""

import base64
import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import calibrant
from calibrant._files import atomic_write, check_output
from calibrant._paths import check_path
from calibrant.errors import InvalidInputError, MissingExtraError, printable, without_secrets

if TYPE_CHECKING:
    from jinja2 import Environment

REPORT_MODULES = ("altair", "jinja2", "vl_convert")
HTML_SUFFIXES = (".html", ".htm")
MAX_COMMAND_CHARACTERS = 20_000
TEMPLATES = Path(__file__).parent / "templates"
LONG_TABLE = 30  # rows from which a table scrolls in its own box
XML_TAG = re.compile(r"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
IDENTIFIER = re.compile(r"""(\sid=["']|href=["']#|url\(["']?#)""")
SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')
WIDE_CHART = 640  # pixels from which a chart scrolls on a phone
ZOOM = 1.25  # of a chart on a page: a font of 10 pixels is small on a screen
BACKGROUND = re.compile(r'<rect width="[^"]*" height="[^"]*" fill="white"/>')


@dataclass(frozen=True)
class SvgFigure:
    """A chart on a page.

    Args:
        svg: The chart as SVG, which is not escaped.
        alt: The alternative text of the chart; each mark has its own label.
        caption: The text under the chart.
        name: The value of the chart in a drop-down list.
        title: The label of the chart in a drop-down list and its heading.
    """

    svg: str
    alt: str
    caption: str = ""
    name: str = ""
    title: str = ""


def check_report(path: str | os.PathLike[str]) -> None:
    """Check that a page can be written to a path, before long work. Raises: InvalidInputError, MissingExtraError."""
    name = check_path("report", path)
    if PurePath(name).suffix.lower() not in HTML_SUFFIXES:
        raise InvalidInputError(f"report must be a file ending in {' or '.join(HTML_SUFFIXES)}, got {name}")
    if not all(map(find_spec, REPORT_MODULES)):
        raise MissingExtraError("writing a page", "report")
    check_output(name, "an HTML page of calibrant")


def write_page(path: str | os.PathLike[str], template: str, **content: Any) -> None:
    """Render a template and write the page atomically. Raises: MissingExtraError."""
    page = page_html(template, **content)
    with atomic_write(path, "an HTML page of calibrant") as file:
        file.write(page.encode())


def page_html(template: str, *, refresh: int | None = None, **content: Any) -> str:
    """The page as text. refresh: seconds after which a browser reloads it, while its command runs."""
    return _environment().get_template(template).render(refresh=refresh, **content)


@cache
def _environment() -> "Environment":
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("writing a page", "report") from None
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable_lines(value) if type(value) is str else value,
    )
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    environment.globals |= {
        "style": Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        "script": Markup(script),
        "script_hash": script_hash(script),
        "LONG_TABLE": LONG_TABLE,
    }
    environment.filters["column_groups"] = lambda columns: [
        (name, len(list(own))) for name, own in groupby(columns, key=lambda column: column.group)
    ]
    environment.filters["named"] = lambda items, *names: [tuple(getattr(item, n) for n in names) for item in items]
    environment.filters["drawn"] = lambda drawing, name: Markup(inline_svg(drawing.svg, f"{name}-"))
    return environment


def script_hash(script: str) -> str:
    """The script as the Content-Security-Policy of a page names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def printable_lines(text: str) -> str:
    r"""The text with control characters escaped, except line breaks.

    >>> printable_lines("a\x1b[0m\nb")
    'a\\x1b[0m\nb'
    """
    return "\n".join(map(printable, text.split("\n")))


def inline_svg(svg: str, prefix: str) -> str:
    """The chart for a page: without prolog and background, scaled by ZOOM, with a prefix that makes its ids unique.

    >>> inline_svg('<?xml version="1.0"?><svg><g id="a"/><use href="#a" fill="url(#a)"/></svg>', "f-")
    '<svg><g id="f-a"/><use href="#f-a" fill="url(#f-a)"/></svg>'
    """
    svg = BACKGROUND.sub("", svg[svg.index("<svg") :], count=1)
    svg = SIZE.sub(_zoom, svg, count=1)
    return XML_TAG.sub(lambda tag: IDENTIFIER.sub(rf"\g<1>{prefix}", tag[0]), svg)


def _zoom(size: re.Match[str]) -> str:
    """The size times ZOOM; data-wide makes a wide chart scroll on a phone instead of shrinking it."""
    width, height = (ZOOM * float(number) for number in size.groups())
    return f'data-wide="{"yes" if width > WIDE_CHART else "no"}" width="{width:g}" height="{height:g}"'


def generator(now: datetime) -> str:
    """What made a page, and when."""
    return f"calibrant {calibrant.__version__}, {now.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def command_line(command: Sequence[str]) -> str:
    """A command as a shell takes it, without secrets."""
    return shlex.join(map(without_secrets, command))[:MAX_COMMAND_CHARACTERS]
