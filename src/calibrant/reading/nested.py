"""Tables with objects in their columns: each field of an object is a column of its own, such as prediction.scores."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from calibrant._parquet import FilePart
from calibrant.predictions import METADATA_KEY
from calibrant.reading.tables import Batches, TableSource, Wanted

FieldPath = tuple[str, ...]
Reader = Callable[[FilePart, Wanted], Batches]


def flattened(table: TableSource) -> TableSource:
    """The table with the fields of objects as columns; the same where there are none, or a column has such a name.

    A table that calibrant wrote stays as it is.
    """
    if METADATA_KEY in (table.schema.metadata or {}):
        return table
    found = [(".".join(path), path, kind) for path, kind in _fields((), table.schema)]
    paths = {name: path for name, path, _ in found}
    if len(paths) < len(found) or all(len(path) == 1 for path in paths.values()):
        return table
    types = {name: pa.string() if pa.types.is_null(kind) and not table.typed else kind for name, _, kind in found}
    schema = pa.schema(list(types.items()), metadata=table.schema.metadata)
    return replace(table, schema=schema, reader=partial(_read, table.reader, paths))


def _fields(before: FieldPath, fields: "pa.Schema | pa.StructType") -> Iterator[tuple[FieldPath, pa.DataType]]:
    for each in fields:
        if pa.types.is_struct(each.type):
            yield from _fields((*before, each.name), each.type)
        else:
            yield (*before, each.name), each.type


def _read(reader: Reader, paths: Mapping[str, FieldPath], part: FilePart, wanted: Wanted) -> Batches:
    names = list(paths) if wanted.columns is None else wanted.columns
    columns = list(dict.fromkeys(paths[name][0] for name in names))
    types = _nested({paths[name]: wanted.types[name] for name in names}) if wanted.types else {}
    for batch, n_bytes in reader(part, replace(wanted, columns=columns, types=types)):
        arrays = [_field(batch.column(paths[name][0]), paths[name][1:]) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names)), n_bytes


def _field(column: pa.Array, path: FieldPath) -> pa.Array:
    return pc.struct_field(column, list(path)) if path else column


def _nested(types: Mapping[FieldPath, pa.DataType]) -> dict[str, pa.DataType]:
    """The types of the columns whose fields have these types."""
    below: dict[str, dict[FieldPath, pa.DataType]] = {}
    for (name, *rest), kind in types.items():
        below.setdefault(name, {})[tuple(rest)] = kind
    return {
        name: fields[()] if () in fields else pa.struct(list(_nested(fields).items())) for name, fields in below.items()
    }
