"""Figures as files: SVG, PNG, PDF, a web page that needs no network, or the specification, by the file's suffix."""

import json
import os
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import vl_convert as vlc

from calibrant._files import replacing
from calibrant.errors import InvalidInputError
from calibrant.report.figures.look import Chart

SCALE = 3  # PNG: 288 pixels per inch at the size in which a figure is printed


def to_svg(chart: Chart) -> str:
    return vlc.vegalite_to_svg(chart.to_dict())


def _page(spec: dict[str, Any]) -> str:
    page: str = vlc.vegalite_to_html(spec, bundle=True, renderer="svg")
    return page


FORMATS: dict[str, Callable[[dict[str, Any]], str | bytes]] = {
    ".svg": vlc.vegalite_to_svg,
    ".png": lambda spec: vlc.vegalite_to_png(spec, scale=SCALE),
    ".pdf": vlc.vegalite_to_pdf,
    ".html": _page,
    ".json": lambda spec: json.dumps(spec, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
}


def check_suffix(path: str | os.PathLike[str]) -> str:
    """The suffix of a file that a figure can be written to, in small letters."""
    suffix = PurePath(path).suffix.lower()
    if suffix not in FORMATS:
        raise InvalidInputError(f"a figure is written to a file of {', '.join(FORMATS)}, got {os.fspath(path)}")
    return suffix


def save(chart: Chart, path: str | os.PathLike[str]) -> None:
    """Write a figure; a file of that name is replaced whole, or stays as it was. Raises: InvalidInputError."""
    content = FORMATS[check_suffix(path)](chart.to_dict())
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
