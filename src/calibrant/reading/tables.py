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
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
from fsspec.implementations.local import LocalFileSystem

from calibrant._arrays import blocks
from calibrant._checks import repeated_name
from calibrant._files import read_error
from calibrant._parquet import BATCH_ELEMENTS, read_footer, read_part
from calibrant._paths import check_path, filesystem_of, first_line
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError
from calibrant.reading.numpy_files import read_npy, read_npz

BLOCK_BYTES = 2**23  # of text that is parsed at a time
MAX_HEADER = 2**24  # bytes of the first line
PEEK_ROWS = 1  # that tell the types of a table in Arrow
CONVERSION = re.compile(r"In CSV column #(\d+): .*?(?:invalid value '(.*)'|(UTF8))", re.DOTALL)
ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")

Types = Mapping[str, pa.DataType]  # of columns that a format without types is to be read as
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class TableSource:
    """A table that can be read more than once."""

    name: str  # in messages
    schema: pa.Schema
    read: Callable[[Types], Batches] = field(repr=False)
    typed: bool = True  # whether the types of the schema are those of the file, and not of its first rows
    is_text: bool = False  # whether every value is a text


def open_table(path: str, label: str | None = None) -> TableSource:
    """The table in a file, by the ending of its name; ``label`` may be the .npy file beside a .npy file.

    Raises: NoDataError, ResourceError, CorruptFileError, InvalidInputError.
    """
    check_path("path", path)
    plain = path.lower().removesuffix(".gz")
    ending = os.path.splitext(plain)[1]
    if ending not in FORMATS:
        raise InvalidInputError(f"{path} must end with {', '.join(FORMATS)}: the ending says what the file is")
    if plain != path.lower() and ending not in PACKED:
        raise InvalidInputError(f"{path} must end with {' or '.join(PACKED)} before .gz: unpack it")
    if ending == ".npy":
        return _numpy_table(path, lambda: read_npy(path, label))
    return FORMATS[ending](path)


def _open_parquet(path: str) -> TableSource:
    footer = read_footer(path)

    def read(_: Types) -> Batches:
        for part in footer.parts:
            width = _width(footer.schema)
            for _first_row, batch in read_part(part, None, max(1, BATCH_ELEMENTS // width)):
                yield batch

    return TableSource(path, footer.schema, read)


def _width(schema: pa.Schema) -> int:
    """Numbers in a row; 100 in a list whose type does not say how many."""
    sizes = [
        int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 100 if pa.types.is_nested(kind) else 1
        for kind in schema.types
    ]
    return sum(sizes) or 1


def _open_arrow(path: str) -> TableSource:
    with _stream(path, "an Arrow file") as stream:
        magic = stream.read(6)
    is_file = magic == b"ARROW1"
    if magic[:4] == b"FEA1":
        raise InvalidInputError(
            f"{path} is a Feather file of version 1: write version 2 (pyarrow.feather, pandas ≥ 1.1)"
        )

    def read(_: Types) -> Batches:
        with _stream(path, "an Arrow file") as stream:
            if not is_file:
                yield from pa.ipc.open_stream(stream)
                return
            reader = pa.ipc.open_file(stream)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)

    with _stream(path, "an Arrow file") as stream:
        schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(stream).schema
    return TableSource(path, schema, read)


def _open_json(path: str) -> TableSource:
    with _stream(path, "JSON lines") as stream:
        if stream.read(1) == b"[":
            advice = "write one object in each line (pandas: to_json(path, orient='records', lines=True))"
            raise InvalidInputError(f"{path} is one JSON list, not JSON lines: {advice}")

    def reader(stream: Any, types: Types) -> Any:
        return pa_json.open_json(
            stream,
            read_options=pa_json.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema(list(types.items())) if types else None, newlines_in_values=False
            ),
        )

    def read(types: Types) -> Batches:
        with _stream(path, "JSON lines") as stream:
            yield from _naming_rows(path, reader(stream, types))

    with _stream(path, "JSON lines") as stream:
        schema = reader(stream, {}).schema
    return TableSource(path, _without_nulls(schema), read, typed=False)


def _without_nulls(schema: pa.Schema) -> pa.Schema:
    """The schema of the first rows, with texts in columns that are empty there: nothing is known of them."""
    return pa.schema([(c.name, pa.string() if pa.types.is_null(c.type) else c.type) for c in schema])


def _open_csv(path: str, delimiter: str = ",") -> TableSource:
    names = _header(path, delimiter)

    def reader(stream: Any, types: Types) -> Any:
        return pa_csv.open_csv(
            stream,
            read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),  # else without rows in errors
            parse_options=pa_csv.ParseOptions(delimiter=delimiter),
            convert_options=pa_csv.ConvertOptions(column_types=dict(types)),
        )

    def read(types: Types) -> Batches:
        with _stream(path, "CSV", names) as stream:
            yield from _naming_rows(path, reader(stream, types), names)

    with _stream(path, "CSV", names) as stream:
        schema = reader(stream, {}).schema
    for column in schema:
        if pa.types.is_binary(column.type):
            raise CorruptFileError(f"{path}: column {column.name!r} is not UTF-8: {UTF8}")
    return TableSource(path, _without_nulls(schema), read, typed=False, is_text=True)


UTF8 = "save it as UTF-8 (pandas: encoding='utf-8', R: fileEncoding = 'UTF-8')"


def _header(path: str, delimiter: str) -> list[str]:
    """The names in the first line of a CSV file."""
    with _stream(path, "CSV") as stream:
        line = io.BufferedReader(_Raw(stream), 2**16).readline(MAX_HEADER)
    try:
        text = line.decode("utf-8-sig")
        names = next(csv.reader([text.rstrip("\r\n")], delimiter=delimiter), [])
    except UnicodeDecodeError:
        raise CorruptFileError(f"{path}: its first line is not UTF-8: {UTF8}") from None
    except csv.Error as error:
        raise CorruptFileError(f"{path} cannot be read as CSV: {first_line(error)}") from None
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


def _naming_rows(path: str, batches: Any, names: Sequence[str] = ()) -> Batches:
    """The batches; an error after the first names the last row that was read."""
    n_rows = 0
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise _parse_error(path, error, names, n_rows) from None
        if batch is None:
            return
        n_rows += batch.num_rows
        yield batch


def _parse_error(path: str, error: Exception, names: Sequence[str], n_rows: int = 0) -> CalibrantError:
    """What pyarrow says of text, with the column and, as far as it is known, the row."""
    text, after = str(error).strip(), f" after row {n_rows - 1}" if n_rows else ""
    if (found := CONVERSION.search(text)) is not None:
        column = names[int(found[1])] if int(found[1]) < len(names) else found[1]
        if found[3] or "UTF8" in text:
            return CorruptFileError(f"{path}: column {column!r} is not UTF-8{after}: {UTF8}")
        comma = " (numbers have a point: R: write.csv, not write.csv2)" if "," in (found[2] or "") else ""
        advice = f"{comma}; if it holds texts and no predictions, type --text {column}"
        return CorruptFileError(f"{path}: column {column!r} holds {found[2]!r}{after}, which is no number{advice}")
    if (ragged := ROW.search(text)) is not None:  # counted from 1, the header included
        return CorruptFileError(
            f"{path} must have {ragged[2]} columns in every row, got {ragged[3]} at row {int(ragged[1]) - 2}"
        )
    return CorruptFileError(f"{path} cannot be read{after}: {first_line(error)}")


@contextmanager
def _stream(path: str, what: str, names: Sequence[str] = ()) -> Iterator[Any]:
    """An open file, unpacked where its name ends with .gz. Raises: NoDataError, ResourceError, CorruptFileError."""
    filesystem, inner = filesystem_of(path)
    try:
        if isinstance(filesystem, LocalFileSystem):
            if os.path.isdir(inner):
                raise IsADirectoryError(21, "it is a folder", inner)
            file = pa.OSFile(inner) if path.lower().endswith(".gz") else pa.memory_map(inner)
        else:
            file = pa.PythonFile(filesystem.open(inner, "rb"), mode="r")
        with file:
            if path.lower().endswith(".gz"):
                yield pa.CompressedInputStream(file, "gzip")
            else:
                if file.size() == 0:
                    raise NoDataError(f"{path} is empty")
                yield file
    except CalibrantError:
        raise
    except pa.ArrowInvalid as error:
        if "Empty" in str(error):
            raise NoDataError(f"{path} is empty") from None
        raise (_parse_error(path, error, names) if what != "an Arrow file" else _not(path, what, error)) from None
    except OSError as error:
        if error.errno is not None:
            raise read_error(path, error) from None
        raise _not(path, what, error) from None
    except (pa.ArrowException, ValueError, zlib.error, gzip.BadGzipFile) as error:
        raise _not(path, what, error) from None


def _not(path: str, what: str, error: BaseException) -> CorruptFileError:
    return CorruptFileError(f"{path} is damaged, or is not {what}: {first_line(error)}")


def _numpy_table(path: str, load: Callable[[], dict[str, Any]]) -> TableSource:
    """A table of arrays: of two dimensions as lists, of one as numbers."""
    arrays = load()

    def column(array: Any) -> pa.Array:
        if array.ndim == 1:
            return pa.array(array)
        return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])

    def part(rows: slice) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({name: column(array[rows]) for name, array in arrays.items()})

    n, width = len(next(iter(arrays.values()))), sum(array[:1].size or 1 for array in arrays.values())

    def read(_: Types) -> Batches:
        return (part(rows) for rows in blocks(n, width, size=BATCH_ELEMENTS))

    return TableSource(path, part(slice(0, PEEK_ROWS)).schema, read)


FORMATS: dict[str, Callable[[str], TableSource]] = {
    ".csv": _open_csv,
    ".tsv": lambda path: _open_csv(path, "\t"),
    ".jsonl": _open_json,
    ".ndjson": _open_json,
    ".json": _open_json,
    ".parquet": _open_parquet,
    ".arrow": _open_arrow,
    ".feather": _open_arrow,
    ".npz": lambda path: _numpy_table(path, lambda: read_npz(path)),
    ".npy": lambda path: _numpy_table(path, lambda: read_npy(path, None)),
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
    return TableSource("frame", table.schema, lambda _: iter(table.combine_chunks().to_batches()))
