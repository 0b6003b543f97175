"""Fig. 4: unshifted and shifted test images: a row per image, a column per shift."""

from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import altair as alt
import numpy as np
import numpy.typing as npt
from PIL import Image

from calibrant.errors import InvalidInputError
from calibrant.report.charts import ChartSpec, compose_figure, describe_mark, inline_data
from calibrant.report.scores import ChartRecord
from calibrant.report.style import COLUMN_WIDTH, FONT_SIZE, PAGE_WIDTH

Pixels = npt.NDArray[np.uint8]

SHARP_SIDE = 192  # pixels: smaller images are repeated up to this side, because viewers blur enlarged images
MAX_SIDE, ROW_LABELS, MARGIN = 60, 90, 3  # pixels of an image, of the labels of rows, and between images


def prepare(images: Mapping[str, Mapping[str, Pixels]]) -> list[ChartRecord]:
    """From images by row and column: uint8 of shape (h, w) or (h, w, 3). Raises: InvalidInputError."""
    found = [
        {"row": row, "column": column, "url": _url(f"{row}, {column}", pixels)}
        for row, columns in images.items()
        for column, pixels in columns.items()
    ]
    if not found:
        raise InvalidInputError("no images given")
    return found


def _url(name: str, pixels: Pixels) -> str:
    """The image as a data URL of a PNG."""
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        rule = "images must be uint8 of shape (h, w) or (h, w, 3)"
        raise InvalidInputError(f"{rule}, got {pixels.dtype} of {pixels.shape} for {name}")
    factor = max(1, SHARP_SIDE // max(pixels.shape[:2]))
    file = BytesIO()
    Image.fromarray(pixels.repeat(factor, 0).repeat(factor, 1)).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"


def draw(records: list[ChartRecord]) -> ChartSpec:
    rows, columns = (list(dict.fromkeys(record[name] for record in records)) for name in ("row", "column"))
    room = COLUMN_WIDTH if len(columns) <= 6 else PAGE_WIDTH
    side = min(MAX_SIDE, (room - ROW_LABELS) // len(columns))
    names = min(round(6.2 * max(map(len, rows))), ROW_LABELS + 30)  # a viewer may use a wider font
    plain: dict[str, Any] = {"domain": False, "ticks": False, "grid": False, "labelFontSize": FONT_SIZE}
    described = [{**record, "description": describe_mark(record["row"], record["column"])} for record in records]
    images = (
        alt.Chart(inline_data(described))
        .mark_image(width=side - MARGIN, height=side - MARGIN)
        .encode(
            x=alt.X("column:N", sort=columns, title=None, axis=alt.Axis(orient="top", labelAngle=-40, **plain)),
            y=alt.Y("row:N", sort=rows, title=None, axis=alt.Axis(minExtent=names, **plain)),
            url=alt.Url("url:N"),
            description=alt.Description("description:N"),
        )
    )
    view = alt.ViewConfig(stroke=None)
    return compose_figure(images.properties(width=side * len(columns), height=side * len(rows), view=view))
