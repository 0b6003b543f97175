"""An audit in sentences that stay true at 0, at 1 and for a single row; each names the number that it follows from."""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from calibrant.audits import Advice, Audit, Verdict
from calibrant.audits.curves import Record
from calibrant.audits.groups import GroupFindings
from calibrant.audits.record import compared
from calibrant.audits.temperature import TemperatureEffect
from calibrant.audits.verdict import alpha, strict
from calibrant.metrics.compare import Difference
from calibrant.metrics.table import METRICS
from calibrant.report.numbers import (
    change,
    count,
    join_words,
    level_text,
    limits,
    number,
    p_text,
    percent,
    percent_limits,
    points,
    points_limits,
    threshold,
)

POOLED = (
    "These files are of several shifts. If they show the same images, the rows are not independent, and the numbers "
    "of all of them together are less certain than the intervals say; audit each file by itself, or read the groups."
)
FIT = "calibrant fit val.parquet --calibrator"


def summary(audit: Audit, names: Sequence[str]) -> list[str]:
    """The verdict with its evidence, the groups, the comparison of these metrics and the gates."""
    verdict = audit.verdict
    said = [f"{headline(verdict)} {detail(verdict)}", shares(verdict), *map(group_sentence, audit.groups.values())]
    differences = [row for by, row in compared(audit, tuple(names)) if by is None]
    differences = [row for row in differences if row.metric == "nll" or not verdict.few_outcomes]
    decisive = [row for row in differences if row.metric in ("ece", "nll")] or differences[:1]
    said += [difference_sentence(row, audit.level) for row in decisive]
    if audit.pooled_shifts:
        said.append(POOLED)
    if audit.failed:
        said.append(f"{len(audit.failed)} of {len(audit.gates)} conditions of --fail-if hold: the gate fails.")
    return said


# The verdict


def headline(verdict: Verdict) -> str:
    if verdict.kind == "unclear":
        return f"Miscalibrated by {points(verdict.ece)} percentage points, in no clear direction."
    if verdict.kind == "mixed":
        return f"{_mixed(verdict)}."
    if verdict.kind in ("unproven", "few"):
        return "No miscalibration can be shown." if verdict.kind == "unproven" else "Too few rows to say."
    size = f"{points(abs(verdict.gap))} percentage points on the whole"
    if verdict.of_one_direction:
        size = f"{points(verdict.ece)} percentage points"
    return f"{'Over' if verdict.kind == 'over' else 'Under'}confident by {size}."


def _mixed(verdict: Verdict) -> str:
    if verdict.split is None:
        return "Mixed: overconfident at some confidences, underconfident at others"
    above, below = ("over", "under") if verdict.over_above else ("under", "over")
    return f"Mixed: {above}confident above a confidence of {verdict.split:.2f}, {below}confident below it"


def detail(verdict: Verdict) -> str:
    """What the headline rests on."""
    ece, floor = points(verdict.ece), points(verdict.noise_floor)
    parts = f"{points(verdict.overconfidence)} of them overconfident, {points(verdict.underconfidence)} underconfident"
    evidence = (
        f"{level_text(verdict.level)} interval {points_limits(verdict.interval)}; a perfectly calibrated model would "
        f"show {floor} on as many rows; {p_text(verdict.p_value)}"
    )
    nothing = f"neither it nor confidence − accuracy is beyond chance ({p_text(verdict.p_value)}){_nearly(verdict)}"
    if verdict.kind in ("over", "under") and verdict.of_one_direction:
        return f"This is the ECE ({evidence})."
    if verdict.kind in ("over", "under"):
        gap = f"{level_text(verdict.level)} interval {points_limits(verdict.gap_interval, '+')}"
        return f"This is confidence − accuracy ({gap}); the ECE is {ece} points, {parts} ({evidence})."
    if verdict.kind in ("mixed", "unclear"):
        return f"The ECE is {ece} points, {parts} ({evidence})."
    if verdict.kind == "unproven":
        return (
            f"The ECE is {ece} points, and a perfectly calibrated model would show {floor} on as many rows; {nothing}. "
            f"An error of up to {points(verdict.wide_interval[1])} points could still hide (the upper limit of the "
            f"{level_text(strict(verdict.level))} interval)."
        )
    return (
        f"The ECE of {ece} points is measured on {_rows(verdict.n_rows, verdict.effective)}; a perfectly calibrated "
        f"model would show {floor} on as many, and {nothing}."
    )


def _nearly(verdict: Verdict) -> str:
    """Why nothing is shown though an interval beside it excludes 0."""
    low, high = verdict.gap_interval
    if low <= 0 <= high:
        return ""
    return (
        f", though the {level_text(verdict.level)} interval of the latter excludes 0 ({p_text(verdict.p_gap)} "
        f"by itself, which would have to be at most {alpha(verdict.level) / 2:.3g}, as two tests are made)"
    )


def shares(verdict: Verdict) -> str:
    return (
        f"Accuracy is {percent(verdict.accuracy)} and mean confidence {percent(verdict.confidence)} on "
        f"{_rows(verdict.n_rows, verdict.effective)}: confidence − accuracy is {points(verdict.gap, '+')} points "
        f"({level_text(verdict.level)} interval {points_limits(verdict.gap_interval, '+')})."
    )


def _rows(n_rows: int, effective: float) -> str:
    """How many rows, and how many equal ones would tell as much where weights differ."""
    if abs(effective - n_rows) < 0.5:
        return count(n_rows, "row")
    return f"{count(n_rows, 'row')}, whose weights make them worth {effective:,.1f} equal ones"


# Groups, another model, risk, temperature


def group_sentence(found: GroupFindings) -> str:
    """The worst group of a column, or that none is shown to be one."""
    group, by, n = found.rows[0], found.by, found.n_miscalibrated
    verdict = group.verdict
    many = f"{count(len(found.cards), 'group')} of {by}"
    worst = (
        f"{by} {group_name(group.value)}, with an ECE of {points(verdict.ece)} points ({level_text(verdict.level)} "
        f"interval {points_limits(verdict.interval)}) on {count(verdict.n_rows, 'row')}, confidence − accuracy "
        f"{points(verdict.gap, '+')}"
    )
    if n == 0:
        return (
            f"None of {many} is miscalibrated beyond chance when all are tested at once; the least likely is {worst}."
        )
    miscalibrated = f"{n:,} {'is' if n == 1 else 'are'} miscalibrated beyond chance"
    return f"Of {many}, {miscalibrated}; the worst by the lower limit of its ECE is {worst}."


def group_name(group: object) -> str:
    return "(no value)" if group is None else str(group)


def difference_sentence(row: Difference, level: float) -> str:
    """Who wins in one metric, on all rows."""
    name = {"ece": "ECE", "nll": "NLL"}.get(row.metric, row.metric)
    evidence = (
        f"this one has {number(row.a)}, the other {number(row.b)}, difference {row.difference:+.4f} "
        f"({level_text(level)} interval {limits(row.interval, '+')}; {p_text(row.p_value)})"
    )
    if METRICS[row.metric].better is None:
        differ = "differ" if row.p_value <= alpha(level) else "do not differ"
        return f"In {name} the two models {differ} beyond chance: {evidence}."
    if row.p_value > alpha(level):
        return f"Neither this model nor the other is better in {name} beyond chance: {evidence}."
    better = "this model" if (row.difference > 0) == METRICS[row.metric].higher_is_better else "the other model"
    return f"In {name} {better} is better beyond chance: {evidence}."


def kept_sentences(kept: Sequence[Record], error: float, level: float) -> list[str]:
    """What is gained by keeping only the most confident rows. error: of all rows."""
    if not kept:
        return ["No threshold on the confidence keeps about 95, 80 or 50 % of these rows."]
    return [
        f"Keeping the most confident {percent(row['coverage'])} of rows (confidence of at least "
        f"{threshold(row['threshold'])}) the error {change(error, row['error'])} ({level_text(level)} interval "
        f"{percent_limits(row['interval'])})."
        for row in kept
    ]


def temperature_sentence(effect: TemperatureEffect) -> str:
    """Empty where there is none."""
    if effect.temperature is None:
        return ""
    error = "" if effect.standard_error is None else f" (standard error {effect.standard_error:.2g})"
    of = "" if effect.n_sample == effect.n_rows else f", a seeded sample of {effect.n_rows:,},"
    return f"The likeliest temperature of {count(effect.n_sample, 'row')}{of} is T = {effect.temperature:.4g}{error}."


# What to do


def advice_sentence(advice: Advice) -> str:
    return ADVICE[advice.action](advice.facts)


def _fit(facts: Record, output: str, options: str = "") -> str:
    return f"{FIT} {facts['calibrator']}{options} -o {output}"


def _upper_limit(facts: Record) -> str:
    return f"upper limit of the {level_text(facts['level'])} interval"


def _collect_rows(facts: Record) -> str:
    return (
        f"Collect more rows before anything else: on {_rows(facts['n_rows'], facts['effective'])} the ECE may be "
        f"anything from {points_limits(facts['ece_interval'])} points."
    )


def _none_needed(facts: Record) -> str:
    return (
        f"Nothing needs to be calibrated on the whole: the ECE is at most {points(facts['ece_upper'])} points "
        f"({_upper_limit(facts)})."
    )


def _none_shown(facts: Record) -> str:
    return (
        f"Nothing is shown that a calibrator should correct on the whole: the ECE of {points(facts['ece'])} points is "
        f"not beyond what chance gives a calibrated model ({points(facts['noise_floor'])} on average; "
        f"{p_text(facts['p_value'])}), though up to {points(facts['ece_upper'])} could hide."
    )


def _none_small(facts: Record) -> str:
    return (
        f"On the whole the error is beyond chance but small: an ECE of {points(facts['ece'])} points, at most "
        f"{points(facts['ece_upper'])} ({_upper_limit(facts)}); few uses need more."
    )


def _temperature(facts: Record) -> str:
    left = ""
    if facts["ece_stays"] > 0:
        limit = f"lower limit of the {level_text(facts['level'])} interval"
        left = f" At least {points(facts['ece_stays'])} points of ECE would stay ({limit})."
    fit = f"Fit it on a separate validation set: {_fit(facts, 't.json')}"
    return f"Scale by a temperature: {_moves(facts)}. {fit}.{left}"


def _more_freedom(facts: Record) -> str:
    return (
        f"A temperature does not calibrate this: {_moves(facts)}, and {_fails(facts)} beyond chance. Try a calibrator "
        f"with more freedom on a validation set: {_fit(facts, 's.json')}."
    )


def _recalibrate(facts: Record) -> str:
    return (
        f"Recalibrate: {_what_is_off(facts)}. What a temperature would change could not be measured on these rows; fit "
        f"one on a validation set: {_fit(facts, 't.json')}."
    )


def _not_one_calibrator(facts: Record) -> str:
    """What one temperature does on the whole is said, and not advised."""
    but = f"but one calibrator does not suit all groups of {join_words(facts['columns'])}"
    if "temperature" not in facts:
        return f"On the whole {_what_is_off(facts)}, {but}."
    does = f"would help: {_moves(facts)}"
    if not facts["helps"]:
        does = f"does not calibrate this: {_moves(facts)}, and {_fails(facts)} beyond chance"
    return f"On the whole one temperature {does}; {but}."


def _what_is_off(facts: Record) -> str:
    """The number that is beyond chance."""
    if facts["shown_by"] == "ece":
        return f"the ECE of {points(facts['ece'])} points is beyond chance"
    return f"confidence − accuracy of {points(facts['gap'], '+')} points is beyond chance"


def _moves(facts: Record) -> str:
    (ece, less), (nll, lower) = facts["ece_change"], facts["nll_change"]
    return (
        f"T = {facts['temperature']:.3g} moves the ECE from {points(ece)} to {points(less)} points and the NLL from "
        f"{number(nll)} to {number(lower)} on rows that it was not fitted on"
    )


def _fails(facts: Record) -> str:
    worse = [name.upper() for name in facts["worse"]]
    return f"the {join_words(worse)} {'is' if len(worse) == 1 else 'are'} worse" if worse else "neither is better"


def _per_group(facts: Record) -> str:
    by, what = facts["by"], "in sign" if facts["in_sign"] else "in size"
    most, least = (_group_finding(by, facts[side]) for side in ("most", "least"))
    return (
        f"Recalibrate per {by}: its groups disagree {what} beyond chance: {most} and {least} (confidence − accuracy), "
        f"so one calibrator for all does not suit both; a temperature for each: "
        f"{_fit(facts, 'd.json', f' --domain {shlex.quote(by)}')}."
    )


def _group_finding(by: str, group: dict[str, Any]) -> str:
    """A direction only where the group's own gap is beyond chance."""
    name, gap = f"{by} {group_name(group['group'])}", group["gap"]
    if not group["off"]:
        return f"{name} is not shown to be off in either direction ({points(gap, '+')} points)"
    return f"{name} is {'over' if gap > 0 else 'under'}confident by {points(abs(gap))} points"


def _per_class(facts: Record) -> str:
    over, under = facts["over"], facts["under"]
    return (
        f"Look at the classes: where {over['class']} is predicted, confidence exceeds accuracy by "
        f"{points(over['gap'])} points, where {under['class']} is, it falls short by {points(abs(under['gap']))}. One "
        f"temperature moves all classes the same way; vector scaling does not: {_fit(facts, 'v.json')}."
    )


def _no_threshold(facts: Record) -> str:
    limit = f"{level_text(facts['level'])} interval {percent_limits(facts['interval'])}"
    return (
        f"Do not threshold at {facts['confidence']} to be correct 9 times in 10: of the {facts['n_rows']:,} rows with "
        f"a confidence above {facts['confidence']}, {percent(facts['accuracy'])} are correct ({limit})."
    )


def _more_rows(facts: Record) -> str:
    (low, high), n_rows = facts["ece_interval"], facts["n_rows"]
    return (
        f"Collect more rows: the {level_text(facts['level'])} interval of the ECE is {points(high - low)} points wide "
        f"on {count(n_rows, 'row')}; about four times as many ({4 * n_rows:,}) would halve it."
    )


ADVICE: dict[str, Callable[[Record], str]] = {
    "collect_rows": _collect_rows,
    "none_needed": _none_needed,
    "none_shown": _none_shown,
    "none_small": _none_small,
    "temperature": _temperature,
    "more_freedom": _more_freedom,
    "recalibrate": _recalibrate,
    "not_one_calibrator": _not_one_calibrator,
    "per_group": _per_group,
    "per_class": _per_class,
    "no_threshold": _no_threshold,
    "more_rows": _more_rows,
}
