"""Reading predictions from any file that people have: CSV, JSON lines, Parquet, Arrow, arrays of numpy, data frames.

What the columns are is said by the user or by their names, and never guessed from values (`docs/reading.md`).
"""

from calibrant.reading.late_labels import LabelCounts, save_labelled
from calibrant.reading.opening import convert, read

__all__ = ["LabelCounts", "convert", "read", "save_labelled"]
