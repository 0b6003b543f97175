"""The name of a shifted test: a corruption at a severity, for example fog-3."""

from dataclasses import dataclass
from typing import Self

from calibrant._signatures import checked
from calibrant.errors import InvalidInputError

SEVERITIES = range(1, 6)


@checked
@dataclass(frozen=True, slots=True)
class Shift:
    """A corruption at a severity; its text names the shifted test and its files.

    >>> Shift.parse("motion_blur-4"), str(Shift("fog", 3))
    (Shift(corruption='motion_blur', severity=4), 'fog-3')
    """

    corruption: str
    severity: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shift of this name. Raises: InvalidInputError."""
        corruption, _, severity = text.rpartition("-") if isinstance(text, str) else ("", "", "")
        if not corruption or not (severity.isascii() and severity.isdecimal()):
            raise InvalidInputError(f"a shift must be a corruption and a severity, as fog-3, got {text!r}")
        return cls(corruption, int(severity))

    def __str__(self) -> str:
        return f"{self.corruption}-{self.severity}"
