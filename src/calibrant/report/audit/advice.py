"""What to do after an audit: sentences, each of which follows from a number that it names."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from calibrant.report.audit.groups import Disagreement
from calibrant.report.audit.temperature import TemperatureEffect
from calibrant.report.audit.verdict import Verdict, strict
from calibrant.report.audit.wording import (
    chance,
    counted,
    group_name,
    level_text,
    n_rows,
    number,
    percent,
    points,
    share_limits_text,
    to,
)
from calibrant.report.numbers import joined

WIDE = 0.04  # width of an interval of the ECE that deserves more rows
SMALL = 0.01  # an upper limit that deserves nothing more
FIT = "calibrant fit val.parquet --method"


@dataclass(frozen=True, slots=True)
class Sure:
    """The rows with a confidence of at least 0.9."""

    n_rows: int
    accuracy: float
    interval: tuple[float, float]  # at a level of at least 95 %


@dataclass(frozen=True, slots=True)
class ClassTrouble:
    """The classes that err most in either direction where they are predicted, beyond chance for all at once."""

    over: str
    over_gap: float
    under: str
    under_gap: float  # confidence less accuracy: negative


@dataclass(frozen=True, slots=True)
class Situation:
    """What an audit has found, as far as something can be done about it."""

    verdict: Verdict
    temperature: TemperatureEffect | None = None
    disagreements: tuple[tuple[str, Disagreement], ...] = ()  # by column
    classes: ClassTrouble | None = None
    sure: Sure | None = None


def advice(situation: Situation) -> list[str]:
    """At least one sentence."""
    verdict = situation.verdict
    if verdict.kind == "few":
        return [
            f"Collect more rows before anything else: on {counted(verdict.shares)} the ECE may be anything from "
            f"{to(verdict.wide_interval)} points."
        ]
    found = [of_whole(situation)]
    found += [of_groups(by, groups) for by, groups in situation.disagreements]
    if situation.classes is not None:
        found.append(of_classes(situation.classes))
    if situation.sure is not None and situation.sure.interval[1] < 0.9:
        found.append(of_threshold(situation.sure, verdict.level))
    width = verdict.wide_interval[1] - verdict.wide_interval[0]
    if width > WIDE:
        found.append(of_more_rows(verdict, width))
    return found


def of_whole(situation: Situation) -> str:
    """Of all rows; where groups disagree, nothing that would be done to all of them alike."""
    verdict = situation.verdict
    if not verdict.shown:
        return of_nothing(verdict)
    if verdict.wide_interval[1] <= SMALL:
        return of_small(verdict)
    effect = situation.temperature
    if situation.disagreements:
        return of_error_in_groups(verdict, effect, [by for by, _ in situation.disagreements])
    return of_error(verdict, effect)


def of_nothing(verdict: Verdict) -> str:
    if verdict.wide_interval[1] <= SMALL:
        return (
            f"Nothing needs to be mended on the whole: the ECE is at most {points(verdict.wide_interval[1])} points "
            f"({upper_limit(verdict)})."
        )
    return (
        f"Nothing is shown that a calibrator should mend on the whole: the ECE of {points(verdict.ece)} points is not "
        f"beyond what chance gives a calibrated model ({points(verdict.floor)} on average; {chance(verdict.p_value)}), "
        f"though up to {points(verdict.wide_interval[1])} could hide."
    )


def of_small(verdict: Verdict) -> str:
    return (
        f"On the whole the error is beyond chance but small: an ECE of {points(verdict.ece)} points, at most "
        f"{points(verdict.wide_interval[1])} ({upper_limit(verdict)}); few uses need more."
    )


def upper_limit(verdict: Verdict) -> str:
    return f"upper limit of the {level_text(strict(verdict.level))} interval"


def what_is_wrong(verdict: Verdict) -> str:
    """The number that is beyond chance."""
    if verdict.by_ece:
        return f"the ECE of {points(verdict.ece)} points is beyond chance"
    return f"confidence less accuracy of {points(verdict.shares.gap, '+')} points is beyond chance"


def of_error(verdict: Verdict, effect: TemperatureEffect | None) -> str:
    """Of an error beyond chance that matters: whether one number mends it."""
    numbers = what_it_changes(effect)
    if effect is None or effect.ece is None or not numbers:
        return (
            f"Recalibrate: {what_is_wrong(verdict)}. What a temperature would change could not be measured on these "
            f"rows; fit one on a validation set: {FIT} temperature -o t.json."
        )
    if why := what_fails(effect):
        return (
            f"A temperature does not mend this: {numbers}, and {why} beyond chance. Try a calibrator with more freedom "
            f"on a validation set: {FIT} spline -o s.json."
        )
    left = ""
    if effect.ece.stays > 0:
        limit = f"lower limit of the {level_text(strict(verdict.level))} interval"
        left = f" At least {points(effect.ece.stays)} points of ECE would stay ({limit})."
    return f"Scale by a temperature: {numbers}. Fit it on a separate validation set: {FIT} temperature -o t.json.{left}"


def of_error_in_groups(verdict: Verdict, effect: TemperatureEffect | None, columns: Sequence[str]) -> str:
    """The same where groups disagree: what one temperature does on the whole is said, and not advised."""
    numbers = what_it_changes(effect)
    but = f"but one calibrator is not right for all groups of {joined(columns)}"
    if effect is None or not numbers:
        return f"On the whole {what_is_wrong(verdict)}, {but}."
    why = what_fails(effect)
    mends = f"does not mend this: {numbers}, and {why} beyond chance" if why else f"would help: {numbers}"
    return f"On the whole one temperature {mends}; {but}."


def what_it_changes(effect: TemperatureEffect | None) -> str:
    """Empty where it could not be measured."""
    if effect is None or effect.ece is None or effect.nll is None or effect.temperature is None:
        return ""
    ece, nll = effect.ece, effect.nll
    return (
        f"T = {effect.temperature:.3g} moves the ECE from {points(ece.before)} to {points(ece.after)} points and the "
        f"NLL from {number(nll.before)} to {number(nll.after)} on rows that it was not fitted on"
    )


def what_fails(effect: TemperatureEffect) -> str:
    """Why a temperature that was measured is not advised; empty where it is."""
    changes = [(name, change) for name, change in (("ECE", effect.ece), ("NLL", effect.nll)) if change is not None]
    worse = [name for name, change in changes if change.worse]
    if worse:
        return f"the {joined(worse)} {'is' if len(worse) == 1 else 'are'} worse"
    return "" if any(change.better for _, change in changes) else "neither is better"


def of_groups(by: str, groups: Disagreement) -> str:
    most = group_finding(by, groups.most, groups.most_gap, shown=groups.most_shown)
    least = group_finding(by, groups.least, groups.least_gap, shown=groups.least_shown)
    what = "in sign" if groups.in_sign else "in size"
    return (
        f"Recalibrate per {by}: its groups disagree {what} beyond chance: {most} and {least} (confidence less "
        f"accuracy), so one calibrator for all is not right for both; a temperature for each: {FIT} domain_temperature "
        f"--domain {shlex.quote(by)} -o d.json."
    )


def group_finding(by: str, group: object, gap: float, *, shown: bool) -> str:
    """A direction only where the group's own gap is beyond chance."""
    name = f"{by} {group_name(group)}"
    if not shown:
        return f"{name} is not shown to be off in either direction ({points(gap, '+')} points)"
    return f"{name} is {'over' if gap > 0 else 'under'}-confident by {points(abs(gap))} points"


def of_classes(classes: ClassTrouble) -> str:
    return (
        f"Look at the classes: where {classes.over} is predicted, confidence exceeds accuracy by "
        f"{points(classes.over_gap)} points, where {classes.under} is, it falls short by "
        f"{points(abs(classes.under_gap))}. One temperature moves all classes the same way; vector scaling does not: "
        f"{FIT} vector -o v.json."
    )


def of_threshold(sure: Sure, level: float) -> str:
    limits = f"{level_text(strict(level))} interval {share_limits_text(sure.interval)}"
    return (
        f"Do not threshold at 0.9 to be right 9 times in 10: of the {sure.n_rows:,} rows with a confidence of at least "
        f"0.9, {percent(sure.accuracy)} are right ({limits})."
    )


def of_more_rows(verdict: Verdict, width: float) -> str:
    rows = verdict.shares.n_rows
    return (
        f"Collect more rows: the {level_text(strict(verdict.level))} interval of the ECE is {points(width)} points "
        f"wide on {n_rows(rows)}; about four times as many ({4 * rows:,}) would halve it."
    )
