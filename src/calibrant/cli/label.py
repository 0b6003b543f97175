"""`calibrant label`: labels that came later, joined with predictions by an id."""

from dataclasses import replace

from calibrant._paths import check_exists
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Output
from calibrant.cli.output import status
from calibrant.errors import printable


def label(predictions: File, labels: File, *, id: str, output: Output, columns: ColumnFlags = AS_NAMED) -> None:
    """Add labels that came later to predictions, matched by an id.

    An id that occurs twice, and a label that contradicts the one that is known, are errors. Rows whose label has still
    not come are kept.

    Parameters
    ----------
    predictions
        A file, folder, glob or fsspec URL of predictions.
    labels
        A table of ids and labels in any format; --label names its column of labels.
    id
        The column of the ids, of the same name in both.
    output
        The Parquet file to write.
    """
    check_exists(predictions, labels, columns.columns)
    from calibrant import reading

    (scan,) = replace(columns, label=None).scans(predictions, id=id)
    with status("labelling"):
        found = reading.save_labelled(scan, labels, output, id=id, label=columns.label)
    print(
        printable(f"{output}: {found.n_rows:,} rows, {found.n_new:,} with a new label, {found.n_unlabelled:,} without")
    )
    if found.n_unknown_ids:
        print(f"{found.n_unknown_ids:,} labels have an id that no row has")
