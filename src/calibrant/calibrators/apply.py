"""Calibrate files of predictions batch by batch, in bounded memory."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from torch import Tensor

from calibrant._arrays import floats
from calibrant._files import check_output
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.leakage import LeakCheck
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
    progress: Callable[[float], None] | None = None,
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
    check_output(output, "a Parquet file", scan.files)
    check_replaceable(output, "calibrator")
    leak = LeakCheck(calibrator.fitted.rows)

    def calibrated_batches() -> Iterator[Predictions]:
        start = 0
        for batch in scan if calibrator.row_by_row and scan.n_rows else [scan.read()]:
            if not allow_same_rows:
                leak.add(batch)
            rows = batch if features is None else batch.with_features(features[start : start + len(batch)])
            yield calibrator.calibrate(replace(rows, metadata=scan.metadata), first_row=start)
            start += len(batch)
            if progress is not None:
                progress(scan.n_bytes * len(batch) / max(1, scan.n_rows))
        leak.check()

    labels = any("label" in footer.schema.names for footer in scan.footers)
    return Predictions.save_all(output, calibrated_batches(), labels=labels)
