"""`calibrant estimate`: accuracy and calibration of predictions without labels."""

import sys

from calibrant._conditions import parse_condition
from calibrant._names import ESTIMATED, ESTIMATORS, check_choice
from calibrant._paths import check_exists
from calibrant.cli.audit import GATE_FAILED
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Files, Json, Switch, Words
from calibrant.cli.output import print_json, print_tables, status
from calibrant.errors import InvalidInputError, printable


def estimate(
    *paths: File,
    reference: Files,
    method: str | None = None,
    calibrator: File | None = None,
    by: str | None = None,
    level: float = 0.9,
    fail_if: Words = (),
    match_names: Switch = False,
    allow_same_rows: Switch = False,
    report: File | None = None,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Estimate how accurate and how overconfident a model is on predictions without labels.

    Needs labelled predictions of the same model, better also of corrupted versions of the same images (columns
    corruption and severity): the intervals then include the error under shifts that the estimator has not seen. The
    exit code is 3 if a condition of --fail-if is true.

    Parameters
    ----------
    paths
        Files, folders, globs or fsspec URLs of predictions. Labels are not looked at.
    reference
        The same for labelled predictions that the model was not trained on.
    method
        set_temperature, confidence, doc, atc_confidence, atc_entropy or cot; by default set_temperature, or
        confidence if the reference has no corrupted rows.
    calibrator
        A set_temperature of `calibrant fit`, in place of a fit to the reference.
    by
        A column whose groups are estimated too, each as a set of its own.
    level
        Level of the intervals.
    fail_if
        Conditions such as "accuracy < 0.8"; if one is true, the exit code is 3.
    match_names
        Reorder the classes of files that have the same class names in another order.
    allow_same_rows
        Continue if the target holds rows of the reference.
    report
        An .html file to write: the estimate as a page, with a chart of the groups of --by.
    as_json
        Print JSON with full precision instead of text.
    """
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    for text in fail_if:
        parse_condition(text, ESTIMATED)
    if method is not None:
        check_choice("estimator", method, ESTIMATORS)
    check_exists(*reference, *paths, calibrator, columns.columns)
    from rich.console import Console

    from calibrant import estimates
    from calibrant.calibrators import load_calibrator
    from calibrant.report.estimates import summary, tables
    from calibrant.report.page import check_report

    if report is not None:
        check_report(report)
    labelled, scan = columns.scans(reference, paths, match_names=match_names)
    with status("estimating"):
        known, target = labelled.check_labels().read(), scan.read()
        found = estimates.estimate(
            target.match_names(known.class_names) if match_names else target,
            known,
            method=method,
            calibrator=None if calibrator is None else load_calibrator(calibrator),
            by=by,
            level=level,
            allow_same_rows=allow_same_rows,
        )
    failed = found.failed(fail_if)
    if as_json:
        print_json({**found.to_dict(), "words": summary(found), "failed": failed})
    else:
        Console(soft_wrap=False).print("\n".join(summary(found)), markup=False, highlight=False)
        print()
        print_tables(*tables(found))
    if report is not None:
        found.save_html(report, command=["calibrant", *sys.argv[1:]])
        print(printable(f"open {report}"), file=sys.stderr if as_json else sys.stdout)
    for gate in failed:
        print(f"failed: {gate}", file=sys.stderr)
    if failed:
        sys.exit(GATE_FAILED)
