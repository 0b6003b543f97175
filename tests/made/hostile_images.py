"""Forty image files that are damaged, lie about their size, or are something else."""

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
HUGE = 2**30
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 24 24\n%%EndComments\n(ran) print\nshowpage\n%%EOF\n"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def encoded(format: str, mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, format, **options)
    return file.getvalue()


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(
    *chunks: bytes, width: int = 24, height: int = 24, depth: int = 8, colour: int = 2, pixels: bytes = b""
) -> bytes:
    """A PNG with these chunks before its pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    content = pixels or zlib.compress(b"".join(b"\0" + row.tobytes() for row in PIXELS))
    return PNG_MAGIC + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def zeros(n_bytes: int) -> bytes:
    """Zeros, compressed a thousand times."""
    compressor = zlib.compressobj(1)
    blocks = (compressor.compress(bytes(2**20)) for _ in range(n_bytes >> 20))
    return b"".join([*blocks, compressor.flush()])


def tiff(*entries: tuple[int, int, int, int], next_directory: int = 0, tail: bytes = b"") -> bytes:
    """A TIFF of one directory of (tag, type, count, value)."""
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    return b"II*\0" + struct.pack("<I", 8) + directory + struct.pack("<I", next_directory) + tail


def plain_tiff(**changed: int) -> bytes:
    """A grey TIFF of 24 x 24 pixels with some values replaced."""
    tags = {"width": (256, 4, 1, 24), "height": (257, 4, 1, 24), "bits": (258, 3, 1, 8), "compression": (259, 3, 1, 1)}
    tags |= {"colour": (262, 3, 1, 1), "offset": (273, 4, 1, 134), "samples": (277, 3, 1, 1), "rows": (278, 4, 1, 24)}
    tags |= {"length": (279, 4, 1, 576), "planes": (284, 3, 1, 1)}
    entries = [
        (tag, kind, changed.get(f"n_{name}", count), changed.get(name, value))
        for name, (tag, kind, count, value) in tags.items()
    ]
    return tiff(*entries, next_directory=changed.get("next", 0), tail=PIXELS.tobytes()[:576])


def animated(format: str, **options: Any) -> bytes:
    frames = [Image.fromarray(np.roll(PIXELS, at)) for at in range(5)]
    file = io.BytesIO()
    frames[0].save(file, format, save_all=True, append_images=frames[1:], **options)
    return file.getvalue()


def exif() -> bytes:
    """An orientation out of range, and a directory that points at itself."""
    return b"Exif\0\0" + tiff((274, 3, 1, 99), (34665, 4, 1, 8), next_directory=8)


def bmp(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IIIIiiHHIIiiII", 58, 0, 54, 40, width, height, 1, 24, 0, 4, 0, 0, 0, 0) + b"\0\0\0\0"


def with_size(content: bytes, marker: bytes, at: int, size: bytes) -> bytes:
    """The bytes with another size at this distance from a marker."""
    start = content.index(marker) + at
    return content[:start] + size + content[start + len(size) :]


def ico() -> bytes:
    return b"\0\0\1\0\1\0" + struct.pack("<BBBBHHII", 24, 24, 0, 0, 1, 32, len(png()), 22) + png()


IMAGES: dict[str, Callable[[], bytes]] = {
    "PNG of 2^60 pixels": lambda: png(width=HUGE, height=HUGE),
    "PNG of 100 million pixels": lambda: png(width=10_000, height=10_000, colour=0, pixels=zeros(100 << 20)),
    "PNG of more pixels than its size": lambda: png(pixels=zeros(64 << 20)),
    "PNG with a bomb of text": lambda: png(chunk(b"zTXt", b"a\0\0" + zeros(16 << 20))),
    "PNG with many texts": lambda: png(*[chunk(b"zTXt", b"a\0\0" + zeros(1 << 20))] * 90),
    "PNG with a bomb of international text": lambda: png(chunk(b"iTXt", b"a\0\1\0\0\0" + zeros(16 << 20))),
    "PNG with a bomb of a profile": lambda: png(chunk(b"iCCP", b"a\0\0" + zeros(16 << 20))),
    "PNG with a wrong sum": lambda: png()[:30] + b"\0" + png()[31:],
    "PNG with a wrong sum of pixels": lambda: png()[:-20] + b"\0\0" + png()[-18:],
    "PNG cut in the header": lambda: png()[:20],
    "PNG cut in the pixels": lambda: png()[:300],
    "PNG without pixels": lambda: png()[:33] + chunk(b"IEND", b""),
    "PNG of no pixels": lambda: png(width=0, height=24),
    "PNG of a depth that is not": lambda: png(depth=7),
    "PNG with a palette out of range": lambda: png(chunk(b"PLTE", b"abc"), colour=3),
    "PNG of a palette without one": lambda: png(colour=3),
    "PNG with a chunk of 2^31 bytes": lambda: PNG_MAGIC + struct.pack(">I", 2**31 - 1) + b"IHDR",
    "PNG of many frames": lambda: animated("PNG"),
    "PNG that says it has 2^31 frames": lambda: png(chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0))),
    "JPEG of 65535 x 65535": lambda: with_size(encoded("JPEG"), b"\xff\xc0", 5, b"\xff\xff\xff\xff"),
    "JPEG cut in the pixels": lambda: encoded("JPEG", quality=95)[:800],
    "JPEG with a wrong EXIF": lambda: encoded("JPEG", exif=exif()),
    "JPEG without its tables": lambda: b"\xff\xd8" + encoded("JPEG")[encoded("JPEG").index(b"\xff\xc0") :],
    "WebP of many frames": lambda: animated("WEBP"),
    "WebP of 16383 x 16383": lambda: with_size(encoded("WEBP"), b"\x9d\x01\x2a", 3, b"\xff\x3f\xff\x3f"),
    "WebP cut": lambda: encoded("WEBP", lossless=True)[:100],
    "TIFF of many pages": lambda: animated("TIFF"),
    "TIFF of 2^60 pixels": lambda: plain_tiff(width=HUGE, height=HUGE),
    "TIFF whose directory is its own next": lambda: plain_tiff(next=8),
    "TIFF with 2^30 strips": lambda: plain_tiff(n_offset=HUGE, n_length=HUGE),
    "TIFF with 2^30 samples": lambda: plain_tiff(n_bits=HUGE, samples=65535),
    "TIFF with pixels beyond its end": lambda: plain_tiff(offset=2**31),
    "BMP of 2^30 x -2^30": lambda: bmp(HUGE, -HUGE),
    "GIF named PNG": lambda: encoded("GIF", "P"),
    "EPS named PNG": lambda: EPS,
    "SVG named PNG": lambda: SVG,
    "PSD named PNG": lambda: b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 24, 24, 8, 3) + bytes(2000),
    "ICO named PNG": ico,
    "PPM of 2^60 pixels": lambda: b"P6 %d %d 255\n" % (HUGE, HUGE),
    "nothing": bytes,
}  # fmt: skip
PLACES: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path),
}


def write_image(path: Path, name: str) -> None:
    if name in PLACES:
        PLACES[name](path)
    else:
        path.write_bytes(IMAGES[name]())
