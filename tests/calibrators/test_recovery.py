"""What every calibrator corrects, against the true probabilities; and that it does no harm where it cannot."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from calibrant.calibrators import DensityAwareScaling, SetTemperature, TemperatureScaling
from made.calibrator_check import CALIBRATORS
from made.calibrator_data import (
    Truth,
    angle_rows,
    class_rows,
    cluster_rows,
    domain_rows,
    fade,
    like,
    mapped,
    nll_per_row,
    scored_rows,
    set_rows,
    shifted_rows,
    two_class,
)

N = 12_000
SKEWED = (0.75, 0.2, 0.05, 0.0)
GAIN = 3  # every bound is at least so many times below the error that there was
VALIDATION, FRESH = 21, 22  # seeds


@dataclass(frozen=True)
class Proof:
    """Rows of one seed, drawn from a known map; how near the calibrated ones must come to it; options of the fit."""

    rows: Callable[[int], Truth]
    bound: float
    options: Callable[[], dict[str, Any]] = dict
    fresh: Callable[[], Truth] | None = None

    def fresh_rows(self) -> Truth:
        return self.rows(FRESH) if self.fresh is None else self.fresh()


# The true maps


CLASS_WEIGHTS = torch.tensor([0.3, 0.5, 0.9, 0.4], dtype=torch.float64)
CLASS_BIASES = torch.tensor([0.8, -1.0, 0.0, 0.5], dtype=torch.float64)
MIXING = torch.tensor(
    [[0.4, 0.2, 0.0, -0.1], [-0.2, 0.5, 0.1, 0.0], [0.0, 0.0, 0.3, 0.2], [0.1, -0.3, 0.0, 0.6]], dtype=torch.float64
)


def divided(logits: Tensor) -> Tensor:
    return logits / 2.5


def class_by_class(logits: Tensor) -> Tensor:
    return CLASS_WEIGHTS * logits + CLASS_BIASES


def mixed_classes(logits: Tensor) -> Tensor:
    return logits @ MIXING.T + CLASS_BIASES


def mixed_log_probs(logits: Tensor) -> Tensor:
    return mixed_classes(logits.log_softmax(1))


def class_by_log_prob(logits: Tensor) -> Tensor:
    return class_by_class(logits.log_softmax(1))


def three_parts(logits: Tensor) -> Tensor:
    return (0.5 * (logits / 3).softmax(1) + 0.2 * logits.softmax(1) + 0.3 / logits.shape[1]).log()


def shrunken(logits: Tensor) -> Tensor:
    """Linear in the probabilities: the one map of each class's own that leaves every sum at 1."""
    return (0.4 * logits.softmax(1) + 0.6 / logits.shape[1]).log()


def with_confidence(logits: Tensor, true_confidence: Callable[[Tensor], Tensor]) -> Tensor:
    """The greatest probability has another true value: each row is scaled until it has, by halving an interval."""
    true = true_confidence(logits.softmax(1).amax(1, keepdim=True)).clamp(min=1.01 / logits.shape[1])
    low, high = torch.zeros_like(true), torch.full_like(true, 1e3)
    for _ in range(60):
        middle = (low + high) / 2
        below = (middle * logits).softmax(1).amax(1, keepdim=True) < true
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high * logits


def cooled_by_entropy(logits: Tensor) -> Tensor:
    """1/T is linear in the entropy of the row."""
    log_probs = logits.log_softmax(1)
    entropy = -(log_probs.exp() * log_probs).sum(1, keepdim=True)
    return logits * (0.25 + 0.75 * entropy / math.log(logits.shape[1]))


def straightened(positive: Tensor) -> Tensor:
    return (0.35 * positive.logit() + 0.9).sigmoid()


def skewed(positive: Tensor) -> Tensor:
    return (0.3 * positive.log() - 1.4 * (1 - positive).log() + 0.2).sigmoid()


def wave(positive: Tensor) -> Tensor:
    """Not monotone."""
    return 0.5 + 0.3 * (2 * math.pi * positive).sin()


def plateau(positive: Tensor) -> Tensor:
    """Monotone, with a kink."""
    return 0.2 + 0.6 * (2 * positive - 1).clamp(min=0)


# The proofs


def of_logits(
    true_logits: Callable[[Tensor], Tensor], bound: float, n: int = N, scale: float = 3.0, **options: Any
) -> Proof:
    return Proof(lambda seed: mapped(n, 4, true_logits, seed=seed, scale=scale), bound, lambda: options)


def of_two_classes(true_positive: Callable[[Tensor], Tensor], bound: float, n: int = N) -> Proof:
    return Proof(lambda seed: two_class(n, true_positive, seed=seed), bound)


def perturbed_copies(seed: int, types: tuple[str, ...] = ("none", "gaussian", "blur")) -> Truth:
    columns = {"corruption": [types[i % len(types)] for i in range(N)], "severity": [i % 4 for i in range(N)]}
    return mapped(N, 4, divided, seed=seed, columns=columns)


KNOWN_DOMAINS = {f"domain {i}": i / 7 for i in range(8)}
NEW_DOMAINS = {"new 0": 0.2, "new 1": 0.5, "new 2": 0.8}


KNOWN_SETS = [(kind, float(severity)) for kind in ("blur", "fog", "noise", "snow") for severity in range(6)]
NEW_SETS = [(kind, severity) for kind in ("frost", "rain") for severity in (0.5, 1.5, 2.5, 3.5, 4.5)]


def known_sets(seed: int) -> Truth:
    return set_rows(500, KNOWN_SETS, seed=seed)


def new_sets() -> Truth:
    return set_rows(600, NEW_SETS, seed=FRESH)


def without(truth: Truth, part: str) -> Truth:
    return Truth(like(truth.predictions, **{part: None}), truth.probs)


def clean_reference() -> dict[str, Any]:
    return {"reference": set_rows(500, [("none", 0.0)], seed=23).predictions}


def far_target() -> dict[str, Any]:
    return {"target": like(cluster_rows(6000, 0.97, seed=24).predictions, labels=None)}


def skewed_target() -> dict[str, Any]:
    return {"target": like(class_rows(6000, SKEWED, seed=27).predictions, labels=None)}


def pole_reference() -> dict[str, Any]:
    return {"reference": angle_rows(500, seed=25, widest=0.03).predictions}


PROOFS: dict[tuple[str, str], Proof] = {
    ("temperature", "exact"): of_logits(divided, 0.01),
    ("temperature_grid", "grid"): of_logits(divided, 0.01, grid=(1.25, 2.5, 5.0)),
    ("ensemble_temperature", "three parts"): of_logits(three_parts, 0.02),
    ("ensemble_temperature", "one part"): of_logits(divided, 0.015),
    ("svs", "class by class"): of_logits(class_by_log_prob, 0.02),
    ("vector", "class by class"): of_logits(class_by_class, 0.02),
    ("sms", "mixed classes"): of_logits(mixed_log_probs, 0.03),
    ("matrix", "mixed classes"): of_logits(mixed_classes, 0.03),
    ("matrix", "class by class"): of_logits(class_by_class, 0.03),
    ("dirichlet", "mixed classes"): of_logits(mixed_log_probs, 0.03),
    ("platt", "log-odds"): of_two_classes(straightened, 0.015),
    ("beta", "skewed"): of_two_classes(skewed, 0.015),
    ("beta", "log-odds"): of_two_classes(straightened, 0.02),
    ("histogram", "wave"): of_two_classes(wave, 0.04, 20_000),
    ("bbq", "wave"): of_two_classes(wave, 0.04, 20_000),
    ("venn_abers", "plateau"): of_two_classes(plateau, 0.03, 20_000),
    ("isotonic", "plateau"): of_two_classes(plateau, 0.03, 20_000),
    ("isotonic", "log-odds"): of_two_classes(straightened, 0.03, 20_000),
    ("isotonic_multiclass", "shrunken"): of_logits(shrunken, 0.03),
    ("spline", "squared confidence"): of_logits(lambda z: with_confidence(z, torch.square), 0.03, 20_000),
    ("spline", "squared doubt"): of_logits(  # too little confidence: the predicted class is always the likeliest
        lambda z: with_confidence(z, lambda confidence: 1 - (1 - confidence).square()), 0.03, 20_000, scale=1.0
    ),
    ("perturbed_temperature", "unseen type"): Proof(
        perturbed_copies, 0.01, fresh=lambda: perturbed_copies(FRESH, ("frost",))
    ),
    ("domain_temperature", "known domains"): Proof(lambda seed: domain_rows(N, KNOWN_DOMAINS, seed=seed), 0.02),
    ("domain_temperature", "new domains"): Proof(
        lambda seed: domain_rows(N, KNOWN_DOMAINS, seed=seed),
        0.03,
        fresh=lambda: domain_rows(N, NEW_DOMAINS, seed=FRESH),
    ),
    ("domain_temperature", "nameless domains"): Proof(
        lambda seed: domain_rows(N, KNOWN_DOMAINS, seed=seed),
        0.03,
        fresh=lambda: without(domain_rows(N, NEW_DOMAINS, seed=FRESH), "columns"),
    ),
    ("set_temperature", "new sets"): Proof(known_sets, 0.03, clean_reference, fresh=new_sets),
    ("set_temperature", "new sets without features"): Proof(
        lambda seed: without(known_sets(seed), "features"), 0.03, fresh=lambda: without(new_sets(), "features")
    ),
    ("transcal", "far cluster"): Proof(
        lambda seed: cluster_rows(N, 0.25, seed=seed),
        0.05,
        far_target,
        fresh=lambda: cluster_rows(N, 0.97, seed=FRESH),
    ),
    ("label_shift", "other proportions"): Proof(
        lambda seed: class_rows(N, [0.25] * 4, seed=seed),
        0.02,
        skewed_target,
        fresh=lambda: class_rows(N, SKEWED, seed=FRESH),
    ),
    ("density_aware", "angle from the reference"): Proof(lambda seed: angle_rows(N, seed=seed), 0.03, pole_reference),
    ("conditional_temperature", "rising with a column"): Proof(
        lambda seed: scored_rows(N, seed=seed, rising=False), 0.02, lambda: {"score": "noise"}
    ),
    ("conditional_temperature", "falling with a column"): Proof(
        lambda seed: scored_rows(N, seed=seed, rising=True), 0.02, lambda: {"score": "noise"}
    ),
    ("conditional_temperature", "entropy"): of_logits(cooled_by_entropy, 0.03),
}
TOP_LABEL = {"spline"}


def test_every_calibrator_has_a_proof() -> None:
    assert {name for name, _ in PROOFS} | {"identity"} == set(CALIBRATORS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), PROOFS)
def test_calibrates(name: str, kind: str) -> None:
    proof = PROOFS[name, kind]
    fresh = proof.fresh_rows()
    calibrated = CALIBRATORS[name].fit(proof.rows(VALIDATION).predictions, **proof.options())(fresh.predictions)
    errors = [(fresh.error(fresh.predictions), fresh.error(calibrated))]
    if name in TOP_LABEL:
        errors.append((fresh.top_error(fresh.predictions), fresh.top_error(calibrated)))
    for before, after in errors:
        assert proof.bound * GAIN <= before
        assert after <= proof.bound, (before, after)


def test_the_identity_keeps_what_is_calibrated() -> None:
    truth = mapped(N, 4, lambda logits: logits, seed=FRESH)
    validation = mapped(N, 4, divided, seed=VALIDATION).predictions
    assert truth.error(CALIBRATORS["identity"].fit(validation)(truth.predictions)) < 1e-12


# Parameters come back


def test_temperatures_of_new_sets_come_back() -> None:
    calibrator = SetTemperature.fit(known_sets(VALIDATION).predictions, **clean_reference())
    for severity in (0.5, 2.5, 4.5):
        unseen = set_rows(1500, [("frost", severity)], seed=26).predictions
        true_scale, seen_scale = fade(severity)
        found = calibrator.temperature_of(unseen)
        assert found == pytest.approx(seen_scale / true_scale, rel=0.15)
        adapted = calibrator.adapt(unseen)
        assert isinstance(adapted, TemperatureScaling)
        assert adapted.temperature == pytest.approx(found, rel=1e-12)


def test_distance_coefficients_come_back() -> None:
    calibrator = DensityAwareScaling.fit(angle_rows(N, seed=VALIDATION).predictions, **pole_reference())
    assert calibrator.w0 == pytest.approx(1.0, abs=0.25)
    assert calibrator.w1 == pytest.approx(2.5, rel=0.15)


# No harm where there is nothing to calibrate, or nothing that the calibrator could


N_PARAMETERS = dict.fromkeys(CALIBRATORS, 4) | {
    **{"identity": 0, "temperature": 1, "temperature_grid": 1, "perturbed_temperature": 1, "ensemble_temperature": 3},
    **{"svs": 8, "sms": 20, "venn_abers": 40},
    **{"vector": 8, "matrix": 20, "dirichlet": 20, "platt": 2, "beta": 3, "spline": 8, "conditional_temperature": 6},
    **{
        "histogram": 60,
        "bbq": 80,
        "isotonic": 80,
        "isotonic_multiclass": 30,
        "transcal": 2,
        "label_shift": 8,
        "density_aware": 2,
    },
}  # about
N_HARM = 2000


@pytest.mark.parametrize("truth", ["calibrated", "hidden"])
@pytest.mark.parametrize("name", CALIBRATORS)
def test_does_no_harm(name: str, truth: str) -> None:
    n_classes = 2 if CALIBRATORS[name].two_classes_only else 4
    validation, fresh, target = (
        shifted_rows(N_HARM, n_classes, seed=seed, truth=truth).predictions for seed in (31, 32, 33)
    )
    options: dict[str, Any] = {"target": target} if CALIBRATORS[name].needs_target else {}
    if "grid" in CALIBRATORS[name].options():
        options["grid"] = (0.5, 1.0, 2.0)  # that of the paper has no 1: it harms a calibrated model
    worse = nll_per_row(CALIBRATORS[name].fit(validation, **options)(fresh)) - nll_per_row(fresh)
    noise = 3 * worse.std().item() / math.sqrt(N_HARM)
    assert worse.mean().item() <= noise + 2 * N_PARAMETERS[name] / N_HARM
