"""`calibrant audit`: audit prediction files as text, JSON or a page, with gates for CI."""

import sys
from typing import TYPE_CHECKING, Any

from calibrant._conditions import parse_condition
from calibrant._names import check_choice, known_names
from calibrant._paths import check_exists
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Files, Integer, Json, Switch, Words
from calibrant.cli.output import print_json, progress_bar
from calibrant.errors import InvalidInputError, printable

if TYPE_CHECKING:
    from calibrant.audits import Audit
    from calibrant.audits.unlabelled import UnlabelledAudit

GATE_FAILED = 3


def audit(
    *paths: File,
    by: Words = (),
    cluster: str | None = None,
    compare: Files = (),
    metrics: Words = (),
    n_bins: Integer = 15,
    weights: str | None = None,
    level: float = 0.95,
    seed: Integer = 0,
    fail_if: Words = (),
    match_names: Switch = False,
    jobs: Integer = 1,
    ray: str | None = None,
    report: File | None = None,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Audit the calibration of predictions in files.

    Reads the files once, in bounded memory. Rows without a label are left out, and counted; the metrics confidence and
    entropy need no labels. The exit code is 3 if a condition of --fail-if is true.

    Parameters
    ----------
    paths
        Files, folders, globs or fsspec URLs of predictions.
    by
        Columns whose groups are audited too, the worst first.
    cluster
        A column; rows with the same value are not independent (a patient, a camera, an image under several
        corruptions). All intervals and tests follow the variance between clusters.
    compare
        Predictions of another model for the same rows in the same order: adds the differences, with intervals and
        p-values. Holds both in memory.
    metrics
        Metrics to show and to compare, by default all.
    n_bins
        Number of bins of the binned metrics.
    weights
        A column of row weights.
    level
        Confidence level of the intervals.
    seed
        Seed of the draws behind the intervals.
    fail_if
        Conditions such as "ece > 0.05"; if one is true, the exit code is 3.
    match_names
        Reorder the classes of files that have the same class names in another order; otherwise this is an error.
    jobs
        Number of local processes.
    ray
        Address of a Ray cluster ("auto" for the running one, "local" to start one).
    report
        An .html file to write: the audit as a page, with charts, groups, classes, the most confident errors and
        recommendations.
    as_json
        Print JSON with full precision instead of text.
    """
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    for text in fail_if:
        parse_condition(text, known_names("METRICS"))
    for name in metrics:
        check_choice("metric", name, known_names("METRICS"))
    check_exists(*paths, *compare, columns.columns)
    from rich.console import Console

    from calibrant import audits
    from calibrant.audits.unlabelled import audit_unlabelled
    from calibrant.report.audit_tables import audit_text, unlabelled_text
    from calibrant.report.audit_words import advice_command, advice_sentence, summary
    from calibrant.report.page import check_report

    gates = [audits.Gate.parse(text) for text in fail_if]
    if report is not None:
        check_report(report)
    inputs = [paths, compare] if compare else [paths]
    scan, *other = columns.scans(*inputs, match_names=match_names)
    common: dict[str, Any] = {"by": by, "weights": weights, "cluster": cluster, "level": level, "seed": seed}
    if not other and report is None:
        bare = audit_unlabelled(scan, metrics, gates=gates, **common)
        if bare is not None:
            if as_json:
                print_json(bare.to_dict())
            else:
                print(unlabelled_text(bare, Console().width))
            _exit(bare)
            return
    with progress_bar("auditing", scan.n_bytes) as done:
        found = audits.audit(
            scan,
            other=other[0] if other else None,
            compare_metrics=metrics or None,
            n_bins=n_bins,
            gates=gates,
            match_names=match_names,
            jobs=jobs,
            ray=ray,
            progress=done,
            **common,
        )
    names = found.names([*metrics, *(gate.metric for gate in gates)] if metrics else None)
    if as_json:
        advice = [f"{advice_sentence(item)} {advice_command(item)}".strip() for item in found.advice]
        words = {"summary": summary(found, names), "advice": advice}
        print_json({**found.to_dict(names), "words": words})
    else:
        print(audit_text(found, names, Console().width))
    if report is not None:
        found.save_html(report, metrics=names, command=["calibrant", *sys.argv[1:]])
        print(printable(f"open {report}"), file=sys.stderr if as_json else sys.stdout)
    _exit(found)


def _exit(found: "Audit | UnlabelledAudit") -> None:
    """Name the gates that failed, if any, and end with their exit code."""
    for gate in found.failed:
        print(f"failed: {gate.describe(found.scorecard)}", file=sys.stderr)
    if found.failed:
        sys.exit(GATE_FAILED)
