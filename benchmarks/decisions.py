"""Decisions compared with peers and floors: sets, certified thresholds, AUROC, Venn-Abers, structured scaling.

Run: python benchmarks/decisions.py [--rounds 5] [--rows 50000]
One thread, CPU time, interleaved rounds; median (min-max). Predictions are new in every call, so that times include the
checks of rows and their hashes. MAPIE, crepes and venn-abers take probabilities, which they get in float64.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import argparse
import warnings
from collections.abc import Callable

import numpy as np
import torch
from crepes import ConformalClassifier
from crepes.extras import hinge
from mapie.classification import SplitConformalClassifier
from numpy.typing import NDArray
from peer_calls import without_numba
from recording import Ratio, record
from rich.console import Console
from rich.table import Table
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from timing import cpu_seconds, ratios
from torch import Tensor
from venn_abers.venn_abers import calc_p0p1, calc_probs

import calibrant as cb

Calls = dict[str, Callable[[], object]]
N_VALIDATION = 2_000
SLOW = 1  # calls before the timing of functions that take seconds


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are its probabilities, as MAPIE wants one."""

    def fit(self, probs: NDArray[np.float64], _: None) -> "Given":
        self.classes_ = np.arange(probs.shape[1])
        return self

    def predict_proba(self, probs: NDArray[np.float64]) -> NDArray[np.float64]:
        return probs

    def predict(self, probs: NDArray[np.float64]) -> NDArray[np.int64]:
        return probs.argmax(1)


def draw(n: int, k: int, temperature: float = 1.0, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    """Float32 logits, and labels drawn from their softmax at a temperature."""
    logits = scale * torch.randn(n, k)
    return logits, (logits / temperature - torch.empty_like(logits).exponential_().log_()).argmax(1)


def doubles(logits: Tensor) -> NDArray[np.float64]:
    return logits.double().softmax(1).numpy()


def sets(method: str, validation: tuple[Tensor, Tensor], logits: Tensor, probs: NDArray[np.float64]) -> Calls:
    ours, theirs = fitted_sets(method, validation)
    options = {"include_last_label": True} if method == "aps" else {}
    return {
        "calibrant, lists from logits": lambda: ours(cb.Predictions.from_logits(logits)),
        "MAPIE, masks from logits": lambda: theirs.predict_set(doubles(logits), conformity_score_params=options),
        "MAPIE, masks from probabilities": lambda: theirs.predict_set(probs, conformity_score_params=options),
    }


def small_sets() -> Calls:
    """With crepes, which compares the score of every class of every row with those of validation."""
    validation, (logits, _) = draw(N_VALIDATION, 100), draw(2_000, 100)
    seen, probs = doubles(validation[0]), doubles(logits)
    peer = ConformalClassifier().fit(hinge(seen, np.arange(seen.shape[1]), validation[1].numpy()))

    def crepes() -> object:
        return peer.predict_set(hinge(probs), confidence=0.9, smoothing=False)

    return {**sets("lac", validation, logits, probs), "crepes, masks from probabilities": crepes}


def fitted_sets(method: str, validation: tuple[Tensor, Tensor]) -> tuple[cb.ConformalSets, SplitConformalClassifier]:
    seen = doubles(validation[0])
    options = {"confidence_level": 0.9, "conformity_score": method, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not every class is among the labels of validation
        theirs = SplitConformalClassifier(Given().fit(seen, None), **options).conformalize(seen, validation[1].numpy())
    return cb.ConformalSets.fit(cb.Predictions.from_logits(*validation), method=method), theirs


def certifying() -> Calls:
    logits, labels = draw(1_000_000, 10)
    confidence = doubles(logits).max(1)

    def ours() -> cb.decisions.Threshold:
        return cb.certify(cb.Predictions.from_logits(logits, labels), max_error=0.05)

    return {
        "np.argsort of the confidences": lambda: np.argsort(confidence),
        "softmax of the logits, and np.argsort": lambda: np.argsort(logits.double().softmax(1).amax(1).numpy()),
        "calibrant, certify": ours,
    }


def separating() -> Calls:
    inside, outside = torch.randn(2, 100_000).double() + torch.tensor([[0.0], [1.0]])
    scores, truth = torch.cat([inside, outside]).numpy(), np.repeat([0, 1], 100_000)

    def three() -> object:
        return roc_auc_score(truth, scores), average_precision_score(truth, scores), roc_curve(truth, scores)

    return {
        "scikit-learn, roc_auc_score": lambda: roc_auc_score(truth, scores),
        "scikit-learn, AUROC, average precision and ROC curve": three,
        "calibrant, AUROC, AUPR and FPR with intervals": lambda: cb.Detection.of(inside, outside),
    }


def venn_abers() -> Calls:
    logits, labels = draw(20_000, 2, 2.0)
    probs, n = doubles(logits), 10_000
    fit, calibration = cb.CALIBRATORS["venn_abers"].fit, (logits[:n], labels[:n])

    def theirs() -> object:
        return calc_probs(*calc_p0p1(probs[:n], labels[:n].numpy()), probs[n:])

    def ours() -> object:
        return fit(cb.Predictions.from_logits(*calibration)).interval(cb.Predictions.from_logits(logits[n:]))

    return {"calibrant, venn_abers": ours, "venn-abers": theirs}


def structured() -> Calls:
    logits, labels = draw(50_000, 100, 2.0, 2.0)
    calls: Calls = {
        name: lambda fit=cb.CALIBRATORS[name].fit: fit(cb.Predictions.from_logits(logits, labels))
        for name in ("matrix", "sms", "svs")
    }
    probs, truth = logits.softmax(1).numpy(), labels.numpy()
    for peer in probmetrics_calibrators():
        calls[f"probmetrics, {peer.__name__}"] = lambda peer=peer: peer(print_init_info=False).fit(probs, truth)
    return calls


def probmetrics_calibrators() -> tuple[type, type]:
    without_numba()
    from probmetrics.calibrators.logistic import SMSCalibrator, SVSCalibrator

    return SMSCalibrator, SVSCalibrator


def show(
    title: str, calls: Calls, n_rounds: int, n_warm_up: int, console: Console, goals: dict[str, dict[str, float]]
) -> list[Ratio]:
    """Print the time of each call relative to the first."""
    found = ratios(calls, n_rounds, n_warm_up)
    seconds = {name: cpu_seconds(call, 1) for name, call in calls.items()}
    table = Table(title=title)
    for column in ("", "CPU time / first", "seconds"):
        table.add_column(column, justify="right" if column else "left")
    for name, (middle, low, high) in found.items():
        table.add_row(name.replace("[", "\\["), f"{middle:.2f} ({low:.2f}-{high:.2f})", f"{seconds[name]:.3f}")
    console.print(table)
    first, *others = found
    return [
        Ratio(
            what=f"{title}: {name}",
            relative_to=first,
            ratio=found[name][0],
            low=found[name][1],
            high=found[name][2],
            **goals.get(name, {}),
        )
        for name in others
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=50_000, help="rows that get sets of 1,000 classes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    console, n_rounds = Console(width=140), max(1, options.rounds)
    validation, (logits, _) = draw(N_VALIDATION, 1000), draw(options.rows, 1000)
    probs = doubles(logits)
    size = f"({options.rows:,}, 1,000)"
    recorded = []

    def run(title: str, calls: Calls, n_warm_up: int = SLOW, **goals: dict[str, float]) -> None:
        recorded.extend(show(title, calls, n_rounds, n_warm_up, console, goals))

    masks = {f"MAPIE, masks from {given}": {"at_least": 5.0} for given in ("logits", "probabilities")}
    for method in ("aps", "lac"):
        run(f"{method} sets of {size}", sets(method, validation, logits, probs), **masks)
    del logits, probs
    run("lac sets of (2,000, 100)", small_sets())
    title, calls, certify = "threshold of 1,000,000 rows of ten classes", certifying(), "calibrant, certify"
    run(title, calls)
    seconds = [cpu_seconds(calls[certify], 1) for _ in range(n_rounds)]
    recorded.append(Ratio.of(f"{title}: {certify}", "1 s", seconds, at_most=2))
    run("100,000 scores inside and 100,000 outside", separating(), 3)
    run("10,000 rows fitted, 10,000 new", venn_abers())
    run("fit to (50,000, 100)", structured(), sms={"at_most": 1.0})
    record("decisions", recorded)


if __name__ == "__main__":
    main()
