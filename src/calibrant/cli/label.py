"""`calibrant label`: labels that came later, joined with predictions by an id."""

from calibrant.cli.options import File, Output
from calibrant.cli.output import status
from calibrant.errors import printable


def label(predictions: File, labels: File, *, id: str, output: Output, label: str | None = None) -> None:
    """Add labels that came later to predictions, matched by an id.

    An id that occurs twice, and a label that contradicts the one that is known, are errors. Rows whose label has still
    not come are kept.

    Parameters
    ----------
    predictions
        A Parquet file, folder, glob or fsspec URL of predictions; `calibrant convert` makes them.
    labels
        A table of ids and labels in any format that `calibrant convert` reads.
    id
        The column of the ids, of the same name in both.
    output
        The Parquet file to write.
    label
        The column of the labels, by default label, labels, target, y or y_true.
    """
    from calibrant import reading

    with status("labelling"):
        found = reading.save_labelled(predictions, labels, output, id=id, label=label)
    print(
        printable(f"{output}: {found.n_rows:,} rows, {found.n_new:,} with a new label, {found.n_unlabelled:,} without")
    )
    if found.n_unknown_ids:
        print(f"{found.n_unknown_ids:,} labels have an id that no row has")
