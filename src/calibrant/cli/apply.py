"""`calibrant apply`: predictions calibrated by a fitted calibrator, batch by batch."""

from calibrant.cli.options import File, Output, Switch
from calibrant.cli.output import progress_bar
from calibrant.errors import InvalidInputError


def apply(
    calibrator: File,
    *paths: File,
    output: Output,
    features: File | None = None,
    allow_same_rows: Switch = False,
) -> None:
    """Calibrate predictions and write them, with all of their columns, to one Parquet file.

    Files are read in bounded memory; set_temperature, a calibrator of whole sets, reads them at once. Rows that the
    calibrator was fitted on are an error. An existing output file is replaced atomically.

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
        Also calibrate rows that the calibrator was fitted on.
    """
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    from calibrant.calibrators import apply_calibrator, load_calibrator
    from calibrant.features import read_features
    from calibrant.predictions import Predictions

    fitted, scan = load_calibrator(calibrator), Predictions.scan(paths)
    known = None if features is None else read_features(features)
    with progress_bar("applying", scan.n_bytes) as progress:
        n_rows = apply_calibrator(
            fitted, scan, output, features=known, allow_same_rows=allow_same_rows, progress=progress
        )
    print(f"{output}: {n_rows:,} rows, calibrated by {fitted.name}")
