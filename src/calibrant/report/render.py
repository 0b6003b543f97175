"""Figures as files: SVG, PNG, PDF, a self-contained HTML page or the Vega-Lite specification, by the suffix."""

import json
import os
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from calibrant._files import atomic_write, mark_png
from calibrant.errors import InvalidInputError, MissingExtraError, printable
from calibrant.report.charts import Chart
from calibrant.report.page import XML_TAG, script_hash
from calibrant.report.style import FONT

try:
    import vl_convert as vlc
except ImportError:
    raise MissingExtraError("drawing", "report") from None

SCALE = 3  # of PNG: 288 pixels per inch in print
COORDINATES = re.compile(r'(?<= )(?:d|transform|x|y|x1|y1|x2|y2|width|height)="[^"]*"')
LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
REPEATED_ATTRIBUTES = re.compile(rf' role="graphics-symbol"| aria-roledescription="[^"]*"| font-family="{FONT}"')
# Inside a script element "</script>" would end it, also within a string, and "<!--" would hide its end.
HTML_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}
# The other entries of the menu write the specification to a new page without escaping it, or upload it.
EMBED_OPTIONS = {
    "renderer": "svg",
    "actions": {"export": True, "source": False, "compiled": False, "editor": False},
}


def _readable(spec: Any) -> Any:
    """The specification with every string as `printable` shows it; Vega refuses some characters in a value to sort."""
    if isinstance(spec, dict):
        return {key: _readable(value) for key, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [_readable(value) for value in spec]
    return printable(spec) if isinstance(spec, str) else spec


def to_svg(chart: Chart) -> str:
    """The chart as SVG, without validation: that takes as long as the drawing, and the tests do it."""
    return _svg(_readable(chart.to_dict(validate=False)))


def _svg(spec: dict[str, Any]) -> str:
    return compact(vlc.vegalite_to_svg(spec))


def compact(svg: str) -> str:
    """The same image in two thirds of the bytes: coordinates of two decimals, and one declaration of the font.

    >>> compact('<svg><path aria-label="d=0.12345" d="M0.12345,5.600000000000001"/></svg>').partition("<path")[2]
    ' aria-label="d=0.12345" d="M0.12,5.6"/></svg>'
    """
    body = XML_TAG.sub(lambda tag: REPEATED_ATTRIBUTES.sub("", COORDINATES.sub(_round, tag[0])), svg)
    return body.replace("<svg", f'<svg font-family="{FONT}"', 1)


def _round(attribute: re.Match[str]) -> str:
    return LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), attribute[0])


def json_in_html(value: Any) -> str:
    r"""JSON that is safe inside a script element of a page.

    >>> print(json_in_html({"loss": "</script>&"}))
    {"loss": "\u003c/script\u003e\u0026"}
    """
    return json.dumps(value, allow_nan=False).translate(HTML_ESCAPES)


def _html(spec: dict[str, Any]) -> str:
    """A page of the chart alone; Vega compiles expressions, which needs unsafe-eval."""
    library = vlc.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    script = f"vegaEmbed('#chart', {json_in_html(spec)}, {json_in_html(EMBED_OPTIONS)}).catch(console.error);"
    hashes = " ".join(f"'{script_hash(text)}'" for text in (library, script))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="calibrant">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
script-src 'unsafe-eval' {hashes}; base-uri 'none'; form-action 'none'">
<title>calibrant</title>
<script>{library}</script>
</head>
<body>
<div id="chart"></div>
<script>{script}</script>
</body>
</html>
"""


FIGURE_FORMATS: dict[str, Callable[[dict[str, Any]], str | bytes]] = {
    ".svg": _svg,
    ".png": lambda spec: mark_png(vlc.vegalite_to_png(spec, scale=SCALE)),
    ".pdf": vlc.vegalite_to_pdf,
    ".html": _html,
    ".json": lambda spec: json.dumps(spec, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
}

FIGURE_KINDS = {
    ".svg": "an SVG image",
    ".png": "a PNG image of calibrant",
    ".pdf": "a PDF file",
    ".html": "an HTML page of calibrant",
    ".json": "a Vega-Lite specification",
}


def check_suffix(path: str | os.PathLike[str]) -> str:
    """The suffix in lower case. Raises: InvalidInputError where it is not in FIGURE_FORMATS."""
    suffix = PurePath(path).suffix.lower()
    if suffix not in FIGURE_FORMATS:
        raise InvalidInputError(f"a figure file must end in {', '.join(FIGURE_FORMATS)}; got {os.fspath(path)}")
    return suffix


def save(chart: Chart, path: str | os.PathLike[str]) -> None:
    """Write a figure atomically. Raises: InvalidInputError where the suffix is unknown."""
    content = FIGURE_FORMATS[check_suffix(path)](_readable(chart.to_dict()))
    with atomic_write(path, FIGURE_KINDS[check_suffix(path)]) as file:
        file.write(content.encode() if isinstance(content, str) else content)
