"""`calibrant detect`: how well scores of predictions tell rows of other data from those of known data."""

from calibrant._names import check_choice, known_names
from calibrant._paths import check_exists
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Files, Json, Switch, Words
from calibrant.cli.output import print_json, print_tables, status
from calibrant.errors import printable
from calibrant.report.numbers import count


def detect(
    inside: File,
    outside: File,
    *,
    method: Words = (),
    reference: Files = (),
    level: float = 0.95,
    scores: File | None = None,
    match_names: Switch = False,
    allow_same_rows: Switch = False,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Compare scores that tell other data, outside, from data as the model was trained on, inside.

    Labels are not looked at. All predictions must be of one model.

    Parameters
    ----------
    inside
        A file, folder, glob or URL of predictions on known data, such as the test set.
    outside
        The same on other data.
    method
        max_probability, entropy, max_logit, energy, nearest_neighbors, mahalanobis or mutual_information; by default
        all that the files allow.
    reference
        Other predictions on known data with features, for nearest_neighbors and mahalanobis, which also needs labels.
    level
        Level of the intervals.
    scores
        A Parquet file to write: the score of every row, higher if more likely outside.
    match_names
        Reorder the classes of files that have the same class names in another order.
    allow_same_rows
        Continue if inside, outside and reference share rows.
    as_json
        Print JSON with full precision instead of a table.
    """
    for name in method:
        check_choice("OOD score", name, known_names("OOD_SCORES"))
    check_exists(inside, outside, *reference, columns.columns)
    from calibrant.ood import compare_ood_scores
    from calibrant.ood.results import check_scores_output
    from calibrant.report.detections import detection_table

    inputs = [inside, outside, *([reference] if reference else [])]
    scans = columns.scans(*inputs, match_names=match_names)
    if scores is not None:
        check_scores_output(scores, [file for scan in scans for file in scan.files])
    first, *others = [scan.read() for scan in scans]
    second, *known = [rows.match_names(first.class_names) if match_names else rows for rows in others]
    with status("detecting") as progress:
        found = compare_ood_scores(
            first,
            second,
            method or None,
            reference=known[0] if known else None,
            level=level,
            allow_same_rows=allow_same_rows,
            progress=progress,
        )
    if scores is not None:
        found.save_scores(scores)
    if as_json:
        print_json(found.to_dict())
        return
    print_tables(detection_table(found, f"{inside} against {outside}"))
    if scores is not None:
        print()
        print(printable(f"{scores}: the scores of {count(len(first) + len(second), 'row')}"))
