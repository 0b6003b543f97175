"""The calls of this package: read files, and convert them to one Parquet file."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

from calibrant._files import check_output
from calibrant._signatures import checked
from calibrant.errors import without_secrets
from calibrant.predictions import Paths, Predictions, check_replaceable
from calibrant.reading.columns import ColumnOptions
from calibrant.reading.source import silent

CONVERTED = "converted"  # the key of the metadata of what `convert` wrote


@checked
def read(paths: Paths, *, say: Callable[[str], None] = silent, **options: Unpack[ColumnOptions]) -> Predictions:
    """Read predictions from files: .csv, .tsv, .jsonl, .parquet, .arrow, .feather, .npz or .npy.

    Columns whose names say what they are need no arguments (see ``docs/reading.md`` for the rule).

    Args:
        paths: Files, globs, or fsspec URLs (not of .npz and .npy), with the same classes and columns.
        say: Called with a line for each thing that a reader should know, such as what the columns are.
        options: ``probs``, ``logits`` or ``log_probs``: the columns of all classes, as names or a pattern such as
            ``"p_*"``, or one column of lists; or ``positive_probs``: one column with the probability of class 1;
            or ``confidence``: one column with the probability of the predicted class, with ``correct``, a column of
            truths, or ``prediction``, a column of predicted classes, which are correct where they are the label.
            ``label``: the column of the labels, or of a .npy file the .npy file of its labels. ``class_names``: in the
            order of the columns, or of lists. ``nan_is_unknown``: whether a label NaN is not known; otherwise it is
            an error. ``text``: columns of a text file that are texts whatever they look like. ``columns``: a TOML file
            whose table ``[columns]`` holds any of these; arguments override it.

    Returns:
        The rows with all other columns. Labels are numbers of classes, −1 where the file has none.

    Raises:
        InvalidInputError: The columns are not clear; the message says what to type.
        UnknownNameError: There is no such column.
        NoDataError: There is no such file, or it is empty.
        ResourceError: The file cannot be read.
        CorruptFileError: The file does not have the format that its name says, or a value breaks its rule.
    """
    return Predictions.scan(paths, say=say, **options).read()


@checked
def convert(
    paths: Paths,
    output: str | os.PathLike[str],
    *,
    match_names: bool = False,
    say: Callable[[str], None] = silent,
    **options: Unpack[ColumnOptions],
) -> int:
    """Write the predictions of any files to one Parquet file, in bounded memory.

    Args:
        paths: Files or globs, with the same classes and columns.
        output: The Parquet file; another kind of file, or an input, is not replaced.
        match_names: Whether to reorder the classes of files that have the same class names in another order than the
            first; otherwise this is an error.
        say: Called with one line for each thing that a reader should know: first what the columns of each file are.
        options: As for `read`, the same for all files.

    Returns:
        The number of rows.

    Raises:
        CalibrantError: As `read`.
    """
    scan = replace(Predictions.scan(paths, match_names=match_names, **options), say=say)
    check_output(output, "a Parquet file", scan.files)
    check_replaceable(output, CONVERTED)
    for line in scan.found:
        say(line)
    record = {CONVERTED: {"files": list(map(without_secrets, scan.files))}}
    batches = (replace(batch, metadata={**batch.metadata, **record}) for batch in scan)
    return Predictions.save_all(output, batches, labels=scan.has_labels)
