"""Made-up rows and curves of experiments."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from calibrant.report.style import LOSS_ORDER
from calibrant.run_tables import CURVES, ROWS
from calibrant.runs import RunKey

NINE = LOSS_ORDER[:9]
METRICS = ("accuracy", "ece", "kse", "confidence", "feature_norm")
# of each loss, for charts like those of real runs
OVERCONFIDENCE = dict(zip(LOSS_ORDER, np.linspace(1.6, 0.5, len(LOSS_ORDER)), strict=True))
OVERCONFIDENCE |= {"focal": 0.9, "inverse_focal": 1.9, "avuc": 1.75, "soft_avuc": 0.8, "poly": 1.5}
OVERCONFIDENCE |= {"maxent_mean": 0.45, "maxent_variance": 0.6, "maxent_mean_variance": 0.7}
AFTER_CALIBRATOR = {"none": 1.0, "temperature": 0.7, "temperature_grid": 0.8, "set_temperature": 0.4}


class Experiment:
    """Rows and curves of every run of a grid."""

    def __init__(
        self,
        *,
        data: Sequence[str] = ("digits",),
        losses: Sequence[str] = ("cross_entropy", "focal", "maxent_mean"),
        seeds: int = 2,
        shifts: Sequence[str] = ("fog", "snow"),
        severities: Sequence[int] = (1, 2, 3, 4, 5),
        calibrators: Sequence[str] = ("none",),
        variants: Sequence[str] = ("",),
        smoothing: Sequence[float] = (0.0,),
        metrics: Sequence[str] = METRICS,
        wild: bool = False,
    ) -> None:
        self.random = np.random.default_rng(0)
        self.rows: list[dict[str, Any]] = []
        self.curves: list[dict[str, Any]] = []
        self.metrics = metrics
        tests = list(_tests(shifts, severities, wild))
        for run in _runs(data, losses, variants, smoothing, seeds):
            ability = 0.93 - 0.2 * (run["data"] != data[0]) + 0.01 * self.random.normal()
            for test in tests:
                for calibrator in calibrators:
                    self._add(run, {**test, "calibrator": calibrator, "n_rows": 600}, ability)

    def _add(self, run: dict[str, Any], test: dict[str, Any], ability: float) -> None:
        hard = max(test["severity"], 3 * test["shifted"] * (test["severity"] == 0))
        accuracy = ability - 0.09 * hard * (0.5 + len(test["corruption"]) / 16) + 0.01 * self.random.normal()
        overconfidence = OVERCONFIDENCE[run["loss"]] * AFTER_CALIBRATOR[test["calibrator"]] - 2 * run["label_smoothing"]
        gap = 0.01 + 0.04 * hard * overconfidence + 0.004 * self.random.normal()
        if run["variant"] == "global":
            gap = 0.12 - 0.012 * hard + 0.003 * self.random.normal()
        norm = 10 + 8 * overconfidence - 0.7 * hard + 0.3 * self.random.normal()
        found = {
            "accuracy": accuracy,
            "ece": abs(gap),
            "kse": abs(gap) * 0.9,
            "confidence": accuracy + gap,
            "feature_norm": norm,
        }
        for metric in self.metrics:
            value = float(found[metric])
            self.rows.append({**run, **test, "metric": metric, "value": value, "jackknife": [value] * 20})
        self._add_curves({**run, **test}, accuracy, gap)

    def _add_curves(self, head: dict[str, Any], accuracy: float, gap: float) -> None:
        confidence = self.random.beta(8 * min(0.97, accuracy + gap), 8 * max(0.03, 1 - accuracy - gap), size=600)
        correct = self.random.random(600) < np.clip(confidence - gap, 0, 1)
        bins = np.clip(np.ceil(confidence * 10).astype(int) - 1, 0, 9)
        for point in range(10):
            inside = bins == point
            mean = [float(values[inside].mean()) if inside.any() else None for values in (confidence, correct)]
            self._point(head, "reliability", point, *mean, float(inside.sum()))
        wrong = ~correct[np.argsort(-confidence)]
        for point in range(20):
            kept = 30 * (point + 1)
            self._point(head, "risk_coverage", point, kept / 600, float(wrong[:kept].mean()), float(kept))

    def _point(self, head: dict[str, Any], curve: str, point: int, x: Any, y: Any, weight: float) -> None:
        self.curves.append({**head, "curve": curve, "point": point, "x": x, "y": y, "weight": weight})

    @property
    def tables(self) -> tuple[pa.Table, pa.Table]:
        return rows_table(self.rows), curves_table(self.curves)


def rows_table(rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in ROWS.names} for row in rows], ROWS)


def curves_table(rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in CURVES.names} for row in rows], CURVES)


def _tests(shifts: Sequence[str], severities: Sequence[int], wild: bool) -> Iterator[dict[str, Any]]:
    if wild:
        yield {"split": "id_test", "corruption": "none", "severity": 0, "shifted": False, "origin": "published"}
        yield {"split": "test", "corruption": "test", "severity": 0, "shifted": True, "origin": "published"}
        return
    yield {"split": "test", "corruption": "none", "severity": 0, "shifted": False, "origin": "published"}
    for shift in shifts:
        for severity in severities:
            name = f"{shift}-{severity}"
            yield {"split": name, "corruption": shift, "severity": severity, "shifted": True, "origin": "generated"}


def _runs(
    data: Sequence[str], losses: Sequence[str], variants: Sequence[str], smoothing: Sequence[float], seeds: int
) -> Iterator[dict[str, Any]]:
    for name in data:
        for loss in losses:
            for variant in variants if loss.startswith("maxent") else ("",):
                for amount in smoothing if loss.startswith("maxent") and not variant else (0.0,):
                    for seed in range(seeds):
                        yield RunKey(name, "mlp", loss, variant, amount, seed).columns()


def run_rows(
    values: dict[str, float | None], *, seed: int = 0, metric: str = "ece", **about: Any
) -> list[dict[str, Any]]:
    """The rows of a metric of a run, by split; "test" is the unshifted test. The rows of the tests have no noise."""
    run = {"data": "cifar10", "model": "resnet18", "loss": "focal", "variant": "", "label_smoothing": 0.0} | about
    name = "-".join(str(run[part]) for part in ("data", "model", "loss", "variant", "label_smoothing"))
    rows = []
    for split, value in values.items():
        shift, _, severity = split.partition("-")
        test = {"split": split, "corruption": shift, "severity": int(severity or 0), "shifted": split != "test"}
        row = {"run": f"{name}-{seed}", "seed": seed, "origin": "generated", "calibrator": "none", "n_rows": 10}
        jackknife = None if value is None else [value] * 20
        rows.append({"metric": metric, "value": value, "jackknife": jackknife} | row | test | run)
    return rows
