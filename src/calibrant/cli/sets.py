"""`calibrant sets`: prediction sets with a stated coverage, fitted, added to predictions, and checked."""

import sys
from typing import Annotated

from cyclopts import App, Parameter

from calibrant._conditions import parse_condition
from calibrant._names import SET_METHODS, SET_SCORES, check_choice
from calibrant._paths import check_exists
from calibrant.cli.audit import GATE_FAILED
from calibrant.cli.examples import epilogue
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Files, Integer, Json, Output, Switch, Words
from calibrant.cli.output import print_json, print_tables, progress_bar, status
from calibrant.errors import InvalidInputError, printable

NO_FILES = "give at least one file, folder or glob of predictions"

sets = App(
    name="sets", help="Prediction sets that hold the label with a stated probability.", help_epilogue=epilogue("sets")
)


def fit(
    *paths: File,
    output: Output,
    coverage: float = 0.9,
    method: str = "aps",
    by: str | None = None,
    randomized: Switch = False,
    seed: Integer = 0,
    penalty: float | None = None,
    k_reg: Annotated[Integer | None, Parameter(name="--k-reg")] = None,
    target: Files = (),
    match_names: Switch = False,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Fit prediction sets to labelled predictions that model and calibrator were not fitted on; write them as JSON.

    Rows that are like those of the fit then have a set that holds their label with the probability --coverage. It
    takes coverage / (1 − coverage) rows: 9 for 0.9, in each class or group of --by.

    Parameters
    ----------
    paths
        Files, folders, globs or fsspec URLs of predictions.
    output
        The JSON file to write.
    coverage
        The probability that a set holds the label, from 0.01 to 0.9999.
    method
        lac (the smallest sets; some may be empty), aps (larger sets for harder rows; none is empty), or raps (aps with
        fewer large sets).
    by
        class, or a column: the coverage then holds in each class, or in each of its groups.
    randomized
        aps, raps: let a random number of each row decide about the last class of its set. Without it a model that is
        more accurate than the coverage has sets that hold the label more often; with it some sets are empty.
    seed
        The seed of these numbers; the same row always has the same one.
    penalty
        raps: the penalty for each class beyond the first --k-reg (0.01).
    k_reg
        raps: the number of classes without a penalty (5).
    target
        Unlabelled predictions whose inputs are distributed otherwise: the sets are weighted for them. It excludes --by.
    match_names
        Reorder the classes of files that have the same class names in another order.
    as_json
        Print JSON instead of a table.
    """
    if not paths:
        raise InvalidInputError(NO_FILES)
    check_choice("method", method, SET_METHODS)
    check_exists(*paths, *target, columns.columns)
    from calibrant._files import check_output
    from calibrant.decisions import ConformalSets
    from calibrant.report.prediction_sets import fit_table

    check_output(output, "a conformal predictor")
    scan, *unlabelled = columns.scans(*([paths, target] if target else [paths]), match_names=match_names)
    with status(f"fitting {method}"):
        validation = scan.check_labels().read()
        names = validation.class_names if match_names else None
        other = unlabelled[0].match_names(names).read() if unlabelled else None
        fitted = ConformalSets.fit(
            validation,
            coverage=coverage,
            method=method,
            by=by,
            randomized=randomized,
            seed=seed,
            penalty=penalty,
            k_reg=k_reg,
            target=other,
        )
        fitted.save(output)
    if as_json:
        print_json(fitted.summary() | {"output": output})
    else:
        print_tables(fit_table(fitted, str(output)))


def apply(
    fitted: Annotated[File, Parameter(name="sets")],
    *paths: File,
    output: Output,
    match_names: Switch = False,
    allow_same_rows: Switch = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Add the column prediction_set to predictions: lists of class indices, the most probable class first.

    Files are read in bounded memory and written, with all of their columns, to one Parquet file. Rows that the sets
    were fitted on are an error. An output that apply wrote before is replaced atomically; an input, or any other file,
    is not.

    Parameters
    ----------
    fitted
        The JSON file that `calibrant sets fit` wrote.
    paths
        Files, folders, globs or fsspec URLs of predictions; labels are not needed.
    output
        The Parquet file to write.
    match_names
        Reorder the classes of files that have the class names of the fit in another order.
    allow_same_rows
        Also take rows that the sets were fitted on.
    """
    if not paths:
        raise InvalidInputError(NO_FILES)
    check_exists(fitted, *paths, columns.columns)
    from calibrant._files import check_output
    from calibrant.decisions import ConformalSets
    from calibrant.decisions.prediction_sets import write_sets

    loaded, scan = ConformalSets.load(fitted), columns.scan(paths, match_names=match_names)
    scan = scan.match_names(loaded.class_names) if match_names else scan
    check_output(output, "a Parquet file", [fitted])
    with progress_bar("applying", scan.n_bytes) as progress:
        n_rows = write_sets(loaded, scan, output, allow_same_rows=allow_same_rows, progress=progress)
    print(printable(f"{output}: {n_rows:,} rows, each with a set of {loaded.score.method}"))


def check(
    *paths: File,
    by: str | None = None,
    column: str = "prediction_set",
    level: float = 0.95,
    fail_if: Words = (),
    match_names: Switch = False,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Check prediction sets with labels: coverage by size, class and group, and the size of the sets.

    The exit code is 3 if a condition of --fail-if is true.

    Parameters
    ----------
    paths
        Files, folders, globs or fsspec URLs of labelled predictions with sets.
    by
        A column whose groups are checked too.
    column
        The column of the sets: lists of distinct class indices.
    level
        Level of the intervals.
    fail_if
        Conditions on coverage, mean_size, empty, single, worst_class or worst_group, such as "coverage < 0.88"; if one
        is true, the exit code is 3.
    match_names
        Reorder the classes of files that have the same class names in another order.
    as_json
        Print JSON with full precision instead of text.
    """
    if not paths:
        raise InvalidInputError(NO_FILES)
    for text in fail_if:
        parse_condition(text, SET_SCORES)
    check_exists(*paths, columns.columns)
    from calibrant.decisions import score_sets
    from calibrant.report.prediction_sets import summary, tables

    scan = columns.scan(paths, match_names=match_names)
    with status("checking"):
        found = score_sets(scan, by=by, column=column, level=level)
    failed = found.failed(fail_if)
    if as_json:
        print_json({**found.to_dict(), "words": summary(found), "failed": failed})
    else:
        print("\n".join(map(printable, summary(found))), end="\n\n")
        print_tables(*tables(found))
    for gate in failed:
        print(f"failed: {gate}", file=sys.stderr)
    if failed:
        sys.exit(GATE_FAILED)


for verb in (fit, apply, check):
    sets.command(verb, help_epilogue=epilogue(f"sets {verb.__name__}"))
