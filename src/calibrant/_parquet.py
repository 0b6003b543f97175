"""Parquet files as Arrow batches: read in bounded memory, and written atomically."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from calibrant._block_sums import BlockWriter, with_block_sums
from calibrant._files import atomic_write, read_error
from calibrant._paths import LOCAL, absolute_url, filesystem_of, first_line
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError

BATCH_ELEMENTS = 2**21  # numbers of the list column in one batch, by default: 8 MB of float32


@dataclass(frozen=True)
class FilePart:
    """One row group of one Parquet file, or the whole of another file: the unit of work."""

    url: str  # as the user wrote it
    location: str  # the absolute path or URL, for other processes
    row_group: int
    first_row: int
    n_rows: int | None  # None if only reading it tells
    n_bytes: int


@dataclass(frozen=True)
class ParquetFile:
    """The footer of a file."""

    url: str
    schema: pa.Schema = field(repr=False)
    parts: tuple[FilePart, ...] = field(repr=False)


def open_parquet(url: str, location: str) -> pq.ParquetFile:
    """Raises: NoDataError, ResourceError, CorruptFileError."""
    filesystem, path = filesystem_of(location)
    checked = None
    try:
        # without a map, pyarrow reads the column of a row group at once
        source = pa.memory_map(path) if filesystem is LOCAL else pa.PythonFile(filesystem.open(path, "rb"), mode="r")
        checked = with_block_sums(source, url)
        # Without pre_buffer: threads that read a Python file may outlive the interpreter, which then aborts.
        return pq.ParquetFile(
            source if checked is None else checked, pre_buffer=False, page_checksum_verification=checked is None
        )
    except CalibrantError:
        raise
    except FileNotFoundError:
        raise NoDataError(f"there is no file {url}") from None
    except PermissionError as error:
        raise read_error(url, error) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        what = "not a Parquet file" if checked is None else "damaged"
        raise CorruptFileError(f"{url} is {what}: {first_line(error)}") from None


def read_footer(url: str) -> ParquetFile:
    location = absolute_url(url)
    with open_parquet(url, location) as file:
        groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
        parts, first_row = [], 0
        for index, group in enumerate(groups):
            size = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
            parts.append(
                FilePart(
                    url=url,
                    location=location,
                    row_group=index,
                    first_row=first_row,
                    n_rows=group.num_rows,
                    n_bytes=size,
                )
            )
            first_row += group.num_rows
        return ParquetFile(url, file.schema_arrow, tuple(parts))


def read_part(part: FilePart, columns: Sequence[str] | None, batch_rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a part in batches, each with the number of its first row in the file; columns None means all."""
    with open_parquet(part.url, part.location) as file:
        first_row = part.first_row
        batches = file.iter_batches(batch_rows, row_groups=[part.row_group], columns=columns, use_threads=False)
        while (batch := _next_batch(batches, part.url, first_row)) is not None:
            if batch.num_rows:
                yield first_row, batch
            first_row += batch.num_rows
        if first_row != part.first_row + (part.n_rows or 0):
            raise CorruptFileError(f"{part.url} ends at row {first_row}, but its footer lists more")


def _next_batch(batches: Iterator[pa.RecordBatch], url: str, row: int) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except CalibrantError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"{url} is damaged after row {row}: {first_line(error)}") from None


def check_bytes(path: str | os.PathLike[str]) -> None:
    """Read a local file whole, without decoding it. Raises: NoDataError, ResourceError, CorruptFileError."""
    name = os.fspath(path)
    try:
        with pa.memory_map(name) as source:
            if (checked := with_block_sums(source, name)) is not None:
                checked.read()
    except CalibrantError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise read_error(name, error) from None
        raise CorruptFileError(f"{name} is damaged: {first_line(error)}") from None


def read_table(url: str | os.PathLike[str], schema: pa.Schema) -> pa.Table:
    """Read a file with these columns. Raises: NoDataError, ResourceError, CorruptFileError."""
    name = os.fspath(url)
    with open_parquet(name, name) as file:
        if not file.schema_arrow.equals(schema):
            raise CorruptFileError(f"{name} has other columns than {', '.join(schema.names)}")
        try:
            return file.read(use_threads=False)
        except CalibrantError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptFileError(f"{name} is damaged: {first_line(error)}") from None


def write_table(url: str | os.PathLike[str], table: pa.Table) -> None:
    """Write a table atomically."""
    write(url, table.combine_chunks().to_batches(), table.schema)


def write(
    url: str | os.PathLike[str], batches: Iterable[pa.RecordBatch], schema: pa.Schema, kind: str | None = None
) -> None:
    """Write batches atomically, a row group each; for ``kind`` see `atomic_write`."""
    # Floating-point noise neither compresses nor repeats; ids and names of domains do both.
    lists = [f.name for f in schema if pa.types.is_fixed_size_list(f.type) or pa.types.is_floating(f.type)]
    plain = [f.name for f in schema if f.name not in lists]
    compression = {f"{name}.list.element": "NONE" for name in lists} | dict.fromkeys(plain, "ZSTD")
    options = {"use_dictionary": plain, "compression": compression, "write_page_checksum": True}
    with atomic_write(url, kind) as file:
        blocks = BlockWriter(file)
        try:
            with pq.ParquetWriter(blocks, schema, **options) as writer:
                for batch in batches:
                    writer.write_batch(batch, row_group_size=max(1, batch.num_rows))
                blocks.hold()
        except pa.ArrowException as error:
            raise InvalidInputError(f"columns must be of types that Parquet has: {first_line(error)}") from None
        blocks.finish()
