"""Fig. 4: pictures as they are, and as shifts change them: a row per picture, a column per shift."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Any

import altair as alt
import numpy as np
import numpy.typing as npt
from PIL import Image

from calibrant.errors import InvalidInputError, printable
from calibrant.report.figures.look import COLUMN, LETTERS, PAGE, Chart, finished, said, sentence, values

Pixels = npt.NDArray[np.uint8]

SHARP = 192  # pixels: smaller pictures are enlarged to about this, each pixel a square, so that no viewer blurs them
WIDEST, NAMES, GAP = 60, 90, 3


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture as a PNG, in an address that holds all its bytes."""

    row: str
    column: str
    url: str


def prepare(images: Mapping[str, Mapping[str, Pixels]]) -> tuple[Sample, ...]:
    """From the pictures of each row by their columns: uint8, (h, w) or (h, w, 3). Raises: InvalidInputError."""
    samples = [
        Sample(printable(row), printable(column), _url(f"{row}, {column}", pixels))
        for row, columns in images.items()
        for column, pixels in columns.items()
    ]
    if not samples:
        raise InvalidInputError("images must hold at least one picture")
    return tuple(samples)


def _url(name: str, pixels: Pixels) -> str:
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        rule = "images must be uint8 of shape (h, w) or (h, w, 3)"
        raise InvalidInputError(f"{rule}, got {pixels.dtype} of {pixels.shape} for {name}")
    factor = max(1, SHARP // max(pixels.shape[:2]))
    file = BytesIO()
    Image.fromarray(pixels.repeat(factor, 0).repeat(factor, 1)).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"


def draw(numbers: tuple[Sample, ...]) -> Chart:
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*((s.row, s.column) for s in numbers), strict=True))
    room = COLUMN if len(columns) <= 6 else PAGE
    side = min(WIDEST, (room - NAMES) // len(columns))
    letters = min(round(6.2 * max(map(len, rows))), NAMES + 30)  # room for the names in a wider font than is drawn with
    plain: dict[str, Any] = {"domain": False, "ticks": False, "grid": False, "labelFontSize": LETTERS}
    pictures = (
        alt.Chart(values([{**asdict(sample), "said": sentence(sample.row, sample.column)} for sample in numbers]))
        .mark_image(width=side - GAP, height=side - GAP)
        .encode(
            x=alt.X("column:N", sort=columns, title=None, axis=alt.Axis(orient="top", labelAngle=-40, **plain)),
            y=alt.Y("row:N", sort=rows, title=None, axis=alt.Axis(minExtent=letters, **plain)),
            url=alt.Url("url:N"),
            description=said(),
        )
    )
    view = alt.ViewConfig(stroke=None)
    return finished(pictures.properties(width=side * len(columns), height=side * len(rows), view=view))
