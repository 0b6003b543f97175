"""One valid call of every public name, on small data: the wrong calls of `faults.calls` change one argument of it."""

import operator
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import torch
from sklearn.linear_model import LogisticRegression

import calibrant as cb
from calibrant.data import ImageFiles, WildsData, open_dataset
from calibrant.integrations.sklearn import CalibratedClassifier
from calibrant.integrations.torchmetrics import CalibrationScore
from calibrant.models import build_model, write_tensors
from calibrant.models.resnet import BasicBlock
from calibrant.predictions import Predictions
from calibrant.report import make_table
from calibrant.shifts import Shift
from calibrant.training import Settings, train
from made.calibrator_check import class_count
from made.calibrator_data import like, shifted_rows
from made.datasets import idx_bytes, write_test, write_tiny_imagenet, write_train
from made.folder import write_folder
from made.image_files import paint
from made.rows import Experiment
from made.sweeps import write_sweep


@dataclass(frozen=True)
class ValidCall:
    """A function, and arguments that it takes.

    Args:
        function: What is called, with keywords.
        arguments: The valid arguments by name.
        anything: Arguments that take any value at all, such as a value to look for.
        ordered: Arguments whose order matters: sets and mappings are refused.
    """

    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    anything: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()


# Values that functions return, of parts that were checked: nobody makes them by hand
RECORDS = {
    *(
        f"audits.{name}"
        for name in ("Audit", "Verdict", "Advice", "GroupFindings", "Group", "ClassRow", "MetricChange")
    ),
    *(f"audits.{name}" for name in ("DecisionFindings", "HandedOver", "SetSize")),
    *(
        f"calibrators.{name}"
        for name in ("Calibrator", "FitRecord", "CrossFit", "Candidate", "Comparison", "Decomposition", "ScoreTerm")
    ),
    *(f"calibrators.{cls.__name__}" for cls in cb.CALIBRATORS.values()),
    *("audits.TemperatureEffect", "corruptions.Corruption", "data.DatasetInfo", "losses.Telemetry"),
    *("maxent.Solution", "maxent.Constraints", "predictions.Predictions", "scan.Scan", "corruptions.Px"),
    *(f"metrics.{name}" for name in ("Scorecard", "Groups", "Difference", "Metric", "Quantity", "BrierDecomposition")),
    *(
        "calibrators.ClassProportions",
        "decisions.AcceptedRows",
        "decisions.CheckedRows",
        "decisions.Threshold",
        "decisions.ThresholdCheck",
        "estimates.ShiftTest",
        "estimates.Estimate",
        "estimates.Estimator",
        "estimates.Quantity",
        "ensembles.OrderScore",
        "decisions.ConformalSets",
        "decisions.PartScores",
        "decisions.Promise",
        "decisions.SetMethod",
        "decisions.SetScores",
    ),
    "reading.LabelCounts",
    *("ood.OodScore", "ood.DetectionComparison", "ood.Detection"),
    *("metrics.ReliabilityCurve", "metrics.RiskCoverageCurve", "training.callback.TrainingCallback"),
    *("runs.RunFolder", "experiments.folder.ExperimentFolder", "training.predicting.Predictor"),
    *("runs.RunKey", "experiments.config.Experiment", "monitors.Monitor"),
    *("losses.Loss", "models.Classifier", "data.DataSet"),  # abstract
}
# Called by calibrant, by torch or by Lightning with what they made, and not by users
_HOOKS = (
    r"losses\..*\.(per_sample|can_fuse|reduce|sample_weights|batch)",
    r"integrations\.lightning\.CalibrationCallback\.on_\w+",
    r"training\.callback\.TrainingCallback\.on_\w+",
    r"training\.predicting\.Predictor\.\w+",
    r"models\.\w+\.(embed|forward)",
    r"calibrators\.Calibrator\.(from_parameters|from_record|fit)",
    r"estimates\.Estimator\.from_record",
    r"decisions\.Threshold\.(decide|accepts)",  # of rows that ``threshold(predictions)`` has checked
    r"decisions\.ConformityScore\.\w+",
    r"decisions\.Promise\.\w+",
    r"decisions\.SetScores\.__add__",  # of batches, which score_sets checks
    r"corruptions\.(Draws|Corruption)(\.\w+)?",
    r"(experiments\.folder\.ExperimentFolder|runs\.RunFolder)\.\w+",
    r"scan\.Scan\.read_part",
    r"monitors\.Monitor\.(?!save_html)\w+",  # `monitor` makes these calls
    r"integrations\.sklearn\.CalibratedClassifier\.\w+",  # of arrays that scikit-learn checks, as its own tests ask
    r"metrics\.Groups\.__getitem__",  # of a mapping: a KeyError
    r"metrics\.Scorecard\.__radd__",  # after the + of the other
    r"losses\.functional\.(on_curve|expected_curve)",
    r"errors\.(printable|without_secrets)",
    r"integrations\.torchmetrics\.CalibrationScore\.set_dtype",
)
# Arguments that are not tried: the first would start a cluster, the second is for audits alone, and no names mean
# every shifted test, which takes long
LEFT_OUT = {
    ("audits.audit", "ray"),
    ("metrics.Scorecard.of", "scored"),
    ("training.predicting.predict_run", "names"),
    ("training.predicting.predict_model", "names"),
}


def is_hook(name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in _HOOKS)


def resolve(path: str) -> Any:
    """The module, function, class or method of this name."""
    try:
        return import_module(path)
    except ImportError:
        parent, _, name = path.rpartition(".")
        return getattr(resolve(parent), name)


@cache
def _folder() -> Path:
    """A folder that is removed at the end."""
    kept = _KEPT.setdefault("folder", TemporaryDirectory(prefix="calls-", ignore_cleanup_errors=True))
    return Path(kept.name)


_KEPT: dict[str, TemporaryDirectory[str]] = {}


@cache
def _validation(n_classes: int = 3, seed: int = 1) -> Predictions:
    return shifted_rows(144, n_classes, seed=seed).predictions


def _rows(seed: int = 0) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(40, 3, generator=generator)
    labels = torch.randint(3, (40,), generator=torch.Generator().manual_seed(9))
    columns = {"site": ["A", "B"] * 20, "patient": [i // 4 for i in range(40)], "weight": [1.0, 2.0] * 20}
    return Predictions.from_logits(logits, labels, columns=columns)


@cache
def valid_calls() -> dict[str, ValidCall]:
    found = {**_predictions(), **_metrics(), **_audits(), **_calibrators(), **_estimates(), **_losses(), **_maxent()}
    found |= {**_monitors(), **_ood(), **_ensembles(), **_decisions(), **_sets(), **_reading()}
    return {**found, **_corruptions(), **_data(), **_models(), **_training(), **_reports(), **_integrations()}


def _of(name: str, /, **arguments: Any) -> dict[str, ValidCall]:
    """The function of this name with these arguments."""
    return {name: ValidCall(resolve(f"calibrant.{name}"), arguments)}


def _predictions() -> dict[str, ValidCall]:
    rows, other = _rows(), _rows(1)
    soft = Predictions.from_logits(rows.logits, rows.probs, columns=rows.columns)
    rows.save(_folder() / "rows.parquet")
    scan = Predictions.scan(_folder() / "rows.parquet")
    named = Predictions.from_logits(torch.eye(3), [0, 1, 2], class_names=["a", "b", "c"])
    named.save(_folder() / "named.parquet")
    named_scan, names = Predictions.scan(_folder() / "named.parquet"), {"class_names": ["c", "b", "a"]}
    options = {
        "columns": {"site": ["A", "B"] * 4},
        "features": torch.ones(8, 2),
        "class_names": ["a", "b", "c"],
        "metadata": {"model": "m"},
        "ignore_index": -100,
    }
    labels = [0, 1, 2, 0, 1, 2, 0, 1]
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(3))
    two = {**options, "class_names": ["a", "b"]}
    calls = {
        "from_logits": ({"logits": logits, "labels": labels, **options}),
        "from_log_probs": {"log_probs": logits.log_softmax(1), "labels": labels, **options},
        "from_probs": {"probs": logits.softmax(1), "labels": labels, **options},
        "from_positive_probs": {"probs": [0.1] * 8, "labels": [0, 1] * 4, **two},
        "from_positive_logits": {"logits": [-2.0] * 8, "labels": [0, 1] * 4, **two},
    }
    ordered = ("logits", "log_probs", "probs", "labels", "features", "class_names")
    found = {name: ValidCall(getattr(Predictions, name), given, (), ordered) for name, given in calls.items()}
    found |= {
        "from_confidence": ValidCall(
            Predictions.from_confidence,
            {"confidence": [0.9] * 8, "correct": [True, False] * 4, "columns": {"a": [1] * 8}, "metadata": {"m": 1}},
            ordered=("confidence", "correct"),
        ),
        "__getitem__": ValidCall(lambda rows: _rows()[rows], {"rows": [0, 1]}, ordered=("rows",)),
        "column": ValidCall(rows.column, {"name": "site"}),
        "numbers": ValidCall(rows.numbers, {"argument": "weights", "name": "weight"}, anything=("argument",)),
        "select": ValidCall(rows.select, {"names": ["site"]}, ordered=("names",)),
        "groups": ValidCall(rows.groups, {"name": "site"}),
        "where": ValidCall(rows.where, {"site": "A", "patient": [1, 2]}, anything=("site", "patient")),
        "concat": ValidCall(Predictions.concat, {"parts": [rows, other]}, ordered=("parts",)),
        "soft_labels": ValidCall(soft.soft_labels, {"first_row": 3}),
        "expand_labels": ValidCall(soft.expand_labels, {"weights": "weight", "first_row": 3}),
        "with_columns": ValidCall(rows.with_columns, {"columns": {"age": list(range(40))}}),
        "with_features": ValidCall(rows.with_features, {"features": torch.ones(40, 2)}, ordered=("features",)),
        "save": ValidCall(rows.save, {"path": "out.parquet"}),
        "save_all": ValidCall(Predictions.save_all, {"path": "out.parquet", "parts": [rows]}, ordered=("parts",)),
        "load": ValidCall(Predictions.load, {"paths": _folder() / "rows.parquet"}),
        "match_names": ValidCall(named.match_names, names, ordered=("class_names",)),
        "scan": ValidCall(Predictions.scan, {"paths": _folder() / "rows.parquet", "batch_rows": 10}),
    }
    calls_of_scan = {
        "scan.Scan.batches": ValidCall(
            lambda **options: list(scan.batches(**options)), {"columns": ["site"]}, ("progress",)
        ),
        "scan.Scan.read": ValidCall(scan.read, {"columns": ["site"]}),
        "scan.Scan.read_columns": ValidCall(lambda names: list(scan.read_columns(names)), {"names": ["site"]}),
        "scan.Scan.match_names": ValidCall(named_scan.match_names, names, ordered=("class_names",)),
    }
    return {f"predictions.Predictions.{name}": call for name, call in found.items()} | calls_of_scan


def _metrics() -> dict[str, ValidCall]:
    rows, other = _rows(), _rows(1)
    logits, labels, weights = rows.logits, rows.labels, torch.ones(40)
    confidence, correct = cb.metrics.top_label(rows.probs, labels)
    card, groups = cb.score(rows), cb.score(rows, by="site")
    by_confidence = "adaptive_calibration_error area_under_risk_coverage debiased_calibration_error ks_error"
    by_confidence += " expected_calibration_error maximum_calibration_error overconfidence reliability_curve"
    by_confidence += " risk_coverage_curve rms_calibration_error smooth_calibration_error underconfidence"
    by_logits = "accuracy brier_on_errors brier_score classwise_calibration_error mean_confidence mean_entropy"
    by_logits += " negative_log_likelihood nll_on_errors"
    found: dict[str, ValidCall] = {}
    for name in by_confidence.split():
        found |= _of(f"metrics.{name}", confidence=confidence, correct=correct, weights=weights)
    for name in by_logits.split():
        found |= _of(f"metrics.{name}", logits=logits, labels=labels, weights=weights)
    columns = {"by": "site", "weights": "weight", "cluster": "patient"}
    of = {"predictions": rows, "metrics": ["ece", "nll"], "n_bins": 15, "weights": "weight", "cluster": "patient"}
    found |= {
        **_of("metrics.top_label", probs=rows.probs, labels=labels),
        **_of("metrics.score", predictions=rows, metrics=["ece", "nll"], n_bins=15, **columns),
        **_of("metrics.compare.compare", a=rows, b=other, metrics=["ece", "nll"], **columns),
        **_of("metrics.score_multilabel", logits=logits, labels=(labels[:, None] == torch.arange(3)).long()),
        **_of("metrics.Scorecard.of", **of, max_histogram_bins=64, max_cluster_groups=8),
        "metrics.Scorecard.__add__": ValidCall(lambda other: operator.add(card, other), {"other": card}),
        "metrics.Scorecard.__getitem__": ValidCall(lambda name: card[name], {"name": "ece"}),
        "metrics.Scorecard.to_dict": ValidCall(card.to_dict, {"prefix": "test/"}, anything=("prefix",)),
        "metrics.Scorecard.get": ValidCall(card.get, {"name": "ece"}),
        "metrics.Scorecard.interval": ValidCall(card.interval, {"name": "ece"}),
        "metrics.Scorecard.noise_floor": ValidCall(card.noise_floor, {"name": "ece"}),
        "metrics.Scorecard.error_bound": ValidCall(card.error_bound, {"name": "kse"}),
        **_of("metrics.brier_decomposition", predictions=rows, n_bins=5, cluster="doc", level=0.8),
        "metrics.Scorecard.effective_bins": ValidCall(card.effective_bins),
        "metrics.Scorecard.effective_histogram": ValidCall(card.effective_histogram),
        "metrics.Groups.worst": ValidCall(groups.worst, {"metric": "ece"}),
        "metrics.Groups.__add__": ValidCall(lambda other: operator.add(groups, other), {"other": groups}),
    }
    return found


def _monitors() -> dict[str, ValidCall]:
    path = _folder() / "stream.parquet"
    _rows().save(path)
    calibrator = cb.TemperatureScaling.fit(_validation())
    columns = {
        "every": "10",
        "time": None,
        "labels": [],
        "label": None,
        "id": None,
        "cluster": "patient",
        "calibrator": calibrator,
    }
    given = {"source": [path], "reference": _rows(1), "gates": ["alarms > 0"], "state": None, **columns}
    page = {"path": "monitor.html", "command": ["a"], "now": datetime(2026, 1, 1)}
    return {
        "monitors.monitor": ValidCall(cb.monitor, given, ("progress",)),
        "monitors.Monitor.save_html": ValidCall(cb.monitor(_rows(), _rows(1), every=10).save_html, page),
    }


def _audits() -> dict[str, ValidCall]:
    rows, card = _rows(), cb.score(_rows())
    audit = cb.audit(rows, by="site")
    gate = cb.Gate.parse("ece > 0.05")
    columns = {"by": ["site"], "weights": "weight", "cluster": "patient"}
    return {
        "audits.audit": ValidCall(cb.audit, {"source": rows, "gates": ["ece > 0.05"], **columns}, ("progress",)),
        "audits.Audit.names": ValidCall(audit.names, {"metrics": ["ece"]}),
        "audits.Audit.differences": ValidCall(audit.differences, {"names": ["ece"]}),
        "audits.Audit.to_dict": ValidCall(audit.to_dict, {"metrics": ["ece"]}),
        "audits.Audit.save_html": ValidCall(
            audit.save_html, {"path": "audit.html", "metrics": ["ece"], "command": ["a"], "now": datetime(2026, 1, 1)}
        ),
        "audits.HandedOver.interval": ValidCall(audit.decision.overall.interval, {"level": 0.8}),
        **_of("audits.Gate", metric="ece", operator=">", limit=0.05),
        **_of("audits.Gate.parse", text="ece > 0.05"),
        "audits.Gate.fails": ValidCall(gate.fails, {"card": card}),
        "audits.Gate.holds": ValidCall(gate.holds, {"value": 0.1}),
        "audits.Gate.describe": ValidCall(gate.describe, {"card": card}),
        **_of("audits.calibration_verdict", card=card, p_values=(0.5, 0.5)),
    }


def _calibrators() -> dict[str, ValidCall]:
    rows, test = _validation(), _validation(seed=2)
    calibrator = cb.TemperatureScaling.fit(rows)
    calibrator.save(_folder() / "calibrator.json")
    test.save(_folder() / "test.parquet")
    sets = cb.calibrators.SetTemperature.fit(rows)
    left_out = cb.calibrators.LeaveOneShiftOut(rows)
    images, labels = torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 2] * 2)
    found: dict[str, ValidCall] = {}
    for name, cls in cb.CALIBRATORS.items():
        given: dict[str, Any] = {"validation": _validation(class_count(name))}
        given |= {"target": like(_validation(class_count(name), 2), labels=None)} if cls.needs_target else {}
        if "fit" in vars(cls):
            found[f"calibrators.{cls.__name__}.fit"] = ValidCall(cls.fit, given)
    found |= {
        "calibrators.Calibrator.__call__": ValidCall(calibrator, {"predictions": test}),
        "calibrators.Calibrator.calibrate": ValidCall(calibrator.calibrate, {"predictions": test}),
        "calibrators.Calibrator.save": ValidCall(calibrator.save, {"path": "out.json"}),
        "calibrators.Calibrator.to_onnx": ValidCall(calibrator.to_onnx, {"path": "out.onnx"}),
        "calibrators.Calibrator.load": ValidCall(cb.TemperatureScaling.load, {"path": _folder() / "calibrator.json"}),
        **_of("calibrators.load_calibrator", path=_folder() / "calibrator.json"),
        **_of(
            "calibrators.apply_calibrator",
            calibrator=calibrator,
            scan=Predictions.scan(_folder() / "test.parquet"),
            output="out.parquet",
        ),
        **_of("calibrators.cross_fit", predictions=rows, calibrator="temperature", folds=3),
        **_of("calibrators.decompose", predictions=rows, score="brier", folds=3, level=0.8),
        "calibrators.VennAbers.interval": ValidCall(
            cb.calibrators.VennAbers.fit(_validation(2)).interval, {"predictions": _validation(2, 2)}
        ),
        **_of("calibrators.choose", validation=rows, candidates=["temperature"], folds=3),
        **_of("calibrators.compare_calibrators", validation=rows, test=test, calibrators=["temperature"]),
        **_of("calibrators.class_proportions", target=test, validation=rows, method="bbse", level=0.8),
        **_of("calibrators.LeaveOneShiftOut", validation=rows),
        "calibrators.LeaveOneShiftOut.calibrate": ValidCall(
            left_out.calibrate, {"calibrator": "temperature", "test": test}
        ),
        "calibrators.LeaveOneShiftOut.check_disjoint": ValidCall(left_out.check_disjoint, {"test": test}),
        **_of("calibrators.perturb_gaussian", model=_model, images=images, labels=labels, n_levels=2),
        "calibrators.SetTemperature.with_sets": ValidCall(sets.with_sets, {"sets": ["domain"]}),
        "calibrators.SetTemperature.temperature_of": ValidCall(sets.temperature_of, {"target": test}),
        "calibrators.SetTemperature.temperature_interval": ValidCall(
            sets.temperature_interval, {"target": test, "level": 0.8}
        ),
        "calibrators.SetTemperature.temperature_intervals": ValidCall(
            sets.temperature_intervals, {"target": test, "levels": [0.5, 0.8]}
        ),
        "calibrators.SetTemperature.is_unlike": ValidCall(sets.is_unlike, {"target": test}),
        "calibrators.SetTemperature.adapt": ValidCall(sets.adapt, {"target": test}),
    }
    return found


def _decisions() -> dict[str, ValidCall]:
    rows, test = _rows(), _rows(1)
    threshold = cb.certify(rows, 0.4)
    threshold.save(_folder() / "threshold.json")
    certified = {"by": "site", "score": "confidence", "target_class": 1, "method": "sgr"}
    return {
        **_of("decisions.certify", validation=rows, max_error=0.4, confidence=0.8, **certified),
        **_of("decisions.load_threshold", path=_folder() / "threshold.json"),
        **_of("decisions.check_threshold", threshold=threshold, tests={"a": test}, by="site", reference=rows),
        **_of(
            "decisions.adapt_threshold", threshold=threshold, target=test, calibrator=cb.TemperatureScaling.fit(rows)
        ),
        **_of(
            "decisions.apply_threshold",
            threshold=threshold,
            scan=Predictions.scan(_folder() / "rows.parquet"),
            output="out.parquet",
            allow_same_rows=True,
        ),
        "decisions.Threshold.__call__": ValidCall(threshold, {"predictions": test}),
        "decisions.Threshold.save": ValidCall(threshold.save, {"path": "out.json"}),
        "decisions.AcceptedRows.share_interval": ValidCall(threshold.groups["overall"].share_interval, {"level": 0.8}),
    }


def _sets() -> dict[str, ValidCall]:
    rows, test = _validation(), _validation(seed=2)
    sets = cb.ConformalSets.fit(rows, coverage=0.8)
    sets.save(_folder() / "sets.json")
    found = cb.score_sets(sets(test))
    options = {"method": "raps", "coverage": 0.8, "randomized": True, "seed": 1, "penalty": 0.1, "k_reg": 2}
    return {
        **_of("decisions.ConformalSets.fit", validation=rows, **options),
        **_of("decisions.ConformalSets.load", path=_folder() / "sets.json"),
        **_of("decisions.ConformityScore", method="raps", randomized=True, seed=1, penalty=0.1, k_reg=2),
        **_of("decisions.SetGate", metric="coverage", operator="<", limit=0.8),
        **_of("decisions.score_sets", predictions=sets(test), level=0.9),
        "decisions.ConformalSets.__call__": ValidCall(sets.__call__, {"predictions": test, "allow_same_rows": False}),
        "decisions.ConformalSets.add_sets": ValidCall(sets.add_sets, {"predictions": test}),
        "decisions.ConformalSets.save": ValidCall(sets.save, {"path": "sets_out.json"}),
        "decisions.SetScores.failed": ValidCall(found.failed, {"gates": ["coverage < 0.8"]}),
    }


def _estimates() -> dict[str, ValidCall]:
    rows, test = _rows(), _rows(1)
    estimator = cb.estimates.fit_estimator(rows, "doc")
    estimator.save(_folder() / "estimator.json")
    found = estimator(test)
    return {
        **_of("estimates.shift_tests.shift_tests", target=rows, reference=test),
        **_of("estimates.fit_estimator", reference=rows, method="doc"),
        **_of("estimates.load_estimator", path=_folder() / "estimator.json"),
        **_of("estimates.estimate", target=test, reference=rows, method="doc", level=0.8),
        **_of("estimates.Estimator.fit", reference=rows),
        **_of("estimates.EstimateGate", metric="accuracy", operator="<", limit=0.8),
        "estimates.Estimator.__call__": ValidCall(estimator.__call__, {"target": test, "level": 0.8}),
        "estimates.Estimator.save": ValidCall(estimator.save, {"path": "out.json"}),
        "estimates.Estimate.failed": ValidCall(found.failed, {"gates": ["accuracy < 0.8"]}),
        "estimates.Estimate.save_html": ValidCall(
            found.save_html, {"path": "estimate.html", "command": ["a"], "now": datetime(2026, 1, 1)}
        ),
    }


def _ood() -> dict[str, ValidCall]:
    inside, outside, known = (replace(_rows(seed), features=_rows(seed).logits.half()) for seed in (0, 1, 2))
    found = cb.compare_ood_scores(inside, outside)
    shared = {"reference": known, "allow_same_rows": False}
    pair = {"inside": inside, "outside": outside, **shared, "level": 0.9}
    return {
        **_of("ood.ood_score", predictions=inside, method="nearest_neighbors", k=2, **shared),
        **_of("ood.detection", method="nearest_neighbors", k=2, **pair),
        **_of("ood.compare_ood_scores", methods=["energy"], progress=print, **pair),
        **_of("ood.Detection.of", inside=[0.1, 0.2], outside=[0.3], method="mine", level=0.9),
        "ood.DetectionComparison.save_scores": ValidCall(found.save_scores, {"path": "scores.parquet"}),
    }


def _ensembles() -> dict[str, ValidCall]:
    columns = {"id": range(40), "patient": [i // 4 for i in range(40)]}
    rows = Predictions.from_logits(_validation(seed=3).logits[:40], _validation(seed=3).labels[:40], columns=columns)
    named = [rows, rows]
    calibrators = [cb.TemperatureScaling.fit(_validation(seed=seed)) for seed in (1, 2)]
    given = {"members": named, "calibrators": calibrators, "id": "id"}
    return {
        "ensembles.average": ValidCall(cb.average, given, ordered=("members",)),
        "ensembles.save_average": ValidCall(
            cb.ensembles.save_average, {**given, "output": "out.parquet"}, ("progress",), ordered=("members",)
        ),
        **_of("ensembles.compare_orders", members=named, calibrator="temperature", id="id", folds=3, cluster="patient"),
    }


def _reading() -> dict[str, ValidCall]:
    columns = {"id": list(range(40))}
    rows = Predictions.from_logits(_validation(seed=3).logits[:40], _validation(seed=3).labels[:40], columns=columns)
    rows.save(_folder() / "ids.parquet")
    frame = rows.to_frame()
    pa_csv.write_csv(frame, _folder() / "rows.csv")
    options = {"label": "label", "probs": ["prob_*"], "class_names": ["a", "b", "c"], "text": ["id"]}
    given = {"paths": _folder() / "rows.csv", **options}
    joined = {"predictions": _folder() / "ids.parquet", "labels": _folder() / "rows.csv", "output": "out.parquet"}
    ordered = ("class_names",)
    return {
        "reading.read": ValidCall(cb.read, given, ordered=ordered),
        "reading.convert": ValidCall(
            cb.reading.convert,
            {"paths": _folder() / "rows.csv", "output": "out.parquet", **options},
            ("say",),
            ordered=ordered,
        ),
        "reading.save_labelled": ValidCall(cb.reading.save_labelled, {**joined, "id": "id", "label": "label"}),
        "predictions.Predictions.from_frame": ValidCall(
            Predictions.from_frame, {"frame": frame, **options}, ordered=ordered
        ),
    }


def _model(images: torch.Tensor) -> Any:
    flat = images.flatten(1)
    return flat[:, :3], flat[:, 3:6]


def _losses() -> dict[str, ValidCall]:
    rows = _rows()
    batch = {"logits": rows.logits, "labels": rows.labels}
    options = {
        "label_smoothing": 0.1,
        "class_weights": [1.0, 2.0, 3.0],
        "ignore_index": -100,
        "reduction": "mean",
        "validate": True,
    }
    prior = [0.5, 0.3, 0.2]
    maxent = cb.MaxEntLoss(prior)
    found: dict[str, ValidCall] = {}
    for cls in {type(make(prior) if name.startswith("maxent") else make()) for name, make in cb.LOSSES.items()}:
        if cls is not cb.MaxEntLoss:
            found |= {f"losses.{cls.__name__}": ValidCall(_forward(cls, batch), dict(options))}
    for name in (
        "cross_entropy",
        "focal",
        "inverse_focal",
        "poly",
        "flsd",
        "label_relaxation",
        "dual_focal",
        "margin_smoothing",
    ):
        found |= _of(f"losses.functional.{name}", **batch)
    found |= {
        "losses.MaxEntLoss": ValidCall(_forward(cb.MaxEntLoss, batch), {"prior": prior, **options}),
        **_of("losses.MaxEntLoss.from_labels", labels=[0, 1, 2, 0], n_classes=3),
        **_of("losses.MaxEntLoss.from_counts", counts=[5, 3, 2]),
        "losses.MaxEntLoss.telemetry": ValidCall(maxent.telemetry, dict(batch)),
        "losses.Loss.forward": ValidCall(cb.losses.FocalLoss(), dict(batch)),
    }
    return found


def _forward(make: Callable[..., Any], batch: dict[str, Any]) -> Callable[..., Any]:
    """The loss of a batch by the criterion that is made: a wrong option may show only there."""
    return lambda **options: make(**options)(**batch)


def _maxent() -> dict[str, ValidCall]:
    (_folder() / "prior.json").write_text("[0.5, 0.3, 0.2]")
    prior = [0.5, 0.3, 0.2]
    return {
        **_of("maxent.solve", prior=prior),
        **_of("maxent.solve_moments", features=torch.arange(3.0)[:, None], targets=torch.tensor([[0.7]])),
        **_of("maxent.gibbs_distribution", prior=prior),
        **_of("maxent.constraints.constraints", prior=prior),
        **_of("maxent.read_prior", path=_folder() / "prior.json"),
    }


def _corruptions() -> dict[str, ValidCall]:
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    options = {"name": "gaussian_noise", "severity": 1, "seed": 0, "save_quality": None, "frost_dir": None}
    folder = _folder() / "images"
    paint(folder / "a.png", (1, 2, 3))
    (_folder() / "cifar").mkdir(exist_ok=True)
    dataset = [(torch.zeros(3, 32, 32, dtype=torch.uint8), 0)] * 3
    corrupt = cb.corruptions.Corrupt("gaussian_noise", 1)
    corrupted = cb.CorruptedDataset(dataset, "fog", 1)
    return {
        **_of("corruptions.corrupt", images=images, keys=[0, 1], **options),
        **_of("corruptions.Corrupt", **options),
        "corruptions.Corrupt.__call__": ValidCall(corrupt, {"images": images, "keys": [0, 1]}),
        "corruptions.CorruptedDataset": ValidCall(
            lambda **given: list(cb.CorruptedDataset(**given)), {"dataset": dataset, **options}
        ),
        "corruptions.CorruptedDataset.__getitem__": ValidCall(_item_of(corrupted), {"index": 1}),
        **_of("corruptions.folders.corrupt_folder", source=folder, target="out", name="fog", severity=1),
        **_of("corruptions.layout.write_cifar_c", source=_folder() / "cifar", target="out", name="fog"),
        **_of("corruptions.sheet.save_sheet", path=folder / "a.png", target="sheet.png"),
        **_of("shifts.Shift", corruption="fog", severity=3),
        **_of("shifts.Shift.parse", text="fog-3"),
    }


def _item_of(dataset: Any) -> Callable[..., Any]:
    """The item at an index, or None out of range, which is an IndexError."""

    def get(index: Any) -> Any:
        with suppress(IndexError):
            return dataset[index]

    return get


def _data() -> dict[str, ValidCall]:
    root = _folder() / "data"
    write_train(root / "own")
    write_test(root / "own")
    write_tiny_imagenet(root)
    idx = root / "labels-idx1-ubyte"
    idx.write_bytes(idx_bytes(np.arange(5)))
    digits = open_dataset("digits")
    split = digits.split("test").where(torch.arange(len(digits.split("test"))) < 6)
    labels = torch.tensor([0, 1, 2] * 5)
    image = root / "own/train/cat/0.png"

    def read(folder: Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(15, 1, 8, 8, dtype=torch.uint8), labels

    names = {"class_names": ("a", "b")}
    files = ImageFiles.of(root, ["own/train/cat/0.png"], 8)
    own = {"class_names": ("a", "b", "c"), "native_size": 8, "channels": 1, "read": read, "n_validation": 3}
    return {
        **_of("data.open_dataset", name="digits"),
        **_of("data.fetch.fetch", name="digits", root=root),
        **_of("data.verify.check_data", name="digits"),
        "data.DataSet.split": ValidCall(digits.split, {"name": "test"}),
        **_of("data.Split", images=split.images, labels=split.labels, columns={"site": ["A"] * 6}),
        **_of("data.ImageFiles", folder=root, names=pa.array(["own/train/cat/0.png"]), size=8, taken=torch.tensor([0])),
        **_of("data.ImageFiles.of", folder=root, names=["own/train/cat/0.png"], size=8),
        "data.ImageFiles.where": ValidCall(files.where, {"rows": torch.tensor([True])}),
        "data.ImageFiles.__getitem__": ValidCall(lambda rows: files[rows], {"rows": torch.tensor([0])}),
        "data.Split.where": ValidCall(split.where, {"mask": torch.arange(6) < 3}),
        "data.Split.sample": ValidCall(split.sample, {"n_rows": 3}),
        "data.Split.under": ValidCall(split.under, {"shift": Shift("fog", 1)}),
        "data.Split.with_shift": ValidCall(split.with_shift, {"shift": Shift("fog", 1), "origin": "generated"}),
        "data.ArrayData": ValidCall(_split_of("data.ArrayData", "test"), {"name": "own", "root": root, **own}),
        "data.ImageFolder": ValidCall(_split_of("data.ImageFolder", "test"), {"root": root / "own", "image_size": 8}),
        "data.TinyImageNet": ValidCall(_split_of("data.TinyImageNet", "test"), {"root": root}),
        "data.WildsData": ValidCall(
            WildsData,
            {"name": "fmow", "root": root, "folder": "f", "native_size": 8, "files": ["a"], "read": read} | names,
            anything=("class_names",),  # or a function that reads them
        ),
        **_of("data.class_prior", labels=labels, n_classes=3),
        **_of("data.validation_rows", labels=labels, n_validation=3),
        **_of("data.read_cifar", folder=root, part="test"),
        **_of("data.read_fashion_mnist_mini", part="test"),
        **_of("data.read_mnist_files", folder=root, part="test"),
        **_of("data.read_idx", path=idx),
        **_of("data.read_image", path=image, size=8),
    }


def _split_of(name: str, split: str) -> Callable[..., Any]:
    make = resolve(f"calibrant.{name}")
    return lambda **options: make(**options).split(split)


def _models() -> dict[str, ValidCall]:
    model = build_model("mlp", 3, image_size=8)
    write_tensors(_folder() / "weights.safetensors", model.state_dict(), {})
    sizes = {"n_classes": 3, "image_size": 8, "channels": 1}
    return {
        **_of("models.build_model", name="mlp", **sizes),
        **_of("models.MLP", **sizes),
        **_of("models.SmallConvNet", **sizes),
        **_of("models.SmallResNet", **sizes),
        **_of("models.DenseNet", **sizes),
        **_of("models.ResNet", block=BasicBlock, depths=[1, 1], widths=[8, 8], **sizes),
        **_of("models.TimmClassifier", name="resnet10t", **sizes),
        **_of("models.import_model", source="math:sqrt"),
        **_of("models.load_weights", model=model, path=_folder() / "weights.safetensors"),
        **_of("models.read_tensors", path=_folder() / "weights.safetensors"),
        **_of("models.write_tensors", path="out.safetensors", tensors={"a": torch.ones(2)}, record={"b": 1}),
        **_of("models.check_model", name="mlp"),
        **_of("models.n_parameters", model=model),
    }


def _training() -> dict[str, ValidCall]:
    settings = Settings(data="digits", model="mlp", epochs=1, shifts=(), test_sample=8)
    digits = open_dataset("digits")
    model = build_model("mlp", 10, image_size=8, channels=1)
    (_folder() / "settings.toml").write_text("epochs = 1\n")
    train(settings, _folder() / "run")
    return {
        **_of("training.run.train", settings=settings, folder="run"),
        **_of("training.settings.Settings", **settings.model_dump()),
        **_of("training.settings.read_settings", path=_folder() / "settings.toml", **settings.model_dump()),
        **_of("training.predicting.predict_run", path=_folder() / "run", output="out", names=["test"]),
        **_of("training.predicting.predict_model", model=model, data="digits", names=["test"], output="out"),
        **_of("training.predicting.predict", model=model, data=digits, name="test"),
    }


def _reports() -> dict[str, ValidCall]:
    made = Experiment(data=("fashion_mnist_mini",), losses=("cross_entropy", "maxent_mean"), seeds=1)
    rows, _ = made.tables
    folder = write_folder(_folder() / "experiment", made)
    file = write_sweep(_folder() / "experiment.toml", {"loss": ["cross_entropy"]})
    return {
        **_of("experiments.config.read_experiment", path=file),
        **_of("experiments.run.run_experiment", file=file, output="out"),
        **_of("experiments.samples.sample_images", rows=rows),
        **_of("report.experiment.write_experiment", folder=folder.path, figures=["severity"]),
        **_of("report.figures.make_figure", name="gibbs"),
        **_of("report.claims.make_claims", rows=rows),
        **_of("report.combinations.make_combinations", rows=rows),
        **_of("report.paper.make_table", rows=rows, name="1"),
        **_of("report.formats.render", table=make_table(rows, "1"), format="markdown"),
    }


def _integrations() -> dict[str, ValidCall]:
    rows = _rows()
    features = rows.logits.numpy()
    labels = rows.labels.numpy()
    output = SimpleNamespace(predictions=features, label_ids=labels)

    def updated(predictions: Any, labels: Any) -> Any:
        metric = CalibrationScore(3)
        metric.update(predictions, labels)
        return metric.compute()

    return {
        "integrations.sklearn.CalibratedClassifier": ValidCall(
            lambda **given: CalibratedClassifier(**given).fit(features, labels),
            {"estimator": LogisticRegression(), "calibrator": "temperature", "cv": 3},
        ),
        **_of("integrations.torchmetrics.CalibrationMetric", name="ece", n_classes=3),
        **_of("integrations.torchmetrics.CalibrationScore", n_classes=3),
        "integrations.torchmetrics.CalibrationScore.update": ValidCall(
            updated, {"predictions": rows.logits, "labels": rows.labels}
        ),
        **_of("integrations.lightning.CalibrationCallback", folder="out"),
        **_of("integrations.transformers.compute_metrics", metrics=["ece"]),
        **_of("integrations.transformers.loss_func", criterion=cb.losses.FocalLoss()),
        **_of("integrations.transformers.predictions", output=output),
    }
