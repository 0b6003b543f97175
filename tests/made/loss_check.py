"""The battery that every loss must pass: `check_loss`, one aspect after the other."""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from calibrant.losses import LOSSES
from made.loss_oracles import ORACLES, Batch, Oracle, batch_of, reduced, skewed_prior

Build = Callable[..., nn.Module]  # build(n_classes, **options)
Aspect = Callable[[str, Build], None]

REDUCTIONS = ("mean", "sum", "none")
IGNORED = -100


def build_of(name: str, **fixed: object) -> Build:
    """The table's entry as a function of the number of classes; a maxent loss gets the oracles' prior."""

    def build(n_classes: int, **options: object) -> nn.Module:
        prior = [skewed_prior(n_classes)] if name.startswith("maxent") else []
        return LOSSES[name](*prior, **fixed, **options)

    return build


def check_loss(name: str, build: Build, aspects: Sequence[str] | None = None) -> None:
    """Check one loss against the named aspects of the contract, or all of them."""
    for aspect in ASPECTS if aspects is None else aspects:
        ASPECTS[aspect](name, build)


def random_batch(
    n: int = 7, n_classes: int = 4, *, seed: int = 0, scale: float = 2.0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Logits, and labels among which every class occurs."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    labels = torch.arange(n)[torch.randperm(n, generator=generator)] % n_classes
    return logits.to(dtype), labels


def random_soft_labels(n: int = 7, n_classes: int = 4, *, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, n_classes, generator=generator, dtype=torch.float64).mul(2).softmax(1).to(dtype)


def value_and_gradient(criterion: nn.Module, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and the gradient of its sum."""
    leaf = logits.detach().clone().requires_grad_()
    loss = criterion(leaf, labels)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient


def assert_same(got: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], rtol: float, atol: float) -> None:
    for what, a, b in zip(("value", "gradient"), got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, msg=lambda text, what=what: f"{what}: {text}")


def oracle_tolerance(name: str) -> tuple[float, float]:
    """(rtol, atol): maxent tables are float32; the root in MMCE makes 1e-8 of a rounding error of 1e-16."""
    if name.startswith("maxent"):
        return 1e-5, 1e-5
    return 1e-9, 1e-7 if name == "mmce" else 1e-10


def assert_oracle(
    name: str, build: Build, oracle: Oracle, logits: np.ndarray, labels: np.ndarray, **options: object
) -> None:
    """All reductions, with a gradient asked for and without, against the loops."""
    rtol, atol = oracle_tolerance(name)
    batch = batch_of(logits, labels, **options)
    values = oracle(batch, build(logits.shape[1], **options))
    assert np.isfinite(values).all(), "the definition itself gives no number here"
    for reduction in REDUCTIONS:
        criterion = build(logits.shape[1], reduction=reduction, **options)
        for needs_gradient in (True, False):
            inputs = torch.tensor(logits, dtype=torch.float64, requires_grad=needs_gradient)
            got = criterion(inputs, torch.tensor(labels))
            assert got.dtype == torch.float64
            wanted = reduced(values, batch, reduction)
            np.testing.assert_allclose(got.detach().numpy(), wanted, rtol, atol, err_msg=f"{reduction}, {options}")


GRID = (-12.0, -1.0, 0.0, 0.5, 1.0, 2.0, 12.0)


@st.composite
def grid_batches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, dict[str, object]]:
    """Logits on a coarse grid, so that ties and saturated probabilities occur; labels; options."""
    n, n_classes = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    entries = st.lists(st.sampled_from(GRID), min_size=n_classes, max_size=n_classes)
    logits = np.array(draw(st.lists(entries, min_size=n, max_size=n)))
    options: dict[str, object] = {"label_smoothing": draw(st.sampled_from((0.0, 0.0, 0.1)))}
    if draw(st.booleans()):
        options["class_weights"] = [0.5, 2.0, 0.0, 1.0, 3.0][:n_classes]
    if draw(st.booleans()):
        counts = st.lists(st.integers(0, 2), min_size=n_classes, max_size=n_classes).filter(any)
        soft = np.array(draw(st.lists(counts, min_size=n, max_size=n)), dtype=np.float64)
        return logits, soft / soft.sum(1, keepdims=True), options
    labels = st.sampled_from([*range(n_classes), IGNORED])
    return logits, np.array(draw(st.lists(labels, min_size=n, max_size=n))), options


def rounding_decides(name: str, batch: Batch) -> bool:
    """Whether an entropy equals an inner threshold of AvUC but for rounding, there where its curve jumps."""
    entropies = sorted(row.entropy for row, weight in zip(batch.rows, batch.weights, strict=True) if weight)
    if name != "avuc" or not entropies:
        return False
    low, high = entropies[0], entropies[-1]
    inner = np.linspace(low, high, 21)[1:-1]
    return any(abs(h - t) < 1e-9 for h in entropies for t in inner if h not in (low, high))


def oracle_on_a_grid(name: str, build: Build) -> None:
    @settings(max_examples=20)
    @given(grid_batches())
    def agrees(case: tuple[np.ndarray, np.ndarray, dict[str, object]]) -> None:
        logits, labels, options = case
        batch = batch_of(logits, labels, **options)
        assume(not rounding_decides(name, batch))
        assume(name.startswith("maxent") or np.isfinite(ORACLES[name](batch, None)).all())
        assert_oracle(name, build, ORACLES[name], logits, labels, **options)

    agrees()


def oracle_at_random(name: str, build: Build, oracle: Oracle | None = None) -> None:
    logits, labels = random_batch(19, 6, seed=3)
    weights = [0.5, 2.0, 1.0, 0.0, 3.0, 1.5]
    for given_labels in (labels, random_soft_labels(19, 6)):
        for options in ({}, {"label_smoothing": 0.07}, {"label_smoothing": 0.2, "class_weights": weights}):
            assert_oracle(name, build, oracle or ORACLES[name], logits.numpy(), given_labels.numpy(), **options)


def first_gradient(name: str, build: Build) -> None:
    logits, labels = random_batch(5)
    soft = random_soft_labels(5)
    weights = [1.0, 2.0, 0.5, 1.5]
    for options, given_labels in (
        ({}, labels),
        ({"reduction": "sum", "class_weights": weights}, labels),
        ({"reduction": "none"}, labels),
        ({"label_smoothing": 0.1}, labels),
        ({"reduction": "none", "class_weights": weights}, soft),
    ):
        criterion = build(4, **options)
        leaf = logits.clone().requires_grad_()
        assert gradcheck(lambda z, c=criterion, t=given_labels: c(z, t), (leaf,), atol=1e-6), options


def second_gradient(name: str, build: Build) -> None:
    logits, labels = random_batch(5)
    weights = [1.0, 2.0, 0.5, 1.5]
    for options in ({}, {"reduction": "sum", "class_weights": weights}, {"reduction": "none"}):
        criterion = build(4, **options)
        leaf = logits.clone().requires_grad_()
        assert gradgradcheck(lambda z, c=criterion: c(z, labels), (leaf,), atol=1e-5), options


def soft_label_types(name: str, build: Build) -> None:
    """Float64 soft labels beside float32 logits are the same labels."""
    logits, _ = random_batch(dtype=torch.float32)
    soft = random_soft_labels()
    expected = value_and_gradient(build(4), logits, soft.float())
    assert_same(value_and_gradient(build(4), logits, soft), expected, rtol=1e-5, atol=1e-6)


def confidently_wrong(name: str, build: Build) -> None:
    others, other_labels = random_batch(3, 3, seed=4)
    right = torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    wrong = torch.tensor([[200.0, 0.0, 50.0]], dtype=torch.float64)
    batches = (
        (wrong, torch.tensor([1])),
        (torch.cat((wrong, others)), torch.cat((torch.tensor([1]), other_labels))),
        (torch.cat((wrong, right)), torch.tensor([1, 1, 2])),
    )
    for reduction in REDUCTIONS:
        criterion = build(3, reduction=reduction)
        for dtype in (torch.float32, torch.float16):
            for logits, labels in batches:
                loss, gradient = value_and_gradient(criterion, logits.to(dtype), labels)
                assert loss.isfinite().all(), (dtype, reduction, loss)
                assert gradient.isfinite().all(), (dtype, reduction, gradient)
                assert gradient[0, 1] < -0.05, (dtype, reduction, gradient)


def saturated(name: str, build: Build) -> None:
    """Certain and correct, or all logits equal (every entropy is the largest, every argmax a tie): all is finite."""
    certain = torch.tensor([[200.0, 0.0, 50.0], [0.0, 90.0, 0.0], [0.0, 0.0, 40.0]])
    for logits in (certain, *(torch.zeros(n_classes, n_classes) for n_classes in (2, 3, 5, 10))):
        labels = torch.arange(len(logits))
        for reduction in REDUCTIONS:
            criterion = build(len(logits), reduction=reduction)
            for dtype in (torch.float16, torch.float32, torch.float64):
                for rows in (slice(None), slice(1), slice(1, None)):
                    loss, gradient = value_and_gradient(criterion, logits[rows].to(dtype), labels[rows])
                    assert loss.isfinite().all(), (dtype, reduction, loss)
                    assert gradient.isfinite().all(), (dtype, reduction, gradient)


def order(name: str, build: Build) -> None:
    logits, labels = random_batch(33, 5, seed=5)
    shuffled = torch.randperm(33, generator=torch.Generator().manual_seed(6))
    for given_labels in (labels, random_soft_labels(33, 5)):
        for options in ({}, {"reduction": "sum", "class_weights": [1.0, 2.0, 0.5, 1.5, 0.0]}):
            criterion = build(5, **options)
            value, gradient = value_and_gradient(criterion, logits, given_labels)
            moved = value_and_gradient(criterion, logits[shuffled], given_labels[shuffled])
            assert_same(moved, (value, gradient[shuffled]), rtol=1e-11, atol=1e-12)


def common_shift(name: str, build: Build) -> None:
    """Softmax does not see a constant added to a row of logits."""
    logits, labels = random_batch()
    shift = torch.tensor([0.0, 1.0, -3.0, 20.0, 40.0, -60.0, 0.5], dtype=torch.float64)[:, None]
    expected = value_and_gradient(build(4), logits, labels)
    assert_same(value_and_gradient(build(4), logits + shift, labels), expected, rtol=1e-9, atol=1e-10)


def one_hot(name: str, build: Build) -> None:
    weights = [1.0, 2.0, 0.5, 0.0]
    for dtype, rtol, atol in ((torch.float64, 1e-6, 1e-7), (torch.float32, 1e-4, 2e-6)):
        logits, labels = random_batch(dtype=dtype)
        soft = torch.nn.functional.one_hot(labels, 4).to(dtype)
        for reduction in REDUCTIONS:
            for options in ({}, {"label_smoothing": 0.1}, {"label_smoothing": 0.1, "class_weights": weights}):
                criterion = build(4, reduction=reduction, **options)
                expected = value_and_gradient(criterion, logits, labels)
                assert_same(value_and_gradient(criterion, logits, soft), expected, rtol, atol)


def ignored_rows(name: str, build: Build) -> None:
    logits, labels = random_batch(9, 4, seed=7)
    keep = torch.tensor([0, 2, 3, 5, 7])
    for ignore_index, fill in ((IGNORED, None), (2, None), (255, 1e4), (IGNORED, 1e30)):
        kept_labels = labels[keep].where(labels[keep] != ignore_index, 3)
        marked = torch.full((9,), ignore_index).index_copy(0, keep, kept_labels)
        filled = logits.clone()
        if fill is not None:
            filled = torch.full_like(logits, fill).index_copy(0, keep, logits[keep])
            filled[1, 0] = filled[4, 2] = -fill
        for options in ({}, {"class_weights": [1.0, 2.0, 0.5, 1.5]}, {"label_smoothing": 0.1}):
            for reduction in REDUCTIONS:
                criterion = build(4, reduction=reduction, ignore_index=ignore_index, **options)
                value, gradient = value_and_gradient(criterion, logits[keep], kept_labels)
                if reduction == "none":
                    value = torch.zeros(9, dtype=value.dtype).index_copy(0, keep, value)
                gradient = torch.zeros_like(logits).index_copy(0, keep, gradient)
                assert_same(value_and_gradient(criterion, filled, marked), (value, gradient), rtol=1e-9, atol=1e-10)


def nothing_counts(name: str, build: Build) -> None:
    """All rows ignored, all of weight 0, or no rows: 0 with a gradient of 0."""
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        logits, labels = random_batch(dtype=dtype)
        weightless = {"class_weights": [0.0, 1.0, 1.0, 1.0]}
        for options, rows, given_labels in (
            ({}, logits, torch.full_like(labels, IGNORED)),
            ({"label_smoothing": 0.1}, logits, torch.full_like(labels, IGNORED)),
            ({"class_weights": [1.0, 2.0, 3.0, 4.0]}, logits, torch.full_like(labels, IGNORED)),
            (weightless, logits, torch.zeros_like(labels)),
            ({}, logits[:0], labels[:0]),
            ({"class_weights": [1.0, 2.0, 3.0, 4.0]}, logits[:0], labels[:0]),
            ({}, logits[:0], random_soft_labels()[:0]),
        ):
            for reduction in REDUCTIONS:
                loss, gradient = value_and_gradient(build(4, reduction=reduction, **options), rows, given_labels)
                assert loss.shape == ((len(rows),) if reduction == "none" else ())
                assert torch.equal(loss, torch.zeros_like(loss)), (options, reduction, loss)
                assert torch.equal(gradient, torch.zeros_like(rows)), (options, reduction, gradient)


def dense(name: str, build: Build) -> None:
    flat, flat_labels = random_batch(24, 3, seed=8)
    flat_labels[5] = IGNORED
    flat_soft = random_soft_labels(24, 3)

    def unflattened(matrix: Tensor) -> Tensor:
        return matrix.reshape(2, 3, 4, 3).permute(0, 3, 1, 2)

    for options in ({}, {"label_smoothing": 0.1, "class_weights": [1.0, 2.0, 0.5]}):
        for reduction in REDUCTIONS:
            criterion = build(3, reduction=reduction, **options)
            for labels, shaped in ((flat_labels, flat_labels.reshape(2, 3, 4)), (flat_soft, unflattened(flat_soft))):
                value, gradient = value_and_gradient(criterion, flat, labels)
                value = value.reshape(2, 3, 4) if reduction == "none" else value
                for logits in (unflattened(flat), unflattened(flat).contiguous()):
                    got = value_and_gradient(criterion, logits, shaped)
                    assert_same(got, (value, unflattened(gradient)), rtol=1e-9, atol=1e-10)


def strides(name: str, build: Build) -> None:
    """A transposed or sliced matrix, and labels of other integer types, are the same numbers."""
    logits, labels = random_batch()
    expected = value_and_gradient(build(4), logits, labels)
    wide = torch.zeros(7, 8, dtype=logits.dtype)
    wide[:, ::2] = logits
    for view in (logits.T.contiguous().T, wide[:, ::2]):
        leaf = view.detach().requires_grad_()
        loss = build(4)(leaf, labels)
        (gradient,) = torch.autograd.grad(loss, leaf)
        assert_same((loss.detach(), gradient), expected, rtol=1e-11, atol=1e-12)
    for integer in (torch.int32, torch.uint8):
        assert_same(value_and_gradient(build(4), logits, labels.to(integer)), expected, rtol=1e-11, atol=1e-12)


def paths_agree(name: str, build: Build) -> None:
    """The reduced loss, fused where that is possible, against the sum of the loss per sample."""
    exact = 1e-6 if name.startswith("maxent") else 1e-9  # maxent tables are float32
    unit, labels = random_batch(11, 4, seed=9)
    unit /= unit.abs().max()
    labels[3] = IGNORED
    for weights in (None, torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)):
        per_sample = (labels != IGNORED) * (torch.ones(4) if weights is None else weights)[labels.clamp(min=0)]
        each, *reduce = (build(4, reduction=reduction, class_weights=weights) for reduction in ("none", "sum", "mean"))
        for dtype, rtol in ((torch.float64, exact), (torch.float32, 2e-5)):
            for scale in (1.0, 12.0, 31.9, 32.1, 100.0, 1e4):
                logits = (scale * unit).to(dtype)
                value, gradient = value_and_gradient(each, logits, labels)
                for criterion, divisor in zip(reduce, (1.0, float(per_sample.sum())), strict=True):
                    got = value_and_gradient(criterion, logits, labels)
                    atol = rtol * float(per_sample.max()) / divisor
                    assert_same(got, (value.sum() / divisor, gradient / divisor), rtol, atol)


def incoming_gradient(name: str, build: Build) -> None:
    """The loss as one part of a larger sum: its gradient scales with what comes from above."""
    logits, labels = random_batch()
    criterion = build(4)
    _, gradient = value_and_gradient(criterion, logits, labels)
    leaf = logits.clone().requires_grad_()
    (criterion(2 * leaf / 2, labels) * -3.0 + leaf.sum()).backward()
    torch.testing.assert_close(leaf.grad, 1 - 3 * gradient, rtol=1e-11, atol=1e-12)


def dtypes(name: str, build: Build) -> None:
    coarse, labels = random_batch(12, 5, seed=10, dtype=torch.bfloat16)
    exact, _ = random_batch(12, 5, seed=10, scale=4.0)
    for reduction in REDUCTIONS:
        criterion = build(5, reduction=reduction)
        value, gradient = value_and_gradient(criterion, coarse.float(), labels)
        assert value.dtype == torch.float32
        for dtype in (torch.bfloat16, torch.float16):
            half_value, half_gradient = value_and_gradient(criterion, coarse.to(dtype), labels)
            assert half_gradient.dtype == dtype
            torch.testing.assert_close(half_value, value, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(half_gradient, gradient.to(dtype), rtol=1e-2, atol=1e-5)
        wide = value_and_gradient(criterion, exact, labels)
        assert wide[0].dtype == wide[1].dtype == torch.float64
        narrow_value, narrow_gradient = value_and_gradient(criterion, exact.float(), labels)
        assert narrow_gradient.dtype == torch.float32
        assert_same((narrow_value.double(), narrow_gradient.double()), wide, rtol=1e-4, atol=1e-5)


def autocast(name: str, build: Build) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        logits, labels = random_batch(12, 5, seed=11, dtype=dtype)
        for given_labels in (labels, random_soft_labels(12, 5, dtype=torch.float32)):
            for reduction in REDUCTIONS:
                criterion = build(5, reduction=reduction)
                expected = value_and_gradient(criterion, logits, given_labels)
                leaf = logits.clone().requires_grad_()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = criterion(leaf, given_labels)
                (gradient,) = torch.autograd.grad(loss.sum(), leaf)
                assert_same((loss.detach(), gradient), expected, rtol=1e-6, atol=1e-7)


def compiled(name: str, build: Build) -> None:
    """One graph for batches of any size."""
    criterion = build(3, class_weights=[1.0, 2.0, 0.5])
    torch.compiler.reset()
    fast = torch.compile(criterion, fullgraph=True, dynamic=True, backend="eager")
    for n in (6, 9):
        logits, labels = random_batch(n, 3, dtype=torch.float32)
        labels[4] = IGNORED
        expected = value_and_gradient(criterion, logits, labels)
        assert_same(value_and_gradient(fast, logits, labels), expected, rtol=1e-5, atol=1e-6)


def copies(name: str, build: Build) -> None:
    logits, labels = random_batch(dtype=torch.float32)
    soft = random_soft_labels(dtype=torch.float32)
    for given_labels in (labels, soft):
        for options in ({}, {"label_smoothing": 0.1, "class_weights": [1.0, 1.1, 0.3, 1.7]}):
            criterion = build(4, **options)
            expected = value_and_gradient(criterion, logits, given_labels)
            reloaded = build(4, **options)
            for buffer in reloaded.buffers():
                buffer.zero_()
            reloaded.load_state_dict(criterion.state_dict())
            for twin in (
                copy.deepcopy(criterion),
                reloaded,
                copy.deepcopy(criterion).half(),
                copy.deepcopy(criterion).bfloat16(),
                copy.deepcopy(criterion).to(torch.float16).float(),
                nn.Sequential(copy.deepcopy(criterion)).half()[0],
            ):
                assert_same(value_and_gradient(twin, logits, given_labels), expected, rtol=0, atol=0)


def double_module(name: str, build: Build) -> None:
    """A module that went to float64, alone or with its model, takes float32 and half logits as before."""
    criterion = build(4, class_weights=[1.0, 1.1, 0.3, 1.7])
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        logits, labels = random_batch(dtype=dtype)
        for given_labels in (labels, random_soft_labels(dtype=torch.float32)):
            expected = value_and_gradient(criterion, logits, given_labels)
            doubled = value_and_gradient(copy.deepcopy(criterion).double(), logits, given_labels)
            assert_same(doubled, expected, rtol=1e-5, atol=1e-6)


def weights_are_multiplicities(name: str, build: Build) -> None:
    logits, labels = random_batch(9, 3, seed=12)
    times = torch.tensor([1, 2, 0])
    repeats = times[labels]
    repeated, repeated_labels = logits.repeat_interleave(repeats, 0), labels.repeat_interleave(repeats)
    for reduction in ("mean", "sum"):
        for options in ({}, {"label_smoothing": 0.1}):
            weighted = build(3, reduction=reduction, class_weights=times.tolist(), **options)
            value, gradient = value_and_gradient(build(3, reduction=reduction, **options), repeated, repeated_labels)
            rows = torch.arange(9).repeat_interleave(repeats)
            collected = torch.zeros_like(logits).index_add(0, rows, gradient)
            assert_same(value_and_gradient(weighted, logits, labels), (value, collected), rtol=1e-9, atol=1e-10)


def scale_of_the_weights(name: str, build: Build) -> None:
    """Only ratios of class weights matter to the mean."""
    weights = torch.tensor([1.0, 2.0, 0.5, 1.5])
    for dtype, rtol in ((torch.float32, 1e-5), (torch.float64, 1e-6)):
        logits, labels = random_batch(dtype=dtype)
        expected = value_and_gradient(build(4, class_weights=weights), logits, labels)
        for scale in (1e-9, 1e-4, 1e9):
            got = value_and_gradient(build(4, class_weights=scale * weights), logits, labels)
            assert_same(got, expected, rtol, atol=rtol)


def untouched_inputs(name: str, build: Build) -> None:
    """Neither the logits nor the labels are written to, and no state is kept from one call to the next."""
    logits, labels = random_batch(dtype=torch.float32)
    labels[2] = IGNORED
    criterion = build(4)
    before = logits.clone(), labels.clone(), copy.deepcopy(criterion.state_dict())
    first = value_and_gradient(criterion, logits, labels)
    criterion(logits, labels)
    value_and_gradient(criterion, 100 * logits, labels)
    assert_same(value_and_gradient(criterion, logits, labels), first, rtol=0, atol=0)
    with torch.inference_mode():
        torch.testing.assert_close(criterion.eval()(logits, labels), first[0], rtol=1e-6, atol=1e-7)
    assert torch.equal(logits, before[0])
    assert torch.equal(labels, before[1])
    assert all(torch.equal(value, before[2][key]) for key, value in criterion.state_dict().items())


ASPECTS: dict[str, Aspect] = {
    aspect.__name__: aspect
    for aspect in (
        oracle_on_a_grid,
        oracle_at_random,
        first_gradient,
        second_gradient,
        soft_label_types,
        confidently_wrong,
        saturated,
        order,
        common_shift,
        one_hot,
        ignored_rows,
        nothing_counts,
        dense,
        strides,
        paths_agree,
        incoming_gradient,
        dtypes,
        autocast,
        compiled,
        copies,
        double_module,
        weights_are_multiplicities,
        scale_of_the_weights,
        untouched_inputs,
    )
}
