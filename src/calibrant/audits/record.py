"""An audit as JSON: plain dicts, lists, numbers and text, of the schema that docs/audit.md states."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from calibrant._files import without_secrets
from calibrant.audits import curves
from calibrant.audits.gather import ErrorRow
from calibrant.audits.groups import Group, GroupFindings
from calibrant.errors import UndefinedMetricError
from calibrant.metrics.compare import Difference
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import Groups
from calibrant.metrics.table import METRICS

if TYPE_CHECKING:
    from calibrant.audits import Audit

VERDICT = ("gap", "gap_interval", "p_value", "miscalibrated")  # properties that the record has beside the fields


def audit_record(audit: "Audit", names: tuple[str, ...]) -> dict[str, Any]:
    """The record, with these metrics."""
    rows = audit.rows
    record = {
        "files": audit.files,
        "compared_with": audit.other_files,
        **_card(audit, audit.scorecard, names),
        "seed": audit.seed,
        "weights": audit.weights,
        "n_left_out": audit.n_left_out,
        "fingerprint": rows.fingerprint,
        "reliability": curves.reliability(audit.scorecard.top_bins, audit.level),
        "risk": curves.risk(audit.scorecard.top_histogram, audit.level),
        "verdict": _with(audit.verdict, *VERDICT),
        "advice": [{"action": advice.action, **advice.facts} for advice in audit.advice],
        "groups": {by: _groups(audit, found, names) for by, found in audit.groups.items()},
        "classes": [_with(row, "gap") for row in audit.classes],
        "temperature": audit.temperature,
        "errors": [_error(audit, row) for row in rows.errors],
        "comparison": [_difference(by, row) for by, row in compared(audit, names)],
        "gates": [{**asdict(gate), "failed": gate in audit.failed} for gate in audit.gates],
        "failed": [gate.describe(audit.scorecard) for gate in audit.failed],
    }
    plain: dict[str, Any] = _plain(record)
    return plain


def _card(audit: "Audit", card: Scorecard, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "n_rows": card.n_rows,
        "n_classes": card.n_classes,
        "n_bins": card.n_bins,
        "level": audit.level,
        "metrics": {name: metric_record(card, name, audit.level, audit.seed) for name in names},
    }


def metric_record(card: Scorecard, name: str, level: float, seed: int) -> dict[str, Any]:
    """A metric with what it is worth; None where it is undefined, or no calibration error."""
    value = card.get(name)
    return {
        "value": value,
        "interval": None if value is None else card.interval(name, level=level, seed=seed),
        "noise_floor": None if METRICS[name].floor is None else card.noise_floor(name, seed=seed),
        "error_bound": card.error_bound(name),
    }


def _groups(audit: "Audit", found: GroupFindings, names: tuple[str, ...]) -> dict[str, Any]:
    judged = {group.value: group for group in found.rows}
    return {
        "groups": [
            {"group": _text(value), **_card(audit, card, names), **_judged(judged.get(value))}
            for value, card in found.cards.items()
        ],
        "worst": {name: _text(value) for name, value in _worst(found.cards, names)},
        "worst_first": [_text(group.value) for group in found.rows],
        "n_miscalibrated": found.n_miscalibrated,
        "apart": found.apart and [_text(group.value) for group in found.apart],
    }


def _judged(group: Group | None) -> dict[str, Any]:
    """None where there are too many groups to judge each."""
    if group is None:
        return {"verdict": None, "p_holm": None, "miscalibrated": None}
    return {"verdict": _with(group.verdict, *VERDICT), "p_holm": group.p_holm, "miscalibrated": group.miscalibrated}


def _worst(groups: Groups, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name in names:
        try:
            yield name, groups.worst(name)[0]
        except UndefinedMetricError:
            continue


def compared(audit: "Audit", names: tuple[str, ...]) -> list[tuple[str | None, Difference]]:
    """The differences of these metrics, with the column they are by: all rows once, then the groups of each column."""
    found = [(by, row) for by, rows in audit.comparison.items() for row in rows if row.metric in names]
    overall = [(None, row) for by, row in found if row.overall and by == next(iter(audit.comparison))]
    return [*overall, *((by, row) for by, row in found if not row.overall)]


def _error(audit: "Audit", row: ErrorRow) -> dict[str, Any]:
    names = {"label": audit.rows.class_name(row.label), "predicted": audit.rows.class_name(row.predicted)}
    ids = dict(zip(audit.id_columns, row.ids, strict=True))
    return {"file": without_secrets(row.file), "row": row.row, "ids": ids, **names, "confidence": 1 - row.doubt}


def _difference(by: str | None, row: Difference) -> dict[str, Any]:
    fields = asdict(row)
    del fields["overall"]
    return {**fields, "by": by, "group": _text(row.group)}


def _text(group: Any) -> str | None:
    return None if group is None else str(group)


def _with(value: Any, *properties: str) -> dict[str, Any]:
    """The fields of a value, and some properties."""
    return {**asdict(value), **{name: getattr(value, name) for name in properties}}


def _plain(value: Any) -> Any:
    """What JSON has: no infinity, which becomes text, and no values of columns but text."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)
