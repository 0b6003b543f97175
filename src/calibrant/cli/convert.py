"""`calibrant convert`: predictions of any files as one Parquet file."""

from calibrant._paths import check_exists
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Output, Switch
from calibrant.cli.output import status
from calibrant.errors import InvalidInputError, printable


def convert(
    *paths: File,
    output: Output,
    match_names: Switch = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Convert predictions in files of any format to one Parquet file.

    All commands read .csv and .tsv (also .gz), .jsonl, .parquet, .arrow, .feather, .npz and .npy; the Parquet file is
    smaller and faster to read. Columns whose names say what they are (label, y, target; prob_cat, p_0, logit_0, probs)
    are found; what was found is printed first. Nothing is guessed from values.

    Parameters
    ----------
    paths
        Files or globs, with the same classes and columns.
    output
        The Parquet file to write.
    match_names
        Reorder the classes of files that have the same class names in another order; otherwise this is an error.
    """
    if not paths:
        raise InvalidInputError("give at least one file or glob of predictions")
    check_exists(*paths, columns.columns)
    from calibrant import reading

    def say(line: str) -> None:
        print(printable(line), flush=True)

    with status("converting"):
        n_rows = reading.convert(paths, output, match_names=match_names, say=say, **columns.options())
    print(printable(f"{output}: {n_rows:,} rows"))
