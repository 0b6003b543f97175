"""The battery that every metric must pass: `ASPECTS`, each a check of one metric by name."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import calibrant
from calibrant import metrics
from calibrant.errors import CalibrantError, InvalidInputError, UndefinedMetricError
from calibrant.metrics import Scorecard
from made.metric_oracles import ORACLES, class_rows

Aspect = Callable[[str], None]
OF_OUTCOMES = {
    "ece": "expected_calibration_error",
    "overconfidence": "overconfidence",
    "underconfidence": "underconfidence",
    "mce": "maximum_calibration_error",
    "rmsce": "rms_calibration_error",
    "adaece": "adaptive_calibration_error",
    "l2ce": "debiased_calibration_error",
    "kse": "ks_error",
    "smece": "smooth_calibration_error",
    "aurc": "area_under_risk_coverage",
}
OF_LOGITS = {
    "accuracy": "accuracy",
    "confidence": "mean_confidence",
    "cece": "classwise_calibration_error",
    "nll": "negative_log_likelihood",
    "brier": "brier_score",
    "nll_on_errors": "nll_on_errors",
    "brier_on_errors": "brier_on_errors",
    "entropy": "mean_entropy",
}
BINNED = {"ece", "overconfidence", "underconfidence", "mce", "rmsce", "adaece", "l2ce", "cece"}
COUNTS_ONLY = {"l2ce", "aurc"}  # defined for weights that are numbers of rows
SMOOTH_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    """Rows of logits with their labels and weights."""

    logits: Tensor
    labels: Tensor
    weights: tuple[float, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | Tensor) -> "Case":
        weights = self.weights and tuple(torch.tensor(self.weights, dtype=torch.float64)[rows].tolist())
        return Case(self.logits[rows], self.labels[rows], weights)

    @property
    def n_counting(self) -> int:
        """Rows of weight 0 are none."""
        return len(self) if self.weights is None else sum(weight > 0 for weight in self.weights)

    def to(self, dtype: torch.dtype) -> "Case":
        return replace(self, logits=self.logits.to(dtype))

    def predictions(self) -> calibrant.Predictions:
        columns = None if self.weights is None else {"weight": list(self.weights)}
        return calibrant.Predictions.from_logits(self.logits, self.labels, columns=columns)


def base_of(name: str) -> str:
    return name.removesuffix("_positive")


def class_counts(name: str) -> tuple[int, ...]:
    return (2,) if name.endswith("_positive") else (2, 3, 4)


def tolerance(name: str) -> float:
    """From float64: a root of rounding errors is 1e-8 of nothing; the smooth error is a quadrature."""
    return {"smece": SMOOTH_TOLERANCE, "l2ce": 1e-7}.get(base_of(name), 1e-9)


def same(name: str) -> float:
    """Between two ways of the library to one number; an iteration may end a step apart."""
    return {"smece": 1e-6, "l2ce": 1e-7}.get(base_of(name), 1e-9)


def assert_value(got: float | None, wanted: float | None, atol: float, what: object = "") -> None:
    if wanted is None or math.isinf(wanted):
        assert got == wanted, what
    else:
        assert got is not None, what
        assert abs(got - wanted) <= atol, (what, got, wanted)


def scorecard(case: Case, name: str, n_bins: int = 15) -> Scorecard:
    """The card of the rows at once."""
    weights = None if case.weights is None else "weight"
    return calibrant.score(case.predictions(), metrics=[name], n_bins=n_bins, weights=weights)


def streamed(parts: Sequence[Case], name: str) -> Scorecard:
    """The card of the rows as they come."""
    weights = None if parts[0].weights is None else "weight"
    return calibrant.score([part.predictions() for part in parts], metrics=[name], weights=weights)


def value_on(card: Scorecard, name: str) -> float | None:
    values = card.values()
    assert list(values) == [name]
    return values[name]


def scored(case: Case, name: str, n_bins: int = 15) -> float | None:
    return value_on(scorecard(case, name, n_bins), name)


def outcomes(case: Case, name: str) -> tuple[Tensor, Tensor]:
    """Confidence and correctness of the predicted class, or of P(y = 1), by the name of the metric."""
    probs = case.logits.softmax(1)
    if name.endswith("_positive"):
        return probs[:, 1], case.labels == 1
    return probs.amax(1), probs.argmax(1) == case.labels


def computed(case: Case, name: str, n_bins: int = 15) -> float | None:
    """The tensor function of the metric."""
    base = base_of(name)
    options: dict[str, object] = {"n_bins": n_bins} if base in BINNED else {}
    if case.weights is not None:
        options["weights"] = torch.tensor(case.weights, dtype=torch.float64)
    given_tensors = (case.logits, case.labels) if base in OF_LOGITS else outcomes(case, name)
    function = getattr(metrics, (OF_LOGITS | OF_OUTCOMES)[base])
    try:
        value = function(*given_tensors, **options)
    except UndefinedMetricError:
        return None
    assert value.shape == ()
    assert value.dtype == torch.float64
    return value.item()


def wanted_value(case: Case, name: str, n_bins: int = 15) -> float | None:
    return ORACLES[name](class_rows(case.logits.double().tolist(), case.labels.tolist(), case.weights), n_bins)


def assert_oracle(case: Case, name: str, n_bins: int = 15, atol: float | None = None) -> None:
    """The card and the tensor function against the loops."""
    wanted = wanted_value(case, name, n_bins)
    atol = tolerance(name) if atol is None else atol
    assert_value(scored(case, name, n_bins), wanted, atol, ("score", n_bins))
    assert_value(computed(case, name, n_bins), wanted, atol, ("function", n_bins))


# Rows


def logits_of(probs: Sequence[Sequence[float]], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(probs, dtype=dtype).log()


def random_case(n: int, n_classes: int, *, seed: int = 0, weighted: str | None = None) -> Case:
    """Labels drawn from flatter probabilities than the predicted ones; weights None, "counts" or "real"."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    labels = (0.6 * logits).softmax(1).multinomial(1, generator=generator)[:, 0]
    weights = None
    if weighted == "counts":
        weights = (1.0, *torch.randint(4, (n - 1,), generator=generator).double().tolist())
    elif weighted == "real":
        weights = tuple(torch.rand(n, generator=generator, dtype=torch.float64).tolist())
    return Case(logits, labels, weights)


EIGHTHS = 8  # with an odd number of bins no such probability but 0 and 1 is an edge
ODD_BINS = (1, 3, 7, 15, 21)


@st.composite
def grid_cases(draw: st.DrawFn, name: str) -> tuple[Case, int]:
    """A few different rows of eighths, drawn repeatedly: ties, 0 and 1 occur; and a number of bins."""
    n_classes = draw(st.sampled_from(class_counts(name)))
    cut = st.lists(st.integers(0, EIGHTHS), min_size=n_classes - 1, max_size=n_classes - 1).map(sorted)
    pool: list[list[float]] = []
    for cuts in draw(st.lists(cut, min_size=1, max_size=5)):
        row = [(b - a) / EIGHTHS for a, b in zip([0, *cuts], [*cuts, EIGHTHS], strict=True)]
        # of three classes, equal confidences that come from different sums may differ by a rounding error
        if n_classes == 2 or max(row) not in [max(other) for other in pool]:
            pool.append(row)
    entry = st.tuples(st.sampled_from(pool), st.integers(0, n_classes - 1), st.integers(0, 3))
    entries = draw(st.lists(entry, min_size=1, max_size=12))
    weights = tuple(float(weight) for _, _, weight in entries) if draw(st.booleans()) else None
    if weights is not None and not any(weights):
        weights = (*weights[1:], 1.0)
    labels = torch.tensor([label for _, label, _ in entries])
    return Case(logits_of([row for row, _, _ in entries]), labels, weights), draw(st.sampled_from(ODD_BINS))


def repeated_rows(n_classes: int) -> Case:
    """40 rows of 4 kinds whose confidences lie far apart."""
    kinds = torch.tensor([[0.0, 0.4, -0.3, 0.1], [1.5, -1.0, 0.2, 0.0], [-2.0, 1.7, 0.3, 0.6], [0.0, -6.0, -4.0, -5.0]])
    labels = torch.arange(40) * 7 % 5 % n_classes
    return Case(kinds[:, :n_classes].double().repeat(10, 1), labels, tuple(((torch.arange(40.0) + 1) % 4).tolist()))


def parts_of(case: Case) -> list[Case]:
    """Uneven consecutive parts, one of a single row."""
    n = len(case)
    cuts = [0, 1, 1 + n // 5, 1 + n // 2, n]
    return [case[a:b] for a, b in pairwise(cuts)]


# Aspects


def oracle_on_a_grid(name: str) -> None:
    @settings(max_examples=25)
    @given(grid_cases(name))
    def agrees(drawn: tuple[Case, int]) -> None:
        assert_oracle(drawn[0], name, drawn[1])

    agrees()


def oracle_at_random(name: str) -> None:
    for n_classes in class_counts(name):
        for weighted in (None, "counts", "real"):
            if weighted != "real" or base_of(name) not in COUNTS_ONLY:
                assert_oracle(random_case(61, n_classes, seed=1, weighted=weighted), name)


def other_numbers_of_bins(name: str) -> None:
    case = random_case(83, class_counts(name)[-1], seed=2)
    values = {}
    for n_bins in (1, 2, 10, 100):
        assert_oracle(case, name, n_bins)
        values[n_bins] = scored(case, name, n_bins)
    assert (len(set(values.values())) > 1) == (base_of(name) in BINNED)


def order(name: str) -> None:
    for n_classes in class_counts(name):
        for case in (random_case(200, n_classes, seed=3, weighted="counts"), repeated_rows(n_classes)):
            expected = scored(case, name)
            for seed in range(3):
                shuffled = case[torch.randperm(len(case), generator=torch.Generator().manual_seed(seed))]
                assert_value(scored(shuffled, name), expected, same(name))
                assert_value(computed(shuffled, name), expected, tolerance(name))


def parts_added(name: str) -> None:
    """The cards of the parts, added in any order, are the card of all rows."""
    for n_classes in class_counts(name):
        for case in (random_case(300, n_classes, seed=4), repeated_rows(n_classes)):
            whole = scored(case, name)
            cards = [scorecard(part, name) for part in parts_of(case)]
            for merged in (sum(cards[1:], start=cards[0]), cards[3] + (cards[1] + cards[0]) + cards[2]):
                assert merged.n_rows == case.n_counting
                assert_value(value_on(merged, name), whole, merged.error_bound(name) + same(name))


def streams(name: str) -> None:
    """Batches: within the error bound, and within 1e-4 where the confidences are far apart."""
    for n_classes in class_counts(name):
        for case in (random_case(3000, n_classes, seed=5, weighted="counts"), random_case(50, n_classes, seed=6)):
            whole = scorecard(case, name)
            assert whole.error_bound(name) == 0
            for parts in (parts_of(case), [case]):
                card = streamed(parts, name)
                assert card.n_rows == case.n_counting
                assert_value(value_on(card, name), value_on(whole, name), card.error_bound(name) + same(name))
        case = repeated_rows(n_classes)
        card = streamed(parts_of(case), name)
        assert_value(value_on(card, name), scored(case, name), min(card.error_bound(name), 1e-4) + same(name))


def streams_added(name: str) -> None:
    """Cards of streams add up, to each other and to cards of rows at once."""
    case = repeated_rows(class_counts(name)[-1])
    parts = parts_of(case)
    whole, last = scored(case, name), scorecard(parts[3], name)
    for merged in (streamed(parts[:2], name) + streamed(parts[2:], name), streamed(parts[:3], name) + last):
        assert merged.n_rows == case.n_counting
        assert_value(value_on(merged, name), whole, min(merged.error_bound(name), 1e-4) + same(name))


def weights_are_multiplicities(name: str) -> None:
    for n_classes in class_counts(name):
        for case in (random_case(90, n_classes, seed=7, weighted="counts"), repeated_rows(n_classes)):
            assert case.weights is not None
            times = torch.tensor(case.weights).long()
            repeated = Case(case.logits.repeat_interleave(times, 0), case.labels.repeat_interleave(times))
            for value in (scored, computed):
                assert_value(value(case, name), value(repeated, name), same(name))
            ones = Case(case.logits, case.labels, (1.0,) * len(case))
            assert_value(scored(ones, name), scored(Case(case.logits, case.labels), name), same(name))


def weightless_rows(name: str) -> None:
    """A row of weight 0 does not count, even with an infinite NLL."""
    case = random_case(30, class_counts(name)[-1], seed=8)
    absurd = torch.full((1, case.logits.shape[1]), -math.inf, dtype=torch.float64)
    absurd[0, 0] = 0.0
    padded = Case(torch.cat((case.logits, absurd)), torch.cat((case.labels, torch.tensor([1]))), (*[1.0] * 30, 0.0))
    assert_value(scored(padded, name), scored(case, name), same(name))
    assert_value(computed(padded, name), computed(case, name), same(name))


def scale_of_the_weights(name: str) -> None:
    """Only ratios of weights matter, except to the two metrics that count rows."""
    if base_of(name) not in COUNTS_ONLY:
        case = random_case(40, class_counts(name)[-1], seed=9, weighted="real")
        expected = scored(case, name)
        for scale in (1e-6, 0.37, 1e6):
            assert case.weights is not None
            scaled = Case(case.logits, case.labels, tuple(scale * weight for weight in case.weights))
            assert_value(scored(scaled, name), expected, max(1e-7, same(name)))


def equal_rows(name: str) -> None:
    """Equal rows are one tie, for any number of rows and vector width."""
    for n_classes in class_counts(name):
        row = torch.tensor([0.3, 1.1, -0.7, 0.2], dtype=torch.float64)[:n_classes]
        for n in (2, 7, 37, 1003):
            for labels in (torch.arange(n) % n_classes, torch.ones(n).long(), torch.zeros(n).long()):
                assert_oracle(Case(row.expand(n, n_classes).contiguous(), labels), name)


def ties_in_argmax(name: str) -> None:
    """The first of the largest is the prediction, also of a row of equal logits."""
    for n_classes in class_counts(name):
        top_two = [0.42, 0.42, 0.11, 0.05][:n_classes]
        last_two = [0.01, 0.02, 0.485, 0.485][-n_classes:]
        rows = [top_two] * n_classes + [last_two] * n_classes
        case = Case(logits_of(rows), torch.arange(2 * n_classes) % n_classes)
        assert_oracle(case, name)
        even = Case(torch.zeros(2 * n_classes, n_classes, dtype=torch.float64), case.labels)
        assert_oracle(even, name, n_bins=7)


def certain_rows(name: str) -> None:
    """Probabilities of exactly 0 and 1: −inf logits, and logits that float32 rounds to them."""
    for n_classes in class_counts(name):
        sure = torch.full((n_classes, n_classes), -math.inf, dtype=torch.float64).fill_diagonal_(0.0)
        unsure = random_case(5, n_classes, seed=10)
        right = torch.arange(n_classes)
        for labels in (right, right.roll(1), torch.ones_like(right)):
            assert_oracle(Case(sure, labels), name)
            mixed = Case(torch.cat((sure, unsure.logits)), torch.cat((labels, unsure.labels)))
            assert_oracle(mixed, name)
            assert_oracle(mixed.to(torch.float32), name, atol=max(1e-5, tolerance(name)))
            far = torch.eye(n_classes) * 400 - 150
            assert_oracle(Case(far, labels), name, atol=max(1e-4, tolerance(name)))


def one_sample(name: str) -> None:
    for n_classes in class_counts(name):
        for label in range(n_classes):
            case = Case(random_case(1, n_classes, seed=11).logits, torch.tensor([label]))
            assert_oracle(case, name)
            assert_oracle(replace(case, weights=(3.0,)), name)
            assert_value(value_on(streamed([case], name), name), wanted_value(case, name), 1e-4)


def no_sample(name: str) -> None:
    case = random_case(4, class_counts(name)[-1], seed=12)
    for none in (case[:0], replace(case, weights=(0.0,) * 4)):
        for value in (scored, computed):
            with pytest.raises(InvalidInputError):
                value(none, name)
    with pytest.raises(CalibrantError):
        calibrant.score([], metrics=[name])


def half_precision(name: str) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        for n_classes in class_counts(name):
            half = random_case(150, n_classes, seed=13).to(dtype)
            assert_value(scored(half, name), scored(half.to(torch.float32), name), 1e-12, dtype)
            if base_of(name) in OF_LOGITS:
                assert_value(computed(half, name), computed(half.to(torch.float32), name), 1e-12, dtype)
            else:
                confidence, correct = outcomes(half, name)
                function = getattr(metrics, OF_OUTCOMES[base_of(name)])
                wide = function(confidence.float(), correct)
                torch.testing.assert_close(function(confidence, correct), wide, rtol=0, atol=1e-12)


def single_precision(name: str) -> None:
    for n_classes in class_counts(name):
        case = random_case(120, n_classes, seed=14).to(torch.float32)
        assert_oracle(case, name, atol=max({"l2ce": 1e-5}.get(base_of(name), 2e-6), tolerance(name)))


def common_shift(name: str) -> None:
    """A constant added to a row of logits changes no metric."""
    case = random_case(50, class_counts(name)[-1], seed=15)
    shift = torch.linspace(-40, 40, 50, dtype=torch.float64)[:, None]
    assert_value(scored(Case(case.logits + shift, case.labels), name), scored(case, name), same(name))


def untouched_inputs(name: str) -> None:
    case = random_case(20, class_counts(name)[-1], seed=16)
    before = case.logits.clone(), case.labels.clone()
    assert scored(case, name) == scored(case, name)
    assert computed(case, name) == computed(case, name)
    assert torch.equal(case.logits, before[0])
    assert torch.equal(case.labels, before[1])


ASPECTS: tuple[Aspect, ...] = (
    oracle_on_a_grid,
    oracle_at_random,
    other_numbers_of_bins,
    order,
    parts_added,
    streams,
    streams_added,
    weights_are_multiplicities,
    weightless_rows,
    scale_of_the_weights,
    equal_rows,
    ties_in_argmax,
    certain_rows,
    one_sample,
    no_sample,
    half_precision,
    single_precision,
    common_shift,
    untouched_inputs,
)
