"""The findings of an audit as sentences, each with the numbers behind it."""

import math
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from calibrant.audits import Advice, Audit, DecisionFindings, GroupFindings, TemperatureEffect, Verdict
from calibrant.audits.temperature import TEMPERATURE_FOLDS
from calibrant.audits.verdict import decision_level, significance_level
from calibrant.calibrators.likelihood import LEVEL
from calibrant.calibrators.temperature import FEW_INFLUENTIAL_ROWS
from calibrant.metrics.compare import Difference
from calibrant.metrics.selection import least_rows
from calibrant.metrics.table import METRICS
from calibrant.report.numbers import (
    count,
    interval_text,
    join_words,
    level_text,
    metric_text,
    p_value_phrase,
    p_value_text,
    percent,
    percent_limits,
    points,
    points_limits,
    threshold_text,
    upward_text,
)

POOLED_SHIFTS = (
    "These files contain several shifted test sets. If they share images, their rows are not independent, and the "
    "confidence intervals over all files are too narrow: name a column with the number of the image (--cluster), audit "
    "each file separately, or use the results per group."
)
TOP_LABEL = (
    "The files hold only the confidence of the predicted class: classwise errors, NLL over classes, prediction sets "
    "and temperature scaling need all probabilities."
)
DIRECTIONS = ("overconfident", "underconfident")  # verdicts whose headline states confidence − accuracy


def summary(audit: Audit, metrics: Sequence[str]) -> list[str]:
    """Headline, evidence, warnings, accuracy, groups, the comparison of these metrics, the gates."""
    verdict = audit.verdict
    sentences = [headline(verdict), evidence(verdict)]
    if audit.n_unlabelled:
        sentences.append(unlabelled_sentence(audit))
    if audit.top_label:
        sentences.append(TOP_LABEL)
    if audit.constant_class is not None:
        sentences.append(constant_sentence(audit))
    sentences += [repeated_id_sentence(audit, column) for column in audit.repeated_ids]
    if audit.pooled_shifts and not audit.repeated_ids:
        sentences.append(POOLED_SHIFTS)
    sentences.append(accuracy_sentence(verdict, audit.cluster))
    if audit.temperature.changes:
        sentences.append(decomposition_sentence(audit.temperature, audit.level))
    sentences.append(decision_sentence(audit))
    sentences += map(group_sentence, audit.groups.values())
    differences = [row for by, row in audit.differences(metrics) if by is None]
    differences = [row for row in differences if row.metric == "nll" or not verdict.few_outcomes]
    main = [row for row in differences if row.metric in ("ece", "nll")] or differences[:1]
    sentences += [difference_sentence(row, audit.level) for row in main]
    if decision_level(audit.level) != audit.level:
        level = level_text(decision_level(audit.level))
        sentences.append(f"Recommendations use a confidence level of {level}: they never use a lower one.")
    if audit.failed:
        sentences.append(f"The audit fails {len(audit.failed)} of {len(audit.gates)} gates (--fail-if).")
    return sentences


def unlabelled_sentence(audit: Audit) -> str:
    """How many rows were left out for want of a label."""
    n = audit.n_unlabelled
    verbs = ("has", "is") if n == 1 else ("have", "are")
    return f"{count(n, 'row')} of {audit.statistics.n_rows:,} {verbs[0]} no label and {verbs[1]} left out."


def constant_sentence(audit: Audit) -> str:
    """The class of all predictions, and their confidence where that is the same too."""
    n_labels = int((audit.statistics.labelled.count.sum(1) > 0).sum())
    rows = f"All {count(audit.scorecard.n_rows, 'row')} have the same predicted class, {audit.constant_class}"
    if not audit.statistics.constant:
        return f"{rows}, although their labels have {n_labels:,} classes."
    confidence = percent(audit.verdict.confidence)
    return (
        f"{rows}, and the same confidence, {confidence}, although their labels have {n_labels:,} classes: the model "
        "does not use its input, and its calibration says nothing about the rows."
    )


def repeated_id_sentence(audit: Audit, column: str) -> str:
    values = f"{column} has {count(audit.repeated_ids[column], 'value')} in {count(audit.scorecard.n_rows, 'row')}"
    return (
        f"Rows may not be independent: {values}. If rows that share one depend on each other, these intervals are too "
        f"narrow and these p-values too small: audit with --cluster {shlex.quote(column)}."
    )


def ci(level: float, interval: str) -> str:
    return f"{level_text(level)} CI {interval}"


# The verdict


def headline(verdict: Verdict) -> str:
    if verdict.kind == "too_few_rows":
        return "Too few rows to assess calibration."
    if verdict.kind == "no_evidence":
        return f"No evidence of miscalibration ({p_value_phrase(verdict.p_value)})."
    if verdict.kind == "no_direction":
        return "Miscalibrated, in no consistent direction."
    if verdict.kind == "mixed" and verdict.crossing is None:
        return "Miscalibrated: overconfident at some confidences, underconfident at others."
    if verdict.kind == "mixed":
        above, below = ("over", "under") if verdict.overconfident_above else ("under", "over")
        return f"Miscalibrated: {above}confident at confidences above {verdict.crossing:.2f}, {below}confident below."
    (low, high), gap, larger = verdict.gap_interval, verdict.gap, "mean confidence exceeds accuracy"
    if verdict.kind == "underconfident":
        (low, high), gap, larger = (-high, -low), -gap, "accuracy exceeds mean confidence"
    size = f"{points(gap)} percentage points ({ci(verdict.level, points_limits((low, high)))})"
    return f"{verdict.kind.capitalize()}: {larger} by {size}."


def evidence(verdict: Verdict) -> str:
    """The ECE with its noise floor, and the p-value of the verdict."""
    ece = f"The expected calibration error (ECE) is {points(verdict.ece)} percentage points"
    floor = f"noise floor {points(verdict.noise_floor)}: what a perfectly calibrated model would show on average"
    tested = f"Joint test of ECE and confidence − accuracy: {p_value_phrase(verdict.p_value)}."
    if verdict.kind == "too_few_rows":
        return f"{ece} ({floor}). {tested}{_excluded_zero(verdict)}"
    if verdict.kind == "no_evidence":
        upper, level = points(verdict.decision_interval[1]), level_text(decision_level(verdict.level))
        limit = f"An ECE of up to {upper} percentage points cannot be ruled out (upper limit of the {level} CI)."
        return f"{ece} ({floor}).{_excluded_zero(verdict)} {limit}"
    ece += f" ({ci(verdict.level, points_limits(verdict.ece_interval))}; {floor})"
    if verdict.single_direction and verdict.kind in DIRECTIONS:
        return f"{ece}. {tested}"
    over, under = points(verdict.overconfidence), points(verdict.underconfidence)
    return f"{ece}, {over} from overconfident and {under} from underconfident bins. {tested}"


def _excluded_zero(verdict: Verdict) -> str:
    """Why there is no evidence although the interval of the gap excludes 0."""
    low, high = verdict.gap_interval
    if low <= 0 <= high:
        return ""
    limit = f"{significance_level(verdict.level) / 2:.3g}"
    return (
        f" The {level_text(verdict.level)} CI of confidence − accuracy excludes 0 ({p_value_phrase(verdict.p_gap)}), "
        f"but with two tests (ECE and confidence − accuracy) significance requires p ≤ {limit}."
    )


def accuracy_sentence(verdict: Verdict, cluster: str | None = None) -> str:
    """Accuracy and confidence, with their difference where the headline does not state it."""
    accuracy, confidence = percent(verdict.accuracy), percent(verdict.confidence)
    rows = _rows(verdict.n_rows, verdict.n_effective, cluster)
    sentence = f"Accuracy is {accuracy} and mean confidence {confidence} on {rows}"
    if verdict.kind in DIRECTIONS:
        return f"{sentence}."
    interval = ci(verdict.level, points_limits(verdict.gap_interval, "+"))
    return f"{sentence}: confidence − accuracy is {points(verdict.gap, '+')} percentage points ({interval})."


def _rows(n_rows: int, n_effective: float, cluster: str | None = None) -> str:
    if abs(n_effective - n_rows) < 0.5 and cluster is None:
        return count(n_rows, "row")
    why = " after weighting" if cluster is None else f": rows of one {cluster} are not independent"
    return f"{count(n_rows, 'row')} (effective sample size {n_effective:,.1f}{why})"


# Groups, another model, risk, temperature


def group_sentence(found: GroupFindings) -> str:
    """The number of miscalibrated groups of a column, and the worst group."""
    group, n, n_groups = found.worst_first[0], found.n_miscalibrated, len(found.cards)
    verdict = group.verdict
    numbers = (
        f"{found.by} = {group_name(group.value)}, with an ECE of {points(verdict.ece)} percentage points "
        f"({ci(verdict.level, points_limits(verdict.ece_interval))}) and confidence − accuracy of "
        f"{points(verdict.gap, '+')} on {count(verdict.n_rows, 'row')}"
    )
    if n_groups == 1:
        finding = "is significantly miscalibrated" if n else "shows no evidence of miscalibration"
        return f"The only group by {found.by} {finding} ({p_value_phrase(group.p_holm)}): {numbers}."
    if n == 0:
        smallest = f"The smallest p-value ({p_value_text(group.p_holm)}, Holm-corrected) is that of {numbers}."
        return f"No evidence of miscalibration in any of {n_groups:,} groups by {found.by}. {smallest}"
    miscalibrated = f"{'is' if n == 1 else 'are'} significantly miscalibrated (Holm-corrected)"
    worst = f"The worst, by the lower limit of the CI of its ECE, is {numbers}."
    return f"{n:,} of {n_groups:,} groups by {found.by} {miscalibrated}. {worst}"


def group_name(group: object) -> str:
    return "(no value)" if group is None else str(group)


def difference_sentence(row: Difference, level: float) -> str:
    """Which model is better in one metric on all rows."""
    title = METRICS[row.metric].title
    name = {"ece": "ECE", "nll": "NLL"}.get(row.metric, title[0].upper() + title[1:])
    values = f"this model {metric_text(row.a)}, the other {metric_text(row.b)}"
    if not math.isfinite(row.difference):
        return f"{name}: the models cannot be compared, because a label has probability 0 ({values})."
    significant = row.p_value <= significance_level(level)
    result = "the models differ significantly" if significant else "no significant difference between the models"
    if significant and METRICS[row.metric].better is not None:
        this = (row.difference > 0) == METRICS[row.metric].higher_is_better
        result = f"{'this' if this else 'the other'} model is significantly better"
    return (
        f"{name}: {result} ({values}; difference "
        f"{metric_text(row.difference, '+')}, {ci(level, interval_text(row.interval, '+'))}; "
        f"{p_value_phrase(row.p_value)})."
    )


def risk_sentences(risks: Sequence[dict[str, Any]], error: float, level: float) -> list[str]:
    """The error rate among the most confident rows. error: that of all rows."""
    if not risks:
        cause = "there are too few rows, or too many share the same confidence"
        return [f"No threshold keeps close to 95, 80 or 50 % of the rows: {cause}."]
    sentences = []
    for row in risks:
        rows = (
            f"the most confident {percent(row['coverage'])} of rows (confidence ≥ {threshold_text(row['threshold'])})"
        )
        rate, overall = percent(row["error"]), percent(error)
        comparison = ", as among all rows" if rate == overall else f", compared with {overall} among all rows"
        interval = ci(level, percent_limits(row["interval"]))
        sentences.append(f"Among {rows}, the error rate is {rate} ({interval}){comparison}.")
    return sentences


VOID_SENTENCES = {
    "weights": "No threshold is certified and no set measured, because rows have weights: both are for rows that "
    "count alike.",
    "cluster": "No threshold is certified and no set measured, because rows of one {cluster} are not independent.",
}
TYPICAL_COVERAGE = 0.95  # of the sets in the summary


def decision_sentence(audit: Audit) -> str:
    """Which rows can be accepted, and how large sets are that hold most labels."""
    found = audit.decision
    if found.void is not None:
        return VOID_SENTENCES[found.void].format(cluster=audit.cluster)
    independent = not (audit.repeated_ids or audit.pooled_shifts)
    certified = certified_sentence(found, "" if independent else ", if rows are independent")
    size = next((row.mean_size for row in found.sets if row.coverage == TYPICAL_COVERAGE), None)
    if size is None:
        return certified
    sets = f"Sets of {size:.2f} classes on average hold {level_text(TYPICAL_COVERAGE)} of the labels."
    return f"{certified} {sets}"


def certified_sentence(found: DecisionFindings, condition: str = "") -> str:
    """The threshold with its promise, or how many rows it would take."""
    error, confidence = level_text(found.max_error), level_text(found.confidence)
    if found.threshold is None:
        n, needed = found.overall.n_rows, found.rows_needed
        least = least_rows(found.max_error, 1 - found.confidence)
        reason = "too many of the most confident rows are wrong"
        if n < least:
            reason = f"that takes at least {least:,} rows, none of them wrong"
        elif needed is not None:
            reason = f"it would take about {needed:,} rows"
        return f"No confidence threshold is certified to keep the error at {error} ({confidence} confidence): {reason}."
    promise = f"at most {error} of them are wrong ({confidence} confidence{condition})"
    if found.threshold == 0:
        return f"All rows can be accepted: {promise}."
    accepted = percent(1 - found.overall.share)
    rows = f"The {accepted} of rows with a confidence of at least {upward_text(found.threshold)}"
    return f"{rows} can be accepted: {promise}."


def decision_commands(found: DecisionFindings, *, top_label: bool = False) -> list[str]:
    """The commands that certify a threshold and fit sets on other rows; without sets for the confidence alone."""
    confidence = "" if found.confidence == LEVEL else f" --level {found.confidence:g}"
    certify = f"calibrant certify val.parquet --max-error {found.max_error:g}{confidence} -o threshold.json"
    sets = "calibrant sets fit val.parquet --method lac --coverage 0.9 -o sets.json"
    return [certify] if top_label else [certify, sets]


def temperature_sentence(effect: TemperatureEffect) -> str:
    """Empty where no temperature could be fitted."""
    if effect.temperature is None:
        return ""
    limits = ""
    if effect.interval is not None:
        limits = f" ({ci(LEVEL, interval_text(effect.interval))})"
    rows = count(effect.n_rows, "row")
    if effect.n_sample != effect.n_rows:
        rows = f"a random sample of {effect.n_sample:,} of {rows}"
    sentence = f"The maximum-likelihood temperature is T = {effect.temperature:.4g}{limits}, fitted on {rows}."
    if effect.influential_rows is not None and effect.influential_rows < FEW_INFLUENTIAL_ROWS:
        sentence += f" About {effect.influential_rows:.0f} of them decide it."
    return sentence


def decomposition_sentence(effect: TemperatureEffect, level: float) -> str:
    """How much of the NLL cross-validated temperature scaling removes."""
    change = effect.changes["nll"]
    rows = "" if effect.n_sample == effect.n_rows else f" (random sample of {effect.n_sample:,} rows)"
    nll = f"the NLL of {metric_text(change.before)}{rows}"
    if change.difference > 0:
        added = f"{metric_text(change.difference)} ({ci(level, interval_text(change.interval))})"
        return f"Recalibration removes nothing of {nll}: temperature scaling adds {added}."
    low, high = change.interval
    removed = f"{metric_text(0.0 - change.difference)} ({ci(level, interval_text((0.0 - high, 0.0 - low)))})"
    return f"Of {nll}, {removed} could be removed by recalibration with a temperature."


# Recommendations

ADVICE_SENTENCES = {  # a sentence that ends with a colon is followed by `advice_command`
    "too_few_rows": "Collect more labelled rows before drawing conclusions: with {rows}, the {level} CI of the ECE is "
    "{ece_interval} percentage points.",
    "retrain": "Train the model again, for example with a smaller learning rate: {rows} have the same prediction, and "
    "no calibrator can tell the correct ones ({accuracy}) from the errors.",
    "no_action": "No recalibration is needed overall: the {level} CI of the ECE ends at {ece_upper} percentage points.",
    "no_evidence": "Recalibration is not indicated overall: there is no evidence of miscalibration ({p_value}), "
    "although an ECE of up to {ece_upper} percentage points cannot be ruled out (upper limit of the {level} CI).",
    "negligible": "Recalibration would change little overall: the miscalibration is significant but small, with an ECE "
    "of {ece} percentage points, whose {level} CI ends at {ece_upper}.",
    "temperature_scaling": "Recalibrate with temperature scaling: {effect}.{remaining} Fit it on a separate validation "
    "set:",
    "flexible_calibrator": "Temperature scaling is not enough: {effect}; {failure}. Fit a more flexible calibrator on "
    "a separate validation set:",
    "recalibrate": "Recalibrate: {finding}. The effect of temperature scaling could not be measured on these rows; fit "
    "a temperature on a separate validation set:",
    "recalibrate_confidence": "Recalibrate the confidence: {finding}. Fit an increasing function of it on a separate "
    "validation set:",
    "recalibrate_confidence_per_group": "Recalibrate the groups by {by} separately: {groups}. Fit a calibrator of the "
    "confidence, such as isotonic, to the rows of each group.",
    "no_single_calibrator": "One calibrator for all rows would not fix the groups by {columns}: confidence − accuracy "
    "differs significantly between them. On all rows together, {overall}.",
    "recalibrate_per_group": "Recalibrate the groups by {by} separately: {groups}. Fit a temperature for each group:",
    "recalibrate_per_class": "Consider a calibrator with parameters per class: where {over_class} is predicted, "
    "confidence exceeds accuracy by {over_gap} percentage points; where {under_class} is predicted, accuracy exceeds "
    "confidence by {under_gap}. One temperature changes both in the same direction; vector scaling may correct both:",
    "avoid_threshold": "Do not use a confidence threshold of {threshold} to obtain an accuracy of {threshold}: of "
    "{rows} with a higher confidence, {accuracy} are correct ({level} CI {interval}).",
    "wide_interval": "Collect more labelled rows: with {rows} the {level} CI of the ECE is {width} percentage "
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
    "p_value": p_value_phrase,
    "threshold": level_text,
}


def advice_sentence(advice: Advice) -> str:
    facts = advice.facts
    texts = {name: as_text(facts[name]) for name, as_text in FACT_FORMATS.items() if name in facts}
    if "n_rows" in facts:
        texts["rows"] = _rows(facts["n_rows"], facts.get("n_effective", facts["n_rows"]), facts.get("cluster"))
        source = f" rows, of four times as many values of {facts['cluster']}" if "cluster" in facts else ""
        texts["four_times"] = f"{4 * facts['n_rows']:,}{source}"
    if "ece_interval" in facts:
        low, high = facts["ece_interval"]
        texts["width"] = points(high - low)
    if "significant" in facts:
        texts |= _effect_texts(facts)
    if "by" in facts:
        texts |= {"by": facts["by"], "groups": _group_gaps(facts)}
    if "overconfident" in facts:
        over, under = facts["overconfident"], facts["underconfident"]
        texts |= {"over_class": over["class"], "over_gap": points(over["gap"])}
        texts |= {"under_class": under["class"], "under_gap": points(-under["gap"])}
    return ADVICE_SENTENCES[advice.action].format(**texts)


def advice_command(advice: Advice) -> str:
    """The command that fits the recommended calibrator; empty where there is none."""
    if "calibrator" not in advice.facts:
        return ""
    calibrator = advice.facts["calibrator"]
    domain = f" --domain {shlex.quote(advice.facts['by'])}" if "by" in advice.facts else ""
    return f"calibrant fit val.parquet --calibrator {calibrator}{domain} -o {calibrator[0]}.json"


def _effect_texts(facts: dict[str, Any]) -> dict[str, str]:
    """What is significant, and the effect of temperature scaling where it was measured."""
    if facts["significant"] == "gap":
        finding = f"confidence − accuracy of {points(facts['gap'], '+')} percentage points differs significantly from 0"
    else:
        larger = "is significantly larger than expected of a perfectly calibrated model on these rows"
        finding = f"the ECE of {points(facts['ece'])} percentage points {larger}"
    if "temperature" not in facts:
        return {"finding": finding, "overall": finding}
    (ece, ece_after), (nll, nll_after) = facts["ece_change"], facts["nll_change"]
    effect = (
        f"in {TEMPERATURE_FOLDS}-fold cross-validation it changes the ECE from {points(ece)} to {points(ece_after)} "
        f"percentage points and the NLL from {metric_text(nll)} to {metric_text(nll_after)} "
        f"(T = {facts['temperature']:.3g} on all rows)"
    )
    failure = "neither decreases significantly"
    if facts["worsened"]:
        increase = "increases" if len(facts["worsened"]) == 1 else "increase"
        failure = f"the {join_words(map(str.upper, facts['worsened']))} {increase} significantly"
    remaining = ""
    if facts.get("ece_remaining", 0) > 0:
        lower = f"lower limit of the {level_text(facts['level'])} CI"
        at_least = f"at least {points(facts['ece_remaining'])} percentage points"
        remaining = f" After scaling, an ECE of {at_least} remains ({lower})."
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
    signs = ", with opposite signs" if facts["opposite_signs"] else ""
    return f"confidence − accuracy differs significantly between them{signs}: {join_words(texts)}"
