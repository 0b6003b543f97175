"""Every metric against the shared battery, values by hand, millions of rows, and other libraries."""

import importlib
import itertools
import math
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import calibrant
from calibrant import Predictions, metrics
from calibrant.metrics import METRICS
from made.metric_check import (
    ASPECTS,
    OF_OUTCOMES,
    Aspect,
    Case,
    assert_value,
    logits_of,
    random_case,
    scored,
    streamed,
    tolerance,
    wanted_value,
)
from made.metric_oracles import ORACLES, OUTCOME_ORACLES, OutcomeRow, binned, smooth, smoothed


def test_every_metric_has_an_oracle() -> None:
    assert set(ORACLES) == set(METRICS)


@pytest.mark.parametrize("aspect", ASPECTS, ids=lambda aspect: aspect.__name__)
@pytest.mark.parametrize("name", METRICS)
def test_contract(name: str, aspect: Aspect) -> None:
    aspect(name)


def test_records() -> None:
    """Calibration errors are in percent and 0 at best; all but those of class 1 can be compared."""
    assert [metric.key for metric in METRICS.values()] == list(METRICS)
    assert len({metric.heading for metric in METRICS.values()}) == len(METRICS)
    assert {name for name, metric in METRICS.items() if metric.better is None} == {"confidence", "entropy"}
    assert {name for name, metric in METRICS.items() if metric.higher_is_better} == {"accuracy"}
    for name, metric in METRICS.items():
        assert metric.binary == name.endswith("_positive")
        assert (metric.gaps is None) + (metric.influence is None) == (2 if metric.binary else 1), name
        assert metric.floor is None or (metric.better == "lower" and metric.in_percent), name
        assert metric.title[0].islower() or metric.title.startswith(("Kolmogorov", "Brier", "NLL")), name


# The functions of outcomes, on confidences that are exactly edges and ties

BY_BINS = ("ece", "mce", "rmsce", "overconfidence", "underconfidence")
THIRTIETHS = st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.integers(0, 3)), min_size=1, max_size=30)


def tensors_of(rows: list[OutcomeRow], dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([r for r, _, _ in rows], dtype=dtype), torch.tensor([c for _, c, _ in rows])


def weights_of(rows: list[OutcomeRow]) -> torch.Tensor:
    return torch.tensor([w for _, _, w in rows], dtype=torch.float64)


@pytest.mark.parametrize("equal_mass", [False, True], ids=["equal_width", "equal_mass"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", BY_BINS)
def test_confidences_on_the_edges_of_bins(name: str, dtype: torch.dtype, equal_mass: bool) -> None:
    function = getattr(metrics, OF_OUTCOMES[name])
    numpy_type = np.float32 if dtype == torch.float32 else np.float64

    @settings(max_examples=25)
    @given(THIRTIETHS, st.sampled_from([1, 2, 3, 5, 10, 15, 30]), st.booleans())
    def agrees(grid: list[tuple[int, bool, int]], n_bins: int, weighted: bool) -> None:
        counts = [w if weighted and any(w for _, _, w in grid) else 1 for _, _, w in grid]
        rows = [(float(numpy_type(i / 30)), c, float(w)) for (i, c, _), w in zip(grid, counts, strict=True)]
        wanted = binned(rows, n_bins, equal_mass=equal_mass, dtype=numpy_type)[name]
        weights = weights_of(rows) if weighted else None
        got = function(*tensors_of(rows, dtype), n_bins=n_bins, equal_mass=equal_mass, weights=weights)
        assert_value(got.item(), wanted, 1e-9 if dtype == torch.float64 else 1e-6)

    agrees()


@pytest.mark.parametrize("name", ["adaece", "l2ce", "kse", "smece", "aurc"])
def test_exact_ties_and_certainties_without_equal_widths(name: str) -> None:
    function = getattr(metrics, OF_OUTCOMES[name])

    @settings(max_examples=25)
    @given(THIRTIETHS, st.sampled_from([1, 2, 3, 5, 10, 15, 30]))
    def agrees(grid: list[tuple[int, bool, int]], n_bins: int) -> None:
        rows = [(i / 30, c, 1.0) for i, c, _ in grid]
        options = {"n_bins": n_bins} if name in ("adaece", "l2ce") else {}
        wanted = OUTCOME_ORACLES[name](rows, n_bins)
        assert_value(function(*tensors_of(rows), **options).item(), wanted, tolerance(name))

    agrees()


# Values by hand


def test_values_by_hand() -> None:
    """Confidences 0.9 (correct), 0.6 (incorrect) and 0.6 (correct) of two classes."""
    case = Case(logits_of([[0.9, 0.1], [0.6, 0.4], [0.4, 0.6]]), torch.tensor([0, 1, 1]))
    wanted = {
        "accuracy": 2 / 3,
        "confidence": 0.7,
        "ece": (0.1 + 0.2) / 3,  # with 7 bins: 0.9 alone, the two 0.6 together
        "overconfidence": 0.2 / 3,
        "underconfidence": 0.1 / 3,
        "mce": 0.1,
        "rmsce": 0.1,
        "kse": 0.2 / 3,
        "nll": -(math.log(0.9) + math.log(0.4) + math.log(0.6)) / 3,
        "nll_on_errors": -math.log(0.4),
        "brier": (2 * 0.1**2 + 2 * 0.6**2 + 2 * 0.4**2) / 3,
        "brier_on_errors": 2 * 0.6**2,
        "aurc": (0 + 0.5 / 2 + 1 / 3) / 3,
        "kse_positive": 0.9 / 3,  # 0.1 of class 0, then 0.4 and 0.6 of class 1: −0.1 + 0.6 + 0.4
    }
    for name, value in wanted.items():
        assert scored(case, name, 7) == pytest.approx(value, abs=1e-12), name
        assert wanted_value(case, name, 7) == pytest.approx(value, abs=1e-12), name


ECE, MCE = metrics.expected_calibration_error, metrics.maximum_calibration_error
ADAPTIVE, KS = metrics.adaptive_calibration_error, metrics.ks_error


def test_values_where_other_libraries_differ() -> None:
    for function, confidence, correct, options, wanted in (
        # torchmetrics: 1.0 and 0.95 share the last of 10 bins, |1.95 − 1| / 2, not 0.525 of a hidden eleventh
        (ECE, [1.0, 0.95], [0, 1], {"n_bins": 10}, 0.475),
        (MCE, [1.0, 0.95], [0, 1], {"n_bins": 10}, 0.475),
        # 0 belongs to the first bin
        (ECE, [0.0, 0.05], [1, 0], {}, 0.95 / 2),
        # focal_calibration, and the published code of the paper, drop the smallest sample
        (ADAPTIVE, [0.4, 1.0], [0, 1], {"n_bins": 1}, 0.2),
        # ranks 0 and 1 of 4 are the first of 4 bins
        (ADAPTIVE, [0.3, 0.5, 0.6, 0.7], [0, 1, 1, 1], {"n_bins": 4}, (abs(0.8 - 1) + 0.4 + 0.3) / 4),
        # the order within a tie does not matter
        (KS, [0.6] * 6, [1, 1, 1, 0, 0, 0], {}, 0.1),
        (KS, [0.6] * 6, [0, 0, 0, 1, 1, 1], {}, 0.1),
    ):
        given = torch.tensor(confidence, dtype=torch.float64), torch.tensor(correct, dtype=torch.bool)
        assert function(*given, **options).item() == pytest.approx(wanted), (confidence, correct)  # type: ignore[operator]
    for dtype in (torch.float32, torch.float64):  # 0.2 is the edge of the third of fifteen bins in either type
        confidences = torch.tensor([0.2, 0.15], dtype=dtype)
        assert ECE(confidences, torch.tensor([True, False])).item() == pytest.approx(0.65 / 2, abs=1e-6)
    # class 2 is predicted at 1/4 and never seen: (0 + 1/4 + 1/4) / 3, not 1/8 over those that occur (probmetrics)
    case = Case(logits_of([[0.5, 0.25, 0.25]] * 2), torch.tensor([0, 1]))
    assert scored(case, "cece") == pytest.approx(1 / 6)
    # errors are averaged over samples, not over batches (the published code of the paper)
    parts = [[0.9], [0.6, 0.7]]
    batches = [Case(logits_of([[p, 1 - p] for p in part]), torch.ones(len(part)).long()) for part in parts]
    wanted = -(math.log(0.1) + math.log(0.4) + math.log(0.3)) / 3
    assert streamed(batches, "nll_on_errors").nll_on_errors == pytest.approx(wanted)


def test_logits_between_0_and_1_are_logits() -> None:
    generator = torch.Generator().manual_seed(42)
    logits = torch.rand(5000, 10, generator=generator, dtype=torch.float64)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    assert scored(Case(logits, labels), "ece") < 0.03
    expected = calibrant.score(Case(logits, labels).predictions()).values()
    for rows in (
        Predictions.from_probs(logits.softmax(1), labels),
        Predictions.from_log_probs(logits.log_softmax(1), labels),
        Predictions.from_logits(logits.numpy() + 7, labels.numpy()),
    ):
        assert calibrant.score(rows).values() == pytest.approx(expected, abs=1e-6)


def test_smooth_error_of_one_confidence_is_its_gap() -> None:
    """Residuals of one sign keep their integral at every width: a reflected kernel loses no mass."""
    rows: list[OutcomeRow] = [(0.8, True, 1.0), (0.8, False, 1.0)]
    assert smooth(rows) == pytest.approx(0.3, abs=1e-6)
    assert [smoothed({0.02: 0.3}, width) for width in (0.001, 0.1, 1.0)] == pytest.approx([0.3] * 3, abs=1e-6)
    assert metrics.smooth_calibration_error(*tensors_of(rows)).item() == pytest.approx(0.3, abs=1e-4)


# More rows than float32 can count

PAIR = Case(logits_of([[0.85, 0.15], [0.85, 0.15]]), torch.tensor([0, 1]))


def assert_pair(values: dict[str, float | None], n: int) -> None:
    """The values of n rows of confidence 0.85, half of them correct."""
    for name, value in values.items():
        wanted = wanted_value(PAIR, name)
        if name.startswith("l2ce"):  # the bias that is subtracted falls with n
            wanted = math.sqrt(0.35**2 - 0.25 / (n - 1))
        atol = 1e-4 if name.startswith("smece") else 1e-9
        assert_value(value, wanted, atol, name)


def test_a_streamed_card_doubled_to_33_million_rows() -> None:
    card = calibrant.score([PAIR.predictions()], metrics=list(METRICS))
    assert set(card.values()) == set(METRICS)
    for _ in range(24):
        card = card + card
    assert card.n_rows == 2**25
    assert_pair(card.values(), 2**25)


def test_weights_of_ten_million() -> None:
    heavy = Case(PAIR.logits, PAIR.labels, (1e7, 1e7))
    for name in METRICS:
        assert_pair({name: scored(heavy, name)}, 20_000_000)


def test_three_million_rows_do_not_drift() -> None:
    """Sums of float32 are 15 % off at 3 million rows."""
    batch = random_case(100_000, 3, seed=40).to(torch.float32).predictions()
    names = ["ece", "accuracy", "confidence", "nll", "brier", "cece", "rmsce", "overconfidence"]
    card = calibrant.score(itertools.repeat(batch, 30), metrics=names)
    assert card.n_rows == 3_000_000
    assert card.values() == pytest.approx(calibrant.score(batch, metrics=names).values(), abs=1e-9)


# Other libraries


OF_OTHERS = pytest.mark.filterwarnings("ignore")


def peer(module: str) -> ModuleType:
    """An optional library."""
    pytest.importorskip(module.partition(".")[0], reason=f"{module} computes the same metrics")
    return importlib.import_module(module)


@OF_OTHERS
@pytest.mark.parametrize(("name", "norm"), [("ece", "l1"), ("rmsce", "l2"), ("mce", "max")])
@pytest.mark.parametrize("n_bins", [10, 15])
def test_torchmetrics(name: str, norm: str, n_bins: int) -> None:
    theirs = peer("torchmetrics.classification")
    for seed, n_classes in ((30, 2), (31, 5)):
        case = random_case(2000, n_classes, seed=seed)
        assert case.logits.softmax(1).max() < 1
        metric = theirs.MulticlassCalibrationError(n_classes, n_bins=n_bins, norm=norm)
        wanted = metric(case.logits.softmax(1), case.labels).item()
        assert scored(case, name, n_bins) == pytest.approx(wanted, abs=2e-6)


@OF_OTHERS
def test_scikit_learn() -> None:
    theirs = peer("sklearn.metrics")
    for n_classes, weighted in itertools.product((2, 6), (None, "real")):
        case = random_case(1000, n_classes, seed=32, weighted=weighted)
        probs, labels, weights = case.logits.softmax(1).numpy(), case.labels.numpy(), case.weights
        wanted = {
            "nll": theirs.log_loss(labels, probs, sample_weight=weights, labels=range(n_classes)),
            "accuracy": theirs.accuracy_score(labels, probs.argmax(1), sample_weight=weights),
        }
        if n_classes == 2:
            wanted["brier"] = 2 * theirs.brier_score_loss(labels, probs[:, 1], sample_weight=weights)
        for name, value in wanted.items():
            assert scored(case, name) == pytest.approx(value, abs=1e-9), name


@OF_OTHERS
def test_relplot() -> None:
    theirs = peer("relplot")
    for seed, n, n_classes in ((33, 500, 3), (34, 4000, 10), (35, 300, 2)):
        case = random_case(n, n_classes, seed=seed)
        probs = case.logits.softmax(1)
        correct = probs.argmax(1) == case.labels
        wanted = theirs.smECE(probs.amax(1).numpy(), correct.double().numpy())
        positive = theirs.smECE(probs[:, 1].numpy(), (case.labels == 1).double().numpy())
        assert scored(case, "smece") == pytest.approx(wanted, abs=2e-3)
        if n_classes == 2:
            assert scored(case, "smece_positive") == pytest.approx(positive, abs=2e-3)


@OF_OTHERS
def test_netcal() -> None:
    theirs = peer("netcal.metrics")
    case = random_case(20_000, 5, seed=36)
    probs, labels = case.logits.softmax(1).numpy(), case.labels.numpy()
    equal_mass = theirs.ECE(15, equal_intervals=False).measure(probs, labels)
    assert scored(case, "ece") == pytest.approx(theirs.ECE(15).measure(probs, labels), abs=1e-9)
    assert scored(case, "mce") == pytest.approx(theirs.MCE(15).measure(probs, labels), abs=1e-9)
    # their quantiles put the sample at each of the 14 inner edges on the other side
    assert scored(case, "adaece") == pytest.approx(equal_mass, abs=2 * 14 / 20_000)
    binary = random_case(5000, 2, seed=37)
    wanted = theirs.ECE(15).measure(binary.logits.softmax(1)[:, 1].numpy(), binary.labels.numpy())
    assert scored(binary, "ece_positive") == pytest.approx(wanted, abs=1e-9)
