"""How the page shows each metric of an experiment: its heading, its unit, and whether more of it is better."""

from collections.abc import Iterable

import pyarrow as pa

from calibrant.report.tables import MEASURES, Measure

MORE_MEASURES = {
    "nll": Measure("NLL", in_percent=False),
    "brier": Measure("Brier", in_percent=False),
    "rmsce": Measure("RMS-CE"),
    "l2ce": Measure("L2-CE"),
    "smece": Measure("smECE"),
    "overconfidence": Measure("Overconfidence"),
    "underconfidence": Measure("Underconfidence"),
    "aurc": Measure("AURC"),
}
# what describes a model and does not praise it: nothing of these is best
DESCRIPTIONS = {
    "confidence": Measure("Confidence"),
    "entropy": Measure("Entropy", in_percent=False),
    "feature_norm": Measure("Feature norm", in_percent=False),
    "logit_norm": Measure("Logit norm", in_percent=False),
}
FIRST = ("ece", "accuracy", "cece", "kse", "nll", "brier")  # in switches
KNOWN = {name: (MEASURES | MORE_MEASURES)[name] for name in FIRST} | MEASURES | MORE_MEASURES | DESCRIPTIONS
POSITIVE = "_positive"  # the end of metrics of the probability of class 1


def measure_of(metric: str) -> Measure:
    """How a metric is shown; one we do not know goes by its own name, as it is.

    >>> measure_of("ece_positive").heading, measure_of("other")
    ('ECE, P(y = 1)', Measure(heading='other', in_percent=False, higher_is_better=False))
    """
    base = metric.removesuffix(POSITIVE)
    if base != metric and base in KNOWN:
        return KNOWN[base]._replace(heading=f"{KNOWN[base].heading}, P(y = 1)")
    return KNOWN.get(metric, Measure(metric, in_percent=False))


def has_best(metric: str) -> bool:
    """Whether it says which of two models is better."""
    base = metric.removesuffix(POSITIVE)
    return base in KNOWN and base not in DESCRIPTIONS


def metrics_of(rows: pa.Table) -> list[str]:
    """The metrics of an experiment: the ECE first, what only describes last."""
    return ordered(rows["metric"].unique().to_pylist())


def ordered(metrics: Iterable[str]) -> list[str]:
    order = list(KNOWN)
    return sorted(metrics, key=lambda name: (order.index(name) if name in order else len(order), name))
