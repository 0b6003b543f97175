"""What calibrant and its peers do with the same rows: the calls that benchmarks/peers.py times, and what they find.

    python benchmarks/peer_calls.py NAME FOLDER

is one library in a process of its own. It answers questions, lines of JSON: a task, a file of rows in the folder, and
how often; the answer has the CPU seconds of a call, and its results by name. Only this library is imported.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

Results = dict[str, float]
N_BINS, COVERAGE = 15, 0.9


class Rows(NamedTuple):
    """Float32 logits, the labels, and the softmax, of rows to fit on and of rows to evaluate: arrays or tensors."""

    fit_logits: Any
    fit_labels: Any
    fit_probs: Any
    logits: Any
    labels: Any
    probs: Any

    @property
    def n_classes(self) -> int:
        return int(self.logits.shape[1])

    def tensors(self) -> "Rows":
        import torch

        return Rows(*map(torch.from_numpy, self))


class Task(NamedTuple):
    """A call, and the results in what it returns, which are not timed."""

    call: Callable[[], Any]
    results: Callable[[Any], Results]


Tasks = dict[str, Task]


def value(name: str) -> Callable[[Any], Results]:
    return lambda found: {name: float(found)}


def of_mask(method: str, labels: Any) -> Callable[[Any], Results]:
    """The coverage and the mean size of the sets that a matrix of booleans says."""

    def results(mask: Any) -> Results:
        mask = np.asarray(mask)
        return of_sets(method, mask[np.arange(len(mask)), np.asarray(labels)].mean(), mask.sum() / len(mask))

    return results


def of_sets(method: str, coverage: float, mean_size: float) -> Results:
    return {f"coverage of {method}": float(coverage), f"mean size of {method}": float(mean_size)}


def calibrant(rows: Rows) -> Tasks:
    import calibrant as cb
    from calibrant.metrics import expected_calibration_error, smooth_calibration_error, top_label

    rows = rows.tensors()

    def sets(method: str) -> cb.Predictions:
        fitted = cb.ConformalSets.fit(cb.Predictions.from_logits(rows.fit_logits, rows.fit_labels), method=method)
        return fitted(cb.Predictions.from_logits(rows.logits, rows.labels))

    def scored(method: str, predictions: cb.Predictions) -> Results:
        found = cb.score_sets(predictions)
        return of_sets(method, found.coverage.value, found.mean_size)

    return {
        "ece": Task(lambda: expected_calibration_error(*top_label(rows.probs, rows.labels)), value("ece")),
        "smece": Task(lambda: smooth_calibration_error(*top_label(rows.probs, rows.labels)), value("smece")),
        "scorecard": Task(lambda: cb.score(cb.Predictions.from_logits(rows.logits, rows.labels)).values(), dict),
        "temperature": Task(
            lambda: cb.TemperatureScaling.fit(cb.Predictions.from_logits(rows.fit_logits, rows.fit_labels)).temperature,
            value("temperature"),
        ),
        "lac": Task(lambda: sets("lac"), lambda found: scored("LAC", found)),
        "aps": Task(lambda: sets("aps"), lambda found: scored("APS", found)),
    }


def torchmetrics(rows: Rows) -> Tasks:
    from torchmetrics import MetricCollection
    from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError
    from torchmetrics.functional.classification import multiclass_calibration_error

    rows, k = rows.tensors(), rows.n_classes
    collection = MetricCollection(
        {
            "accuracy": MulticlassAccuracy(k, average="micro"),
            "ece": MulticlassCalibrationError(k, N_BINS),
            "mce": MulticlassCalibrationError(k, N_BINS, "max"),
            "rmsce": MulticlassCalibrationError(k, N_BINS, "l2"),
        }
    )
    return {
        "ece": Task(lambda: multiclass_calibration_error(rows.probs, rows.labels, k, N_BINS), value("ece")),
        "scorecard": Task(lambda: updated(collection, rows.logits, rows.labels), floats),
    }


def updated(metric: Any, predictions: Any, labels: Any) -> Any:
    """The value of a metric with the interface of torchmetrics."""
    metric.reset()
    metric.update(predictions, labels)
    return metric.compute()


def floats(found: dict[str, Any]) -> Results:
    return {name: float(each) for name, each in found.items()}


def torch_uncertainty(rows: Rows) -> Tasks:
    """Its metrics are those of ClassificationRoutine, in the same groups of shared states."""
    declare_torchvision_operators()
    from torch_uncertainty import metrics
    from torch_uncertainty.post_processing import ConformalClsAPS, ConformalClsTHR, TemperatureScaler
    from torchmetrics import Accuracy, MetricCollection

    rows, k = rows.tensors(), rows.n_classes
    options: dict[str, Any] = {"task": "multiclass", "num_classes": k}
    collection = MetricCollection(
        {
            "accuracy": Accuracy(**options),
            "brier": metrics.BrierScore(num_classes=k),
            "nll": metrics.CategoricalNLL(),
            "ece": metrics.CalibrationError(num_bins=N_BINS, **options),
            "mce": metrics.CalibrationError(num_bins=N_BINS, norm="max", **options),
            "adaece": metrics.CalibrationError(num_bins=N_BINS, adaptive=True, **options),
            "smece": metrics.SmoothCalibrationError(),
            "aurc": metrics.AURC(),
            "augrc": metrics.AUGRC(),
            "coverage at 5 % risk": metrics.CovAt5Risk(),
            "risk at 80 % coverage": metrics.RiskAt80Cov(),
        },
        compute_groups=[
            ["accuracy"],
            ["brier"],
            ["nll"],
            ["ece", "smece", "mce", "adaece"],
            ["aurc", "augrc", "coverage at 5 % risk", "risk at 80 % coverage"],
        ],
    )
    ece, smece = metrics.CalibrationError(num_bins=N_BINS, **options), metrics.SmoothCalibrationError()
    validation = [(rows.fit_logits, rows.fit_labels)]  # a loader of one batch

    def temperature() -> Any:
        scaler = TemperatureScaler()
        scaler.fit(validation, progress=False)  # type: ignore[arg-type]
        return scaler.temperature[0]

    def sets(kind: type, **given: Any) -> Any:
        import torch

        fitted = kind(alpha=1 - COVERAGE, model=torch.nn.Identity(), enable_ts=False, **given)
        fitted.fit(validation)
        return fitted(rows.logits) > 0

    return {
        "ece": Task(lambda: updated(ece, rows.probs, rows.labels), value("ece")),
        "smece": Task(lambda: updated(smece, rows.probs, rows.labels), value("smece")),
        "scorecard": Task(lambda: updated(collection, rows.logits.softmax(1), rows.labels), floats),
        "temperature": Task(temperature, value("temperature")),
        "lac": Task(lambda: sets(ConformalClsTHR), of_mask("LAC", rows.labels)),
        "aps": Task(lambda: sets(ConformalClsAPS, randomized=False), of_mask("APS", rows.labels)),
    }


def declare_torchvision_operators() -> None:
    """Let torchvision be imported beside a torch for which its compiled operators were not built.

    It registers shape functions for two of them by name. Nothing that is timed calls one.
    """
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def probmetrics(rows: Rows) -> Tasks:
    without_numba()
    from probmetrics.calibrators import TemperatureScalingCalibrator
    from probmetrics.distributions import CategoricalLogits
    from probmetrics.metrics import Metrics

    rows = rows.tensors()
    names = {"accuracy": "accuracy", "nll": "logloss", "brier": "brier", "smece": "smece"}
    names |= {f"{each}ce": f"{each}ce-{N_BINS}" for each in ("e", "m", "rms")}
    ece, smece, card = (Metrics.from_names(given) for given in ([names["ece"]], ["smece"], list(names.values())))

    def temperature() -> float:
        scaler = TemperatureScalingCalibrator().fit_torch(CategoricalLogits(rows.fit_logits), rows.fit_labels)
        return 1 / float(scaler.invtemp_)

    def of_card(found: dict[str, Any]) -> Results:
        return {ours: float(found[theirs]) for ours, theirs in names.items()}

    return {
        "ece": Task(
            lambda: ece.compute_all_from_labels_probs(rows.labels, rows.probs)[names["ece"]],
            value("ece"),
        ),
        "smece": Task(
            lambda: smece.compute_all_from_labels_probs(rows.labels, rows.probs)["smece"],
            value("smece"),
        ),
        "scorecard": Task(lambda: card.compute_all_from_labels_logits(rows.labels, rows.logits), of_card),
        "temperature": Task(temperature, value("temperature")),
    }


def without_numba() -> None:
    """Stand in for numba, which probmetrics imports for a solver that is not timed: numba imports coverage.py here."""
    numba: Any = ModuleType("numba")
    numba.njit = lambda *given, **options: given[0] if given else lambda function: function
    sys.modules["numba"] = numba


def netcal(rows: Rows) -> Tasks:
    from netcal.metrics import ACE, ECE, MCE
    from netcal.scaling import TemperatureScaling
    from scipy.special import softmax

    doubles = rows.fit_probs.astype(float)  # in float32 its temperature stays at 1
    measures = {"ece": ECE(N_BINS), "mce": MCE(N_BINS), "ace": ACE(N_BINS)}

    def card() -> Results:
        probs = softmax(rows.logits, axis=1)
        return {name: each.measure(probs, rows.labels) for name, each in measures.items()}

    def temperature() -> float:
        return 1 / float(TemperatureScaling().fit(doubles, rows.fit_labels).temperature.item())

    return {
        "ece": Task(lambda: measures["ece"].measure(rows.probs, rows.labels), value("ece")),
        "scorecard": Task(
            lambda: {name: each.measure(rows.probs, rows.labels) for name, each in measures.items()}, dict
        ),
        "temperature": Task(temperature, value("temperature")),
    }


def relplot(rows: Rows) -> Tasks:
    import relplot as rp
    from relplot.metrics import binnedECE

    def top() -> Any:
        return rp.multiclass_logits_to_confidences(rows.probs, rows.labels, probs=True)

    return {
        "ece": Task(lambda: binnedECE(*top(), N_BINS), value("ece")),
        "smece": Task(lambda: rp.smECE(*top()), value("smece")),
    }


def scikit_learn(rows: Rows) -> Tasks:
    """Its temperature is that of CalibratedClassifierCV(method="temperature"), by its private class."""
    from scipy.special import softmax
    from sklearn.calibration import _TemperatureScaling
    from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

    classes, doubles = np.arange(rows.n_classes), rows.fit_logits.astype(float)

    def card() -> Results:
        probs = softmax(rows.logits.astype(float), axis=1)
        return {
            "accuracy": accuracy_score(rows.labels, probs.argmax(1)),
            "nll": log_loss(rows.labels, probs, labels=classes),
            "brier": brier_score_loss(rows.labels, probs, labels=classes),
        }

    def temperature() -> float:
        return 1 / float(_TemperatureScaling().fit(doubles, rows.fit_labels).beta_)

    return {
        "scorecard": Task(card, dict),
        "temperature": Task(
            lambda: 1 / float(_TemperatureScaling().fit(doubles, rows.fit_labels).beta_), value("temperature")
        ),
    }


def mapie(rows: Rows) -> Tasks:
    from mapie.classification import SplitConformalClassifier
    from scipy.special import softmax
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """A classifier whose inputs are its probabilities."""

        def fit(self, probs: Any, _: None) -> "Given":
            self.classes_ = np.arange(probs.shape[1])
            return self

        def predict_proba(self, probs: Any) -> Any:
            return probs

        def predict(self, probs: Any) -> Any:
            return probs.argmax(1)

    def sets(method: str, **options: Any) -> Any:
        seen, probs = (softmax(logits.astype(float), axis=1) for logits in (rows.fit_logits, rows.logits))
        given: dict[str, Any] = {"confidence_level": COVERAGE, "conformity_score": method, "random_state": 0}
        fitted = SplitConformalClassifier(Given().fit(seen, None), **given).conformalize(seen, rows.fit_labels)
        return fitted.predict_set(probs, conformity_score_params=options)[1][:, :, 0]

    return {
        "lac": Task(lambda: sets("lac"), of_mask("LAC", rows.labels)),
        "aps": Task(lambda: sets("aps", include_last_label=True), of_mask("APS", rows.labels)),
    }


LIBRARIES: dict[str, Callable[[Rows], Tasks]] = {
    "calibrant": calibrant,
    "torch-uncertainty": torch_uncertainty,
    "probmetrics": probmetrics,
    "netcal": netcal,
    "relplot": relplot,
    "torchmetrics": torchmetrics,
    "scikit-learn": scikit_learn,
    "mapie": mapie,
}


def answer(tasks: Tasks, name: str, repeats: int) -> dict[str, Any]:
    """The CPU seconds of one call, averaged, and the results of the last."""
    if name not in tasks:
        return {}
    start = time.process_time()
    for _ in range(repeats):
        found = tasks[name].call()
    seconds = (time.process_time() - start) / repeats
    return {"seconds": seconds, "results": {key: float(each) for key, each in tasks[name].results(found).items()}}


def main(name: str, folder: str) -> None:
    replies, sys.stdout = sys.stdout, sys.stderr  # some libraries print
    warnings.simplefilter("ignore")
    logging.disable()
    file, tasks = None, {}
    print(json.dumps({"version": version(name)}), file=replies, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if question["rows"] != file:
                file = question["rows"]
                arrays = np.load(Path(folder) / file)
                tasks = LIBRARIES[name](Rows(*(arrays[field] for field in Rows._fields)))
            reply = answer(tasks, question["task"], question["repeats"])
        except Exception as error:  # whatever another library raises is its answer
            reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
