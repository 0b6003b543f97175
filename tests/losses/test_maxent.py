"""MaxEnt Loss: its options against the oracle, where the paper and its published code differ, and telemetry."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.errors import InvalidInputError
from calibrant.losses import LOSSES, MaxEntLoss
from calibrant.losses.fused import MIN_SOFTMAX_CLASSES, fused_sum, weighted_sum
from calibrant.losses.penalties import MomentPenalty
from calibrant.maxent import FORMS, solve
from made import loss_oracles as oracles
from made.loss_check import (
    IGNORED,
    build_of,
    check_loss,
    oracle_at_random,
    random_batch,
    random_soft_labels,
    value_and_gradient,
)
from made.loss_oracles import constraint_features, moment, skewed_prior

VALUES = [-1.0, 0.5, 3.0, 2.0, 7.0, 2.5]
FEATURES = [[0.5, 2.0], [1.0, 0.0], [2.0, 1.5], [0.0, 1.0], [3.0, 0.5], [1.5, 1.0]]
UNIFORM = [0.1] * 10


def batch(n: int = 64, k: int = 10, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(n, k, generator=generator)
    return logits.requires_grad_(), torch.randint(k, (n,), generator=generator)


def gradient_of(criterion: torch.nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
    return torch.autograd.grad(criterion(logits, labels), logits)[0]


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


@pytest.mark.parametrize(("form", "options"), MAXENT_OPTIONS, ids=str)
def test_maxent_options_follow_the_definition(form: str, options: dict[str, object]) -> None:
    meant = {key: value for key, value in options.items() if key != "gibbs"}
    given = {key: torch.tensor(value) if key == "features" else value for key, value in options.items()}
    name = f"maxent_{form}"
    oracle_at_random(name, build_of(name, **given), oracles.maxent(form, **meant))


KEPT = [("mean_variance", "squared", "paper"), ("prior", "squared", "paper"), ("mean_variance", "signed", "normalized")]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "penalty", "gibbs"), KEPT)
def test_maxent_options_keep_the_contract(form: str, penalty: str, gibbs: str) -> None:
    name = f"maxent_{form}"
    check_loss(name, build_of(name, penalty=penalty, gibbs=gibbs), SHARED)


@pytest.mark.parametrize("form", FORMS)
def test_multipliers_are_those_of_the_solver(form: str) -> None:
    for gibbs in ("paper", "normalized"):
        for local in (True, False):
            options = {"label_smoothing": 0.1, "gibbs": gibbs, "local": local}
            wanted = solve(skewed_prior(5), form, **options).multipliers.float()
            torch.testing.assert_close(MaxEntLoss(skewed_prior(5), form, **options).multipliers, wanted)


def test_prior_from_labels_and_from_counts() -> None:
    wanted = MaxEntLoss([0.5, 0.3, 0.2]).multipliers
    seen = torch.tensor([0] * 5 + [1] * 3 + [2] * 2)
    ignored = torch.cat((seen, torch.full((2,), 255))).reshape(2, 6).to(torch.uint8)
    for labels in (seen, seen.tolist(), seen.numpy(), seen.reshape(2, 5), seen.to(torch.uint8), ignored):
        found = MaxEntLoss.from_labels(labels, np.int64(3), ignore_index=255, gamma=np.float32(2.0))
        torch.testing.assert_close(found.multipliers, wanted)
        assert found.curve.keywords["gamma"] == 2
    for counts in ([5, 3, 2], torch.tensor([50, 30, 20])):
        torch.testing.assert_close(MaxEntLoss.from_counts(counts).multipliers, wanted)


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


@pytest.mark.parametrize("k", [10, 100, 1000])
def test_the_prior_form_leaves_the_prior_on_weak_evidence(k: int) -> None:
    """An image twice as likely of class 0 as by chance: a prediction that says a little of it has the lower loss."""
    posterior = torch.full((k,), (1 - 2 / k) / (k - 1), dtype=torch.float64)
    posterior[0] = 2 / k
    criterion = MaxEntLoss([1 / k] * k, "prior", reduction="none")
    at_prior = torch.zeros(k, k, dtype=torch.float64)
    towards = at_prior.clone()
    towards[:, 0] = 0.05
    assert posterior @ (criterion(towards, torch.arange(k)) - criterion(at_prior, torch.arange(k))) < 0
    assert criterion.multipliers.sum(1).abs().max() < 1e-3  # no common constant, which would hold it at the prior


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


def test_absolute_penalty_is_focal_plus_weighted_distances() -> None:
    """Row 1: |E − c^G| + |E − c^L|, one sample by hand. p = (1/2, 1/2, 0): E = 1/2, c^G = 1, c^L = 2, y = 2."""
    criterion = MaxEntLoss([1 / 3] * 3, "mean")
    logits = torch.tensor([[0.0, 0.0, -30.0]])
    multiplier = criterion.multipliers[2].item()
    focal = LOSSES["focal"]()(logits, torch.tensor([2])).item()
    found = criterion(logits, torch.tensor([2])).item()
    assert found == pytest.approx(focal + abs(multiplier) * (0.5 + 1.5), rel=1e-5)


def test_signed_penalty_with_paper_multipliers_must_be_named() -> None:
    """Row 3."""
    with pytest.raises(InvalidInputError, match="signed_as_printed"):
        MaxEntLoss(UNIFORM, penalty="signed")
    assert MaxEntLoss(UNIFORM, penalty="signed", gibbs="normalized").multipliers.sum().abs() < 1e-6


def test_printed_signs_collapse_to_class_zero() -> None:
    """Row 3, why: among one-hot predictions the signed constraint with paper multipliers always prefers class 0.

    The whole loss of a known label from 4 on is least where class 0 is predicted.
    """
    criterion = MaxEntLoss(UNIFORM, penalty="signed_as_printed", reduction="none")
    constraint = criterion.constraint(torch.eye(10), torch.full((10,), 7), torch.full((10,), 7))
    assert constraint.argmin() == 0
    of_label = torch.linspace(0.01, 1, 100)  # the rest of the probability is that of class 0
    for label in range(1, 10):
        probs = torch.zeros(100, 10)
        probs[:, 0], probs[:, label] = 1 - of_label, of_label
        best = of_label[criterion(probs.clamp(min=1e-9).log(), torch.full((100,), label)).argmin()]
        assert (best < 0.5) == (label >= 4)


def test_signs_of_the_multipliers() -> None:
    """Row 2: where λ is negative."""

    def negative(prior: list[float], form: str) -> bool:
        return bool((MaxEntLoss(prior, form).multipliers < 0).any())

    uniform = {k: [1 / k] * k for k in (4, 5, 10)}
    assert [negative(uniform[k], "mean") for k in (4, 5, 10)] == [True, False, False]
    assert [negative(uniform[k], "variance") for k in (4, 5, 10)] == [True, False, False]
    assert [negative(uniform[k], "mean_variance") for k in (4, 5, 10)] == [True, True, True]
    assert negative([0.025] * 4 + [0.9], "mean")


def test_mean_variance_moments_are_centered_per_class() -> None:
    """Rows 5 and 6: the center is μ_y of the label, the global variance part is that of the prior around it."""
    criterion = MaxEntLoss(UNIFORM, "mean_variance")
    values = torch.arange(10.0)
    center = (4.5 + 3.0) / 2
    probs = torch.full((1, 10), 0.1)
    moments, global_moments, local_moments, _ = criterion.constraint.moments(
        probs, torch.tensor([3]), torch.tensor([3])
    )
    origin = criterion.constraint.origin
    around = ((values - center) ** 2).mean().item()
    assert (moments[0] + origin).tolist() == pytest.approx([4.5, around], rel=1e-5)
    assert (global_moments[0] + origin).tolist() == pytest.approx([4.5, around], rel=1e-5)
    assert (local_moments[0] + origin).tolist() == pytest.approx([3.0, (3 - center) ** 2], rel=1e-5)


def test_class_values_change_what_the_mean_means() -> None:
    """Row 7: values 0, 1, 2 are the default; others give another loss, scaled ones the same."""
    logits, labels = batch(k=3)
    plain, same, other = (
        MaxEntLoss([0.2, 0.3, 0.5], gibbs="normalized", class_values=values)(logits, labels)
        for values in (None, [0, 10, 20], [0, 1, 20])
    )
    torch.testing.assert_close(plain, same)
    assert (plain - other).abs() > 1e-3


def test_without_local_constraints() -> None:
    """Row 9: global term alone, multipliers solved for the global moment."""
    criterion = MaxEntLoss(UNIFORM, local=False)
    logits, label = torch.zeros(1, 10), torch.tensor([7])
    assert criterion(logits, label).item() == pytest.approx(LOSSES["focal"]()(logits, label).item())  # E = c^G
    assert torch.equal(criterion.multipliers, criterion.multipliers[:1].expand(10, 1))


@pytest.mark.parametrize("form", ["mean", "variance", "mean_variance", "prior"])
def test_a_confidently_wrong_sample_keeps_its_gradient(form: str) -> None:
    """Row 10: no clamp of the probability."""
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    gradient = gradient_of(MaxEntLoss([1 / 3] * 3, form), logits, torch.tensor([1]))
    assert gradient[0, 1].item() <= -0.99


def test_smoothed_labels_use_smoothed_local_targets() -> None:
    """Row 12: smoothing in the loss, or soft labels smoothed by hand under the same multipliers."""
    logits, labels = batch()
    criterion = MaxEntLoss(UNIFORM, "mean_variance", label_smoothing=0.1)
    by_hand = 0.9 * torch.nn.functional.one_hot(labels, 10).float() + 0.01
    inside = criterion(logits, labels)
    criterion.label_smoothing = 0.0
    torch.testing.assert_close(inside, criterion(logits, by_hand))


def test_telemetry_sees_the_dead_zone() -> None:
    """Row 8: between global and local moment there is no slope; penalty "squared" has one everywhere."""
    logits = torch.tensor([[0.0] * 8 + [9.0, 9.0], [9.0, 9.0] + [0.0] * 8])
    labels = torch.tensor([9, 9])  # E is about 8.5, between 4.5 and 9, and about 0.5, outside
    criterion = MaxEntLoss(UNIFORM)
    seen = criterion.telemetry(logits, labels)
    assert seen.active_fraction == pytest.approx(0.5)
    assert seen.moments == pytest.approx([4.5], abs=0.01)
    assert seen.global_moments == pytest.approx([4.5])
    assert seen.local_moments == pytest.approx([9.0])
    assert 0 < seen.gradient_share < 1
    assert MaxEntLoss(UNIFORM, penalty="squared").telemetry(logits, labels).active_fraction == 1
    alone = criterion.telemetry(logits[:1], labels[:1])
    assert alone.active_fraction == 0
    assert alone.gradient_share == 0
    assert dataclasses.asdict(alone)


@pytest.mark.parametrize("form", ["mean", "variance", "mean_variance", "prior"])
def test_paths_agree_where_training_starts(form: str) -> None:
    """Zero logits and a uniform prior: E = c^G exactly, the edge of the dead zone, on every path and in telemetry."""
    criterion, labels = MaxEntLoss(UNIFORM, form), torch.arange(10)
    logits = torch.zeros(10, 10, requires_grad=True)
    fused = gradient_of(criterion, logits, labels)
    soft = gradient_of(lambda z, _: criterion(z, torch.eye(10)), logits, labels)
    general = gradient_of(lambda z, y: MaxEntLoss(UNIFORM, form, reduction="none")(z, y).mean(), logits, labels)
    torch.testing.assert_close(fused, soft, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(fused, general, rtol=1e-5, atol=1e-7)
    if form == "mean":
        seen = criterion.telemetry(logits, labels)
        assert (seen.active_fraction, seen.gradient_share) == (0, 0)


def test_telemetry_works_where_nothing_is_recorded_and_needs_a_sample() -> None:
    criterion, (logits, labels) = MaxEntLoss(UNIFORM), batch()
    criterion.telemetry(logits, labels)
    assert logits.grad is None
    with torch.inference_mode():
        assert 0 <= criterion.telemetry(torch.randn(4, 10), torch.arange(4)).gradient_share <= 1
    with pytest.raises(InvalidInputError, match="at least one sample"):
        criterion.telemetry(torch.zeros(2, 10), torch.full((2,), -100))


def test_the_fused_path_is_the_one_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr("calibrant.losses.modules.fused_sum", lambda *a, **k: taken.append(1) or fused_sum(*a, **k))
    logits, labels = batch()
    criterion = MaxEntLoss(UNIFORM)
    criterion(logits, labels)
    assert len(taken) == 1
    criterion(logits.detach(), labels)
    MaxEntLoss(UNIFORM, reduction="none")(logits, labels)
    MaxEntLoss(UNIFORM, label_smoothing=0.1)(logits, labels)
    MaxEntLoss(UNIFORM, "prior")(logits, labels)
    assert len(taken) == 1


@pytest.mark.parametrize("form", ["mean", "mean_variance"])
@pytest.mark.parametrize("n_classes", [MIN_SOFTMAX_CLASSES - 1, MIN_SOFTMAX_CLASSES])
@pytest.mark.parametrize("largest", [30.0, 60.0])
def test_the_fused_path_is_the_definition_for_any_number_of_classes(form: str, n_classes: int, largest: float) -> None:
    """Logits up to 30 need no shift, those up to 60 do."""
    criterion = MaxEntLoss(skewed_prior(n_classes), form)
    assert isinstance(criterion.constraint, MomentPenalty)
    logits, labels = batch(k=n_classes)
    logits = (largest * logits / logits.abs().max()).double().detach().requires_grad_()
    weights = torch.full((len(labels),), 1 / len(labels), dtype=torch.float64)
    wanted = weighted_sum(logits, labels, weights, criterion.curve, criterion.constraint)
    (slope,) = torch.autograd.grad(wanted, logits)
    value, gradient = value_and_gradient(criterion, logits, labels)
    torch.testing.assert_close(value, wanted, rtol=1e-8, atol=0)  # half spreads in float32
    torch.testing.assert_close(gradient, slope, rtol=1e-9, atol=1e-14)


def test_many_classes_in_the_prior_form_need_no_square_table() -> None:
    """21,841 classes: tables of a row, where a matrix of multipliers would hold 1.9 GB."""
    k = 21_841
    criterion = MaxEntLoss(torch.full((k,), 1 / k, dtype=torch.float64), "prior")
    assert sum(buffer.numel() for buffer in criterion.buffers()) <= 6 * k
    logits = torch.randn(2, k, requires_grad=True)
    criterion(logits, torch.tensor([0, k - 1])).backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("form", ["mean", "variance", "mean_variance", "prior"])
@pytest.mark.parametrize("soft", [False, True])
def test_state_of_another_prior(form: str, soft: bool) -> None:
    """The state is all there is: loaded into a loss of another prior, it gives the first one's value."""
    logits, labels = random_batch()
    labels = random_soft_labels() if soft else labels
    criterion, other = MaxEntLoss(skewed_prior(4), form), MaxEntLoss([0.25] * 4, form)
    assert not torch.equal(other(logits, labels), criterion(logits, labels))
    other.load_state_dict(criterion.state_dict())
    assert torch.equal(other(logits, labels), criterion(logits, labels))
    assert torch.equal(other.multipliers, criterion.multipliers)
