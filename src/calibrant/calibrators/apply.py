"""Calibrate files of predictions batch by batch, in bounded memory."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

from torch import Tensor

from calibrant._arrays import floats
from calibrant._files import check_output
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.leakage import LeakCheck, RowSketch
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions, check_replaceable
from calibrant.scan import Scan


@checked
def apply_calibrator(
    calibrator: Calibrator,
    scan: Scan,
    output: str | os.PathLike[str],
    *,
    features: Tensor | None = None,
    allow_same_rows: bool = False,
    progress: Callable[[float], None] = lambda _: None,
) -> int:
    """Calibrate the rows of a scan and write them, with all of their columns, to one Parquet file.

    A file that an earlier call wrote is replaced atomically, another one is not. Batches are read one at a time; a
    calibrator of whole sets (``row_by_row`` is False) reads all rows at once.

    Args:
        calibrator: A fitted calibrator.
        scan: The predictions, from `Predictions.scan`. Labels are not needed.
        output: The file to write.
        features: (n, f), one row for each prediction.
        allow_same_rows: Whether to calibrate rows that the calibrator was fitted on.
        progress: Called after each batch with the number of bytes read.

    Returns:
        The number of rows.

    Raises:
        InvalidInputError: The rows are those of the fit, or their classes or features do not match it; the
            output is a file of the scan, or one that no calibrator wrote; or a calibrated row is no
            distribution. No file is then written.
    """
    if features is not None:
        features = floats("features", features)
    if features is not None and features.shape[:1] != (scan.n_rows,):
        got = tuple(features.shape)
        raise InvalidInputError(f"features must have a row for each of {scan.n_rows} predictions, got shape {got}")

    def calibrated(batch: Predictions, start: int) -> Predictions:
        rows = batch if features is None else batch.with_features(features[start : start + len(batch)])
        return calibrator.calibrate(rows, first_row=start)

    return write_batches(
        calibrated,
        scan,
        output,
        key="calibrator",
        fitted_on=None if allow_same_rows else calibrator.fitted.rows,
        at_once=not calibrator.row_by_row,
        progress=progress,
    )


def write_batches(
    transform: Callable[[Predictions, int], Predictions],
    scan: Scan,
    output: str | os.PathLike[str],
    *,
    key: str,
    fitted_on: RowSketch | None,
    at_once: bool = False,
    progress: Callable[[float], None] = lambda _: None,
) -> int:
    """Transform the batches of a scan, and write them to one Parquet file, atomically.

    ``transform`` is called with a batch and the number of its first row. A file that is there is replaced only if its
    metadata have the ``key``. Raises: InvalidInputError also where the rows are those of the fit, ``fitted_on``.
    """
    check_output(output, "a Parquet file", scan.files)
    check_replaceable(output, key)
    leak = None if fitted_on is None else LeakCheck(fitted_on)

    def transformed() -> Iterator[Predictions]:
        start = 0
        batches = iter([scan.read()] if at_once else scan.batches(progress=progress))
        for batch in chain([next(batches, None) or scan.read()], batches):  # files without rows are written so
            if leak is not None:
                leak.add(batch)
            yield transform(replace(batch, metadata=scan.metadata), start)
            start += len(batch)
        if leak is not None:
            leak.check()

    return Predictions.save_all(output, transformed(), labels=scan.has_labels)
