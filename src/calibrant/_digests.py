"""Digests inside the files that calibrant writes: damage is found before a number of the file is used."""

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from calibrant.errors import CorruptFileError

DIGEST = "digest"  # the key in a record of JSON
UNSEALED = b"blake2b:" + b"0" * 32  # stands in bytes until they are sealed
SEAL = re.compile(rb"blake2b:[0-9a-f]{32}")


def seal(content: bytes) -> bytes:
    """The bytes with their own digest in place of the first `UNSEALED`.

    >>> sealed = seal(b"weights " + UNSEALED)
    >>> is_sealed(sealed, "a file"), is_sealed(b"weights of another program", "b")
    (True, False)
    """
    if UNSEALED not in content:
        raise ValueError("the bytes have no place for a seal")
    return content.replace(UNSEALED, _seal_of(content), 1)


def is_sealed(content: bytes, path: object) -> bool:
    """Whether the bytes have a seal, as those that other programs wrote have not. Raises: CorruptFileError."""
    seals = list(SEAL.finditer(content))
    if any(_seal_of(content[: m.start()] + UNSEALED + content[m.end() :]) == m.group() for m in seals):
        return True
    if seals:
        raise CorruptFileError(f"{path} is damaged: its bytes do not have the digest that it was written with")
    return False


def _seal_of(content: bytes) -> bytes:
    return b"blake2b:" + blake2b(content, digest_size=16).hexdigest().encode()


def with_digest(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the digest of its content, whatever the order of its keys and its spaces on disk."""
    return {**record, DIGEST: _digest_of(record)}


def without_digest(record: Mapping[str, Any], path: object) -> dict[str, Any]:
    """The record without its digest, if it has one. Raises: CorruptFileError where the content has another.

    >>> without_digest(with_digest({"temperature": 1.5}), "t.json")
    {'temperature': 1.5}
    """
    content = dict(record)
    if DIGEST in content and content.pop(DIGEST) != _digest_of(content):
        raise CorruptFileError(f"{path} was changed after it was written: its content does not have its digest")
    return content


def _digest_of(record: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=16).hexdigest()
