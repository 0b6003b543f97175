"""Image files: only regular files of known formats and bounded size are decoded, and no other program is started."""

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from PIL import Image

from calibrant._files import open_at_once, read_error
from calibrant._paths import first_line
from calibrant.errors import CalibrantError, CorruptFileError

Image.init()
# Not EPS, which Pillow draws with Ghostscript, and nothing that may hold programs, or other files by name.
IMAGE_FORMATS = sorted({"AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP"} & set(Image.OPEN))
MAX_PIXELS = 2**26  # 8192 x 8192; decoded and converted, half a gigabyte
MAX_REDUCED_PIXELS = 2**30  # of a JPEG that is decoded smaller: time, not memory
UNREADABLE = "cannot be read as an image: "
DECODING_ERRORS = (  # of Pillow, where a file is damaged
    OSError,
    SyntaxError,
    ValueError,
    RuntimeError,
    EOFError,
    TypeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    struct.error,
    Image.DecompressionBombError,
)


@contextmanager
def open_image(path: str | os.PathLike[str], draft: tuple[str, int] | None = None) -> Iterator[Image.Image]:
    """An image that is not decoded yet; errors inside the context are about the file as well.

    With a draft, of a mode and a side, a large JPEG will be decoded at a half, a quarter or an eighth.

    Raises:
        NoDataError: the file is not there.
        CorruptFileError: it cannot be read as an image.
        ResourceError: the system refuses to read it.
    """
    try:
        with open(path, "rb", opener=open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is not a regular file")
            with _identify(file) as image:
                width, height = image.size
                most = MAX_PIXELS
                if draft is not None:
                    image.draft(draft[0], (draft[1], draft[1]))
                    if image.width < width and "progressive" not in image.info:  # that is held whole
                        most = MAX_REDUCED_PIXELS
                if width * height > most or image.width * image.height > MAX_PIXELS:
                    raise ValueError(f"{width} x {height} pixels are more than {most:,}")
                yield image
    except CalibrantError:
        raise
    except DECODING_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system, not of Pillow
            raise read_error(path, error) from None
        raise CorruptFileError(f"{os.fspath(path)} {UNREADABLE}{first_line(error)}") from None


def _identify(file: IO[bytes]) -> Image.Image:
    """`Image.open` with our limit of pixels instead of Pillow's, which is a warning and for the whole process."""
    beginning = file.read(16)
    for name in IMAGE_FORMATS:
        factory, accept = Image.OPEN[name]
        if accept is not None and accept(beginning) is True:
            if name == "PNG":  # Pillow does not compare the checksums of pixels when it decodes them
                file.seek(0)
                factory(file, "").verify()
            file.seek(0)
            return factory(file, "")
    raise ValueError(f"not {', '.join(IMAGE_FORMATS[:-1])} or {IMAGE_FORMATS[-1]}")
