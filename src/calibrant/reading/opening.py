"""The three calls of this package: open a file, read it, convert files to one Parquet file."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Unpack

from calibrant._files import check_output
from calibrant._parquet import find_files
from calibrant._paths import check_path
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, without_secrets
from calibrant.predictions import Predictions, check_replaceable
from calibrant.reading.columns import ColumnOptions, Request
from calibrant.reading.source import PredictionSource, Say, open_path

CONVERTED = "converted"  # the key of the metadata of what `convert` wrote


@checked
def open_source(path: str | os.PathLike[str], **options: Unpack[ColumnOptions]) -> PredictionSource:
    """Find what the columns of a file are, before its rows are read.

    Args:
        path: A file; arguments and errors as for `read`.
        options: As for `read`.

    Returns:
        An iterable of batches in bounded memory; ``str(source.layout)`` says in one line what was found.
    """
    return open_path(check_path("path", path), Request.of(options))


@checked
def read(path: str | os.PathLike[str], **options: Unpack[ColumnOptions]) -> Predictions:
    """Read predictions from a file: .csv, .tsv, .jsonl, .parquet, .arrow, .feather, .npz or .npy.

    Columns whose names say what they are need no arguments (see ``docs/reading.md`` for the rule).

    Args:
        path: The file, or an fsspec URL (not of .npz and .npy).
        options: ``probs``, ``logits`` or ``log_probs``: the columns of all classes, as names or a pattern such as
            ``"p_*"``, or one column of lists; or ``positive_probs``: one column with the probability of class 1.
            ``label``: the column of the labels, or of a .npy file the .npy file of its labels. ``class_names``: in the
            order of the columns, or of lists. ``nan_is_unknown``: whether a label NaN is not known; otherwise it is
            an error. ``text``: columns of a text file that are texts whatever they look like. ``columns``: a TOML file
            whose table ``[columns]`` holds any of these; arguments override it.

    Returns:
        The rows with all other columns. Labels are numbers of classes, −1 where the file has none.

    Raises:
        InvalidInputError: The columns are not clear, or a value breaks its rule; the message says what to type.
        UnknownNameError: There is no such column.
        NoDataError: There is no such file, or it is empty.
        ResourceError: The file cannot be read.
        CorruptFileError: The file does not have the format that its name says.
    """
    return open_path(check_path("path", path), Request.of(options)).read()


@checked
def convert(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    say: Say = lambda _: None,
    **options: Unpack[ColumnOptions],
) -> int:
    """Write the predictions of any files to one Parquet file, in bounded memory.

    Args:
        paths: Files or globs, with the same classes and columns.
        output: The Parquet file; another kind of file, or an input, is not replaced.
        say: Called with one line for each thing that a reader should know: first what the columns of each file are.
        options: As for `read`, the same for all files.

    Returns:
        The number of rows.

    Raises:
        CalibrantError: As `read`.
    """
    files, request = find_files(paths), Request.of(options)
    check_output(output, "a Parquet file", files)
    check_replaceable(output, CONVERTED)
    sources = [open_path(file, request) for file in files]
    for source in sources:
        say(f"{source.table.name}: {source.layout}")
    _check_classes(sources)
    record = {CONVERTED: {"files": [without_secrets(file) for file in files]}}

    def batches() -> Iterator[Predictions]:
        for source in sources:
            for batch in source.batches(say):
                yield replace(batch, metadata={**batch.metadata, **record})

    return Predictions.save_all(output, batches(), labels=any(source.layout.label is not None for source in sources))


def _check_classes(sources: list[PredictionSource]) -> None:
    """Files with class names have the same; save_all compares those of the batches, and cannot name the file."""
    named = [source for source in sources if source.layout.class_names is not None]
    for source in named:
        names, first = source.layout.class_names, named[0].layout.class_names
        if names != first:
            raise InvalidInputError(
                f"{source.table.name} must have the classes of {named[0].table.name} in one order: type "
                f"--class-names {' '.join(first or ())}"
            )
