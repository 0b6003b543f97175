"""`calibrant average`: the mean of several models' predictions for the same rows, batch by batch."""

from typing import TYPE_CHECKING

from calibrant._names import check_choice, known_names
from calibrant._paths import check_exists
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Files, Json, Output, Switch
from calibrant.cli.output import counting_bar, print_json, print_tables, status
from calibrant.errors import InvalidInputError, printable
from calibrant.report.numbers import interval_text, metric_text
from calibrant.report.table import BEST, Cell, Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibrant.ensembles import OrderScore


def average(
    *paths: File,
    output: Output | None = None,
    calibrators: Files = (),
    id: str | None = None,
    compare_calibrator: str | None = None,
    match_names: Switch = False,
    allow_same_rows: Switch = False,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Average the probabilities of several models, and write them to one Parquet file.

    Files are read in step, in bounded memory. Columns that differ between members are left out; member_disagreement and
    mutual_information are added. An output that average wrote before is replaced atomically; an input, or any other
    file, is not.

    Parameters
    ----------
    paths
        The members: files, folders, globs or fsspec URLs, each with the predictions of one model.
    output
        The Parquet file to write.
    calibrators
        JSON files of calibrant fit, one for each member, which are applied before averaging.
    id
        A column that names the rows. Without it, rows are matched by their order, and known labels must agree.
    compare_calibrator
        Write nothing, and compare this calibrator before averaging, after it, both and neither on labelled rows, by
        cross-fitting.
    match_names
        Reorder the classes of members that have the same class names in another order.
    allow_same_rows
        Also calibrate rows that a calibrator was fitted on.
    as_json
        Print JSON instead of text.
    """
    if len(paths) < 2:
        raise InvalidInputError("give at least two files, folders or globs of predictions: each is a member")
    if (output is None) == (compare_calibrator is None):
        raise InvalidInputError("give either --output, to average, or --compare-calibrator")
    if compare_calibrator is not None and (calibrators or allow_same_rows):
        raise InvalidInputError("--calibrators and --allow-same-rows are for --output")
    if compare_calibrator is not None:
        check_choice("calibrator", compare_calibrator, known_names("CALIBRATORS"))
    check_exists(*paths, *calibrators, columns.columns)
    from calibrant._files import check_output
    from calibrant.calibrators import load_calibrator
    from calibrant.ensembles import compare_orders, save_average
    from calibrant.predictions import Predictions

    members = columns.scans(*paths, match_names=match_names, id=id)
    if compare_calibrator is not None:
        with status("comparing"):
            found = compare_orders(members, compare_calibrator, id=id, match_names=match_names)
        if as_json:
            print_json([row.to_dict() for row in found])
        else:
            print_tables(orders_table(found, compare_calibrator, len(paths)))
        return
    assert output is not None
    check_output(output, "a Parquet file", list(map(str, calibrators)))
    fitted = [load_calibrator(path) for path in calibrators]
    with counting_bar("averaging", members[0].n_rows) as progress:
        n_rows = save_average(
            members,
            output,
            calibrators=fitted or None,
            id=id,
            match_names=match_names,
            allow_same_rows=allow_same_rows,
            progress=progress,
        )
    kept = Predictions.scan(output).column_names
    left_out = [name for name in members[0].column_names if name not in kept]
    if as_json:
        print_json({"output": str(output), "n_rows": n_rows, "n_members": len(paths), "left_out": left_out})
        return
    print(printable(f"{output}: {n_rows:,} rows, the average of {len(paths)} members"))
    if left_out:
        print(printable(f"left out, since the members differ in them: {', '.join(left_out)}"))


def orders_table(rows: "Sequence[OrderScore]", calibrator: str, n_members: int) -> Table:
    """A line for each order: its NLL, the difference to the lowest, and its ECE."""
    headings = ("NLL", "difference", "95% interval", "ECE")
    columns = [Column("calibrated", numeric=False), *map(Column, headings)]
    lines = []
    for row in rows:
        difference = metric_text(row.nll.difference, "+"), interval_text(row.nll.interval)
        texts = (metric_text(row.nll.a), *difference, metric_text(row.ece.a))
        lines.append([Cell(row.order, kind=BEST if row.chosen else ""), *map(Cell, texts)])
    chosen = next(row.order for row in rows if row.chosen)
    notes = [
        "The difference is to the lowest NLL, paired by rows.",
        f"{chosen}: the order with the fewest calibrators whose NLL is as good as the lowest (one standard error).",
    ]
    return Table(f"{calibrator} and the average of {n_members} members, cross-fitted", columns, lines, notes)
