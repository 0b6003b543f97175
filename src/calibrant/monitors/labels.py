"""Late labels: a table of ids and labels, joined with the rows that wait for them."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibrant._arrays import UNKNOWN, id_text, label_column
from calibrant._checks import check_label_range
from calibrant._names import check_choice
from calibrant._parquet import read_footer, read_part
from calibrant.errors import InvalidInputError
from calibrant.monitors.rows import Rows
from calibrant.reading.late_labels import KnownLabels

BATCH_ROWS = 2**17


def read_labels(url: str, name: str, n_classes: int) -> KnownLabels:
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
    return KnownLabels.of(url, name, column, np.concatenate(labels))


def join_labels(waiting: Rows, known: KnownLabels) -> tuple[NDArray[np.int64], int]:
    """The rows that get their label now, in their own order, and the number of labels that no row waits for.

    The labels are written into the rows. A label that is known already is no error if it is the same.

    Raises: InvalidInputError where it is another.
    """
    places = known.places(waiting["id"])
    given = known.labels[places]
    found = given != UNKNOWN
    other = np.flatnonzero(found & (waiting["label"] != UNKNOWN) & (waiting["label"] != given))
    if len(other):
        row = other[0]
        whose = f"the label of {id_text(known.ids, known.order[places[row]])} in {known.name!r}"
        got = f"{given[row]} after {waiting['label'][row]}"
        raise InvalidInputError(f"{known.source} contradicts {whose}: {got}")
    new = np.flatnonzero(found & (waiting["label"] == UNKNOWN))
    waiting["label"][new] = given[new]
    return new, len(known.ids) - int(found.sum())
