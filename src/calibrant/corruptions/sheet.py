"""The contact sheet: one image under all corruptions at all severities."""

import io
import os
from typing import Unpack

from PIL import Image, ImageDraw, ImageFont

from calibrant._files import atomic_write, check_output, mark_png
from calibrant._paths import as_path, check_path
from calibrant._signatures import checked
from calibrant.corruptions.corrupting import CorruptOptions, corrupt, to_pillow
from calibrant.corruptions.folders import decode_image
from calibrant.corruptions.table import CORRUPTIONS
from calibrant.errors import CorruptFileError, NoDataError
from calibrant.shifts import SEVERITIES

MAX_SIDE_SHOWN, MIN_TILE = 224, 96  # pixels: larger images are shrunk first, smaller tiles are enlarged
GAP = 4


@checked
def save_sheet(
    path: str | os.PathLike[str], target: str | os.PathLike[str], **options: Unpack[CorruptOptions]
) -> Image.Image:
    """Write a contact sheet, PNG, of the image in a file: a row for each corruption, a column for each severity.

    Args:
        path: The image.
        target: The file to write.
        options: Those of `corrupt`.

    Returns:
        The sheet.

    Raises:
        NoDataError: the image is not there.
        CorruptFileError: the file cannot be read as an image.
        InvalidInputError: the target is the image, or a file that is not PNG.
        ResourceError: the target cannot be written.
    """
    path = as_path("path", path)
    if not path.is_file():
        raise NoDataError(f"{path} cannot be drawn: there is no such file")
    image = decode_image(path)
    if isinstance(image, str):
        raise CorruptFileError(f"{path} cannot be drawn: {image}")
    check_output(check_path("target", target), "a PNG image of calibrant", [os.fspath(path)])
    sheet = contact_sheet(to_pillow(image), **options)
    content = io.BytesIO()
    sheet.save(content, "PNG")
    with atomic_write(target, "a PNG image of calibrant") as file:
        file.write(mark_png(content.getvalue()))
    return sheet


def contact_sheet(image: Image.Image, **options: Unpack[CorruptOptions]) -> Image.Image:
    """A row for each corruption, a column for each severity, the clean image on the left."""
    image = _square(image.convert("L" if image.mode == "L" else "RGB"))
    side = max(MIN_TILE, image.width)
    font_size = max(11, side // 7)
    font = ImageFont.load_default(font_size)
    label, head = round(max(font.getlength(f"{name}  ") for name in CORRUPTIONS)), 2 * font_size
    step = side + GAP
    sheet = Image.new("RGB", (label + 6 * step, head + len(CORRUPTIONS) * step), "white")
    draw = ImageDraw.Draw(sheet)
    for column, heading in enumerate(["clean", *(f"severity {severity}" for severity in SEVERITIES)]):
        draw.text((label + column * step + side / 2, head / 2), heading, "black", font, anchor="mm")
    for row, name in enumerate(CORRUPTIONS):
        top = head + row * step
        draw.text((GAP, top + side / 2), name, "black", font, anchor="lm")
        tiles = [image, *(corrupt(image, name, severity, **options) for severity in SEVERITIES)]
        for column, image in enumerate(tiles):
            method = Image.Resampling.NEAREST if side > image.width else Image.Resampling.LANCZOS
            sheet.paste(image.resize((side, side), method), (label + column * step, top))
    return sheet


def _square(image: Image.Image) -> Image.Image:
    """The middle square of an image, at most 224 pixels a side."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    return (
        square.resize((MAX_SIDE_SHOWN, MAX_SIDE_SHOWN), Image.Resampling.LANCZOS) if side > MAX_SIDE_SHOWN else square
    )
