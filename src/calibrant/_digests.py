"""Digests inside the files that calibrant writes: damage is found before a number of the file is used."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from mmap import mmap
from typing import Any

from calibrant.errors import CorruptFileError

DIGEST = "digest"  # the key in a record of JSON
UNSEALED = b"blake2b:" + b"0" * 32  # stands in bytes until they are sealed
SEALED_LINE = b"# To edit this copy, remove this line, its digest: "  # how the seal of a TOML file begins
SEAL = re.compile(rb"blake2b:[0-9a-f]{32}")


def with_seal(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts of a file, and after them its seal, for formats whose readers ignore bytes after the end.

    >>> is_sealed(b"".join(with_seal([b"an ", b"array"])), "a file"), is_sealed(b"of another program", "b")
    (True, False)
    """
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
        yield part
    digest.update(UNSEALED)
    yield b"blake2b:" + digest.hexdigest().encode()


def seal(content: bytes, start: int) -> bytes:
    """The bytes with their own digest in place of the `UNSEALED` that starts there."""
    end = start + len(UNSEALED)
    if content[start:end] != UNSEALED:
        raise ValueError("the bytes have no place for a seal")
    with memoryview(content) as view:
        return b"".join((view[:start], _seal_of(content), view[end:]))


def is_sealed(content: bytes | mmap, path: object, start: int | None = None) -> bool:
    """Whether a seal starts there, or else ends the bytes; those that other programs wrote have none.

    Raises: CorruptFileError where it is the seal of other bytes.
    """
    start = max(0, len(content) - len(UNSEALED)) if start is None else start
    end = start + len(UNSEALED)
    found = content[start:end]
    if SEAL.fullmatch(found) is None:
        return False
    with memoryview(content) as view:  # no copy: weights may take half of the memory
        if _seal_of(view[:start], UNSEALED, view[end:]) != found:
            raise CorruptFileError(f"{path} is damaged: its bytes do not have the digest that it was written with")
    return True


def _seal_of(*parts: bytes | memoryview) -> bytes:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return b"blake2b:" + digest.hexdigest().encode()


def dump_record(record: Mapping[str, Any], indent: int | None = None) -> bytes:
    """The record as JSON, with the digest of its content, whatever the order of its keys and its spaces on disk."""
    return json.dumps({**record, DIGEST: _digest_of(record)}, indent=indent).encode() + b"\n"


def parse_record(content: bytes, path: object) -> dict[str, Any]:
    """The record of JSON without its digest, which those that a person wrote or edited need not have.

    Raises: CorruptFileError where it is no object of JSON, or was changed since it was written.

    >>> parse_record(dump_record({"temperature": 1.5}), "t.json"), parse_record(b'{"temperature": 2}', "t.json")
    ({'temperature': 1.5}, {'temperature': 2})
    """
    try:
        record = json.loads(content)
        was_changed = isinstance(record, dict) and DIGEST in record and record.pop(DIGEST) != _digest_of(record)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise CorruptFileError(f"{path} must be an object of JSON, got {type(record).__name__}")
    if was_changed:
        raise CorruptFileError(f"{path} was changed since it was written; to use it as it is, remove its key {DIGEST}")
    return record


def _digest_of(record: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=16).hexdigest()
