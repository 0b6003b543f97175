"""Types of options that several commands share."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    """An integer; cyclopts would round 2.5."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


Integer = Annotated[int, Parameter(converter=integer)]
