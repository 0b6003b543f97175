"""All numbers of an audit's page, from scorecards, one more pass over the rows and a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from calibrant.metrics.compare import Difference
from calibrant.metrics.exact import share_limits
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.workers import FileScores
from calibrant.report.audit.advice import ClassTrouble, Situation, Sure, advice
from calibrant.report.audit.classes import ClassRow, class_rows
from calibrant.report.audit.curves import Bar, ReliableBin, RiskCurve, bars, reliable_bins, risk_curve
from calibrant.report.audit.groups import RELEVANT, GroupTable, group_table
from calibrant.report.audit.reading import Reading, Share
from calibrant.report.audit.temperature import TemperatureEffect, temperature_effect
from calibrant.report.audit.verdict import Shares, Verdict, alpha, judge, strict


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition of --fail-if, and whether it holds."""

    text: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the rows come from, and what made the page."""

    files: tuple[str, ...]
    columns: tuple[str, ...]
    weights: str | None
    seed: int
    version: str
    time: str
    command: str = ""
    other_files: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class AuditNumbers:
    """What the page shows; None where the scorecard was made without what it needs."""

    card: Scorecard
    reading: Reading
    shares: Shares
    verdict: Verdict | None
    bins: tuple[ReliableBin, ...] | None
    bars: tuple[Bar, ...]
    risk: RiskCurve | None
    groups: Mapping[str, GroupTable | None]
    classes: tuple[ClassRow, ...]
    temperature: TemperatureEffect
    advice: tuple[str, ...]
    provenance: Provenance
    level: float
    differences: Mapping[str | None, Sequence[Difference]] = field(default_factory=dict)
    gates: tuple[Gate, ...] = ()


def audit_numbers(
    scores: FileScores,
    reading: Reading,
    provenance: Provenance,
    *,
    level: float,
    differences: Mapping[str | None, Sequence[Difference]] | None = None,
    gates: Sequence[Gate] = (),
) -> AuditNumbers:
    card, seed = scores.overall, provenance.seed
    verdict = judge(card, level, seed)
    groups = {by: group_table(found, level, seed) for by, found in scores.groups.items()}
    classes = class_rows(reading, card.classes)
    effect = temperature_effect(
        reading.sample,
        reading.n_rows,
        weighted=provenance.weights is not None,
        n_bins=card.n_bins,
        level=level,
        seed=seed,
    )
    return AuditNumbers(
        card=card,
        reading=reading,
        shares=shares_of_classes(reading, level) if verdict is None else verdict.shares,
        verdict=verdict,
        bins=None if card.top.bins is None else reliable_bins(card.top.bins, level),
        bars=bars(reading),
        risk=None if card.top.cells is None else risk_curve(card.top_cells, level),
        groups=groups,
        classes=classes,
        temperature=effect,
        advice=tuple(_advice(verdict, effect, groups, classes, reading.sure, level)),
        provenance=provenance,
        level=level,
        differences=differences or {},
        gates=tuple(gates),
    )


def _advice(
    verdict: Verdict | None,
    effect: TemperatureEffect,
    groups: Mapping[str, GroupTable | None],
    classes: Sequence[ClassRow],
    sure: Share,
    level: float,
) -> list[str]:
    if verdict is None:
        return []
    tables = [table for table in groups.values() if table is not None]
    disagreements = tuple((table.by, table.disagreement) for table in tables if table.disagreement is not None)
    return advice(Situation(verdict, effect, disagreements, class_trouble(classes, level), sure_rows(sure, level)))


def shares_of_classes(reading: Reading, level: float) -> Shares:
    """Accuracy and confidence of all rows, from the sums by predicted class."""
    found = reading.classes
    total = float(found.weight.sum())
    effective = total**2 / float(found.squared.sum())
    accuracy = float(found.right.sum()) / total
    limits = share_limits(accuracy * effective, effective, level)
    return Shares(reading.n_rows, effective, accuracy, limits, float(found.confidence.sum()) / total)


def sure_rows(sure: Share, level: float) -> Sure | None:
    if sure.count == 0:
        return None
    accuracy = sure.right / sure.weight
    return Sure(sure.count, accuracy, share_limits(accuracy * sure.effective, sure.effective, strict(level)))


def class_trouble(classes: Sequence[ClassRow], level: float) -> ClassTrouble | None:
    """Where some class is over-confident and another under-confident beyond chance, and not by a trifle."""
    known = [(row.gap, row.name) for row in classes if row.gap is not None and row.p_holm <= alpha(level)]
    if not known:
        return None
    (most, over), (least, under) = max(known), min(known)
    if most < RELEVANT or least > -RELEVANT:
        return None
    return ClassTrouble(over, most, under, least)
