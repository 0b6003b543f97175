"""What to do after an audit: actions, each with the numbers that it follows from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibrant.audits.classes import ClassRow, opposed_classes
from calibrant.audits.curves import SURE, Record
from calibrant.audits.groups import Group, GroupFindings
from calibrant.audits.temperature import TemperatureEffect
from calibrant.audits.verdict import Verdict, strict

WIDE = 0.04  # width of an interval of the ECE that deserves more rows
SMALL = 0.01  # an upper limit that deserves nothing more


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do.

    Args:
        action: What: "collect_rows" before anything else; of all rows "none_needed", "none_shown", "none_small",
            "temperature", "more_freedom" than a temperature has, "recalibrate", or "not_one_calibrator" where groups
            disagree; then "per_group", "per_class", "no_threshold" and "more_rows".
        facts: The numbers, and the ``calibrator`` of `calibrant fit` where one is advised.
    """

    action: str
    facts: Record


def advise(
    verdict: Verdict,
    temperature: TemperatureEffect,
    groups: Sequence[GroupFindings] = (),
    classes: Sequence[ClassRow] = (),
    sure: Record | None = None,
) -> tuple[Advice, ...]:
    """What to do, the most important first; at least one thing."""
    level = strict(verdict.level)
    low, high = verdict.wide_interval
    if verdict.kind == "few":
        facts = {"n_rows": verdict.n_rows, "effective": verdict.effective, "ece_interval": (low, high), "level": level}
        return (Advice("collect_rows", facts),)
    apart = [found for found in groups if found.apart is not None]
    advice = [_of_all_rows(verdict, temperature, [found.by for found in apart])]
    advice += [_per_group(found) for found in apart]
    if opposed := opposed_classes(classes, verdict.level):
        names = {
            side: {"class": row.name, "gap": row.gap} for side, row in zip(("over", "under"), opposed, strict=True)
        }
        advice.append(Advice("per_class", {**names, "calibrator": "vector"}))
    if sure is not None and sure["interval"][1] < SURE:
        advice.append(Advice("no_threshold", {**sure, "level": level}))
    if high - low > WIDE:
        advice.append(Advice("more_rows", {"n_rows": verdict.n_rows, "ece_interval": (low, high), "level": level}))
    return tuple(advice)


def _of_all_rows(verdict: Verdict, temperature: TemperatureEffect, columns: Sequence[str]) -> Advice:
    """Where groups disagree, nothing that would be done to all of them alike."""
    upper = {"ece": verdict.ece, "ece_upper": verdict.wide_interval[1], "level": strict(verdict.level)}
    small = verdict.wide_interval[1] <= SMALL
    if not verdict.miscalibrated and small:
        return Advice("none_needed", upper)
    if not verdict.miscalibrated:
        return Advice("none_shown", {**upper, "noise_floor": verdict.noise_floor, "p_value": verdict.p_value})
    if small:
        return Advice("none_small", upper)
    facts: dict[str, Any] = {"shown_by": "ece", "ece": verdict.ece}
    if not verdict.by_ece:
        facts = {"shown_by": "gap", "gap": verdict.gap}
    if temperature.changes:
        facts |= _of_temperature(temperature)
    if columns:
        return Advice("not_one_calibrator", {**facts, "columns": list(columns)})
    if not temperature.changes:
        return Advice("recalibrate", {**facts, "calibrator": "temperature"})
    if not temperature.helps:
        return Advice("more_freedom", {**facts, "calibrator": "spline"})
    left = {"ece_stays": temperature.changes["ece"].stays, "level": strict(verdict.level)}
    return Advice("temperature", {**facts, **left, "calibrator": "temperature"})


def _of_temperature(effect: TemperatureEffect) -> Record:
    moved = {f"{name}_change": (change.before, change.after) for name, change in effect.changes.items()}
    return {"temperature": effect.temperature, **moved, "helps": effect.helps, "worse": effect.worse}


def _per_group(found: GroupFindings) -> Advice:
    assert found.apart is not None
    most, least = map(_group, found.apart)
    sides = {"most": most, "least": least, "in_sign": found.in_sign}
    return Advice("per_group", {"by": found.by, **sides, "calibrator": "domain_temperature"})


def _group(group: Group) -> Record:
    return {"group": None if group.value is None else str(group.value), "gap": group.verdict.gap, "off": group.off}
