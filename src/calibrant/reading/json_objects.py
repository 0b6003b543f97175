"""JSON as objects of Python, for files whose rows are no rows of a table."""

import json
from collections.abc import Iterator
from typing import Any

from calibrant.errors import CorruptFileError
from calibrant.reading.tables import open_lines

ENDINGS = (".jsonl", ".ndjson", ".json")


def is_json(path: str) -> bool:
    return path.lower().removesuffix(".gz").endswith(ENDINGS)


def first_object(path: str) -> Any:
    """The value in the first line of a file that is not empty; None where that is no JSON of its own."""
    with open_lines(path) as lines:
        return _value(next(filter(bytes.strip, lines), b""))


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_objects(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object in each line that is not empty, with its row. Raises: CorruptFileError with the row."""
    with open_lines(path) as lines:
        for row, line in enumerate(filter(bytes.strip, lines)):
            value = _value(line)
            if not isinstance(value, dict):
                raise CorruptFileError(f"{path} must hold a JSON object in each line, got {line[:40]!r} at row {row}")
            yield row, value
