"""Late labels, joined with the rows that wait for them."""

import numpy as np
from numpy.typing import NDArray

from calibrant._arrays import UNKNOWN, id_text
from calibrant.errors import InvalidInputError
from calibrant.monitors.rows import Rows
from calibrant.reading.late_labels import KnownLabels


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
