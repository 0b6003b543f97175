"""Validation errors of pydantic as errors of calibrant, in one line."""

import re
from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from calibrant._names import suggestion
from calibrant.errors import InvalidInputError, UnknownNameError

UNION_MEMBER = re.compile(r"(str|int|float|bool)$")
REWORDED = {
    "Input should": "must",
    "List should": "must",
    "String should": "must",
    " after validation": "",
    "integer": "whole number",
    "valid ": "",
    "tuple": "list",
    r"dictionary( or instance of \w+)?": "table",
}


def as_calibrant_error(
    error: ValidationError, prefix: str, known: Mapping[str, Iterable[str]]
) -> InvalidInputError | UnknownNameError:
    """The first error, with the path of its key; known: the keys of each table, those of the top level under ""."""
    first = error.errors()[0]
    # for a union, as float | bool | str, the path also names the members that were tried
    keys = [key for key in first["loc"] if isinstance(key, int) or not UNION_MEMBER.match(key)]
    path = _path(keys)
    if first["type"] == "extra_forbidden":
        keys = list(first["loc"])
        path = _path(keys)
        table = str(keys[0]) if len(keys) > 1 else ""
        return UnknownNameError(f"{prefix}unknown setting {path!r}; {suggestion(str(keys[-1]), known[table])}")
    rule = first["msg"]
    for theirs, ours in REWORDED.items():
        rule = re.sub(theirs, ours, rule)
    return InvalidInputError(f"{prefix}{path} {rule}, got {first['input']!r}")


def _path(keys: Iterable[int | str]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
