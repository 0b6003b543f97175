"""`calibrant audit`: the scorecard of prediction files, by groups, beside another model, with gates for CI."""

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from calibrant.cli.options import File, Files, Json, Words
from calibrant.cli.output import as_text, finite, new_table, progress_bar, shown
from calibrant.errors import InvalidInputError, UndefinedMetricError, printable
from calibrant.report.numbers import limits, number, p_number

if TYPE_CHECKING:
    from rich.table import Table

    from calibrant.metrics import Difference, Groups, Scorecard
    from calibrant.metrics.workers import FileScores
    from calibrant.scan import Scan

OPERATORS = {">": gt, ">=": ge, "<": lt, "<=": le}
GATE_FAILED = 3
IN_GROUPS = ("accuracy", "ece", "nll")  # what the table by groups shows unless told


def audit(
    *paths: File,
    by: Words = (),
    compare: Files = (),
    cluster: str | None = None,
    metrics: Words = (),
    n_bins: int = 15,
    weights: str | None = None,
    level: float = 0.95,
    seed: int = 0,
    fail_if: Words = (),
    jobs: int = 1,
    ray: str | None = None,
    report: File | None = None,
    as_json: Json = False,
) -> None:
    """Say how honest the probabilities in prediction files are.

    Files are read in one pass and bounded memory. Exit code 3 where a gate of --fail-if fails.

    Parameters
    ----------
    paths
        Parquet files, folders, globs or fsspec URLs of predictions (columns label and logits, probs or log_probs).
    by
        Columns to split by: one scorecard for each value, the worst first.
    compare
        The same rows, in the same order, as predicted by another model: differences with intervals and p-values.
        Both are then held in memory.
    cluster
        With --compare: a column whose equal values mark rows that are not independent (a patient, a camera).
    metrics
        Names of metrics, by default all.
    n_bins
        Bins of the binned metrics.
    weights
        A column of row weights.
    level
        Confidence level of the intervals.
    seed
        Seed of the draws behind the intervals.
    fail_if
        Conditions such as "ece > 0.05" under which the exit code is 3.
    jobs
        Local processes.
    ray
        Address of a Ray cluster ("auto" for the running one, "local" to start one).
    report
        A file of .html to write: the audit as a page, with a verdict in words, charts, groups, classes, the most
        confident errors and what to do. It reads the files once more.
    as_json
        Print JSON, with full precision, instead of tables.
    """
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    if cluster is not None and not compare:
        raise InvalidInputError("--cluster belongs to --compare: the intervals of one model take rows as independent")
    if ray is not None and jobs != 1:
        raise InvalidInputError("give either --jobs or --ray")
    gates = [parse_gate(text) for text in fail_if]
    from calibrant._checks import check_choice, check_level, check_whole
    from calibrant._files import without_secrets
    from calibrant.metrics.table import METRICS
    from calibrant.metrics.workers import score_files
    from calibrant.predictions import Predictions

    check_level(level)
    check_whole("seed", seed, 0)
    if report is not None:
        from calibrant.report.audit.writing import check_report

        check_report(report)
    for name in (*metrics, *(gate[0] for gate in gates)):
        check_choice("metric", name, METRICS)
    wanted = None if not metrics else tuple(dict.fromkeys([*metrics, *(gate[0] for gate in gates)]))
    scan = Predictions.scan(paths)
    other = Predictions.scan(compare) if compare else None
    check_everywhere(scan, by)
    with progress_bar("auditing", scan.n_bytes) as say:
        scores = score_files(
            scan, by=by, metrics=wanted, n_bins=n_bins, weights=weights, jobs=jobs, ray=ray, report=say
        )
    options: dict[str, Any] = {"weights": weights, "n_bins": n_bins, "level": level, "seed": seed}
    differences = {} if other is None else compared(scan, other, by, metrics, cluster=cluster, **options)
    failed = [describe_gate(gate, scores.overall) for gate in gates if gate_fails(gate, scores.overall)]
    files = list(map(without_secrets, scan.files))
    if as_json:
        record = {
            "files": files,
            **card_record(scores.overall, level, seed),
            "reliability": reliability_record(scores.overall),
            "groups": {name: groups_record(groups, level, seed) for name, groups in scores.groups.items()},
            "comparison": comparison_record(differences),
            "failed": failed,
        }
        print(json.dumps(finite(record), indent=2, allow_nan=False))
    else:
        show(files, scores.overall, scores.groups, differences, level, seed)
    if report is not None:
        judged = [(describe_gate(gate, scores.overall), gate_fails(gate, scores.overall)) for gate in gates]
        other_files = [] if other is None else other.files
        write_page(report, scan, scores, differences, judged, other_files, weights=weights, level=level, seed=seed)
    if failed:
        print(*(f"failed: {text}" for text in failed), sep="\n", file=sys.stderr)
    if report is not None:
        print(printable(f"open {report}"), file=sys.stderr if as_json else sys.stdout)
    if failed:
        sys.exit(GATE_FAILED)


def check_everywhere(scan: "Scan", columns: Sequence[str]) -> None:
    """A column that only some files have is not unknown: the first file without it is named."""
    from calibrant._files import without_secrets

    for name in columns:
        having = [name in footer.schema.names for footer in scan.footers]
        if any(having) and not all(having):
            file = without_secrets(scan.files[having.index(False)])
            raise InvalidInputError(f"{file} has no column {name}, by which to split; other files have it")


def write_page(
    path: str,
    scan: "Scan",
    scores: "FileScores",
    differences: "dict[str | None, list[Difference]]",
    gates: Sequence[tuple[str, bool]],
    other_files: Sequence[str],
    **options: Any,
) -> None:
    """The page of an audit, by one more pass over the files. gates: what each says, and whether it fails."""
    from calibrant.report.audit.numbers import Gate
    from calibrant.report.audit.writing import write_scored

    with progress_bar("writing the page", scan.n_bytes) as say:
        write_scored(
            path,
            scan,
            scores,
            differences=differences,
            gates=[Gate(*gate) for gate in gates],
            command=["calibrant", *sys.argv[1:]],
            other_files=other_files,
            report=say,
            **options,
        )


def compared(
    scan: "Scan", other: "Scan", by: Sequence[str], metrics: Sequence[str], **options: Any
) -> "dict[str | None, list[Difference]]":
    """The differences of two models, by each column or of all rows only; both are read into memory."""
    from calibrant.metrics.compare import compare
    from calibrant.metrics.table import METRICS

    names = [name for name in metrics if not METRICS[name].binary] or None
    if metrics and names is None:
        raise InvalidInputError(f"--compare cannot compare {', '.join(metrics)}: it compares the top label only")
    pair = scan.read(), other.read()
    return {column: compare(*pair, metrics=names, by=column, **options) for column in by or (None,)}


Gate = tuple[str, str, float]


def parse_gate(text: str) -> Gate:
    """The metric, the operator and the number of a condition such as "ece > 0.05"."""
    match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\S+)\s*", text)
    try:
        if match and math.isfinite(limit := float(match[3])):
            return match[1], match[2], limit
    except ValueError:
        pass
    raise InvalidInputError(f'--fail-if must be a condition such as "ece > 0.05", got {text!r}')


def gate_fails(gate: Gate, card: "Scorecard") -> bool:
    name, operator, limit = gate
    try:
        return bool(OPERATORS[operator](card[name], limit))
    except UndefinedMetricError as error:
        raise InvalidInputError(f"--fail-if {name} {operator} {limit:g} cannot be decided: {error}") from None


def describe_gate(gate: Gate, card: "Scorecard") -> str:
    name, operator, limit = gate
    return f"{name} {operator} {limit:g} (it is {card[name]:.6g})"


def card_record(card: "Scorecard", level: float, seed: int) -> dict[str, Any]:
    return {
        "n_rows": card.n_rows,
        "n_classes": card.n_classes,
        "n_bins": card.n_bins,
        "level": level,
        "metrics": {name: metric_record(card, name, level, seed) for name in card.names},
    }


def metric_record(card: "Scorecard", name: str, level: float, seed: int) -> dict[str, Any]:
    from calibrant.metrics.table import METRICS

    value = card.get(name)
    return {
        "value": value,
        "interval": None if value is None else list(card.interval(name, level=level, seed=seed)),
        "noise_floor": None if METRICS[name].floor is None else card.noise_floor(name, seed=seed),
        "error_bound": card.error_bound(name),
    }


def reliability_record(card: "Scorecard") -> list[dict[str, float]] | None:
    if card.top.bins is None:
        return None
    curve = card.reliability()
    columns = (curve.confidence, curve.accuracy, curve.strength, curve.count)
    names = ("confidence", "accuracy", "strength", "count")
    return [dict(zip(names, row, strict=True)) for row in zip(*(c.tolist() for c in columns), strict=True)]


def groups_record(groups: "Groups", level: float, seed: int) -> dict[str, Any]:
    cards = [{"group": as_text(group), **card_record(card, level, seed)} for group, card in groups.items()]
    return {"groups": cards, "worst": {name: as_text(group) for name, group in worst_groups(groups)}}


def worst_groups(groups: "Groups") -> Iterator[tuple[str, object]]:
    for name in groups.overall.names:
        try:
            yield name, groups.worst(name)[0]
        except UndefinedMetricError:
            continue


def comparison_record(differences: "dict[str | None, list[Difference]]") -> list[dict[str, Any]]:
    """All rows once, then the groups of each column."""
    whole = [row for row in next(iter(differences.values()), []) if row.whole]
    parts = [(by, row) for by, rows in differences.items() for row in rows if not row.whole]
    return [difference_record(by, row) for by, row in [*((None, row) for row in whole), *parts]]


def difference_record(by: str | None, row: "Difference") -> dict[str, Any]:
    fields = ("metric", "n_rows", "a", "b", "difference", "standard_error", "p_value", "p_holm")
    return {
        "by": None if row.whole else by,
        "group": as_text(row.group),
        **{name: getattr(row, name) for name in fields},
        "interval": list(row.interval),
    }


def show(
    files: Sequence[str],
    card: "Scorecard",
    groups: "dict[str, Groups]",
    differences: "dict[str | None, list[Difference]]",
    level: float,
    seed: int,
) -> None:
    from rich.console import Console

    console = Console()
    what = files[0] if len(files) == 1 else f"{len(files):,} files"
    console.print(card_table(f"{what}: {card.n_rows:,} rows, {card.n_classes} classes", card, level, seed))
    for name, found in groups.items():
        console.print(groups_table(name, found, level, seed))
    if differences:
        whole = [row for row in next(iter(differences.values())) if row.whole]
        console.print(differences_table("this model less the other, on the same rows", None, whole, level))
    for by, rows in differences.items():
        if by is not None:
            parts = [row for row in rows if not row.whole]
            console.print(differences_table(f"this model less the other, by {by}", by, parts, level))


def card_table(title: str, card: "Scorecard", level: float, seed: int) -> "Table":
    from calibrant.metrics.table import METRICS

    table = new_table(title, ("metric", "", "value", f"{level:.0%} interval", "noise floor"), n_left=2)
    for name in card.names:
        value = card.get(name)
        interval = "–" if value is None else limits(card.interval(name, level=level, seed=seed))
        floor = "" if METRICS[name].floor is None else number(card.noise_floor(name, seed=seed))
        table.add_row(name, f"[dim]{METRICS[name].title}[/dim]", number(value), interval, floor)
    bounds = [f"{name} {bound:.0e}" for name in card.names if (bound := card.error_bound(name)) >= 5e-6]
    table.caption = f"read from a histogram; off by no more than: {', '.join(bounds)}" if bounds else None
    return table


def groups_table(by: str, groups: "Groups", level: float, seed: int) -> "Table":
    """The worst group by the first calibration error comes first."""
    from calibrant.metrics.table import METRICS

    names = [name for name in groups.overall.names if name in IN_GROUPS] or list(groups.overall.names)[:5]
    key = next((name for name in names if METRICS[name].floor is not None), names[0])
    sign = 1.0 if METRICS[key].higher_is_better else -1.0
    order = sorted(groups.items(), key=lambda item: sign * (value if (value := item[1].get(key)) is not None else 0.0))
    extra = [f"{level:.0%} interval", *(["noise floor"] if METRICS[key].floor is not None else [])]
    at = names.index(key) + 1
    table = new_table(f"by {by}, worst {key} first", (by, "rows", *names[:at], *extra, *names[at:]), n_left=1)
    for group, card in order:
        cells = [number(card.get(name)) for name in names]
        known = card.get(key) is not None
        evidence = [limits(card.interval(key, level=level, seed=seed)) if known else "–"]
        evidence += [number(card.noise_floor(key, seed=seed))] if METRICS[key].floor is not None else []
        table.add_row(shown(group), f"{card.n_rows:,}", *cells[:at], *evidence, *cells[at:])
    return table


def differences_table(title: str, by: str | None, rows: "Sequence[Difference]", level: float) -> "Table":
    group = [] if by is None else [by]
    headings = [
        "metric",
        *group,
        "this",
        "other",
        "difference",
        f"{level:.0%} interval",
        "p" if by is None else "p (Holm)",
    ]
    table = new_table(title, headings, n_left=1 + len(group))
    for row in rows:
        cells = [
            number(row.a),
            number(row.b),
            f"{row.difference:+.4f}",
            limits(row.interval, "+"),
            p_number(row.p_holm),
        ]
        table.add_row(row.metric, *(shown(row.group) for _ in group), *cells)
    return table
