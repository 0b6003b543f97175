"""The calls of this package: read files, and convert them to one Parquet file."""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Unpack

import pyarrow as pa

from calibrant._checks import in_order
from calibrant._files import check_output
from calibrant._paths import find_files
from calibrant._progress import Say, silent
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, without_secrets
from calibrant.predictions import Paths, Predictions, check_replaceable
from calibrant.reading.columns import NO_LABEL, ColumnOptions, Request
from calibrant.reading.language_models import open_options
from calibrant.reading.nested import flattened
from calibrant.reading.source import is_own, open_table_source
from calibrant.reading.tables import TableSource, open_table
from calibrant.scan import Scan, found_lines

CONVERTED = "converted"  # the key of the metadata of what `convert` wrote


@checked
def read(paths: Paths, *, say: Callable[[str], None] = silent, **options: Unpack[ColumnOptions]) -> Predictions:
    """Read predictions from files: .csv, .tsv, .jsonl, .parquet, .arrow, .feather, .npz or .npy.

    Columns whose names say what they are need no arguments (see ``docs/reading.md`` for the rule).

    Args:
        paths: Files, globs, or fsspec URLs (not of .npz and .npy), with the same classes and columns.
        say: Called with a line for each thing that a reader should know, such as what the columns are.
        options: ``probs``, ``logits`` or ``log_probs``: the columns of all classes, as names or a pattern such as
            ``"p_*"``, or one column of lists; or ``positive_probs`` or ``positive_logits``: one column
            with the probability or the log-odds of class 1;
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


def open_scans(
    inputs: Sequence[Paths],
    *,
    ids: Collection[str] = (),
    batch_rows: int | None = None,
    match_names: bool = False,
    say: Say = silent,
    **options: Unpack[ColumnOptions],
) -> list[Scan]:
    """A scan of each input of a command, after what the columns are was said.

    The options are for the files that calibrant did not write, where there are any. ``ids`` are read as texts, with the
    zeros that they begin with. Raises: as `Predictions.scan`.
    """
    request = Request.of(options)
    urls = [
        find_files(given if isinstance(given, str | os.PathLike) else in_order("paths", "paths", given))
        for given in inputs
    ]
    options_of = open_options([url for each in urls for url in each], request)
    tables = [
        [options_of.get(url) or flattened(open_table(url, _npy_label(url, request))) for url in each] for each in urls
    ]
    tables = _of_one_type(tables)
    every = [table for each in tables for table in each]
    # A column of labels that only one file has, or that a file of options names, is of labels that have not come yet.
    given = options.get("label")
    common = every, request, ids, given is None or any(given in table.schema.names for table in every)
    sources = [tuple(open_table_source(table, _request_of(table, *common)) for table in each) for each in tables]
    scans = [Scan(each, batch_rows, match_names, say=say) for each in sources]
    for line in found_lines([source for each in sources for source in each]):
        say(line)
    return scans


def _of_one_type(tables: Sequence[Sequence[TableSource]]) -> list[list[TableSource]]:
    """The same, with one type for each column of text files: texts, if one of them has texts, else floats."""
    kinds: dict[str, set[pa.DataType]] = {}
    for column in (column for each in tables for table in each if table.is_text for column in table.schema):
        kinds.setdefault(column.name, set()).add(column.type)
    mixed = {name: types for name, types in kinds.items() if len(types) > 1}
    types = {name: pa.float64() if each == {pa.int64(), pa.float64()} else pa.string() for name, each in mixed.items()}

    def typed(table: TableSource) -> TableSource:
        return replace(table, schema=pa.schema([(c.name, types.get(c.name, c.type)) for c in table.schema]))

    return [[typed(table) if table.is_text and types else table for table in each] for each in tables]


def _npy_label(url: str, request: Request) -> str | None:
    """The .npy file of the labels of a .npy file. Raises: InvalidInputError where --label names none."""
    if request.label is None or not url.lower().endswith(".npy"):
        return None
    if not request.label.lower().endswith(".npy"):
        raise InvalidInputError(
            f"{url} holds one array: --label must name the .npy file of its labels, got {request.label}"
        )
    return request.label


def _request_of(
    table: TableSource, tables: Sequence[TableSource], request: Request, ids: Collection[str], may_lack_label: bool
) -> Request:
    """What the user says of one of these tables."""
    if is_own(table) and not all(map(is_own, tables)):
        return Request()
    if (label := _npy_label(table.name, request)) is not None:
        request = replace(request, label=os.path.splitext(os.path.basename(label))[0])
    elif request.label is not None and request.label not in table.schema.names and may_lack_label:
        request = replace(request, label=NO_LABEL)
    if table.is_text:
        return replace(request, text=(*request.text, *(name for name in ids if name in table.schema.names)))
    return replace(request, text=()) if any(each.is_text for each in tables) else request
