"""The names of `calibrant.runs` that `report` asks for here."""

from calibrant.runs import CURVES, RAW, ROWS, UNSHIFTED

__all__ = ["CURVES", "RAW", "ROWS", "UNSHIFTED"]
