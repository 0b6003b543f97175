"""The findings of an audit as sentences, each with the numbers behind it."""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from calibrant.audits import Advice, Audit, GroupFindings, TemperatureEffect, Verdict
from calibrant.audits.temperature import TEMPERATURE_FOLDS
from calibrant.audits.verdict import decision_level, significance_level
from calibrant.metrics.compare import Difference
from calibrant.metrics.table import METRICS
from calibrant.report.numbers import (
    change,
    count,
    join_words,
    level_text,
    limits,
    number,
    p_number,
    p_text,
    percent,
    percent_limits,
    points,
    points_limits,
    threshold,
)

POOLED_SHIFTS = (
    "These files contain several shifted tests. If the tests share images, their rows are not independent, and the "
    "confidence intervals over all files are too narrow: audit each file separately, or read the results by group."
)


def summary(audit: Audit, names: Sequence[str]) -> list[str]:
    """The verdict with its evidence, the groups, the comparison of these metrics and the gates."""
    verdict = audit.verdict
    sentences = [f"{headline(verdict)} {evidence(verdict)}", accuracy_sentence(verdict)]
    sentences += map(group_sentence, audit.groups.values())
    differences = [row for by, row in audit.differences(names) if by is None]
    differences = [row for row in differences if row.metric == "nll" or not verdict.few_outcomes]
    main = [row for row in differences if row.metric in ("ece", "nll")] or differences[:1]
    sentences += [difference_sentence(row, audit.level) for row in main]
    if audit.pooled_shifts:
        sentences.append(POOLED_SHIFTS)
    if audit.failed:
        sentences.append(f"The audit fails {len(audit.failed)} of {len(audit.gates)} gates (--fail-if).")
    return sentences


def ci(level: float, interval: str) -> str:
    return f"{level_text(level)} CI {interval}"


# The verdict


def headline(verdict: Verdict) -> str:
    if verdict.kind == "too_few_rows":
        return "Too few rows to assess calibration."
    if verdict.kind == "no_evidence":
        return f"No evidence of miscalibration ({p_text(verdict.p_value)})."
    if verdict.kind == "no_direction":
        return f"Miscalibrated by {points(verdict.ece)} percentage points, in no consistent direction."
    if verdict.kind == "mixed" and verdict.crossing is None:
        return "Miscalibrated: overconfident at some confidences, underconfident at others."
    if verdict.kind == "mixed":
        above, below = ("over", "under") if verdict.overconfident_above else ("under", "over")
        return f"Miscalibrated: {above}confident at confidences above {verdict.crossing:.2f}, {below}confident below."
    size = f"{points(verdict.ece)} percentage points"
    if not verdict.one_sided:
        size = f"{points(abs(verdict.gap))} percentage points overall"
    return f"{verdict.kind.capitalize()} by {size}."


def evidence(verdict: Verdict) -> str:
    """The ECE behind the headline, and its comparison with a calibrated model."""
    ece = f"The expected calibration error (ECE) is {points(verdict.ece)} percentage points"
    calibrated = f"a perfectly calibrated model would have {points(verdict.noise_floor)} on average"
    if verdict.kind == "too_few_rows":
        rows = _rows(verdict.n_rows, verdict.n_effective)
        return f"{ece} on {rows}; {calibrated} ({p_text(verdict.p_value)}).{_excluded_zero(verdict)}"
    if verdict.kind == "no_evidence":
        upper, level = points(verdict.decision_interval[1]), level_text(decision_level(verdict.level))
        limit = f"An ECE of up to {upper} percentage points cannot be ruled out (upper limit of the {level} CI)."
        return f"{ece}; {calibrated}.{_excluded_zero(verdict)} {limit}"
    ece += f" ({ci(verdict.level, points_limits(verdict.ece_interval))})"
    tested = f"{calibrated} ({p_text(verdict.p_value)})"
    if verdict.one_sided and verdict.kind in ("overconfident", "underconfident"):
        return f"{ece}; {tested}."
    over, under = points(verdict.overconfidence), points(verdict.underconfidence)
    return f"{ece}, {over} from overconfident and {under} from underconfident bins; {tested}."


def _excluded_zero(verdict: Verdict) -> str:
    """Why there is no evidence although the interval of the gap excludes 0."""
    low, high = verdict.gap_interval
    if low <= 0 <= high:
        return ""
    limit = f"{significance_level(verdict.level) / 2:.3g}"
    return (
        f" The {level_text(verdict.level)} CI of confidence − accuracy excludes 0 ({p_text(verdict.p_gap)}), but with "
        f"two tests (ECE and confidence − accuracy) significance requires p ≤ {limit}."
    )


def accuracy_sentence(verdict: Verdict) -> str:
    gap = ci(verdict.level, points_limits(verdict.gap_interval, "+"))
    return (
        f"Accuracy is {percent(verdict.accuracy)} and mean confidence {percent(verdict.confidence)} on "
        f"{_rows(verdict.n_rows, verdict.n_effective)}: confidence − accuracy is {points(verdict.gap, '+')} percentage "
        f"points ({gap})."
    )


def _rows(n_rows: int, n_effective: float) -> str:
    if abs(n_effective - n_rows) < 0.5:
        return count(n_rows, "row")
    return f"{count(n_rows, 'row')} (effective sample size {n_effective:,.1f} after weighting)"


# Groups, another model, risk, temperature


def group_sentence(found: GroupFindings) -> str:
    """The number of miscalibrated groups of a column, and the worst group."""
    group, n = found.worst_first[0], found.n_miscalibrated
    verdict = group.verdict
    groups = f"{count(len(found.cards), 'group')} of {found.by}"
    numbers = (
        f"{found.by} = {group_name(group.value)}, with an ECE of {points(verdict.ece)} percentage points "
        f"({ci(verdict.level, points_limits(verdict.ece_interval))}) and confidence − accuracy of "
        f"{points(verdict.gap, '+')} on {count(verdict.n_rows, 'row')}"
    )
    if n == 0:
        smallest = f"The smallest p-value ({p_number(group.p_holm)}, Holm-corrected) is that of {numbers}."
        return f"No evidence of miscalibration in any of {groups}. {smallest}"
    miscalibrated = f"{'is' if n == 1 else 'are'} significantly miscalibrated (Holm-corrected)"
    return f"{n:,} of {groups} {miscalibrated}. The worst, by the lower limit of its ECE, is {numbers}."


def group_name(group: object) -> str:
    return "(no value)" if group is None else str(group)


def difference_sentence(row: Difference, level: float) -> str:
    """Which model is better in one metric on all rows."""
    significant = row.p_value <= significance_level(level)
    result = "the models differ significantly" if significant else "no significant difference between the models"
    if significant and METRICS[row.metric].better is not None:
        this = (row.difference > 0) == METRICS[row.metric].higher_is_better
        result = f"{'this' if this else 'the other'} model is significantly better"
    name = {"ece": "ECE", "nll": "NLL"}.get(row.metric, METRICS[row.metric].title.capitalize())
    return (
        f"{name}: {result} (this model {number(row.a)}, the other {number(row.b)}; difference {row.difference:+.4f}, "
        f"{ci(level, limits(row.interval, '+'))}; {p_text(row.p_value)})."
    )


def risk_sentences(risks: Sequence[dict[str, Any]], error: float, level: float) -> list[str]:
    """The error rate among the most confident rows. error: that of all rows."""
    if not risks:
        return ["No threshold on the confidence keeps about 95, 80 or 50 % of these rows."]
    return [
        f"Among the most confident {percent(row['coverage'])} of rows (confidence ≥ {threshold(row['threshold'])}) the "
        f"error rate {change(error, row['error'])} ({ci(level, percent_limits(row['interval']))})."
        for row in risks
    ]


def temperature_sentence(effect: TemperatureEffect) -> str:
    """Empty where no temperature could be fitted."""
    if effect.temperature is None:
        return ""
    error = "" if effect.standard_error is None else f" (standard error {effect.standard_error:.2g})"
    rows = count(effect.n_rows, "row")
    if effect.n_sample != effect.n_rows:
        rows = f"a random sample of {effect.n_sample:,} of {rows}"
    return f"The maximum-likelihood temperature is T = {effect.temperature:.4g}{error}, fitted on {rows}."


# Recommendations

ADVICE_SENTENCES = {
    "collect_rows": "Collect more labelled rows before drawing conclusions: with {rows}, the {level} CI of the ECE is "
    "{ece_interval} percentage points.",
    "no_action": "No recalibration is needed overall: the ECE is at most {ece_upper} percentage points (upper limit of "
    "the {level} CI).",
    "no_evidence": "Recalibration is not indicated overall: there is no evidence of miscalibration ({p_value}), "
    "although an ECE of up to {ece_upper} percentage points cannot be ruled out (upper limit of the {level} CI).",
    "negligible": "Recalibration would change little overall: the miscalibration is significant but small, with an ECE "
    "of {ece} percentage points and at most {ece_upper} (upper limit of the {level} CI).",
    "temperature_scaling": "Recalibrate with temperature scaling: {effect}. Fit it on a separate validation set: {fit} "
    "-o t.json.{remaining}",
    "flexible_calibrator": "Temperature scaling is not enough: {effect}; {failure}. Fit a more flexible calibrator on "
    "a separate validation set: {fit} -o s.json.",
    "recalibrate": "Recalibrate: {finding}. The effect of temperature scaling could not be measured on these rows; fit "
    "it on a separate validation set: {fit} -o t.json.",
    "no_single_calibrator": "Do not use one calibrator for all groups of {columns}: their confidence − accuracy "
    "differs significantly. Overall, {overall}.",
    "recalibrate_per_group": "Recalibrate each group of {by}: confidence − accuracy differs significantly {groups}. "
    "Fit a temperature for each group: {fit} --domain {column} -o d.json.",
    "recalibrate_per_class": "Consider a calibrator with parameters per class: where {over_class} is predicted, "
    "confidence exceeds accuracy by {over_gap} percentage points; where {under_class} is predicted, accuracy exceeds "
    "confidence by {under_gap}. Temperature scaling cannot correct both; vector scaling can: {fit} -o v.json.",
    "avoid_threshold": "Do not use a confidence threshold of {threshold} to obtain an accuracy of {threshold}: of "
    "{rows} with a higher confidence, {accuracy} are correct ({level} CI {interval}).",
    "collect_more_rows": "Collect more labelled rows: with {rows} the {level} CI of the ECE is {width} percentage "
    "points wide; about four times as many ({four_times}) would halve the width.",
}


FACT_FORMATS: dict[str, Callable[[Any], str]] = {
    "accuracy": percent,
    "columns": join_words,
    "ece": points,
    "ece_interval": points_limits,
    "ece_upper": points,
    "interval": percent_limits,
    "level": level_text,
    "p_value": p_text,
    "threshold": level_text,
}


def advice_sentence(advice: Advice) -> str:
    facts = advice.facts
    texts = {name: as_text(facts[name]) for name, as_text in FACT_FORMATS.items() if name in facts}
    if "n_rows" in facts:
        texts["rows"] = _rows(facts["n_rows"], facts.get("n_effective", facts["n_rows"]))
        texts["four_times"] = f"{4 * facts['n_rows']:,}"
    if "ece_interval" in facts:
        low, high = facts["ece_interval"]
        texts["width"] = points(high - low)
    if "calibrator" in facts:
        texts["fit"] = f"calibrant fit val.parquet --calibrator {facts['calibrator']}"
    if "significant" in facts:
        texts |= _effect_texts(facts)
    if "by" in facts:
        texts |= {"by": facts["by"], "column": shlex.quote(facts["by"]), "groups": _group_gaps(facts)}
    if "overconfident" in facts:
        over, under = facts["overconfident"], facts["underconfident"]
        texts |= {"over_class": over["class"], "over_gap": points(over["gap"])}
        texts |= {"under_class": under["class"], "under_gap": points(-under["gap"])}
    return ADVICE_SENTENCES[advice.action].format(**texts)


def _effect_texts(facts: dict[str, Any]) -> dict[str, str]:
    """What is significant, and the effect of temperature scaling where it was measured."""
    finding = f"the ECE of {points(facts.get('ece', 0.0))} percentage points is significant"
    if facts["significant"] == "gap":
        finding = f"confidence − accuracy of {points(facts['gap'], '+')} percentage points is significant"
    if "temperature" not in facts:
        return {"finding": finding, "overall": finding}
    (ece, ece_after), (nll, nll_after) = facts["ece_change"], facts["nll_change"]
    effect = (
        f"T = {facts['temperature']:.3g} changes the ECE from {points(ece)} to {points(ece_after)} percentage points "
        f"and the NLL from {number(nll)} to {number(nll_after)} ({TEMPERATURE_FOLDS}-fold cross-validation)"
    )
    failure = "neither decreases significantly"
    if facts["worsened"]:
        increase = "increases" if len(facts["worsened"]) == 1 else "increase"
        failure = f"the {join_words(map(str.upper, facts['worsened']))} {increase} significantly"
    remaining = ""
    if facts.get("ece_remaining", 0) > 0:
        lower = f"lower limit of the {level_text(facts['level'])} CI"
        remaining = f" An ECE of at least {points(facts['ece_remaining'])} percentage points would remain ({lower})."
    overall = f"temperature scaling helps: {effect}"
    if not facts["helps"]:
        overall = f"temperature scaling does not help: {effect}; {failure}"
    return {"effect": effect, "failure": failure, "remaining": remaining, "overall": overall}


def _group_gaps(facts: dict[str, Any]) -> str:
    """The two most different groups; a direction is named only where it is significant."""
    texts = []
    for group in (facts["largest_gap"], facts["smallest_gap"]):
        name, gap = f"{facts['by']} = {group_name(group['group'])}", group["gap"]
        finding = f"is {'over' if gap > 0 else 'under'}confident by {points(abs(gap))} percentage points"
        if not group["significant"]:
            finding = f"has no significant deviation ({points(gap, '+')} percentage points)"
        texts.append(f"{name} {finding}")
    return f"in {'sign' if facts['opposite_signs'] else 'size'}: {join_words(texts)}"
