"""Every entry of LOSSES against the shared battery; the options of single losses against their oracles."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.losses import LOSSES, MaxEntLoss
from made import loss_oracles as oracles
from made.loss_check import (
    ASPECTS,
    IGNORED,
    build_of,
    check_loss,
    oracle_at_random,
    random_batch,
    random_soft_labels,
    value_and_gradient,
)
from made.loss_oracles import ORACLES, Oracle, constraint_features, moment, skewed_prior, solved_multipliers

FORMS = ("mean", "variance", "mean_variance", "prior")
VALUES = [-1.0, 0.5, 3.0, 2.0, 7.0, 2.5]
FEATURES = [[0.5, 2.0], [1.0, 0.0], [2.0, 1.5], [0.0, 1.0], [3.0, 0.5], [1.5, 1.0]]


def test_every_loss_has_an_oracle() -> None:
    assert set(ORACLES) == set(LOSSES)


@pytest.mark.parametrize("aspect", ASPECTS)
@pytest.mark.parametrize("name", LOSSES)
def test_contract(name: str, aspect: str) -> None:
    check_loss(name, build_of(name), [aspect])


OPTIONS: list[tuple[str, dict[str, object], Oracle]] = [
    ("focal", {"gamma": 0.0}, oracles.focal(0.0)),
    ("focal", {"gamma": 0.5}, oracles.focal(0.5)),
    ("focal", {"gamma": 2.0}, oracles.focal(2.0)),
    ("focal", {"gamma": 3.7}, oracles.focal(3.7)),
    ("inverse_focal", {"gamma": 0.0}, oracles.inverse_focal(0.0)),
    ("inverse_focal", {"gamma": 1.3}, oracles.inverse_focal(1.3)),
    ("poly", {"epsilon": -1.0}, oracles.poly(-1.0)),
    ("avuc", {"beta": 0.7}, oracles.avuc(0.7)),
    ("avuc", {"threshold": 0.8}, oracles.avuc(threshold=0.8)),
    ("soft_avuc", {"beta": 2.0, "temperature": 0.3}, oracles.soft_avuc(2.0, temperature=0.3)),
    ("soft_avuc", {"temperature": 1.0, "kappa": 0.6}, oracles.soft_avuc(temperature=1.0, kappa=0.6)),
    ("soft_avuc", {"gamma": 0.0, "kappa": 0.5}, oracles.soft_avuc(gamma=0.0, kappa=0.5)),
    ("flsd", {"gamma_low": 2.0, "gamma_high": 0.5, "threshold": 0.4}, oracles.flsd(2.0, 0.5, 0.4)),
    ("dual_focal", {"gamma": 0.5}, oracles.dual_focal(0.5)),
    ("dual_focal", {"gamma": 1.0}, oracles.dual_focal(1.0)),
    ("dual_focal", {"gamma": 2.5}, oracles.dual_focal(2.5)),
    ("mmce", {"weight": 0.5, "width": 0.1}, oracles.mmce(0.5, 0.1)),
    ("mmce", {"width": 0.02}, oracles.mmce(width=0.02)),
    ("mdca", {"weight": 3.0, "gamma": 2.0}, oracles.mdca(3.0, 2.0)),
    ("mbls", {"margin": 1.5, "weight": 0.7}, oracles.mbls(1.5, 0.7)),
    ("mbls", {"margin": 0.0}, oracles.mbls(0.0)),
    ("label_relaxation", {"alpha": 0.4}, oracles.label_relaxation(0.4)),
]
MAXENT_OPTIONS: list[tuple[str, dict[str, object]]] = [
    *((form, {"penalty": "signed", "gibbs": "normalized"}) for form in FORMS),
    *((form, {"penalty": "signed_as_printed"}) for form in FORMS),
    *((form, {"penalty": "squared"}) for form in FORMS),
    *((form, {"gibbs": "normalized"}) for form in FORMS),
    *((form, {"local": False}) for form in FORMS),
    ("mean_variance", {"local": False, "penalty": "squared"}),
    ("mean", {"class_values": VALUES}),
    ("mean_variance", {"class_values": VALUES, "penalty": "squared"}),
    ("variance", {"class_values": VALUES, "local": False}),
    ("mean", {"features": FEATURES}),
    ("mean", {"features": FEATURES, "penalty": "squared", "local": False}),
    ("mean", {"gamma": 0.0}),
    ("mean_variance", {"gamma": 2.5}),
    ("prior", {"gamma": 3.0}),
]
SHARED = (
    *("one_hot", "first_gradient", "second_gradient", "confidently_wrong", "ignored_rows", "paths_agree"),
    *("weights_are_multiplicities", "copies"),
)
EXTREMES = ("confidently_right", "no_opinion", "first_gradient", "paths_agree", "dtypes")


def option_id(part: object) -> str:
    if not isinstance(part, dict):
        return part if isinstance(part, str) else "oracle"
    return "-".join(f"{key}={'given' if isinstance(value, list) else value}" for key, value in part.items())


@pytest.mark.parametrize(("name", "options", "oracle"), OPTIONS, ids=option_id)
def test_options_follow_the_definition(name: str, options: dict[str, object], oracle: Oracle) -> None:
    oracle_at_random(name, build_of(name, **options), oracle)


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, options, _ in OPTIONS], ids=option_id)
def test_options_at_the_extremes(name: str, options: dict[str, object]) -> None:
    check_loss(name, build_of(name, **options), EXTREMES)


@pytest.mark.parametrize(("form", "options"), MAXENT_OPTIONS, ids=option_id)
def test_maxent_options_follow_the_definition(form: str, options: dict[str, object]) -> None:
    meant = {key: value for key, value in options.items() if key != "gibbs"}
    given = {key: torch.tensor(value) if key == "features" else value for key, value in options.items()}
    name = f"maxent_{form}"
    oracle_at_random(name, build_of(name, **given), oracles.maxent(form, **meant))


KEPT = [("mean_variance", "squared", "paper"), ("prior", "squared", "paper"), ("mean_variance", "signed", "normalized")]


@pytest.mark.parametrize(("form", "penalty", "gibbs"), KEPT)
def test_maxent_options_keep_the_contract(form: str, penalty: str, gibbs: str) -> None:
    name = f"maxent_{form}"
    check_loss(name, build_of(name, penalty=penalty, gibbs=gibbs), SHARED)


@pytest.mark.parametrize("gibbs", ["paper", "normalized"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("form", ["mean", "mean_variance"])
def test_multipliers_are_those_of_a_root_finder(form: str, label_smoothing: float, gibbs: str) -> None:
    prior = skewed_prior(5)
    criterion = MaxEntLoss(prior, form, label_smoothing=label_smoothing, gibbs=gibbs)
    wanted = [
        solved_multipliers(prior, label, form, label_smoothing=label_smoothing, gibbs=gibbs) for label in range(5)
    ]
    assert criterion.multipliers.shape == (5, 1 if form == "mean" else 2)
    np.testing.assert_allclose(criterion.multipliers.numpy(), wanted, rtol=1e-6, atol=1e-7)


def test_multipliers_of_the_prior_form_are_logarithms() -> None:
    prior = np.array(skewed_prior(5))
    middle = (prior + 0.9 * np.eye(5) + 0.1 / 5) / 2
    paper = MaxEntLoss(prior, "prior", label_smoothing=0.1).multipliers.numpy()
    np.testing.assert_allclose(paper, -1 - np.log(middle), rtol=1e-5, atol=1e-6)
    normalized = MaxEntLoss(prior, "prior", label_smoothing=0.1, gibbs="normalized").multipliers.numpy()
    logs = -np.log(middle)
    np.testing.assert_allclose(normalized, logs - logs.mean(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_maxent_by_hand() -> None:
    """Two classes alike: λ of class 0 solves exp(-1 - λ) = 1/4; with p = (1/2, 1/2) only the local gap is 1/2."""
    lam = 2 * math.log(2) - 1
    value = MaxEntLoss([0.5, 0.5])(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0]))
    assert value.item() == pytest.approx(0.5 * math.log(2) + 0.5 * lam, rel=1e-6)
    squared = MaxEntLoss([0.5, 0.5], penalty="squared")(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0]))
    assert squared.item() == pytest.approx(0.5 * math.log(2) + 0.25 * lam**2, rel=1e-6)


def test_maxent_never_rewards_a_violation() -> None:
    """Row 2: λ of class 1 is negative (-0.712) for two classes; its absolute value weighs the penalty."""
    criterion = MaxEntLoss([0.5, 0.5], gamma=0.0)
    assert criterion.multipliers[1].item() == pytest.approx(-0.7123, abs=1e-4)
    far, near = torch.tensor([[9.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    label = torch.tensor([1])
    extra = [criterion(z, label).item() - F.cross_entropy(z, label).item() for z in (far, near)]
    assert extra[0] > extra[1] > 0


@pytest.mark.parametrize("penalty", ["absolute", "squared"])
def test_prior_form_does_not_see_the_order_of_the_classes(penalty: str) -> None:
    logits, labels = random_batch(9, 5, seed=20)
    prior = torch.tensor(skewed_prior(5), dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    value, gradient = value_and_gradient(MaxEntLoss(prior, "prior", penalty=penalty), logits, labels)
    renamed = MaxEntLoss(prior[order], "prior", penalty=penalty)
    moved = value_and_gradient(renamed, logits[:, order], order.argsort()[labels])
    torch.testing.assert_close(moved[0], value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moved[1], gradient[:, order], rtol=1e-5, atol=1e-6)
    by_order = [
        MaxEntLoss(p, penalty=penalty)(z, y)
        for p, z, y in ((prior, logits, labels), (prior[order], logits[:, order], order.argsort()[labels]))
    ]
    assert (by_order[0] - by_order[1]).abs() > 1e-3  # row 7: the other forms do


@pytest.mark.parametrize("form", ["mean", "variance", "mean_variance"])
def test_class_values_go_with_their_classes(form: str) -> None:
    logits, labels = random_batch(9, 5, seed=21)
    prior, values = torch.tensor(skewed_prior(5), dtype=torch.float64), torch.arange(5.0, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    plain = MaxEntLoss(prior, form)(logits, labels)
    moved = MaxEntLoss(prior[order], form, class_values=values[order])(logits[:, order], order.argsort()[labels])
    torch.testing.assert_close(moved, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["mean", "variance", "mean_variance"])
@pytest.mark.parametrize("first", [0.0, 20.0, 2000.0])
def test_class_values_far_from_zero_keep_float32_accurate(first: float, form: str) -> None:
    """Ages or years as class values: the second moment around their middle must not drown in their squares."""
    logits, labels = random_batch(9, 10, seed=25)
    values = [first + k for k in range(10)]
    for reduction in ("mean", "none"):
        criterion = MaxEntLoss(skewed_prior(10), form, class_values=values, reduction=reduction)
        value, gradient = value_and_gradient(criterion, logits, labels)
        narrow_value, narrow_gradient = value_and_gradient(criterion, logits.float(), labels)
        torch.testing.assert_close(narrow_value.double(), value, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(narrow_gradient.double(), gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_prior_from_labels_and_from_counts(form: str) -> None:
    logits, labels = random_batch(9, 3, seed=22)
    expected = MaxEntLoss([0.5, 0.3, 0.2], form, penalty="squared")(logits, labels)
    seen = torch.tensor([0] * 5 + [1] * 3 + [2] * 2)
    for train_labels in (seen, seen.tolist(), seen.numpy(), seen.reshape(2, 5), seen.to(torch.uint8)):
        criterion = MaxEntLoss.from_labels(train_labels, 3, form, penalty="squared")
        torch.testing.assert_close(criterion(logits, labels), expected, rtol=1e-9, atol=1e-9)
    for counts in ([5, 3, 2], torch.tensor([50, 30, 20])):
        criterion = MaxEntLoss.from_counts(counts, form, penalty="squared")
        torch.testing.assert_close(criterion(logits, labels), expected, rtol=1e-9, atol=1e-9)


def logits_of(probs: list[list[float]]) -> Tensor:
    return torch.tensor(probs, dtype=torch.float64).log()


@pytest.mark.parametrize("form", FORMS)
def test_telemetry_moments(form: str) -> None:
    logits, labels = random_batch(8, 4, seed=23)
    labels[5] = IGNORED
    kept = [i for i in range(8) if i != 5]
    prior = skewed_prior(4)
    probs = logits.softmax(1).tolist()
    features = {i: constraint_features(prior, int(labels[i]), form, label_smoothing=0.1) for i in kept}
    own = {i: oracles.smoothed_one_hot(int(labels[i]), 4, 0.1) for i in kept}
    telemetry = MaxEntLoss(prior, form, label_smoothing=0.1).telemetry(logits, labels)
    for n in range(len(features[0])):
        wanted = [
            np.mean([moment(distribution(i), features[i][n]) for i in kept])
            for distribution in (lambda i: probs[i], lambda i: prior, lambda i: own[i])
        ]
        got = [telemetry.moments[n], telemetry.global_moments[n], telemetry.local_moments[n]]
        assert got == pytest.approx(wanted, rel=1e-5)
    assert len(telemetry.moments) == len(telemetry.global_moments) == len(telemetry.local_moments) == len(features[0])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(11, 4), (2, 4, 3, 5)])
def test_cross_entropy_is_torchs(shape: tuple[int, ...], reduction: str) -> None:
    generator = torch.Generator().manual_seed(24)
    logits = 3 * torch.randn(shape, generator=generator)
    labels = torch.randint(4, (shape[0], *shape[2:]), generator=generator)
    labels[0] = IGNORED
    weights = torch.tensor([1.0, 2.0, 0.5, 0.25])
    soft = torch.randn(shape, generator=generator).softmax(1)
    for options, theirs, given_labels in (
        ({}, {}, labels),
        ({"class_weights": weights}, {"weight": weights}, labels),
        ({"label_smoothing": 0.2}, {"label_smoothing": 0.2}, labels),
        ({"label_smoothing": 0.2}, {"label_smoothing": 0.2}, soft),
    ):
        got = value_and_gradient(LOSSES["cross_entropy"](reduction=reduction, **options), logits, given_labels)
        leaf = logits.clone().requires_grad_()
        expected = F.cross_entropy(leaf, given_labels, reduction=reduction, **theirs)
        expected.sum().backward()
        torch.testing.assert_close(got[0], expected.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(got[1], leaf.grad, rtol=1e-5, atol=1e-6)
    wide = torch.tensor([0.1, 0.3, 0.7, 1.1], dtype=torch.float64)
    got = LOSSES["cross_entropy"](class_weights=wide)(logits.double(), labels)
    torch.testing.assert_close(got, F.cross_entropy(logits.double(), labels, wide), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_soft_labels_rounded_to_half_precision(dtype: torch.dtype) -> None:
    """Probabilities that were rounded one by one are still labels, though their sum is 1 to two digits only."""
    soft = random_soft_labels(300, 10, dtype=torch.float32)
    logits = torch.zeros(300, 10)
    expected = LOSSES["cross_entropy"]()(logits, soft)
    torch.testing.assert_close(LOSSES["cross_entropy"]()(logits, soft.to(dtype)), expected, rtol=5e-3, atol=0)


def test_avuc_warm_up_is_cross_entropy() -> None:
    logits, labels = random_batch()
    criterion = LOSSES["avuc"]()
    criterion.beta = 0
    torch.testing.assert_close(criterion(logits, labels), F.cross_entropy(logits, labels))


def test_avuc_of_confident_errors_in_float32() -> None:
    """1 - r of a wrong and confident prediction must not be lost to cancellation."""
    logits, labels = torch.tensor([[0.0, -8.0], [-8.0, 8.0]]), torch.tensor([1, 0])
    value, gradient = value_and_gradient(LOSSES["avuc"](), logits.double(), labels)
    narrow_value, narrow_gradient = value_and_gradient(LOSSES["avuc"](), logits, labels)
    assert narrow_value.item() == pytest.approx(value.item(), rel=1e-4)
    torch.testing.assert_close(narrow_gradient.double(), gradient, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_avuc_of_equal_entropies(dtype: torch.dtype) -> None:
    """Two predictions that differ in the order of their classes only are equally certain at every threshold."""
    row = [-12.0, -1.0, 0.5]
    labels = torch.tensor([0, 0])
    for other in ([0.5, -12.0, -1.0], [0.5, -1.0, -12.0]):
        logits = torch.tensor([row, other], dtype=dtype)
        confidence = logits.double().softmax(1)[0, 2].item()
        wanted = F.cross_entropy(logits, labels).item() - 3 * math.log(confidence)
        assert LOSSES["avuc"]()(logits, labels).item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", [0.0, 1.0, -12.0])
def test_flsd_at_its_threshold(level: float, dtype: torch.dtype) -> None:
    """Five classes alike: p = 0.2 is not below 0.2, so γ = 3."""
    logits, label = torch.full((1, 5), level, dtype=dtype, requires_grad=True), torch.tensor([2])
    for reduction in ("mean", "none"):
        value = LOSSES["flsd"](reduction=reduction)(logits, label)
        assert value.item() == pytest.approx(0.8**3 * math.log(5), rel=1e-5), reduction


def test_dual_focal_by_hand() -> None:
    """Classes tied with the label are not below it."""
    logits = logits_of([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]])
    values = LOSSES["dual_focal"](gamma=1.0, reduction="none")(logits, torch.tensor([0, 0]))
    assert values.tolist() == pytest.approx([0.8 * -math.log(0.4), 0.8 * -math.log(0.2)])


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_focal_gradient_vanishes_where_the_prediction_is_certain(gamma: float, reduction: str) -> None:
    for name in ("focal", "mdca", "maxent_mean"):
        criterion = build_of(name, gamma=gamma)(3, reduction=reduction)
        for gap in (17.0, 40.0, 120.0):
            value, gradient = value_and_gradient(criterion, torch.tensor([[gap, 0.0, 0.0]]), torch.tensor([0]))
            assert value.isfinite().all(), (name, gap)
            assert gradient.abs().max() < 1e-3, (name, gap)
