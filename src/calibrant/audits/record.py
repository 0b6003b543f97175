"""An audit as JSON: dicts, lists, numbers and text, in the schema that docs/audit.md states."""

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from calibrant.audits import curves
from calibrant.audits.deciding import HandedOver
from calibrant.audits.groups import Group, GroupFindings
from calibrant.audits.statistics import ErrorRow
from calibrant.errors import UndefinedMetricError
from calibrant.metrics.compare import Difference
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import METRICS

if TYPE_CHECKING:
    from calibrant.audits import Audit

VERDICT_PROPERTIES = ("gap", "p_value", "miscalibrated")  # in the record besides the fields


def audit_record(audit: "Audit", names: tuple[str, ...]) -> dict[str, Any]:
    """The record, with these metrics."""
    statistics = audit.statistics
    record: dict[str, Any] = json_value(
        {
            "files": audit.files,
            "compared_with": audit.other_files,
            **_card_record(audit, audit.scorecard, names),
            "seed": audit.seed,
            "weights": audit.weights,
            "cluster": audit.cluster,
            "repeated_ids": [{"column": name, "n_values": n} for name, n in audit.repeated_ids.items()],
            "n_zero_weight": audit.n_zero_weight,
            "n_unlabelled": audit.n_unlabelled,
            "constant_class": audit.constant_class,
            "fingerprint": statistics.fingerprint,
            "reliability": curves.reliability_records(audit.scorecard.effective_bins(audit.level), audit.level),
            "risk": curves.risk_records(audit.scorecard.effective_histogram(audit.level), audit.level),
            "verdict": _with_properties(audit.verdict, *VERDICT_PROPERTIES),
            "decision": _decision_record(audit),
            "advice": [{"action": advice.action, **advice.facts} for advice in audit.advice],
            "groups": {by: _groups_record(audit, found, names) for by, found in audit.groups.items()},
            "classes": [_with_properties(row, "gap") for row in audit.classes],
            "temperature": audit.temperature,
            "errors": [_error_record(audit, row) for row in statistics.errors],
            "comparison": [_difference_record(by, row) for by, row in audit.differences(names)],
            "gates": [{**asdict(gate), "failed": gate in audit.failed} for gate in audit.gates],
            "failed": [gate.describe(audit.scorecard) for gate in audit.failed],
        }
    )
    return record


def metric_record(card: Scorecard, name: str, level: float, seed: int) -> dict[str, Any]:
    """A metric with its interval, noise floor and error bound; None where there is none."""
    value = card.get(name)
    return {
        "value": value,
        "interval": None if value is None else card.interval(name, level=level, seed=seed),
        "noise_floor": None if METRICS[name].floor is None else card.noise_floor(name, seed=seed),
        "error_bound": card.error_bound(name),
    }


def _card_record(audit: "Audit", card: Scorecard, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "n_rows": card.n_rows,
        "n_classes": None if card.top_label else card.n_classes,
        "top_label": card.top_label,
        "n_bins": card.n_bins,
        "level": audit.level,
        "metrics": {name: metric_record(card, name, audit.level, audit.seed) for name in names},
    }


def _groups_record(audit: "Audit", found: GroupFindings, names: tuple[str, ...]) -> dict[str, Any]:
    assessed = {group.value: group for group in found.worst_first}
    worst = {}
    for name in names:
        try:
            worst[name] = group_name(found.cards.worst(name)[0])
        except UndefinedMetricError:
            continue  # in every group: no group is the worst
    return {
        "groups": [
            {"group": group_name(value), **_card_record(audit, card, names), **_verdict_record(assessed.get(value))}
            for value, card in found.cards.items()
        ],
        "worst": worst,
        "worst_first": [group_name(group.value) for group in found.worst_first],
        "n_miscalibrated": found.n_miscalibrated,
        "most_different": found.most_different and [group_name(group.value) for group in found.most_different],
    }


def _verdict_record(group: Group | None) -> dict[str, Any]:
    """None for a group that is not among the worst."""
    if group is None:
        return {"verdict": None, "p_holm": None, "miscalibrated": None}
    verdict = _with_properties(group.verdict, *VERDICT_PROPERTIES)
    return {"verdict": verdict, "p_holm": group.p_holm, "miscalibrated": group.miscalibrated}


def _decision_record(audit: "Audit") -> dict[str, Any]:
    found = audit.decision
    groups = {
        by: [{"group": group_name(row.value), **_accepted_record(row, audit.level)} for row in rows]
        for by, rows in found.groups.items()
    }
    fields = {name: getattr(found, name) for name in ("max_error", "confidence", "void", "threshold", "rows_needed")}
    return {**fields, **_accepted_record(found.overall, audit.level), "groups": groups, "sets": found.sets}


def _accepted_record(row: HandedOver, level: float) -> dict[str, Any]:
    error = {"error": row.error, "interval": row.interval(level)}
    return {"n_rows": row.n_rows, "n_accepted": row.n_accepted, "handed_over": row.share, **error}


def _error_record(audit: "Audit", row: ErrorRow) -> dict[str, Any]:
    known = not audit.top_label
    label, predicted = (audit.statistics.class_name(k) if known else None for k in (row.label, row.predicted))
    ids = dict(zip(audit.id_columns, row.ids, strict=True))
    names = {"ids": ids, "label": label, "predicted": predicted}
    return {"file": row.file, "row": row.row, **names, "confidence": 1 - row.complement}


def _difference_record(by: str | None, row: Difference) -> dict[str, Any]:
    fields = asdict(row)
    del fields["overall"]
    return {**fields, "by": by, "group": group_name(row.group)}


def group_name(value: Any) -> str | None:
    return None if value is None else str(value)


def _with_properties(value: Any, *properties: str) -> dict[str, Any]:
    return {**asdict(value), **{name: getattr(value, name) for name in properties}}


def json_value(value: Any) -> Any:
    """What JSON can hold: infinity and the values of columns become text, ∞ − ∞ null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)
