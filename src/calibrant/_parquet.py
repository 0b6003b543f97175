"""Parquet files as Arrow batches: which files, which rows, read in bounded memory, written whole or not at all."""

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError

BATCH_ELEMENTS = 2**21  # numbers of the list column in one batch, where the caller names no size: 8 MB of float32


@dataclass(frozen=True)
class Part:
    """One row group of one file: what a worker takes at a time."""

    url: str
    row_group: int
    first_row: int
    n_rows: int
    n_bytes: int


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a file."""

    url: str
    first_row: int
    batch: pa.RecordBatch


@dataclass(frozen=True)
class ParquetFile:
    """What the footer of a file says."""

    url: str
    schema: pa.Schema = field(repr=False)
    parts: tuple[Part, ...] = field(repr=False)


def open_parquet(url: str) -> pq.ParquetFile:
    """Raises: NoDataError where there is no such file, CorruptFileError where it is no Parquet file."""
    filesystem, path = _filesystem(url)
    try:
        if isinstance(filesystem, LocalFileSystem):
            return pq.ParquetFile(path)
        return pq.ParquetFile(filesystem.open(path, "rb"))
    except FileNotFoundError:
        raise NoDataError(f"there is no file {url}") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"{url} is not a Parquet file: {_line(error)}") from None


def read_footer(url: str) -> ParquetFile:
    with open_parquet(url) as file:
        groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
        parts, first_row = [], 0
        for index, group in enumerate(groups):
            size = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
            parts.append(Part(url, index, first_row, group.num_rows, size))
            first_row += group.num_rows
        return ParquetFile(url, file.schema_arrow, tuple(parts))


def read_part(part: Part, columns: Sequence[str] | None, batch_rows: int) -> Iterator[Chunk]:
    """The rows of a part, in batches; columns None means all."""
    with open_parquet(part.url) as file:
        first_row = part.first_row
        batches = file.iter_batches(batch_rows, row_groups=[part.row_group], columns=columns, use_threads=False)
        while (batch := _next_batch(batches, part.url, first_row)) is not None:
            if batch.num_rows:
                yield Chunk(part.url, first_row, batch)
            first_row += batch.num_rows
        if first_row != part.first_row + part.n_rows:
            raise CorruptFileError(f"{part.url} ends at row {first_row}, but its footer promises more")


def _next_batch(batches: Iterator[pa.RecordBatch], url: str, row: int) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"{url} is damaged behind row {row}: {_line(error)}") from None


def find_files(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The Parquet files that paths, globs, folders and URLs name, each once, in order of naming, then of name.

    Raises: NoDataError where one of them names no file.
    """
    names = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not names:
        raise InvalidInputError("paths must name at least one file")
    return list(dict.fromkeys(url for name in names for url in _expand(os.fspath(name))))


def _expand(name: str) -> list[str]:
    filesystem, path = _filesystem(name)
    if filesystem.isfile(path):  # also where its name has the letters of a glob
        return [name]
    pattern = path if glob.has_magic(path) else f"{path.rstrip('/')}/**/*.parquet"
    found = sorted(file for file in filesystem.glob(pattern) if filesystem.isfile(file))
    if found:
        return found if isinstance(filesystem, LocalFileSystem) else [filesystem.unstrip_protocol(f) for f in found]
    if filesystem.isdir(path):
        raise NoDataError(f"there is no .parquet file in {name}")
    raise NoDataError(
        f"there is no file {name}" if path == pattern or not glob.has_magic(path) else f"nothing is {name}"
    )


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise NoDataError(f"{url} cannot be opened: {_line(error)}") from None
    if isinstance(filesystem, LocalFileSystem) and "://" not in url:
        path = url  # as the user wrote it, so that messages name it so
    return filesystem, path


def write(url: str | os.PathLike[str], batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write batches, a row group each; a file of that name is replaced whole, or stays as it was."""
    filesystem, path = _filesystem(os.fspath(url))
    if not isinstance(filesystem, LocalFileSystem):
        with filesystem.open(path, "wb") as file:  # object stores show a file when it is closed
            _write_batches(file, batches, schema)
        return
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise NoDataError(f"{target} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            _write_batches(file, batches, schema)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_batches(file: Any, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    # Floating-point noise neither compresses nor repeats; ids and names of domains do both.
    lists = [f.name for f in schema if pa.types.is_fixed_size_list(f.type) or pa.types.is_floating(f.type)]
    plain = [f.name for f in schema if f.name not in lists]
    compression = {f"{name}.list.element": "NONE" for name in lists} | dict.fromkeys(plain, "ZSTD")
    with pq.ParquetWriter(file, schema, use_dictionary=plain, compression=compression) as writer:
        for batch in batches:
            writer.write_batch(batch, row_group_size=max(1, batch.num_rows))


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
