"""Types of options that several commands share, and the rule for every argument."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from cyclopts import Parameter, Token

from calibrant.cli.arrow import import_pyarrow
from calibrant.cli.output import Notes

if TYPE_CHECKING:
    from calibrant.predictions import Paths
    from calibrant.scan import Scan

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


def check_column_flags(_: Any, flags: "ColumnFlags") -> None:
    for name, value in vars(flags).items():
        for text in value if isinstance(value, tuple) else (value,):
            if not isinstance(text, bool):
                check_given(str, text, f"--{name.replace('_', '-')}")


@Parameter(name="*", group="Columns of files that calibrant did not write", validator=check_column_flags)
@dataclass(frozen=True, kw_only=True)
class ColumnFlags:
    """What the columns of predictions are, where their names do not say it.

    Parameters
    ----------
    label
        The column of the labels; for a .npy file, the .npy file of its labels.
    probs
        The columns of the probabilities of all classes, or a pattern such as 'p_*', or one column of lists.
    logits
        The same for logits.
    log_probs
        The same for log-probabilities.
    positive_probs
        The column of the probability of class 1, of two classes.
    positive_logits
        The column of the log-odds of class 1: the one logit of a binary model.
    confidence
        The column of the confidence of the predicted class, where there are no other probabilities.
    correct
        With it: the column of whether the prediction is correct, true or false, 1 or 0.
    prediction
        With it: the column of the predicted class; it is correct where it is the label.
    class_names
        The names of the classes, in the order of the columns or lists.
    nan_is_unknown
        A label NaN is not known yet; otherwise it is an error.
    text
        Columns of a text file that are texts, whatever they look like, such as ids made of digits.
    columns
        A TOML file whose table [columns] has any of these options.
    """

    label: str | None = None
    probs: Words = ()
    logits: Words = ()
    log_probs: Words = ()
    positive_probs: str | None = None
    positive_logits: str | None = None
    confidence: str | None = None
    correct: str | None = None
    prediction: str | None = None
    class_names: Words = ()
    nan_is_unknown: Switch = False
    text: Words = ()
    columns: SmallFile | None = None

    def options(self) -> dict[str, Any]:
        """Those that are given, as `Predictions.scan` takes them."""
        return {name: value for name, value in vars(self).items() if value}

    def scan(self, paths: "Paths", *, match_names: bool = False) -> "Scan":
        """Open files, and say on standard error what their columns are."""
        (scan,) = self.scans(paths, match_names=match_names)
        return scan

    def scans(
        self,
        *inputs: "Paths",
        match_names: bool = False,
        id: str | None = None,
        say: Callable[[str], None] | None = None,
    ) -> "list[Scan]":
        """The same for all inputs of a command; a column of ids is read as text."""
        import_pyarrow()
        from calibrant.reading.opening import open_scans

        ids = () if id is None else (id,)
        return open_scans(inputs, ids=ids, match_names=match_names, say=say or Notes(), **self.options())


AS_NAMED = ColumnFlags()  # the names of the columns say what they are
