"""What pydantic finds wrong with settings, in one line."""

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
    """The first thing that is wrong, by its path; known: the keys of each table, of the whole file under ""."""
    first = error.errors()[0]
    # of the members of a union, as float | bool | str, the path names those that were tried: they are no keys
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
