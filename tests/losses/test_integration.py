"""Losses inside a training program: several processes, the compiler, a model's own copies and dtypes."""

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from calibrant.losses import MaxEntLoss
from made.loss_check import assert_same, build_of, random_batch, random_soft_labels, value_and_gradient
from made.loss_oracles import skewed_prior


class Classifier(nn.Module):
    """A linear model with its criterion as a part of it."""

    def __init__(self, criterion: nn.Module, n_classes: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(5, n_classes)
        self.criterion = criterion
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        return self.criterion(self.linear(features), labels)


def training_set(n: int = 8, n_classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 5, generator=generator), torch.arange(n) % n_classes


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


def train_one_rank(rank: int, folder: str, name: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    features, labels = training_set()
    model = DistributedDataParallel(Classifier(build_of(name)(4)))
    torch.save(two_steps(model, features[rank::2], labels[rank::2]), f"{folder}/gradients_{rank}.pt")
    del model  # its reducer holds the group
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", ["maxent_mean"])
def test_two_processes_give_the_gradient_of_one(name: str, tmp_path: Path) -> None:
    import torch._dynamo  # which DistributedDataParallel loads: here once, and not in every fork

    torch.multiprocessing.start_processes(train_one_rank, (str(tmp_path), name), nprocs=2, start_method="fork")
    alone = two_steps(Classifier(build_of(name)(4)), *training_set())
    assert all(gradient.abs().max() > 1e-3 for gradient in alone)
    for rank in range(2):
        for got, expected in zip(torch.load(tmp_path / f"gradients_{rank}.pt"), alone, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def assert_compiled(criterion: nn.Module, logits: Tensor, labels: Tensor, **options: str) -> None:
    expected = value_and_gradient(criterion, logits, labels)
    torch.compiler.reset()
    got = value_and_gradient(torch.compile(criterion, fullgraph=True, **options), logits, labels)
    assert_same(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="inductor needs a C++ compiler")
def test_inductor_agrees_with_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # code kept for one processor fails on another
    logits, labels = random_batch(6, 3, dtype=torch.float32)
    labels[2] = -100
    assert_compiled(build_of("maxent_mean")(3), logits, labels)


@pytest.mark.parametrize("name", ["maxent_mean_variance", "maxent_prior", "avuc"])
def test_compiled_options(name: str) -> None:
    """Smoothed soft labels, one value per sample, weights: nothing breaks the graph."""
    logits, soft = random_batch(6, 3, dtype=torch.float32)[0], random_soft_labels(6, 3, dtype=torch.float32)
    criterion = build_of(name)(3, label_smoothing=0.1, reduction="none", class_weights=[1.0, 2.0, 0.5])
    assert_compiled(criterion, logits, soft, backend="aot_eager")


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
