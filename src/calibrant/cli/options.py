"""Types of options that several commands share, and the rule for every argument."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from cyclopts import Parameter, Token

if TYPE_CHECKING:
    File = str
else:
    File = str | Path  # a file or a URL; the shell completes file names for Path

Switch = Annotated[bool, Parameter(negative=())]  # there is no --no-…
Json = Annotated[bool, Parameter(name="--json", negative=())]
Words = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=())]
Files = Annotated[tuple[File, ...], Parameter(consume_multiple=True, negative=())]
Output = Annotated[File, Parameter(name=["--output", "-o"])]


def integer(_: type, tokens: Sequence[Token]) -> int:
    """An integer in decimal digits; cyclopts would round 2.5, and read 1e3 and 0x10."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(f"{text!r} is not a whole number of at most 18 digits")
    return int(text)


Integer = Annotated[int, Parameter(converter=integer)]  # of every option that is a whole number


def check_text(hint: Any, value: Any, argument: str = "an argument") -> None:
    """No argument is empty, as that of an unset variable of a shell would be, or has a NUL; no file is a device."""
    if isinstance(value, dict):
        for name, item in value.items():
            check_text(File, item, f"--{name.replace('_', '-')}")
    elif isinstance(value, tuple):
        for item in value:
            check_text(hint, item, argument)
    elif isinstance(value, str | Path):
        text = str(value)
        check_given(hint, text, argument)
        if _is_of_files(hint) and os.path.exists(text) and not (os.path.isfile(text) or os.path.isdir(text)):
            raise ValueError(f"{argument} must not be a device or a pipe, which may have no end")


def _is_of_files(hint: Any) -> bool:
    return hint is Path or any(map(_is_of_files, get_args(hint)))


def check_given(_: Any, value: str | Path | None, argument: str = "an argument") -> None:
    if value is not None and (not str(value) or "\0" in str(value)):
        raise ValueError(f"{argument} must not be empty or have a NUL character")


SmallFile = Annotated[File, Parameter(validator=check_given)]  # also a pipe: it is read once, up to a bound
