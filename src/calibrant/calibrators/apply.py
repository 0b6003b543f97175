"""Files of predictions calibrated batch by batch, in bounded memory."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from torch import Tensor

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.leakage import LeakCheck
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions
from calibrant.scan import Scan


def apply_calibrator(
    calibrator: Calibrator,
    scan: Scan,
    output: str | os.PathLike[str],
    *,
    features: Tensor | None = None,
    allow_same_rows: bool = False,
    progress: Callable[[float], None] | None = None,
) -> int:
    """Write the calibrated rows of a scan, with all of their columns, to one Parquet file; how many there were.

    A file of that name is replaced whole, or stays as it was. Only a calibrator that looks at whole sets
    (``row_by_row`` is false) reads all rows at once.

    Args:
        calibrator: a fitted one.
        scan: the predictions, as `Predictions.scan` finds them; labels are not needed.
        output: the file to write.
        features: (n, f), one row for each of the predictions.
        allow_same_rows: whether rows that it was fitted on are calibrated too.
        progress: called after each batch with the number of bytes that were read.

    Raises:
        InvalidInputError: these are rows that it was fitted on, or their classes or features do not fit.
    """
    leak = LeakCheck(calibrator.fitted.rows)

    def calibrated() -> Iterator[Predictions]:
        for batch in _batches(scan, features, at_once=not calibrator.row_by_row):
            if not allow_same_rows:
                leak.add(batch)
            yield calibrator.calibrate(replace(batch, metadata=scan.metadata))
            if progress is not None:
                progress(scan.n_bytes * len(batch) / max(1, scan.n_rows))
        leak.check()

    return Predictions.save_all(output, calibrated())


def _batches(scan: Scan, features: Tensor | None, *, at_once: bool) -> Iterator[Predictions]:
    """The rows with their features; one batch of no rows where there are none."""
    if features is not None and len(features) != scan.n_rows:
        raise InvalidInputError(f"features must have a row for each of {scan.n_rows} predictions, got {len(features)}")
    start = 0
    for batch in [scan.read()] if at_once or scan.n_rows == 0 else scan:
        rows = slice(start, start + len(batch))
        yield batch if features is None else batch.with_features(features[rows])
        start += len(batch)
