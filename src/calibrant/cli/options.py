"""Types of options that several commands share, and the rule for every argument."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


def check_text(_: type, value: Any, argument: str = "an argument") -> None:
    """No argument is empty, as that of an unset variable of a shell would be, has a NUL character or names a device."""
    if isinstance(value, dict):
        for name, item in value.items():
            check_text(_, item, f"--{name.replace('_', '-')}")
    elif isinstance(value, tuple):
        for item in value:
            check_text(_, item, argument)
    elif isinstance(value, str | Path):
        text = str(value)
        if not text or "\0" in text:
            raise ValueError(f"{argument} must not be empty or have a NUL character")
        if os.path.exists(text) and not (os.path.isfile(text) or os.path.isdir(text)):
            raise ValueError(f"{argument} must not be a device or a pipe, which may have no end")
