"""Tables that are one JSON value, as pandas, polars and MLflow write them, and not an object in each line."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from calibrant._checks import check_memory
from calibrant._paths import first_line
from calibrant.errors import CorruptFileError, InvalidInputError

BYTES_EACH = 10  # of memory for a byte of JSON, as objects of Python


def read_document(path: str, lines: io.BufferedReader) -> pa.Table | None:
    """The table of a JSON value; None where there is an object in each line. Raises: CorruptFileError.

    A list of objects, an object of ``columns`` and ``data`` (pandas: orient="split"), or of columns that are objects
    with the same keys (pandas: by default).
    """
    first = next(filter(bytes.strip, lines), b"")
    head = _value(first)
    is_list = first.lstrip().startswith(b"[")
    if isinstance(head, dict) and not _is_table(head):
        return None
    rest = lines.read()
    if isinstance(head, dict) and rest.strip():
        return None
    content = first + rest
    check_memory(path, BYTES_EACH * len(content))
    whole = head if isinstance(head, dict) else _value(content)
    if whole is None and not is_list:
        return None  # JSON lines that are damaged: who reads them says where
    if whole is None:
        raise CorruptFileError(f"{path} is damaged, or is not JSON")
    columns = _columns(whole)
    if columns is None:
        advice = "write one object in each line (pandas: to_json(path, orient='records', lines=True))"
        raise InvalidInputError(f"{path} is JSON, but no list of objects: {advice}")
    return pa.table({name: _array(path, name, values) for name, values in columns.items()})


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_table(value: Mapping[str, Any]) -> bool:
    """Whether an object holds the columns of a table."""
    if {"columns", "data"} <= value.keys():
        return True
    rows = [each.keys() if isinstance(each, dict) else None for each in value.values()]
    return len(rows) > 1 and rows[0] is not None and all(each == rows[0] for each in rows)


def _columns(value: Any) -> Mapping[str, Sequence[Any]] | None:
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        names = dict.fromkeys(name for row in value for name in row)
        return {name: [row.get(name) for row in value] for name in names}
    if not isinstance(value, dict) or not _is_table(value):
        return None
    if "data" not in value:
        return {name: list(each.values()) for name, each in value.items()}
    names, rows = value["columns"], value["data"]
    if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
        return None
    return {str(name): [row[place] for row in rows] for place, name in enumerate(names)}


def _array(path: str, name: str, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise CorruptFileError(f"{path}: column {name!r} must have one type: {first_line(error)}") from None
