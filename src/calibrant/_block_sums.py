"""Checksums of all bytes of a Parquet file, between its pages and its footer: damage is found before it is read.

The checksums of Parquet cover the contents of pages, but neither their headers nor the footer with schema, offsets and
class names. These cover all. Other programs do not look there, and their copies of a file do not have them, though they
keep its metadata. A file is, in order: pages; the CRC-32 of each block of pages (uint32, little-endian); a `TRAILER`;
the footer.
"""

import io
import os
import struct
from hashlib import blake2b
from typing import Any
from zlib import crc32

from calibrant.errors import CorruptFileError

BLOCK = 2**16  # bytes
TRAILER = struct.Struct("<Q16s8s")  # number of bytes of pages; digest of the checksums, that number and the footer
MAGIC = b"cal-sum\0"  # after a flip in the length of the footer, which then seems to begin here, 0 ends it


class BlockWriter(io.RawIOBase):
    """A file for a Parquet writer: all that is written before `hold` are pages, and the footer is written last."""

    def __init__(self, file: Any) -> None:
        self.file, self.n_bytes, self.sums, self.sum = file, 0, bytearray(), 0
        self.held: bytearray | None = None

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        if self.held is None:
            self._write_pages(view)
        else:
            self.held += view
        return len(view)

    def hold(self) -> None:
        """Keep back what follows: the last pages, if the writer has buffered them, and the footer."""
        self.held = bytearray()

    def finish(self) -> None:
        """Write what was kept back, and the checksums."""
        tail = bytes(self.held or b"")
        start = len(tail) - _footer_size(tail)
        self._write_pages(memoryview(tail)[:start])
        if self.n_bytes % BLOCK:
            self.sums += struct.pack("<I", self.sum)
        digest = _digest(bytes(self.sums), self.n_bytes, tail[start:])
        self.file.write(bytes(self.sums) + TRAILER.pack(self.n_bytes, digest, MAGIC) + tail[start:])

    def _write_pages(self, view: memoryview) -> None:
        self.file.write(view)
        while view:
            part = view[: BLOCK - self.n_bytes % BLOCK]
            self.sum = crc32(part, self.sum)
            self.n_bytes += len(part)
            if self.n_bytes % BLOCK == 0:
                self.sums += struct.pack("<I", self.sum)
                self.sum = 0
            view = view[len(part) :]


class BlockReader(io.RawIOBase):
    """A file whose blocks of pages are compared with their checksums when they are read."""

    def __init__(self, source: Any, n_bytes: int, sums: tuple[int, ...]) -> None:
        self.source, self.n_bytes, self.sums, self.position = source, n_bytes, sums, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.source.size()}[whence]
        return self.position

    def read(self, size: int = -1) -> memoryview:
        """The bytes, of a memory map without a copy. Raises: OSError where a block has another checksum."""
        start, end = self.position, self.source.size() if size < 0 else min(self.position + size, self.source.size())
        first = min(start, self.n_bytes) // BLOCK * BLOCK
        last = max(end, min(-(-end // BLOCK) * BLOCK, self.n_bytes))
        view = _read(self.source, first, last)
        for at in range(first, min(last, self.n_bytes), BLOCK):
            if crc32(view[at - first : min(at + BLOCK, self.n_bytes) - first]) != self.sums[at // BLOCK]:
                raise OSError(
                    f"its bytes from {at} to {at + BLOCK} do not have the checksum that they were written with"
                )
        self.position = end
        return view[start - first : end - first]

    def close(self) -> None:
        self.source.close()
        super().close()


def with_block_sums(source: Any, url: str) -> BlockReader | None:
    """The file with checks of all that is read, if it has checksums; as files of other programs have not.

    Raises:
        CorruptFileError: Its footer or its checksums are damaged.
    """
    size = source.size()
    tail = _read(source, max(0, size - BLOCK), size)
    footer = _footer_size(tail)
    if footer + TRAILER.size > size:
        return None
    if footer + TRAILER.size > len(tail):
        tail = _read(source, size - footer - TRAILER.size, size)
    n_bytes, digest, magic = TRAILER.unpack_from(tail, len(tail) - footer - TRAILER.size)
    if magic != MAGIC:
        return None
    n_sums = -(-n_bytes // BLOCK)
    if n_bytes + 4 * n_sums + TRAILER.size + footer == size:
        sums = bytes(_read(source, n_bytes, n_bytes + 4 * n_sums))
        if digest == _digest(sums, n_bytes, tail[len(tail) - footer :]):
            return BlockReader(source, n_bytes, struct.unpack(f"<{n_sums}I", sums))
    raise CorruptFileError(f"{url} is damaged: its footer does not have the checksum that it was written with")


def _read(source: Any, start: int, end: int) -> memoryview:
    source.seek(start)
    return memoryview(source.read_buffer(end - start))


def _footer_size(tail: bytes | memoryview) -> int:
    """With the 8 bytes of its length and the magic number of Parquet."""
    return int.from_bytes(tail[-8:-4], "little") + 8


def _digest(sums: bytes, n_bytes: int, footer: bytes | memoryview) -> bytes:
    return blake2b(b"".join((sums, struct.pack("<Q", n_bytes), footer)), digest_size=16).digest()
