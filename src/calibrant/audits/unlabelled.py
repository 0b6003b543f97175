"""What an audit says of predictions without any label: the metrics that need none."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from calibrant._arrays import UNKNOWN
from calibrant.audits.gates import Gate
from calibrant.audits.record import group_name, json_value, metric_record
from calibrant.errors import without_secrets
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import Groups, score
from calibrant.metrics.table import need_labels
from calibrant.scan import Scan


@dataclass(frozen=True, eq=False)
class UnlabelledAudit:
    """Scorecards of rows without labels."""

    files: tuple[str, ...]
    scorecard: Scorecard
    groups: tuple[Groups, ...]
    level: float
    seed: int
    gates: tuple[Gate, ...]

    @property
    def failed(self) -> tuple[Gate, ...]:
        """The gates whose condition is true."""
        return tuple(gate for gate in self.gates if gate.fails(self.scorecard))

    def to_dict(self) -> dict[str, Any]:
        """The part of an audit's record that is known."""
        groups = {
            found.by: {"groups": [{"group": group_name(value), **self._card(card)} for value, card in found.items()]}
            for found in self.groups
        }
        record: dict[str, Any] = json_value(
            {
                "files": self.files,
                **self._card(self.scorecard),
                "seed": self.seed,
                "groups": groups,
                "gates": [{**asdict(gate), "failed": gate in self.failed} for gate in self.gates],
                "failed": [gate.describe(self.scorecard) for gate in self.failed],
            }
        )
        return record

    def _card(self, card: Scorecard) -> dict[str, Any]:
        metrics = {name: metric_record(card, name, self.level, self.seed) for name in card.names}
        return {"n_rows": card.n_rows, "n_classes": card.n_classes, "level": self.level, "metrics": metrics}


def audit_unlabelled(
    scan: Scan,
    metrics: Sequence[str],
    *,
    by: Sequence[str],
    weights: str | None,
    cluster: str | None,
    level: float,
    seed: int,
    gates: Sequence[Gate],
) -> UnlabelledAudit | None:
    """These metrics of files in which no row has a label; None where a row has one, or a metric needs one."""
    names = tuple(dict.fromkeys([*metrics, *(gate.metric for gate in gates)]))
    if not metrics or need_labels(names):
        return None
    if scan.has_labels and any(bool((batch.labels != UNKNOWN).any()) for batch in scan.batches([])):
        return None
    groups = tuple(score(scan, by=name, metrics=names, weights=weights, cluster=cluster) for name in by)
    card = groups[0].overall if groups else score(scan, metrics=names, weights=weights, cluster=cluster)
    return UnlabelledAudit(tuple(map(without_secrets, scan.files)), card, groups, level, seed, tuple(gates))
