"""Every entry of LOSSES against the shared battery; options of single losses; losses in training programs."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from calibrant.errors import InvalidInputError
from calibrant.losses import LOSSES, functional
from made import loss_oracles as oracles
from made.loss_check import (
    ASPECTS,
    IGNORED,
    assert_same,
    build_of,
    check_loss,
    oracle_at_random,
    random_batch,
    random_soft_labels,
    value_and_gradient,
)
from made.loss_oracles import ORACLES, Oracle
from made.marks import slow_where


def test_every_loss_has_an_oracle() -> None:
    assert set(ORACLES) == set(LOSSES)


@pytest.mark.parametrize("aspect", slow_where(ASPECTS, ("compiled", "second_gradient")))
@pytest.mark.parametrize("name", LOSSES)
def test_contract(name: str, aspect: str) -> None:
    check_loss(name, build_of(name), [aspect])


FUNCTIONS = {"mbls": "margin_smoothing"}  # others have the name of their loss


@pytest.mark.parametrize("name", [name for name in LOSSES if hasattr(functional, FUNCTIONS.get(name, name))])
def test_functions_are_the_losses_without_reduction(name: str) -> None:
    function, criterion = getattr(functional, FUNCTIONS.get(name, name)), LOSSES[name](reduction="none")
    logits, labels = random_batch(19, 6)
    for given_labels in (labels, random_soft_labels(19, 6)):
        torch.testing.assert_close(function(logits, given_labels), criterion(logits, given_labels))


# Options: with True, also where a power or a step of them could be singular

OPTIONS: list[tuple[str, dict[str, object], Oracle, bool]] = [
    ("focal", {"gamma": 0.0}, oracles.focal(0.0), True),
    ("focal", {"gamma": 0.5}, oracles.focal(0.5), True),
    ("focal", {"gamma": 3.7}, oracles.focal(3.7), False),
    ("inverse_focal", {"gamma": 0.0}, oracles.inverse_focal(0.0), True),
    ("inverse_focal", {"gamma": 1.3}, oracles.inverse_focal(1.3), False),
    ("poly", {"epsilon": -1.0}, oracles.poly(-1.0), False),
    ("avuc", {"beta": 0.7}, oracles.avuc(0.7), False),
    ("avuc", {"threshold": 0.8}, oracles.avuc(threshold=0.8), True),
    ("soft_avuc", {"beta": 2.0, "temperature": 0.3}, oracles.soft_avuc(2.0, temperature=0.3), False),
    ("soft_avuc", {"temperature": 1.0, "kappa": 0.6}, oracles.soft_avuc(temperature=1.0, kappa=0.6), False),
    ("soft_avuc", {"gamma": 0.0, "kappa": 0.5}, oracles.soft_avuc(gamma=0.0, kappa=0.5), True),
    ("flsd", {"gamma_low": 2.0, "gamma_high": 0.5, "threshold": 0.4}, oracles.flsd(2.0, 0.5, 0.4), True),
    ("dual_focal", {"gamma": 0.5}, oracles.dual_focal(0.5), True),
    ("dual_focal", {"gamma": 2.5}, oracles.dual_focal(2.5), False),
    ("mmce", {"weight": 0.5, "width": 0.1}, oracles.mmce(0.5, 0.1), False),
    ("mmce", {"width": 0.02}, oracles.mmce(width=0.02), True),
    ("mdca", {"weight": 3.0, "gamma": 2.0}, oracles.mdca(3.0, 2.0), False),
    ("mbls", {"margin": 1.5, "weight": 0.7}, oracles.mbls(1.5, 0.7), False),
    ("mbls", {"margin": 0.0}, oracles.mbls(0.0), True),
    ("label_relaxation", {"alpha": 0.4}, oracles.label_relaxation(0.4), True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "oracle", "singular"), OPTIONS, ids=[f"{o[0]}-{o[1]}" for o in OPTIONS])
def test_options_follow_the_definition(name: str, options: dict[str, object], oracle: Oracle, singular: bool) -> None:
    oracle_at_random(name, build_of(name, **options), oracle)
    if singular:
        check_loss(name, build_of(name, **options), ("saturated", "first_gradient", "paths_agree", "dtypes"))


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


@pytest.mark.parametrize("name", LOSSES)
def test_one_logit_is_two_classes(name: str) -> None:
    """Of every shape and type of labels; with a gradient; also of images."""
    generator = torch.Generator().manual_seed(25)
    logits = 2 * torch.randn(12, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (12,), generator=generator)
    pair = torch.stack([torch.zeros_like(logits), logits], dim=1)
    for reduction in ("mean", "none"):
        criterion = build_of(name)(2, reduction=reduction, label_smoothing=0.1, class_weights=[1.0, 2.0])
        value, gradient = value_and_gradient(criterion, pair, labels)
        for given in (labels, labels.bool(), labels.int(), labels.float(), labels.double()):
            for shape, of_labels in (((12,), (12,)), ((12, 1), (12, 1)), ((12, 1), (12,))):
                got = value_and_gradient(criterion, logits.reshape(shape), given.reshape(of_labels))
                torch.testing.assert_close(got[0], value)
                torch.testing.assert_close(got[1].flatten(), gradient[:, 1])
    criterion = build_of(name)(2)
    dense = criterion(logits.reshape(3, 1, 2, 2), labels.reshape(3, 2, 2))
    torch.testing.assert_close(dense, criterion(logits, labels))


@pytest.mark.slow
def test_one_logit_is_torchs_binary_cross_entropy() -> None:
    generator = torch.Generator().manual_seed(26)
    logits = 3 * torch.randn(20, 1, generator=generator, dtype=torch.float64)
    for labels in (torch.randint(2, (20, 1), generator=generator).double(), torch.rand(20, 1).double()):
        expected = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").squeeze(1)
        torch.testing.assert_close(LOSSES["cross_entropy"](reduction="none")(logits, labels), expected)
        torch.testing.assert_close(functional.cross_entropy(logits.squeeze(1), labels), expected)
    leaf = logits.squeeze(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: build_of("maxent_mean")(2)(z, labels), (leaf,))
    assert_compiled(build_of("maxent_mean")(2), logits.detach().float(), labels.float(), backend="aot_eager")


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
    logits = torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]]).log()
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


@pytest.mark.parametrize("name", ["focal", "avuc", "mdca", "maxent_mean"])
def test_ignored_rows_may_be_nan(name: str) -> None:
    """With validation, which then checks the others only, and without it, as on a device."""
    logits, labels = random_batch(9)
    kept = torch.arange(9) != 5
    logits[5], labels[5] = torch.nan, IGNORED
    for validate in (None, False):
        criterion = build_of(name)(4, validate=validate)
        value, gradient = value_and_gradient(criterion, logits, labels)
        assert_same((value, gradient[kept]), value_and_gradient(criterion, logits[kept], labels[kept]), 1e-9, 1e-10)
        assert not gradient[5].any()


@pytest.mark.parametrize("name", ["focal", "avuc", "maxent_mean", "maxent_mean_variance"])
def test_functional_transforms(name: str) -> None:
    criterion, (logits, labels) = build_of(name)(4), random_batch()
    found = torch.func.grad(lambda z: criterion(z, labels))(logits)
    torch.testing.assert_close(found, value_and_gradient(criterion, logits, labels)[1])
    alone = torch.func.vmap(torch.func.grad(lambda z, y: criterion(z[None], y[None])))(logits, labels)
    torch.testing.assert_close(alone[3], value_and_gradient(criterion, logits[3:4], labels[3:4])[1][0])


@pytest.mark.parametrize("loss", [functional.cross_entropy, functional.flsd, functional.margin_smoothing])
def test_functions_take_dense_logits_narrow_labels_and_vmap(loss: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 3, 4, 4, generator=generator), torch.randint(3, (2, 4, 4), generator=generator)
    rows = logits.movedim(1, -1)  # (2, 4, 4, 3)
    expected = loss(rows.reshape(-1, 3), labels.flatten().int()).reshape(2, 4, 4)
    torch.testing.assert_close(loss(logits, labels), expected)
    torch.testing.assert_close(torch.func.vmap(loss)(rows[:, 0], labels[:, 0]), expected[:, 0])


def test_functions_take_tensor_settings() -> None:
    logits, labels = random_batch()
    n, k = logits.shape
    per_sample = torch.arange(n) / 2.0
    gamma = torch.tensor(2.0, requires_grad=True)
    dual = functional.dual_focal(logits, labels, gamma=gamma)
    assert torch.equal(dual, functional.dual_focal(logits, labels, gamma=2.0))
    assert torch.autograd.grad(dual.sum(), gamma)[0] != 0
    found = functional.dual_focal(logits, labels, gamma=per_sample[:, None])
    assert found[3] == functional.dual_focal(logits, labels, gamma=1.5)[3]
    assert torch.func.vmap(functional.dual_focal)(logits[None], labels[None]).shape == (1, n)
    margin = functional.margin_smoothing(logits, labels, margin=torch.full((k,), 0.5), weight=per_sample)
    assert margin[3] == functional.margin_smoothing(logits, labels, margin=0.5, weight=1.5)[3]
    with pytest.raises(InvalidInputError, match=rf"gamma must .* to shape \({n}, 1\), got shape \({n},\)"):
        functional.dual_focal(logits, labels, gamma=per_sample)


# In a training program


class Classifier(nn.Module):
    """A linear model of four classes that contains its criterion."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.criterion = nn.Linear(5, 4), build_of("maxent_mean")(4)
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        return self.criterion(self.linear(features), labels)


def training_set() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 5, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 4


def two_steps(model: nn.Module, features: Tensor, labels: Tensor) -> list[Tensor]:
    """The gradients of two steps of descent."""
    gradients = []
    for _ in range(2):
        model.zero_grad()
        model(features, labels).backward()
        for parameter in model.parameters():
            gradients.append(parameter.grad.clone())
            parameter.data -= 0.1 * parameter.grad
    return gradients


def train_one_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    features, labels = training_set()
    model = DistributedDataParallel(Classifier())
    torch.save(two_steps(model, features[rank::2], labels[rank::2]), f"{folder}/gradients_{rank}.pt")
    del model  # its reducer holds the group
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_processes_give_the_gradient_of_one(tmp_path: Path) -> None:
    import torch._dynamo  # which DistributedDataParallel loads: here once, and not in every fork

    torch.multiprocessing.start_processes(train_one_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    alone = two_steps(Classifier(), *training_set())
    assert all(gradient.abs().max() > 1e-3 for gradient in alone)
    for rank in range(2):
        for got, expected in zip(torch.load(tmp_path / f"gradients_{rank}.pt"), alone, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def assert_compiled(criterion: nn.Module, logits: Tensor, labels: Tensor, **options: object) -> None:
    expected = value_and_gradient(criterion, logits, labels)
    torch.compiler.reset()
    got = value_and_gradient(torch.compile(criterion, fullgraph=True, **options), logits, labels)
    assert_same(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="inductor needs a C++ compiler")
def test_inductor_agrees_with_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # code kept for one processor fails on another
    logits, labels = random_batch(6, 3, dtype=torch.float32)
    labels[2] = -100
    assert_compiled(build_of("maxent_mean")(3), logits, labels, options={"compile_threads": 1})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maxent_mean_variance", "maxent_prior", "avuc", "mmce"])
def test_compiled_options(name: str) -> None:
    """Smoothed soft labels, one value per sample, weights: nothing breaks the graph."""
    logits, soft = random_batch(6, 3, dtype=torch.float32)[0], random_soft_labels(6, 3, dtype=torch.float32)
    criterion = build_of(name)(3, label_smoothing=0.1, reduction="none", class_weights=[1.0, 2.0, 0.5])
    assert_compiled(criterion, logits, soft, backend="aot_eager")
