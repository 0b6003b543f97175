"""`calibrant apply`: predictions calibrated by a fitted calibrator, batch by batch."""

from typing import TYPE_CHECKING, Any

from calibrant._paths import check_exists
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Output, Switch, Words
from calibrant.cli.output import progress_bar
from calibrant.errors import InvalidInputError, printable

if TYPE_CHECKING:
    from calibrant.calibrators import SetTemperature


def apply(
    calibrator: File,
    *paths: File,
    output: Output,
    features: File | None = None,
    sets: Words = (),
    match_names: Switch = False,
    allow_same_rows: Switch = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Calibrate predictions and write them, with all of their columns, to one Parquet file.

    Files are read in bounded memory; set_temperature, a calibrator of whole sets, reads them at once, and the last line
    says which sets it took. Rows that the calibrator was fitted on are an error. An output that apply wrote before is
    replaced atomically; an input, or any other file, is not.

    Parameters
    ----------
    calibrator
        The JSON file that `calibrant fit` wrote.
    paths
        Files, folders, globs or fsspec URLs of predictions; labels are not needed.
    output
        The Parquet file to write.
    features
        A .npy file, or a Parquet file with the column features, with one row for each of the predictions.
    sets
        set_temperature: columns that define the sets, by default those of the fit; without them, all rows are one set.
    match_names
        Reorder the classes of files that have the class names of the calibrator in another order.
    allow_same_rows
        Also calibrate rows that the calibrator was fitted on.
    """
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    check_exists(calibrator, *paths, features)
    from calibrant._files import check_output
    from calibrant._names import check_choice
    from calibrant.calibrators import SetTemperature, apply_calibrator, load_calibrator
    from calibrant.features import read_features
    from calibrant.predictions import Predictions

    fitted, scan = load_calibrator(calibrator), columns.scan(paths, match_names=match_names)
    scan = scan.match_names(fitted.class_names) if match_names else scan
    if sets:
        if not isinstance(fitted, SetTemperature):
            raise InvalidInputError(f"sets is an option of {SetTemperature.name}, not of {fitted.name}")
        fitted = fitted.with_sets([check_choice("column", name, scan.column_names) for name in sets])
    check_output(output, "a Parquet file", [calibrator] if features is None else [calibrator, features])
    known = None if features is None else read_features(features)
    with progress_bar("applying", scan.n_bytes) as progress:
        n_rows = apply_calibrator(
            fitted, scan, output, features=known, allow_same_rows=allow_same_rows, progress=progress
        )
    how = f"calibrated by {fitted.name}"
    if isinstance(fitted, SetTemperature):
        how += f", {sets_text(fitted, Predictions.scan(output).metadata['calibrator'])}"
    print(printable(f"{output}: {n_rows:,} rows, {how}"))


def sets_text(calibrator: "SetTemperature", record: dict[str, Any]) -> str:
    """The sets that it took, from the metadata of the result."""
    from calibrant.calibrators.maps import MIN_SET_ROWS

    text = f"{record['n_sets']:,} sets by {', '.join(record['sets'])}" if record["sets"] else "all rows as one set"
    if record["n_small_sets"]:
        text += f"; {record['n_small_sets']:,} with fewer than {MIN_SET_ROWS} rows have the base temperature "
        text += f"{calibrator.base_temperature:.3g}"
    return text
