"""`calibrant apply`: predictions mended by a fitted calibrator, batch by batch."""

from dataclasses import replace
from typing import TYPE_CHECKING

from calibrant.cli.options import File, Output, Switch
from calibrant.cli.output import progress_bar
from calibrant.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from calibrant.predictions import Predictions
    from calibrant.scan import Scan


def apply(
    calibrator: File,
    *paths: File,
    output: Output,
    features: File | None = None,
    allow_same_rows: Switch = False,
) -> None:
    """Mend predictions with a calibrator and write them, with all of their columns, to one Parquet file.

    Files are read in bounded memory (all at once only for set_temperature, which looks at whole sets). Rows that the
    calibrator was fitted on are refused, and a file of the output's name is replaced whole or stays as it was.

    Parameters
    ----------
    calibrator
        The JSON file that `calibrant fit` wrote.
    paths
        Parquet files, folders, globs or fsspec URLs of predictions; labels are not needed.
    output
        The Parquet file to write.
    features
        A .npy file, or a Parquet file with the column features, with one row for each of the predictions.
    allow_same_rows
        Mend rows that the calibrator was fitted on, too.
    """
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    from calibrant.calibrators.leakage import Watch
    from calibrant.calibrators.table import load_calibrator
    from calibrant.features import read_features
    from calibrant.predictions import Predictions

    fitted = load_calibrator(calibrator)
    scan = Predictions.scan(paths)
    known = None if features is None else read_features(features)
    watch = Watch(fitted.fitted.rows)

    def mended() -> "Iterator[Predictions]":
        for batch in batches(scan, known, whole=not fitted.row_by_row):
            if not allow_same_rows:
                watch.see(batch)
            yield fitted.mend(replace(batch, metadata=scan.metadata))
            report(scan.n_bytes * len(batch) / max(1, scan.n_rows))
        watch.check()

    with progress_bar("applying", scan.n_bytes) as report:
        n_rows = Predictions.save_all(output, mended())
    print(f"{output}: {n_rows:,} rows, mended by {fitted.name}")


def batches(scan: "Scan", features: "Tensor | None", *, whole: bool) -> "Iterator[Predictions]":
    """The rows with their features; one batch of no rows where there are none."""
    if features is not None and len(features) != scan.n_rows:
        raise InvalidInputError(f"features must have a row for each of {scan.n_rows} predictions, got {len(features)}")
    start = 0
    for batch in [scan.read()] if whole or scan.n_rows == 0 else scan:
        rows = slice(start, start + len(batch))
        yield batch if features is None else batch.with_features(features[rows])
        start += len(batch)
