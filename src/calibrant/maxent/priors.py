"""Class priors from JSON files: a list of numbers, or an object from class name to number."""

import json
import os
from pathlib import Path

from torch import Tensor

from calibrant._files import read_small
from calibrant._paths import as_path
from calibrant._signatures import checked
from calibrant.errors import CorruptFileError
from calibrant.maxent.checks import check_counts, check_prior


@checked
def read_prior(path: str | os.PathLike[str], *, counts: bool = False) -> tuple[list[str], Tensor]:
    """Read class names, and the probability of each.

    Args:
        path: A JSON file with one number for each class.
        counts: Whether the numbers are counts of training samples.

    Returns:
        The class names (positions in a list), and the probabilities.

    Raises:
        NoDataError: There is no such file.
        ResourceError: The system cannot read it.
        CorruptFileError: It does not contain one number for each class.
        InvalidInputError: The numbers are no probabilities, or no counts.
    """
    names, numbers = _read_classes(as_path("path", path))
    return names, check_counts(numbers) if counts else check_prior(numbers)


def _read_classes(path: Path) -> tuple[list[str], list[float]]:
    text = read_small(path)
    try:
        content = json.loads(text.decode("utf-8-sig"), object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not a JSON file: {error}") from None
    if not isinstance(content, list | tuple):
        raise CorruptFileError(f"{path} must hold a list or an object of numbers, got {content!r}")
    pairs = list(content if isinstance(content, tuple) else enumerate(content))
    for name, number in pairs:
        if isinstance(number, bool) or not isinstance(number, int | float):
            got = f"a {type(number).__name__}" if isinstance(number, list | tuple) else repr(number)  # it may be deep
            raise CorruptFileError(f"{path} must give each class a number, got {got} for class {name}")
    names = [str(name) for name, _ in pairs]
    if len(set(names)) < len(names):
        raise CorruptFileError(f"{path} gives the class {max(names, key=names.count)} twice")
    return names, [number for _, number in pairs]
