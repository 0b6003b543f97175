"""The recommendations of an audit, each with the numbers behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibrant.audits.classes import ClassRow, opposite_classes
from calibrant.audits.groups import Group, GroupFindings
from calibrant.audits.temperature import TemperatureEffect
from calibrant.audits.verdict import Verdict, decision_level

WIDE_ECE_INTERVAL = 0.04  # where the interval is wider, more rows are recommended
NEGLIGIBLE_ECE = 0.01  # no recalibration where the upper limit of the ECE is at most this


@dataclass(frozen=True, slots=True)
class Advice:
    """One recommendation.

    Args:
        action: "too_few_rows" alone, where there are too few. Otherwise first one for all rows: "retrain", where all
            predictions are the same, "no_action", "no_evidence", "negligible", "temperature_scaling",
            "flexible_calibrator", "recalibrate", "recalibrate_confidence" or "no_single_calibrator"; then any of
            "recalibrate_per_group" (or "recalibrate_confidence_per_group"), "recalibrate_per_class", "avoid_threshold"
            and "wide_interval". `docs/audit.md` explains each.
        facts: The numbers behind it, and the recommended ``calibrator`` for `calibrant fit`.
    """

    action: str
    facts: dict[str, Any]


def advise(
    verdict: Verdict,
    temperature: TemperatureEffect,
    groups: Sequence[GroupFindings] = (),
    classes: Sequence[ClassRow] = (),
    high_confidence: dict[str, Any] | None = None,
    cluster: str | None = None,
    *,
    constant: bool = False,
    top_label: bool = False,
) -> tuple[Advice, ...]:
    """The recommendations, the most important first; at least one."""
    low, high = verdict.decision_interval
    rows = {"n_rows": verdict.n_rows, "ece_interval": (low, high), "level": decision_level(verdict.level)}
    if cluster is not None:
        rows |= {"n_effective": verdict.n_effective, "cluster": cluster}
    if verdict.kind == "too_few_rows":
        return (Advice("too_few_rows", {**rows, "n_effective": verdict.n_effective}),)
    different = [found for found in groups if found.most_different is not None]
    advice = [_overall(verdict, temperature, [found.by for found in different], top_label)]
    if constant:
        advice = [Advice("retrain", {"n_rows": verdict.n_rows, "accuracy": verdict.accuracy})]
    advice += [_per_group(found, top_label) for found in different]
    if opposite := opposite_classes(classes, verdict.level):
        over, under = ({"class": row.name, "gap": row.gap} for row in opposite)
        facts = {"overconfident": over, "underconfident": under, "calibrator": "vector"}
        advice.append(Advice("recalibrate_per_class", facts))
    if high_confidence is not None and high_confidence["interval"][1] < high_confidence["threshold"]:
        advice.append(Advice("avoid_threshold", {**high_confidence, "level": rows["level"]}))
    if high - low > WIDE_ECE_INTERVAL:
        advice.append(Advice("wide_interval", rows))
    return tuple(advice)


def _overall(verdict: Verdict, effect: TemperatureEffect, columns: Sequence[str], top_label: bool) -> Advice:
    """The advice for all rows: no calibrator where the groups of some columns need different ones."""
    upper = verdict.decision_interval[1]
    facts: dict[str, Any] = {"ece": verdict.ece, "ece_upper": upper, "level": decision_level(verdict.level)}
    if upper <= NEGLIGIBLE_ECE:
        return Advice("negligible" if verdict.miscalibrated else "no_action", facts)
    if not verdict.miscalibrated:
        return Advice("no_evidence", {**facts, "noise_floor": verdict.noise_floor, "p_value": verdict.p_value})
    facts = {"significant": "ece", "ece": verdict.ece}
    if not verdict.significant_ece:
        facts = {"significant": "gap", "gap": verdict.gap}
    if effect.changes:
        changes = {f"{name}_change": (change.before, change.after) for name, change in effect.changes.items()}
        facts |= {"temperature": effect.temperature, **changes, "helps": effect.helps, "worsened": effect.worsened}
    if columns:
        return Advice("no_single_calibrator", {**facts, "columns": list(columns)})
    if top_label:
        return Advice("recalibrate_confidence", {**facts, "calibrator": "isotonic"})
    if not effect.changes:
        return Advice("recalibrate", {**facts, "calibrator": "temperature"})
    if not effect.helps:
        return Advice("flexible_calibrator", {**facts, "calibrator": "spline"})
    remaining = {"ece_remaining": effect.changes["ece"].after_lower_limit, "level": decision_level(verdict.level)}
    return Advice("temperature_scaling", {**facts, **remaining, "calibrator": "temperature"})


def _per_group(found: GroupFindings, top_label: bool) -> Advice:
    assert found.most_different is not None
    largest, smallest = map(_group_facts, found.most_different)
    facts = {"by": found.by, "largest_gap": largest, "smallest_gap": smallest, "opposite_signs": found.opposite_signs}
    if top_label:
        return Advice("recalibrate_confidence_per_group", facts)
    return Advice("recalibrate_per_group", {**facts, "calibrator": "domain_temperature"})


def _group_facts(group: Group) -> dict[str, Any]:
    name = None if group.value is None else str(group.value)
    return {"group": name, "gap": group.verdict.gap, "significant": group.significant_gap}
