"""Common corruptions of images: the nineteen of the -C benchmarks at five severities, for any image data set."""

from calibrant.corruptions.corrupting import Corrupt, CorruptedDataset, corrupt
from calibrant.corruptions.draws import Draws
from calibrant.corruptions.severities import Px
from calibrant.corruptions.table import CORRUPTIONS, Corruption

__all__ = ["CORRUPTIONS", "Corrupt", "CorruptedDataset", "Corruption", "Draws", "Px", "corrupt"]
