"""Numbers and findings of an audit in words that stay true at 0, at 1 and for a single row."""

import math

from calibrant.metrics.compare import Difference
from calibrant.metrics.table import METRICS
from calibrant.report.audit.curves import RiskCurve
from calibrant.report.audit.groups import GroupTable
from calibrant.report.audit.verdict import Shares, Verdict, alpha, strict

MISSING = "–"
NO_WINNER = ("confidence", "entropy")  # neither more nor less of them is better
MOST_DIGITS = 6


def percent(share: float, *, unit: str = " %") -> str:
    """A share, with as many digits as keep it from 0 and 100 where it is neither.

    >>> percent(0.8333), percent(0.99996), percent(1.0), percent(1e-12)
    ('83.3 %', '99.996 %', '100 %', '< 0.000001 %')
    """
    if share <= 0 or share >= 1:
        return f"{0 if share <= 0 else 100}{unit}"
    for digits in range(1, MOST_DIGITS + 1):
        text = f"{100 * share:.{digits}f}"
        if 0 < float(text) < 100:
            return text + unit
    least = f"{10.0**-MOST_DIGITS:.{MOST_DIGITS}f}"
    return f"< {least}{unit}" if share < 0.5 else f"> {100 - 10.0**-MOST_DIGITS:.{MOST_DIGITS}f}{unit}"


def points(error: float, sign: str = "") -> str:
    """A difference of shares in points of a hundred; small ones have more digits.

    >>> points(0.0412), points(0.00412), points(0.0), points(-0.05, "+"), points(1e-9)
    ('4.1', '0.41', '0', '-5.0', '< 0.001')
    """
    size = 100 * abs(error)
    if size == 0:
        return "0"
    if size < 0.0005:
        return "< 0.001" if not sign else "0.000"
    digits = 3 if size < 0.0995 or 99.95 <= size < 100 else 2 if size < 0.995 else 1
    return f"{100 * error:{sign}.{digits}f}"


def number(value: float | None) -> str:
    """
    >>> number(0.04123), number(None), number(0.000123), number(float("inf"))
    ('0.0412', '–', '1.23e-04', 'infinite')
    """
    if value is None:
        return MISSING
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2e}"


def chance(p_value: float) -> str:
    """
    >>> chance(0.0312), chance(1e-9), chance(1.0)
    ('p = 0.031', 'p < 0.0001', 'p = 1.000')
    """
    if p_value < 1e-4:
        return "p < 0.0001"
    return f"p = {p_value:.3f}" if p_value >= 0.0995 / 100 else f"p = {p_value:.4f}"


def n_rows(count: int) -> str:
    """
    >>> n_rows(1), n_rows(1200)
    ('1 row', '1,200 rows')
    """
    return f"{count:,} row{'s' if count != 1 else ''}"


def level_text(level: float) -> str:
    """
    >>> level_text(0.95), level_text(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * level:.10g} %"


def to(limits: tuple[float, float], sign: str = "") -> str:
    """Two limits in points."""
    return f"{points(limits[0], sign)} to {points(limits[1], sign)}"


def evidence(verdict: Verdict) -> str:
    return (
        f"{level_text(verdict.level)} interval {to(verdict.interval)}; a perfectly calibrated model would show "
        f"{points(verdict.floor)} on as many rows; {chance(verdict.p_value)}"
    )


def headline(verdict: Verdict) -> str:
    if verdict.kind == "over":
        return f"Over-confident by {size(verdict)}."
    if verdict.kind == "under":
        return f"Under-confident by {size(verdict)}."
    if verdict.kind == "unclear":
        return f"Miscalibrated by {points(verdict.ece)} points, in no clear direction."
    if verdict.kind == "mixed":
        return f"{mixed(verdict)}."
    return "No miscalibration can be shown." if verdict.kind == "unproven" else "Too few rows to say."


def size(verdict: Verdict) -> str:
    """Of an error in one direction: the ECE where that shows it, else the gap of all rows."""
    if verdict.of_one_direction:
        return f"{points(verdict.ece)} points"
    return f"{points(abs(verdict.shares.gap))} points on the whole"


def mixed(verdict: Verdict) -> str:
    if verdict.split is None:
        return "Mixed: over-confident at some confidences, under-confident at others"
    first, second = ("over", "under") if verdict.split.over_above else ("under", "over")
    sure = f"above a confidence of {verdict.split.at:.2f}"
    return f"Mixed: {first}-confident where it is sure ({sure}), {second}-confident where it is not"


def detail(verdict: Verdict) -> str:
    """What the headline rests on."""
    ece = points(verdict.ece)
    parts = f"{points(verdict.over)} of them over-confident, {points(verdict.under)} under-confident"
    if verdict.kind in ("over", "under"):
        if verdict.of_one_direction:
            return f"This is the ECE ({evidence(verdict)})."
        gap = f"{level_text(verdict.level)} interval {to(verdict.shares.gap_interval, '+')}"
        return f"This is confidence less accuracy ({gap}); the ECE is {ece} points, {parts} ({evidence(verdict)})."
    if verdict.kind in ("mixed", "unclear"):
        return f"The ECE is {ece} points, {parts} ({evidence(verdict)})."
    if verdict.kind == "unproven":
        return (
            f"The ECE is {ece} points, and a perfectly calibrated model would show {points(verdict.floor)} on as many "
            f"rows; neither it nor confidence less accuracy is beyond chance ({chance(verdict.p_value)})"
            f"{nearly(verdict)}. An error of up to {points(verdict.wide_interval[1])} points could still hide (the "
            f"upper limit of the {level_text(strict(verdict.level))} interval)."
        )
    return (
        f"The ECE of {ece} points is measured on {counted(verdict.shares)}; a perfectly calibrated model would show "
        f"{points(verdict.floor)} on as many, and neither it nor confidence less accuracy is beyond chance "
        f"({chance(verdict.p_value)}){nearly(verdict)}."
    )


def nearly(verdict: Verdict) -> str:
    """Why nothing is shown though an interval on the same page excludes 0."""
    low, high = verdict.shares.gap_interval
    if low <= 0 <= high:
        return ""
    return (
        f", though the {level_text(verdict.level)} interval of the latter excludes 0 ({chance(verdict.chances.gap)} "
        f"by itself, which would have to be at most {alpha(verdict.level) / 2:.3g}, as two tests are made)"
    )


def counted(shares: Shares) -> str:
    """How many rows, and how many equal ones would tell as much where weights differ."""
    if abs(shares.effective - shares.n_rows) < 0.5:
        return n_rows(shares.n_rows)
    return f"{n_rows(shares.n_rows)}, whose weights make them worth {shares.effective:,.1f} equal ones"


def shares_sentence(shares: Shares, level: float) -> str:
    return (
        f"Accuracy is {percent(shares.accuracy)} and mean confidence {percent(shares.confidence)} on "
        f"{counted(shares)}: confidence less accuracy is {points(shares.gap, '+')} points "
        f"({level_text(level)} interval {to(shares.gap_interval, '+')})."
    )


def group_sentence(table: GroupTable) -> str:
    """The worst group of a column, or that none is shown to be one."""
    row, by = table.rows[0], table.by
    many = f"{table.n_groups:,} group{'s' if table.n_groups != 1 else ''} of {by}"
    found = (
        f"{by} {group_name(row.group)}, with an ECE of {points(row.ece)} points ({level_text(table.level)} interval "
        f"{to(row.interval)}) on {n_rows(row.shares.n_rows)}, confidence less accuracy {points(row.shares.gap, '+')}"
    )
    if table.n_shown_wrong == 0:
        return (
            f"None of {many} is miscalibrated beyond chance when all are tested at once; the least likely is {found}."
        )
    wrong = f"{table.n_shown_wrong:,} {'is' if table.n_shown_wrong == 1 else 'are'}"
    return f"Of {many}, {wrong} miscalibrated beyond chance; the worst by the lower limit of its ECE is {found}."


def group_name(group: object) -> str:
    return "(no value)" if group is None else str(group)


def difference_sentence(row: Difference, level: float) -> str:
    """Who wins in one metric, on all rows."""
    metric = METRICS[row.metric]
    name = {"ece": "ECE", "nll": "NLL"}.get(row.metric, row.metric)
    numbers = (
        f"this one has {number(row.a)}, the other {number(row.b)}, difference {row.difference:+.4f} "
        f"({level_text(level)} interval {between(row.interval)}; {chance(row.p_value)})"
    )
    if row.metric in NO_WINNER:
        differ = "differ" if row.p_value <= alpha(level) else "do not differ"
        return f"In {name} the two models {differ} beyond chance: {numbers}."
    if row.p_value > alpha(level):
        return f"Neither this model nor the other is better in {name} beyond chance: {numbers}."
    better = "this model" if (row.difference > 0) == metric.higher_is_better else "the other model"
    return f"In {name} {better} is better beyond chance: {numbers}."


def between(limits: tuple[float, float]) -> str:
    if any(map(math.isinf, limits)):
        return "without limits"
    return f"{limits[0]:+.4f} to {limits[1]:+.4f}"


def kept_sentences(curve: RiskCurve, level: float) -> list[str]:
    """What is gained by keeping the surest rows only."""
    if not curve.kept:
        return ["No threshold on the confidence keeps about 95, 80 or 50 % of these rows."]
    return [
        f"Keeping the surest {percent(kept.coverage)} of rows (confidence of at least {threshold(kept.threshold)}) the "
        f"error {moved(curve.error, kept.error)} ({level_text(level)} interval {share_limits_text(kept.interval)})."
        for kept in curve.kept
    ]


def moved(before: float, after: float) -> str:
    if percent(before) == percent(after):
        return f"stays at {percent(after)}"
    return f"{'falls' if after < before else 'rises'} from {percent(before)} to {percent(after)}"


def share_limits_text(limits: tuple[float, float]) -> str:
    return f"{percent(limits[0], unit='')} to {percent(limits[1])}"


def threshold(confidence: float) -> str:
    """Rounded down, so that rows of this confidence are kept.

    >>> threshold(0.72039), threshold(0.99999876), threshold(1.0)
    ('0.720', '0.999998', '1')
    """
    if confidence >= 1:
        return "1"
    digits = 3 if confidence < 0.999 else 6
    return f"{math.floor(confidence * 10**digits) / 10**digits:.{digits}f}"
