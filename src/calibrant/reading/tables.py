"""Tables in files of any format, as Arrow batches in bounded memory."""

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from calibrant._arrays import blocks
from calibrant._checks import repeated_name
from calibrant._files import read_error
from calibrant._names import brief
from calibrant._parquet import FilePart, read_footer, read_part
from calibrant._paths import LOCAL, absolute_url, check_path, filesystem_of, first_line
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError
from calibrant.reading.json_documents import read_document
from calibrant.reading.numpy_files import Arrays, read_npy, read_npz
from calibrant.reading.options import Options

BLOCK_BYTES = 2**23  # of text that is parsed at a time
MAX_HEADER = 2**24  # bytes of the first line
PEEK_ROWS = 1  # that tell the types of a table in Arrow
CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?.*?(?:invalid value '(.*)'|(UTF8))", re.DOTALL)
ZEROS, DIGITS = "^[+-]?0[0-9]+$", "^[+-]?[0-9]+$"  # of ids, which integers and floats would not give back
ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")

Batches = Iterator[tuple[pa.RecordBatch, float]]  # each with the bytes that were read for it


@dataclass(frozen=True)
class Wanted:
    """What to read of a table."""

    columns: Sequence[str] | None = None  # all by default
    types: Mapping[str, pa.DataType] = field(default_factory=dict)  # that a format without types is to be read as
    batch_rows: int = 2**16  # of formats that are read by rows

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self.columns is None else batch.select(self.columns)


@dataclass(frozen=True)
class TableSource:
    """A table that can be read more than once, also by other processes."""

    name: str  # in messages
    schema: pa.Schema
    parts: tuple[FilePart, ...] = field(repr=False)
    reader: Callable[[FilePart, Wanted], Batches] = field(repr=False)
    typed: bool = True  # whether the types of the schema are those of the file, and not of its first rows
    is_text: bool = False  # whether every value is a text
    options: Options | None = None  # where the classes are the options of questions

    def read(self, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """The batches of all parts."""
        for part in self.parts:
            for batch, _ in self.reader(part, wanted):
                yield batch


def open_table(path: str, label: str | None = None) -> TableSource:
    """The table in a file, by the ending of its name; ``label`` may be the .npy file beside a .npy file.

    Raises: NoDataError, ResourceError, CorruptFileError, InvalidInputError.
    """
    check_path("path", path)
    name = _file_name(path)
    plain = name.removesuffix(".gz")
    ending = os.path.splitext(plain)[1]
    if ending not in FORMATS:
        return _open_other(path)
    if plain != name and ending not in PACKED:
        raise InvalidInputError(f"{path} must end with {' or '.join(PACKED)} before .gz: unpack it")
    if ending == ".npy":
        return _open_numpy(path, partial(read_npy, path, label))
    return FORMATS[ending](path)


def _file_name(path: str) -> str:
    """A path in small letters, of which the ending counts: a URL without its query, of a chain of URLs the first."""
    first = path.lower().partition("::")[0]
    return first.partition("?")[0].partition("#")[0] if "://" in first else path.lower()


def _open_other(path: str) -> TableSource:
    """A file whose name does not say what it is: many writers of Parquet files give them any name."""
    try:
        return _open_parquet(path)
    except CorruptFileError:
        known = ", ".join(FORMATS)
        raise CorruptFileError(f"{path} is not a Parquet file, and does not end with one of {known}") from None


def _whole(path: str) -> tuple[FilePart, ...]:
    """A file as one part, whose rows are counted when it is read."""
    filesystem, inner = filesystem_of(path)
    return (FilePart(path, absolute_url(path), 0, 0, None, filesystem.size(inner)),)


def _open_parquet(path: str) -> TableSource:
    footer = read_footer(path)
    return TableSource(path, footer.schema, footer.parts, _read_parquet)


def _read_parquet(part: FilePart, wanted: Wanted) -> Batches:
    for _, batch in read_part(part, wanted.columns, wanted.batch_rows):
        yield batch, part.n_bytes * batch.num_rows / (part.n_rows or 1)


def _open_arrow(path: str) -> TableSource:
    with _stream(path, "an Arrow file") as (stream, _):
        magic = stream.read(6)
    if magic[:4] == b"FEA1":
        raise InvalidInputError(
            f"{path} is a Feather file of version 1: write version 2 (pyarrow.feather, pandas ≥ 1.1)"
        )
    is_file = magic == b"ARROW1"
    with _stream(path, "an Arrow file") as (stream, _):
        schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(stream).schema
    return TableSource(path, schema, _whole(path), partial(_read_arrow, is_file))


def _read_arrow(is_file: bool, part: FilePart, wanted: Wanted) -> Batches:
    with _stream(part.url, "an Arrow file", location=part.location) as (stream, _):
        if is_file:
            reader = pa.ipc.open_file(stream)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(stream))
        for batch in batches:
            yield wanted.select(batch), float(batch.nbytes)


def _open_json(path: str) -> TableSource:
    with open_lines(path) as lines:
        table = read_document(path, lines)
    if table is not None:
        return memory_table(path, absolute_url(path), table)
    with _stream(path, "JSON lines") as (stream, _):
        schema = _json_reader(stream, Wanted()).schema
    return TableSource(path, _without_nulls(schema), _whole(path), _read_json, typed=False)


def _json_reader(stream: Any, wanted: Wanted) -> Any:
    names = wanted.types if wanted.columns is None else wanted.columns
    types = pa.schema([(name, wanted.types[name]) for name in names]) if wanted.types else None
    return pa_json.open_json(
        stream,
        read_options=pa_json.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=pa_json.ParseOptions(
            explicit_schema=types,
            newlines_in_values=False,
            unexpected_field_behavior="infer" if wanted.columns is None else "ignore",
        ),
    )


def _read_json(part: FilePart, wanted: Wanted) -> Batches:
    n_rows = 0
    with _stream(part.url, "JSON lines", location=part.location) as (stream, file):
        for batch, n_bytes in _naming_rows(part.url, _json_reader(stream, wanted), file):
            _check_utf8(part.url, batch, n_rows)
            n_rows += batch.num_rows
            yield batch, n_bytes


def _check_utf8(path: str, batch: pa.RecordBatch, first_row: int) -> None:
    """What pyarrow checks in CSV, and not in JSON. Raises: CorruptFileError with the column and the row."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            found = re.search(r"string index (\d+)", str(error))
            where = f" at row {first_row + int(found[1])}" if found and pa.types.is_string(column.type) else ""
            raise CorruptFileError(f"{path}: column {name!r} is not UTF-8{where}: {UTF8}") from None


def _without_nulls(schema: pa.Schema) -> pa.Schema:
    """The schema of the first rows, with texts in columns that are empty there: nothing is known of them."""
    return pa.schema([(c.name, pa.string() if pa.types.is_null(c.type) else c.type) for c in schema])


def _open_csv(path: str, delimiter: str = ",") -> TableSource:
    names = _header(path, delimiter)
    with _stream(path, "CSV", names) as (stream, _):
        reader = _csv_reader(stream, delimiter, Wanted())
        schema, ids = reader.schema, _may_be_ids(next(reader, None))
    if ids:
        with _stream(path, "CSV", names) as (stream, _):
            texts = next(_csv_reader(stream, delimiter, Wanted(list(ids), dict.fromkeys(ids, pa.string()))))
        ids = {name: form for name, form in ids.items() if _any_match(texts.column(name), form)}
    schema = pa.schema([(c.name, pa.string() if c.name in ids or _is_bare(c) else c.type) for c in schema])
    return TableSource(path, schema, _whole(path), partial(_read_csv, delimiter, names), typed=False, is_text=True)


def _may_be_ids(batch: pa.RecordBatch | None) -> dict[str, str]:
    """The columns of numbers that would not give back their texts, if one of these has a certain form."""
    columns = [] if batch is None else list(zip(batch.schema, batch.columns, strict=True))
    whole = {c.name: ZEROS for c, _ in columns if pa.types.is_integer(c.type)}
    floats = [(c.name, values) for c, values in columns if pa.types.is_floating(c.type)]
    return whole | {name: DIGITS for name, values in floats if pc.any(pc.greater(pc.abs(values), 2.0**53)).as_py()}


def _any_match(texts: pa.Array, form: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, form)).as_py())


def _is_bare(column: pa.Field) -> bool:
    """Whether a column is empty, or bytes, which are refused with their row when they are read as text."""
    return bool(pa.types.is_null(column.type) or pa.types.is_binary(column.type))


def _csv_reader(stream: Any, delimiter: str, wanted: Wanted) -> Any:
    return pa_csv.open_csv(
        stream,
        read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),  # else without rows in errors
        parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(column_types=dict(wanted.types), include_columns=wanted.columns),
    )


def _read_csv(delimiter: str, names: Sequence[str], part: FilePart, wanted: Wanted) -> Batches:
    with _stream(part.url, "CSV", names, location=part.location) as (stream, file):
        yield from _naming_rows(part.url, _csv_reader(stream, delimiter, wanted), file, names)


MAGIC = {  # beginnings of files that were named .csv
    b"PK": "a zip archive, as Excel writes: save it as CSV",
    b"\x1f\x8b": "gzipped: name it .csv.gz",
    b"PAR1": "a Parquet file: name it .parquet",
}
UTF8 = "save it as UTF-8 (pandas: encoding='utf-8', R: fileEncoding = 'UTF-8')"


def _header(path: str, delimiter: str) -> list[str]:
    """The names in the first line of a CSV file."""
    with _stream(path, "CSV") as (stream, _):
        line = io.BufferedReader(_Raw(stream), 2**16).readline(MAX_HEADER)
    if (other := next((what for start, what in MAGIC.items() if line.startswith(start)), None)) is not None:
        raise CorruptFileError(f"{path} is no text, but {other}")
    try:
        text = line.decode("utf-8-sig")
        names = next(csv.reader([text.rstrip("\r\n")], delimiter=delimiter), [])
    except UnicodeDecodeError:
        raise CorruptFileError(f"{path}: its first line is not UTF-8: {UTF8}") from None
    except csv.Error as error:
        why = r"its lines end with \r alone: save it with \n" if "\r" in text else first_line(error)
        raise CorruptFileError(f"{path} cannot be read as CSV: {why}") from None
    if not text:
        raise NoDataError(f"{path} is empty")
    if not text.strip():
        raise CorruptFileError(f"{path} has an empty first line, which must hold the names of the columns")
    if all(map(_is_number, names)):
        advice = "numpy: savetxt(…, delimiter=',', header='prob_0,prob_1,y', comments='')"
        raise InvalidInputError(
            f"{path} has numbers in its first line, which must hold the names of the columns: {advice}"
        )
    if (twice := repeated_name(names)) is not None:
        raise InvalidInputError(f"{path} has more than one column {twice!r}: rename one of them")
    if len(names) == 1 and (other := next((sign for sign in ";\t," if sign in names[0]), None)):
        advice = {
            ";": "write commas between columns and points in numbers (R: write.csv, not write.csv2; pandas: sep=',')",
            "\t": "name it .tsv",
            ",": "name it .csv",
        }[other]
        raise InvalidInputError(f"{path} has {other!r} between its columns {names[0]!r}: {advice}")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def open_lines(path: str) -> Iterator[io.BufferedReader]:
    """The unpacked content of a text file as a stream of Python. Raises: as `open_table`."""
    with _stream(path, "JSON") as (stream, _):
        yield io.BufferedReader(_Raw(stream), 2**20)


class _Raw(io.RawIOBase):
    """An Arrow stream as one of Python's, to read a line of it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self.stream.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def _naming_rows(path: str, batches: Any, file: Any, names: Sequence[str] = ()) -> Batches:
    """The batches of text, each with the bytes of the file behind it; an error names the last row that was read."""
    n_rows, position = 0, 0
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise _parse_error(path, error, names, n_rows) from None
        if batch is None:
            return
        n_rows += batch.num_rows
        before, position = position, file.tell()
        yield batch, float(position - before)


def _parse_error(path: str, error: Exception, names: Sequence[str], n_rows: int = 0) -> CalibrantError:
    """What pyarrow says of text, with the column and, as far as it is known, the row."""
    text, after = str(error).strip(), f" after row {n_rows - 1}" if n_rows else ""
    if (found := CONVERSION.search(text)) is not None:
        column = names[int(found[1])] if int(found[1]) < len(names) else found[1]
        where = f" at row {int(found[2]) - 2}" if found[2] else after  # counted from 1, the header included
        if found[4] or "UTF8" in text:
            return CorruptFileError(f"{path}: column {column!r} is not UTF-8{where}: {UTF8}")
        value = found[3] or ""
        advice = " (numbers have a point: R: write.csv, not write.csv2)" if "," in value else ""
        advice += " (write 0.9, not 90%)" if value.endswith("%") else ""
        advice += f"; if it holds texts and no predictions, type --text {column}"
        return CorruptFileError(f"{path}: column {column!r} holds {brief(value)}{where}, which is no number{advice}")
    if (ragged := ROW.search(text)) is not None:  # counted from 1, the header included
        advice = f": its first line, {names[0]!r}, must hold the names of the columns" if ragged[2] == "1" else ""
        row = int(ragged[1]) - 2
        return CorruptFileError(
            f"{path} must have {ragged[2]} columns in every row, got {ragged[3]} at row {row}{advice}"
        )
    if "straddl" in text:
        what = f"a row{after} of more than {BLOCK_BYTES:,} bytes"
        return CorruptFileError(f"{path} has {what}: leave out long texts, or close a quote that stays open")
    return CorruptFileError(f"{path} cannot be read{after}: {first_line(error)}")


@contextmanager
def _stream(
    path: str, what: str, names: Sequence[str] = (), *, location: str | None = None
) -> Iterator[tuple[Any, Any]]:
    """The content of a file, unpacked where its name ends with .gz, and the file itself.

    ``location`` is its absolute path or URL, for other processes; messages name the path. Raises: NoDataError,
    ResourceError, CorruptFileError.
    """
    filesystem, inner = filesystem_of(location or path)
    packed = _file_name(path).endswith(".gz")
    try:
        if filesystem is LOCAL:
            if os.path.isdir(inner):
                raise IsADirectoryError(21, "it is a folder", inner)
            file = pa.memory_map(inner) if what == "an Arrow file" else pa.OSFile(inner)  # mapped pages are memory too
        else:
            file = pa.PythonFile(filesystem.open(inner, "rb"), mode="r")
        with file:
            if packed:
                yield pa.CompressedInputStream(file, "gzip"), file
            else:
                if file.size() == 0:
                    raise NoDataError(f"{path} is empty")
                yield file, file
    except CalibrantError:
        raise
    except pa.ArrowInvalid as error:
        if "Empty" in str(error):
            raise NoDataError(f"{path} {'has no rows' if names else 'is empty'}") from None
        raise (_parse_error(path, error, names) if what != "an Arrow file" else _not(path, what, error)) from None
    except OSError as error:
        if error.errno is not None:
            raise read_error(path, error) from None
        raise _not(path, what, error) from None
    except (pa.ArrowException, ValueError, zlib.error, gzip.BadGzipFile) as error:
        raise _not(path, what, error) from None


def _not(path: str, what: str, error: BaseException) -> CorruptFileError:
    return CorruptFileError(f"{path} is damaged, or is not {what}: {first_line(error)}")


def _open_numpy(path: str, load: Callable[[], Arrays]) -> TableSource:
    """A table of arrays: of two dimensions as lists, of one as numbers."""
    arrays = load()
    n_rows, n_bytes = len(next(iter(arrays.values()))), sum(array.nbytes for array in arrays.values())
    part = FilePart(path, absolute_url(path), 0, 0, n_rows, n_bytes)
    return TableSource(path, _of_arrays(arrays, slice(0, PEEK_ROWS)).schema, (part,), partial(_read_numpy, load))


def _of_arrays(arrays: Arrays, rows: slice) -> pa.RecordBatch:
    columns = {}
    for name, array in arrays.items():
        flat = pa.array(array[rows].reshape(-1))
        columns[name] = flat if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
    return pa.RecordBatch.from_pydict(columns)


def _read_numpy(load: Callable[[], Arrays], part: FilePart, wanted: Wanted) -> Batches:
    arrays = load()
    arrays = {name: arrays[name] for name in wanted.columns or arrays}
    for rows in blocks(part.n_rows or 0, 1, size=wanted.batch_rows):
        batch = _of_arrays(arrays, rows)
        yield batch, part.n_bytes * batch.num_rows / (part.n_rows or 1)


FORMATS: dict[str, Callable[[str], TableSource]] = {
    ".csv": _open_csv,
    ".tsv": partial(_open_csv, delimiter="\t"),
    ".jsonl": _open_json,
    ".ndjson": _open_json,
    ".json": _open_json,
    ".parquet": _open_parquet,
    ".arrow": _open_arrow,
    ".feather": _open_arrow,
    ".npz": lambda path: _open_numpy(path, partial(read_npz, path)),
    ".npy": lambda path: _open_numpy(path, partial(read_npy, path, None)),
}
PACKED = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")


def frame_table(frame: Any) -> TableSource:
    """The table of a data frame of any library that exports Arrow streams."""
    if not hasattr(frame, "__arrow_c_stream__"):
        lazy = ": collect it first" if hasattr(frame, "collect") else ""
        raise InvalidInputError(f"frame must be a data frame that exports Arrow, got {type(frame).__name__}{lazy}")
    try:
        reader = pa.RecordBatchReader.from_stream(frame)
        table = reader.read_all()
    except (pa.ArrowException, TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"frame must have columns that Arrow knows: {first_line(error)}") from None
    return memory_table("frame", "frame", table)


def memory_table(name: str, location: str, table: pa.Table) -> TableSource:
    """A table that is in memory."""
    part = FilePart(name, location, 0, 0, table.num_rows, table.nbytes)
    return TableSource(name, table.schema, (part,), partial(_read_arrow_table, table.combine_chunks()))


def _read_arrow_table(table: pa.Table, part: FilePart, wanted: Wanted) -> Batches:
    for batch in table.to_batches():
        yield wanted.select(batch), float(batch.nbytes)
