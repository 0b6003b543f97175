"""Late labels: a table of ids and labels, joined with the rows that wait for them."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibrant._arrays import UNKNOWN, check_distinct, id_text, label_column, value_hashes
from calibrant._checks import check_label_range
from calibrant._names import check_choice
from calibrant._parquet import read_footer, read_part
from calibrant.errors import InvalidInputError
from calibrant.monitors.rows import Rows

BATCH_ROWS = 2**17


def read_labels(url: str, name: str, n_classes: int) -> tuple[pa.ChunkedArray, NDArray[np.int64]]:
    """The ids and labels of a Parquet file, where the label is known.

    Raises: InvalidInputError where an id has two labels, or a label is no class; UnknownNameError; CorruptFileError.
    """
    footer = read_footer(url)
    columns = [check_choice("column", column, footer.schema.names) for column in (name, "label")]
    ids, labels = [pa.chunked_array([], footer.schema.field(name).type)], [np.zeros(0, np.int64)]
    for part in footer.parts:
        for first_row, batch in read_part(part, columns, BATCH_ROWS):
            found = label_column(batch.column("label"), f"label of {url}", n_classes, first_row)
            check_label_range(found, n_classes, None, UNKNOWN, argument=f"label of {url}", first_row=first_row)
            known = np.flatnonzero(found.numpy() != UNKNOWN)
            ids.append(pa.chunked_array([batch.column(name)]).take(pa.array(known)))
            labels.append(found.numpy()[known])
    column = pa.chunked_array([chunk for part in ids for chunk in part.chunks], ids[0].type)
    check_distinct(url, name, column)
    return column, np.concatenate(labels)


def join_labels(
    waiting: Rows, source: str, name: str, column: pa.ChunkedArray, labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int]:
    """The rows that get their label now, in their own order, and the number of labels that no row waits for.

    The labels are written into the rows. A label that is known already is no error if it is the same.

    Raises: InvalidInputError where it is another.
    """
    hashes = value_hashes(name, column)
    order = np.append(np.argsort(hashes), -1)  # the last for ids beyond all others
    place = order[np.searchsorted(hashes, waiting["id"], sorter=order[:-1])]
    found = np.append(hashes, np.uint64(0))[place] == waiting["id"]
    given = np.append(labels, UNKNOWN)[place]
    found &= given != UNKNOWN
    other = np.flatnonzero(found & (waiting["label"] != UNKNOWN) & (waiting["label"] != given))
    if len(other):
        row = other[0]
        got = f"{given[row]} after {waiting['label'][row]}"
        raise InvalidInputError(f"{source} contradicts the label of {id_text(column, place[row])} in {name!r}: {got}")
    new = np.flatnonzero(found & (waiting["label"] == UNKNOWN))
    waiting["label"][new] = given[new]
    return new, len(column) - int(found.sum())
