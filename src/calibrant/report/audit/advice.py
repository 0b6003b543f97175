"""What to do after an audit: sentences, each of which follows from a number that it names."""

import shlex
from dataclasses import dataclass

from calibrant.report.audit.groups import Disagreement
from calibrant.report.audit.temperature import TemperatureEffect
from calibrant.report.audit.verdict import Verdict
from calibrant.report.audit.wording import (
    counted,
    group_name,
    level_text,
    listed,
    number,
    percent,
    points,
    share_limits_text,
    to,
)

WIDE = 0.04  # width of an interval of the ECE that deserves more rows
SMALL = 0.01  # an upper limit that deserves nothing more
FIT = "calibrant fit val.parquet --method"


@dataclass(frozen=True, slots=True)
class Sure:
    """The rows with a confidence of at least 0.9."""

    n_rows: int
    accuracy: float
    interval: tuple[float, float]


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
            f"{to(verdict.interval)} points."
        ]
    found = [of_error(verdict, situation.temperature) if verdict.shown else of_nothing(verdict)]
    found += [of_groups(by, groups) for by, groups in situation.disagreements]
    if situation.classes is not None:
        found.append(of_classes(situation.classes))
    if situation.sure is not None and situation.sure.interval[1] < 0.9:
        found.append(of_threshold(situation.sure, verdict.level))
    width = verdict.interval[1] - verdict.interval[0]
    if width > WIDE:
        found.append(of_more_rows(verdict, width))
    return found


def of_nothing(verdict: Verdict) -> str:
    if verdict.interval[1] <= SMALL:
        return (
            f"Nothing needs to be mended on the whole: the ECE is at most {points(verdict.interval[1])} points "
            f"(upper limit of the {level_text(verdict.level)} interval)."
        )
    return (
        f"Nothing is shown that a calibrator should mend on the whole: the ECE of {points(verdict.ece)} points is what "
        f"chance gives a calibrated model ({points(verdict.floor)}), though up to {points(verdict.interval[1])} could "
        "hide."
    )


def of_error(verdict: Verdict, effect: TemperatureEffect | None) -> str:
    """Of an error beyond chance: whether it matters, and whether one number mends it."""
    if verdict.interval[1] <= SMALL:
        return (
            f"The error is beyond chance but small: an ECE of {points(verdict.ece)} points, at most "
            f"{points(verdict.interval[1])} (upper limit of the {level_text(verdict.level)} interval); few uses need "
            "more."
        )
    if effect is None or effect.ece is None or effect.nll is None or effect.temperature is None:
        return (
            f"Recalibrate: the ECE of {points(verdict.ece)} points is beyond chance. What a temperature would change "
            f"could not be measured on these rows; fit one on a validation set: {FIT} temperature -o t.json."
        )
    ece, nll = effect.ece, effect.nll
    numbers = (
        f"T = {effect.temperature:.3g} moves the ECE from {points(ece.before)} to {points(ece.after)} points and the "
        f"NLL from {number(nll.before)} to {number(nll.after)} on rows that it was not fitted on"
    )
    worse = [name for name, change in (("ECE", ece), ("NLL", nll)) if change.worse]
    if worse or not (ece.better or nll.better):
        why = f"the {listed(worse)} is worse" if worse else "neither is better"
        return (
            f"A temperature does not mend this: {numbers}, and {why} beyond chance. Try a calibrator with more freedom "
            f"on a validation set: {FIT} spline -o s.json."
        )
    left = ""
    if ece.after_interval[0] > 0:
        left = f" At least {points(ece.after_interval[0])} points of ECE would stay."
    return f"Scale by a temperature: {numbers}. Fit it on a separate validation set: {FIT} temperature -o t.json.{left}"


def of_groups(by: str, groups: Disagreement) -> str:
    most, least = (
        f"{by} {group_name(group)} is {'over' if gap > 0 else 'under'}-confident by {points(abs(gap))} points"
        for group, gap in ((groups.most, groups.most_gap), (groups.least, groups.least_gap))
    )
    what = "in sign" if groups.in_sign else "in size"
    return (
        f"Recalibrate per {by}: its groups disagree {what} beyond chance: {most} and {least} (confidence less "
        f"accuracy), so one calibrator for all is not right for both; a temperature for each: {FIT} domain_temperature "
        f"--domain {shlex.quote(by)} -o d.json."
    )


def of_classes(classes: ClassTrouble) -> str:
    return (
        f"Look at the classes: where {classes.over} is predicted, confidence exceeds accuracy by "
        f"{points(classes.over_gap)} points, where {classes.under} is, it falls short by "
        f"{points(abs(classes.under_gap))}. One temperature moves all classes the same way; vector scaling does not: "
        f"{FIT} vector -o v.json."
    )


def of_threshold(sure: Sure, level: float) -> str:
    return (
        f"Do not threshold at 0.9 to be right 9 times in 10: of the {sure.n_rows:,} rows with a confidence of at least "
        f"0.9, {percent(sure.accuracy)} are right ({level_text(level)} interval {share_limits_text(sure.interval)})."
    )


def of_more_rows(verdict: Verdict, width: float) -> str:
    rows = verdict.shares.n_rows
    return (
        f"Collect more rows: the interval of the ECE is {points(width)} points wide on {rows:,} rows; about four times "
        f"as many ({4 * rows:,}) would halve it."
    )
