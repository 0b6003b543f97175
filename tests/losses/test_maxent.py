"""MaxEnt Loss where the paper and its published code differ, and what the constraints do."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from calibrant.errors import InvalidInputError
from calibrant.losses import LOSSES, MaxEntLoss
from calibrant.losses.fused import fused_sum

UNIFORM = [0.1] * 10


def batch(n: int = 64, k: int = 10, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(n, k, generator=generator)
    return logits.requires_grad_(), torch.randint(k, (n,), generator=generator)


def gradient_of(criterion: torch.nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
    return torch.autograd.grad(criterion(logits, labels), logits)[0]


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
    """Row 3, why: among one-hot predictions the signed constraint with paper multipliers always prefers class 0."""
    criterion = MaxEntLoss(UNIFORM, penalty="signed_as_printed")
    constraint = criterion.constraint(torch.eye(10), torch.full((10,), 7), torch.full((10,), 7))
    assert constraint.argmin() == 0


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


@pytest.mark.parametrize("name", ["focal", "avuc", "mdca", "maxent_mean"])
def test_ignored_rows_may_hold_anything(name: str) -> None:
    """With validation, which then looks at the others only, and without it, as on a device."""
    logits, labels = batch()
    broken, ignored = logits.detach().clone(), labels.clone()
    broken[5], ignored[5] = torch.nan, -100
    kept = torch.arange(64) != 5
    for validate in (None, False):
        criterion = LOSSES[name](UNIFORM, validate=validate) if "maxent" in name else LOSSES[name](validate=validate)
        leaf = broken.clone().requires_grad_()
        value = criterion(leaf, ignored)
        torch.testing.assert_close(value, criterion(logits[kept], labels[kept]))
        gradient = torch.autograd.grad(value, leaf)[0]
        assert gradient.isfinite().all()
        assert not gradient[5].any()


@pytest.mark.parametrize("name", ["focal", "avuc", "maxent_mean", "maxent_mean_variance"])
def test_functional_transforms(name: str) -> None:
    criterion = LOSSES[name](UNIFORM) if "maxent" in name else LOSSES[name]()
    logits, labels = batch()
    found = torch.func.grad(lambda z: criterion(z, labels))(logits.detach())
    torch.testing.assert_close(found, gradient_of(criterion, logits, labels))
    alone = torch.func.vmap(torch.func.grad(lambda z, y: criterion(z[None], y[None])))(logits.detach(), labels)
    torch.testing.assert_close(alone[3], gradient_of(criterion, logits[3:4].detach().requires_grad_(), labels[3:4])[0])


@pytest.mark.parametrize("name", LOSSES)
def test_dynamic_shapes_compile(name: str) -> None:
    criterion = LOSSES[name](UNIFORM) if "maxent" in name else LOSSES[name]()
    torch._dynamo.reset()
    compiled = torch.compile(criterion, fullgraph=True, dynamic=True, backend="eager")
    for n in (7, 12):
        logits, labels = batch(n)
        torch.testing.assert_close(compiled(logits, labels), criterion(logits, labels))


def test_labels_of_numpy_and_labels_to_be_ignored() -> None:
    labels = np.array([0, 1, 2, 2])
    criterion = MaxEntLoss.from_labels(labels, labels.max() + 1, gamma=np.float32(2.0))
    torch.testing.assert_close(criterion.multipliers, MaxEntLoss.from_counts([1, 1, 2]).multipliers)
    assert criterion.curve.keywords["gamma"] == 2
    ignored = torch.tensor([[0, 1, 255], [1, 255, 255]], dtype=torch.uint8)
    found = MaxEntLoss.from_labels(ignored, 2, ignore_index=255).multipliers
    torch.testing.assert_close(found, MaxEntLoss.from_counts([1, 2]).multipliers)


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


def test_many_classes_in_the_prior_form_need_no_square_table() -> None:
    """21,841 classes: tables of a row, where a matrix of multipliers would hold 1.9 GB."""
    k = 21_841
    criterion = MaxEntLoss(torch.full((k,), 1 / k, dtype=torch.float64), "prior")
    assert sum(buffer.numel() for buffer in criterion.buffers()) <= 6 * k
    logits = torch.randn(2, k, requires_grad=True)
    criterion(logits, torch.tensor([0, k - 1])).backward()
    assert logits.grad.isfinite().all()
