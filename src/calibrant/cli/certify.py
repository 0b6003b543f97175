"""`calibrant certify`: which rows to accept, with a promise; applied, checked, and adapted to a shift."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from calibrant._names import SELECTORS, check_choice
from calibrant._paths import check_exists
from calibrant.cli.audit import GATE_FAILED
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Files, Json, Switch
from calibrant.cli.output import print_json, print_tables, progress_bar, status
from calibrant.errors import InvalidInputError, printable

if TYPE_CHECKING:
    from calibrant.scan import Scan

MODES = ("check", "apply", "adapt")  # options that name a threshold; without them one is made
BELONGS = {  # options that are not for every mode, "make" being that without a threshold
    "max_error": ("make",),
    "level": ("make",),
    "score": ("make",),
    "target_class": ("make",),
    "costs": ("make",),
    "method": ("make",),
    "by": ("make", "check"),
    "reference": ("check", "adapt"),
    "calibrator": ("adapt",),
    "output": ("make", "apply", "adapt"),
}


def certify(
    *paths: File,
    max_error: float | None = None,
    level: float | None = None,
    by: str | None = None,
    score: str | None = None,
    target_class: str | None = None,
    costs: tuple[float, float] | None = None,
    method: str | None = None,
    output: Annotated[File | None, Parameter(name=["--output", "-o"])] = None,
    check: File | None = None,
    apply: File | None = None,
    adapt: File | None = None,
    reference: Files = (),
    calibrator: File | None = None,
    match_names: Switch = False,
    allow_same_rows: Switch = False,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Certify a threshold above which predictions are wrong at most so often; the other rows are handed over.

    From labelled validation rows. The promise holds with the stated confidence for new rows like them. With --check,
    --apply or --adapt and the threshold's file, the files are checked, decided on, or adapted to. The exit code is 3 if
    --check finds a broken promise.

    Parameters
    ----------
    paths
        Files, folders, globs or fsspec URLs of predictions: of validation, or those to check, decide or adapt.
    max_error
        The largest error of accepted rows, by default 0.05.
    level
        Confidence level: the probability that the promise holds, by default 0.95.
    by
        A column: a threshold for each of its groups, with a promise for all of them. With --check: groups to check.
    score
        confidence (the default), margin, entropy, or a column of numbers that are larger for surer rows.
    target_class
        Accept predictions of this class alone, by its name, or number if classes have no names: a floor of 0.9 of the
        precision is --max-error 0.1.
    costs
        In place of --max-error: the cost of an error and the lower cost of handing over a row. The certified bound of
        the expected cost is minimized.
    method
        fixed_sequence (the default) or sgr. Choose before you see the result.
    output
        The file to write: the threshold (JSON), or with --apply the predictions with a column accepted (Parquet).
    check
        The file of a threshold: did its promise hold for each file, and each group of --by?
    apply
        The file of a threshold: decide which rows to accept, in bounded memory; labels are not needed.
    adapt
        The file of a threshold: estimate the one for these rows, which are shifted and have no labels. Not certified.
    reference
        With --check, the validation files: do the rows differ from them? With --adapt, labelled predictions and
        corrupted versions of them, as `calibrant estimate` takes them.
    calibrator
        With --adapt: a fitted calibrator such as set_temperature, in place of a fit to --reference.
    match_names
        Reorder the classes of files that have the same class names in another order.
    allow_same_rows
        Continue if the files hold rows that the threshold was made from.
    as_json
        Print JSON with full precision instead of text.
    """
    given = {name: value for name, value in locals().items() if value not in (None, ()) and name != "columns"}
    mode = _mode(given)
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    if method is not None:
        check_choice("method", method, SELECTORS)
    check_exists(*paths, *reference, check, apply, adapt, calibrator, columns.columns)
    scan, *known = columns.scans(*([paths, reference] if reference else [paths]), match_names=match_names)
    labelled = known[0] if known else None
    if mode == "make":
        options = {name: given[name] for name, modes in BELONGS.items() if modes[0] == "make" and name in given}
        options.pop("output", None)
        if level is not None:
            options["confidence"] = options.pop("level")
        _make(scan, output, options, as_json)
    elif mode == "check":
        _check(given, scan, labelled, by, match_names, allow_same_rows, as_json)
    elif mode == "apply":
        _apply(given, scan, match_names, allow_same_rows, as_json)
    else:
        _adapt(given, scan, labelled, calibrator, match_names, as_json)


def _mode(given: dict[str, Any]) -> str:
    """What is asked for. Raises: InvalidInputError for options of something else."""
    modes = [name for name in MODES if name in given] or ["make"]
    if len(modes) > 1:
        raise InvalidInputError(f"give one of --check, --apply and --adapt, got {' and '.join(modes)}")
    (mode,) = modes
    where = f"with --{mode}" if mode != "make" else "without --check, --apply or --adapt"
    for name, allowed in BELONGS.items():
        option = f"--{name.replace('_', '-')}"
        if name in given and mode not in allowed:
            raise InvalidInputError(f"{option} has no meaning {where}")
    if "output" not in given and mode != "check":
        raise InvalidInputError("give the file to write: --output or -o")
    if mode == "adapt" and ("reference" in given) == ("calibrator" in given):
        raise InvalidInputError("--adapt needs either --reference or --calibrator")
    return mode


def _make(scan: "Scan", output: File | None, options: dict[str, Any], as_json: bool) -> None:
    from calibrant._files import check_output
    from calibrant.decisions import certify

    check_output(str(output), "a threshold", scan.check_labels().files)
    with status("certifying"):
        found = certify(scan.read(), **options)
    _save(found, str(output), as_json)


def _check(
    given: dict[str, Any],
    scan: "Scan",
    known: "Scan | None",
    by: str | None,
    match_names: bool,
    allow_same_rows: bool,
    as_json: bool,
) -> None:
    from calibrant.decisions import check_threshold, load_threshold
    from calibrant.errors import without_secrets
    from calibrant.report.thresholds import check_summary, check_table

    threshold = load_threshold(given["check"])
    scan = scan.match_names(threshold.class_names) if match_names else scan
    with status("checking"):
        files = [replace(scan, sources=(source,)) for source in scan.check_labels().sources]
        tests = {without_secrets(file.files[0]): file.read() for file in files}
        reference = None if known is None else known.read()
        found = check_threshold(threshold, tests, by=by, reference=reference, allow_same_rows=allow_same_rows)
    words = check_summary(found, threshold)
    if as_json:
        print_json({**found.to_dict(), "words": words})
    else:
        _print_words(words)
        print_tables(check_table(found, threshold))
    if found.broken:
        print("failed: the promise is broken", file=sys.stderr)
        sys.exit(GATE_FAILED)


def _apply(given: dict[str, Any], scan: "Scan", match_names: bool, allow_same_rows: bool, as_json: bool) -> None:
    from calibrant._files import check_output
    from calibrant.decisions import apply_threshold, load_threshold

    output = given["output"]
    threshold = load_threshold(given["apply"])
    scan = scan.match_names(threshold.class_names) if match_names else scan
    check_output(output, "a Parquet file", [given["apply"]])
    with progress_bar("deciding", scan.n_bytes) as progress:
        n_rows, n_accepted = apply_threshold(
            threshold, scan, output, allow_same_rows=allow_same_rows, progress=progress
        )
    if as_json:
        print_json({"output": str(output), "n_rows": n_rows, "n_accepted": n_accepted})
    else:
        print(printable(f"{output}: {n_accepted:,} of {n_rows:,} rows accepted"))


def _adapt(
    given: dict[str, Any],
    scan: "Scan",
    known: "Scan | None",
    calibrator: File | None,
    match_names: bool,
    as_json: bool,
) -> None:
    from calibrant._files import check_output
    from calibrant.calibrators import SetTemperature, load_calibrator
    from calibrant.decisions import adapt_threshold, load_threshold
    from calibrant.estimates.base import set_columns

    threshold, output = load_threshold(given["adapt"]), given["output"]
    check_output(output, "a threshold", [given["adapt"], *scan.files])
    with status("adapting"):
        target = scan.read()
        target = target.match_names(threshold.class_names) if match_names else target
        if calibrator is not None:
            fitted = load_calibrator(calibrator)
        else:
            assert known is not None
            rows = known.check_labels().read()
            fitted = SetTemperature.fit(rows, sets=set_columns(rows))
        found = adapt_threshold(threshold, target, fitted)
    _save(found, output, as_json)


def _save(found: Any, output: File, as_json: bool) -> None:
    """Write a threshold, and say what it is."""
    from calibrant.report.thresholds import summary, threshold_table

    found.save(output)
    words = summary(found)
    if as_json:
        print_json({**found.to_dict(), "words": words})
        return
    _print_words(words)
    print_tables(threshold_table(found))
    print()
    print(printable(f"written: {output}"))


def _print_words(words: list[str]) -> None:
    from rich.console import Console

    Console(soft_wrap=False).print("\n".join(map(printable, words)), markup=False, highlight=False)
    print()
