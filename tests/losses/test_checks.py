"""Bad input to a loss: one line that names the argument and the value."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.losses import LOSSES, MaxEntLoss
from made.loss_check import build_of

PRIOR = [0.2, 0.3, 0.5]
FORMS = ("mean", "variance", "mean_variance", "prior")


def assert_refused(error: type[Exception], match: str, act: Callable[[], object]) -> None:
    with pytest.raises(error, match=match) as caught:
        act()
    assert "\n" not in str(caught.value)


def integers(*values: int, dtype: torch.dtype = torch.long) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


# Batches


@pytest.mark.parametrize("name", LOSSES)
def test_values_that_no_loss_takes(name: str) -> None:
    labels, many = integers(0, 1, 2, 0), torch.arange(50) % 10
    for bad in (math.nan, math.inf, -math.inf):
        logits = torch.zeros(4, 3)
        logits[2, 1] = bad
        for validate in (None, True):
            for needs_gradient in (False, True):
                criterion, inputs = build_of(name)(3, validate=validate), logits.clone().requires_grad_(needs_gradient)
                match = rf"logits must be finite, got {bad} at row 2, class 1"
                assert_refused(InvalidInputError, match, lambda c=criterion, z=inputs: c(z, labels))
    for bad in (10, -1, 255):
        many[37] = bad
        act = lambda: build_of(name)(10)(torch.zeros(50, 10, requires_grad=True), many)  # noqa: E731
        assert_refused(InvalidInputError, rf"labels must lie in \[0, 9\], got {bad} at row 37", act)


def test_one_bad_pixel() -> None:
    logits, labels = torch.zeros(2, 3, 4, 5), zeros(2, 4, 5)
    labels[1, 3, 2] = 3
    act = lambda: LOSSES["focal"]()(logits, labels)  # noqa: E731
    assert_refused(InvalidInputError, r"labels must lie in \[0, 2\], got 3 at .*1, 3, 2", act)
    labels[1, 3, 2], logits[1, 2, 3, 0] = 0, math.nan
    assert_refused(InvalidInputError, r"logits must be finite, got nan at row 1, class 2", act)
    assert LOSSES["focal"](validate=False)(logits, labels).isnan()


@pytest.mark.parametrize(
    ("labels", "ignore_index", "bad"),
    [
        (integers(0, -100), 255, -100),
        (integers(0, 156, dtype=torch.uint8), -100, 156),
        (integers(0, -1, dtype=torch.int8), 255, -1),
        (integers(0, 40000, dtype=torch.int32), -25536, 40000),
    ],
)
def test_labels_that_are_not_the_ignored_one(labels: Tensor, ignore_index: int, bad: int) -> None:
    """-100 is 156 modulo 256: a label of 156 is out of range, not ignored."""
    act = lambda: LOSSES["focal"](ignore_index=ignore_index)(torch.zeros(2, 3), labels)  # noqa: E731
    assert_refused(InvalidInputError, rf"labels must lie in \[0, 2\], got {bad} at row 1", act)


BATCHES: list[tuple[Tensor, Tensor, str]] = [
    (torch.zeros(()), zeros(), r"logits .*got shape \(\)"),
    (zeros(4), zeros(4), r"logits .*torch\.int64"),
    (torch.zeros(4), zeros(3), r"labels .*\(4,\) or \(4, 1\) for one logit each, got \(3,\)"),
    (torch.zeros(4, 1), zeros(4, 2), r"labels .*\(4,\) or \(4, 1\) for one logit each, got \(4, 2\)"),
    (torch.zeros(4, 1), 2 + zeros(4), r"labels must lie in \[0, 1\], got 2 at row 0"),
    (torch.zeros(4, 1), torch.tensor([0.0, 1.0, 1.5, 0.5]), r"labels must not be negative, got -0\.5 at row 2"),
    (zeros(4, 3), zeros(4), r"logits .*torch\.int64"),
    (torch.zeros(4, 3), zeros(5), r"labels .*got shape \(5,\)"),
    (torch.zeros(4, 3), zeros(4, 1), r"labels .*got shape \(4, 1\)"),
    (torch.zeros(4, 3), zeros(4, 3), r"labels .*got shape \(4, 3\)"),
    (torch.zeros(4, 3, 2, 2), zeros(4, 2), r"labels .*got shape \(4, 2\)"),
    (torch.zeros(4, 3), torch.zeros(4), r"labels .*got shape \(4,\) of torch\.float32"),
    (torch.zeros(4, 3), torch.full((4, 4), 0.25), r"labels .*got shape \(4, 4\)"),
    (torch.zeros(4, 3, 2), torch.full((4, 3), 1 / 3), r"labels .*got shape \(4, 3\)"),
    (torch.zeros(4, 3), zeros(4, dtype=torch.bool), r"labels .*torch\.bool"),
    (torch.zeros(4, 3), zeros(4, 3, dtype=torch.bool), r"labels .*torch\.bool"),
    (torch.zeros(4, 3), torch.tensor([[0.5, 0.5, 0.5]] * 4), r"labels .*sum to 1, got .*1\.5 .*row 0"),
    (torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 0.0], [1.5, -0.5, 0.0]]), r"labels .*-0\.5 .*row 1"),
    (torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 0.0], [math.nan, 0.5, 0.5]]), r"labels .*nan .*row 1"),
    (torch.zeros(2, 3, 4), torch.full((2, 3, 4), 0.5), r"labels .*sum to 1, got .*1\.5"),
    (torch.zeros(2, 2, 4), torch.tensor([1.5, -0.5])[:, None].expand(2, 2, 4), r"labels .*-0\.5"),
]


@pytest.mark.parametrize(("logits", "labels", "match"), BATCHES)
def test_shapes_and_soft_labels(logits: Tensor, labels: Tensor, match: str) -> None:
    n_classes = max(2, logits.shape[1]) if logits.ndim > 1 else 2
    for name in ("cross_entropy", "maxent_mean", "avuc", "mdca", "mbls"):
        assert_refused(InvalidInputError, match, lambda name=name: build_of(name)(n_classes)(logits, labels))


@pytest.mark.parametrize("form", FORMS)
def test_logits_of_another_number_of_classes_than_the_prior(form: str) -> None:
    criterion = MaxEntLoss(PRIOR, form)
    for labels in (zeros(2), torch.full((2, 4), 0.25)):
        act = lambda labels=labels: criterion(torch.zeros(2, 4, requires_grad=True), labels)  # noqa: E731
        assert_refused(InvalidInputError, r"logits .*3 classes.*got 4", act)
    for logits in (torch.zeros(2), torch.zeros(2, 1)):
        act = lambda logits=logits: criterion(logits, zeros(2))  # noqa: E731
        assert_refused(InvalidInputError, r"logits .*3 classes.*got 2", act)
    act = lambda: criterion.telemetry(torch.zeros(2, 4), zeros(2))  # noqa: E731
    assert_refused(InvalidInputError, r"logits .*3 classes.*got 4", act)


# Options


def of(name: str, **options: object) -> Callable[[], object]:
    return lambda: LOSSES[name](**options)


def maxent(prior: object = PRIOR, **options: object) -> Callable[[], object]:
    return lambda: MaxEntLoss(prior, **options)  # type: ignore[arg-type]


def from_labels(labels: object, n_classes: int) -> Callable[[], object]:
    return lambda: MaxEntLoss.from_labels(labels, n_classes)  # type: ignore[arg-type]


def from_counts(*counts: int) -> Callable[[], object]:
    return lambda: MaxEntLoss.from_counts(counts)


INVALID: dict[str, Callable[[], object]] = {
    r"gamma .*got -1": of("focal", gamma=-1.0),
    r"gamma .*got nan": of("inverse_focal", gamma=math.nan),
    r"epsilon .*got inf": of("poly", epsilon=math.inf),
    r"beta .*got -1": of("avuc", beta=-1.0),
    r"threshold .*got -0\.5": of("avuc", threshold=-0.5),
    r"temperature .*got 0": of("soft_avuc", temperature=0.0),
    r"kappa .*got 1": of("soft_avuc", kappa=1.0),
    r"threshold .*got 2": of("flsd", threshold=2.0),
    r"gamma .*got -2": of("dual_focal", gamma=-2.0),
    r"width .*got 0": of("mmce", width=0.0),
    r"width .*got 0\.01": of("mmce", width=0.01),
    r"gamma .*got -3": of("mdca", gamma=-3.0),
    r"margin .*got -1": of("mbls", margin=-1.0),
    r"alpha .*got 0": of("label_relaxation", alpha=0.0),
    r"alpha .*got 1": of("label_relaxation", alpha=1.0),
    r"gamma .*got -4": maxent(gamma=-4.0),
    r"prior must not be negative, got -0\.1 for class 0": maxent([-0.1, 0.6, 0.5]),
    r"class_values .*3 classes, got 2": maxent(class_values=[1.0, 2.0]),
    r"class_values must be finite, got nan for class 1": maxent(class_values=[1.0, math.nan, 2.0]),
    r"features .*\(3, n_features\), got \(2, 2\)": maxent(features=torch.ones(2, 2)),
    r"features .*\(3, n_features\), got \(3,\)": maxent(features=torch.ones(3)),
    r"features must be finite, got inf for class 1": maxent(features=torch.tensor([[1.0], [math.inf], [0.0]])),
    r'rewards a lower moment whatever the label.*"signed_as_printed"': maxent(penalty="signed"),
    r"signed.*paper": maxent(penalty="signed", gibbs="paper", local=False),
    r"n_classes must be an integer from 2 to 100000, got 1": from_labels([0, 0], 1),
    r"labels must lie in \[0, 2\], got 3 at row 1": from_labels([0, 3, 1], 3),
    r"labels must lie in \[0, 2\], got -1 at row 2": from_labels([0, 1, -1], 3),
    r"labels .*float32": from_labels(torch.tensor([0.0, 1.0]), 2),
    r"one class, got 1 for class 2": from_labels([2, 2], 3),
    r"counts must not be negative, got -1 for class 1": from_counts(3, -1),
    r"counts must not be all 0": from_counts(0, 0),
    r"one class, got 1 for class 0": from_counts(5, 0),
}
UNKNOWN: dict[str, Callable[[], object]] = {
    r"form 'meen'.*'mean'": maxent(form="meen"),
    r"form 'mean_varience'.*'mean_variance'": maxent(form="mean_varience"),
    r"penalty 'absolut'.*'absolute'": maxent(penalty="absolut"),
    r"gibbs 'normalised'.*'normalized'": maxent(gibbs="normalised"),
    r"reduction 'summ'.*'sum'": maxent(reduction="summ"),
}


@pytest.mark.parametrize("match", [*INVALID, *UNKNOWN])
def test_bad_options(match: str) -> None:
    error = InvalidInputError if match in INVALID else UnknownNameError
    assert_refused(error, match, (INVALID | UNKNOWN)[match])


@pytest.mark.parametrize("name", LOSSES)
def test_options_of_every_loss(name: str) -> None:
    build, labels = build_of(name), integers(0, 1)
    for bad in (-0.1, 1.0, 1.5, math.nan):
        match = rf"label_smoothing must lie in \[0, 1\), got {bad}"
        assert_refused(InvalidInputError, match, lambda bad=bad: build(3, label_smoothing=bad))
    for bad in ([1.0, -2.0, 1.0], torch.tensor([1.0, -2.0, 1.0])):
        assert_refused(InvalidInputError, r"class_weights .*got .*-2", lambda bad=bad: build(3, class_weights=bad))
    for bad in ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0]):
        match = rf"class_weights .*3 classes, got {len(bad)}"
        for logits in (torch.zeros(2, 3), torch.zeros(2, 3, requires_grad=True)):
            act = lambda bad=bad, logits=logits: build(3, class_weights=bad)(logits, labels)  # noqa: E731
            assert_refused(InvalidInputError, match, act)
    assert_refused(UnknownNameError, r"reduction 'means'.*'mean'", lambda: build(3, reduction="means"))
