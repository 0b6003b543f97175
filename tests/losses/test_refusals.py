"""Bad input to a loss: one line that names the argument and the value."""

import math
from collections.abc import Callable

import pytest
import torch
from check import build_of

from calibrant.errors import InvalidInputError, NotConvergedError, UnknownNameError
from calibrant.losses import LOSSES, MaxEntLoss

PRIOR = [0.2, 0.3, 0.5]


def assert_refused(error: type[Exception], match: str, act: Callable[[], object]) -> None:
    with pytest.raises(error, match=match) as caught:
        act()
    assert "\n" not in str(caught.value)


def test_errors_are_the_builtins_a_caller_expects() -> None:
    assert issubclass(InvalidInputError, ValueError)
    assert issubclass(UnknownNameError, LookupError)
    assert issubclass(NotConvergedError, ArithmeticError)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", LOSSES)
def test_logits_that_are_not_finite(name: str, bad: float) -> None:
    logits = torch.zeros(4, 3)
    logits[2, 1] = bad
    labels = torch.tensor([0, 1, 2, 0])
    for validate in (None, True):
        criterion = build_of(name)(3, validate=validate)
        for needs_gradient in (False, True):
            inputs = logits.clone().requires_grad_(needs_gradient)
            act = lambda inputs=inputs, criterion=criterion: criterion(inputs, labels)  # noqa: E731
            assert_refused(InvalidInputError, rf"logits must be finite, got {bad} at row 2, class 1", act)


def test_logits_that_are_not_finite_in_one_pixel() -> None:
    logits = torch.zeros(2, 3, 4, 5)
    logits[1, 2, 3, 0] = math.nan
    act = lambda: LOSSES["focal"]()(logits, torch.zeros(2, 4, 5, dtype=torch.long))  # noqa: E731
    assert_refused(InvalidInputError, r"logits must be finite, got nan at row 1, class 2", act)


def test_validation_can_be_left_out() -> None:
    logits = torch.zeros(2, 3)
    logits[0, 0] = math.nan
    assert LOSSES["cross_entropy"](validate=False)(logits, torch.tensor([0, 1])).isnan()


@pytest.mark.parametrize("bad", [10, -1, 255])
@pytest.mark.parametrize("name", LOSSES)
def test_labels_out_of_range(name: str, bad: int) -> None:
    labels = torch.arange(50) % 10
    labels[37] = bad
    logits = torch.zeros(50, 10, requires_grad=True)
    match = rf"labels must lie in \[0, 9\], got {bad} at row 37"
    assert_refused(InvalidInputError, match, lambda: build_of(name)(10)(logits, labels))


def test_labels_equal_to_the_usual_ignore_index_when_it_is_another() -> None:
    criterion = LOSSES["focal"](ignore_index=255)
    act = lambda: criterion(torch.zeros(3, 2), torch.tensor([0, 255, -100]))  # noqa: E731
    assert_refused(InvalidInputError, r"labels must lie in \[0, 1\], got -100 at row 2", act)


@pytest.mark.parametrize(
    ("labels", "ignore_index", "bad"),
    [
        (torch.tensor([0, 156], dtype=torch.uint8), -100, 156),
        (torch.tensor([0, -1], dtype=torch.int8), 255, -1),
        (torch.tensor([0, 40000], dtype=torch.int32), -25536, 40000),
    ],
)
def test_small_integers_do_not_wrap_around(labels: torch.Tensor, ignore_index: int, bad: int) -> None:
    """-100 is 156 modulo 256: a label of 156 is out of range, not ignored."""
    act = lambda: LOSSES["focal"](ignore_index=ignore_index)(torch.zeros(2, 3), labels)  # noqa: E731
    assert_refused(InvalidInputError, rf"labels must lie in \[0, 2\], got {bad} at row 1", act)


def test_label_of_one_pixel_out_of_range() -> None:
    labels = torch.zeros(2, 4, 5, dtype=torch.long)
    labels[1, 3, 2] = 3
    act = lambda: LOSSES["focal"]()(torch.zeros(2, 3, 4, 5), labels)  # noqa: E731
    assert_refused(InvalidInputError, r"labels must lie in \[0, 2\], got 3 at .*1, 3, 2", act)


@pytest.mark.parametrize(
    ("logits", "labels", "match"),
    [
        (torch.zeros(4), torch.zeros(4, dtype=torch.long), r"logits .*got shape \(4,\)"),
        (torch.zeros(4, 1), torch.zeros(4, dtype=torch.long), r"logits .*got .*\b1\b"),
        (torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, dtype=torch.long), r"logits .*torch\.int64"),
        (torch.zeros(4, 3), torch.zeros(5, dtype=torch.long), r"labels .*got shape \(5,\)"),
        (torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.long), r"labels .*got shape \(4, 1\)"),
        (torch.zeros(4, 3), torch.zeros(4, 3, dtype=torch.long), r"labels .*got shape \(4, 3\)"),
        (torch.zeros(4, 3, 2, 2), torch.zeros(4, 2, dtype=torch.long), r"labels .*got shape \(4, 2\)"),
        (torch.zeros(4, 3), torch.zeros(4), r"labels .*got shape \(4,\) of torch\.float32"),
        (torch.zeros(4, 3), torch.full((4, 4), 0.25), r"labels .*got shape \(4, 4\)"),
        (torch.zeros(4, 3, 2), torch.full((4, 3), 1 / 3), r"labels .*got shape \(4, 3\)"),
        (torch.zeros(4, 3), torch.zeros(4, dtype=torch.bool), r"labels .*torch\.bool"),
        (torch.zeros(4, 3), torch.zeros(4, 3, dtype=torch.bool), r"labels .*torch\.bool"),
        (torch.zeros(4, 3), torch.tensor([[0.5, 0.5, 0.5]] * 4), r"labels .*sum to 1, got .*1\.5 .*row 0"),
        (torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 0.0], [1.5, -0.5, 0.0]]), r"labels .*-0\.5 .*row 1"),
        (torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 0.0], [math.nan, 0.5, 0.5]]), r"labels .*nan .*row 1"),
        (torch.zeros(2, 3, 4), torch.full((2, 3, 4), 0.5), r"labels .*sum to 1, got .*1\.5"),
        (torch.zeros(2, 2, 4), torch.tensor([1.5, -0.5])[:, None].expand(2, 2, 4), r"labels .*-0\.5"),
    ],
)
@pytest.mark.parametrize("name", ["cross_entropy", "maxent_mean", "avuc", "mdca", "mbls"])
def test_shapes_and_soft_labels(name: str, logits: torch.Tensor, labels: torch.Tensor, match: str) -> None:
    n_classes = max(2, logits.shape[1]) if logits.ndim > 1 else 2
    assert_refused(InvalidInputError, match, lambda: build_of(name)(n_classes)(logits, labels))


@pytest.mark.parametrize("form", ["mean", "variance", "mean_variance", "prior"])
def test_logits_of_another_number_of_classes_than_the_prior(form: str) -> None:
    criterion = MaxEntLoss(PRIOR, form)
    for labels in (torch.zeros(2, dtype=torch.long), torch.full((2, 4), 0.25)):
        act = lambda labels=labels: criterion(torch.zeros(2, 4, requires_grad=True), labels)  # noqa: E731
        assert_refused(InvalidInputError, r"logits .*3 classes.*got 4", act)
    act = lambda: criterion.telemetry(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))  # noqa: E731
    assert_refused(InvalidInputError, r"logits .*3 classes.*got 4", act)


@pytest.mark.parametrize("form", ["mean", "variance", "mean_variance", "prior"])
@pytest.mark.parametrize(
    ("prior", "match"),
    [
        ([-0.1, 0.6, 0.5], r"prior must not be negative, got -0\.1 for class 0"),
        ([0.5, 0.6], r"prior must sum to 1, got .*1\.1"),
        ([0.2, 0.3], r"prior must sum to 1, got .*0\.5"),
        ([0.0, 1.0, 0.0], r"prior .*one class, got 1 for class 1"),
        ([1.0], r"prior .*at least 2 classes, got 1"),
        ([], r"prior .*at least 2 classes, got 0"),
        ([0.5, math.nan, 0.5], r"prior must be finite, got nan for class 1"),
        ([[0.5, 0.5]], r"prior .*one dimension, got shape \(1, 2\)"),
    ],
)
def test_prior(form: str, prior: list[float], match: str) -> None:
    assert_refused(InvalidInputError, match, lambda: MaxEntLoss(prior, form))


def test_training_labels_and_counts() -> None:
    assert_refused(InvalidInputError, r"n_classes .*at least 2, got 1", lambda: MaxEntLoss.from_labels([0, 0], 1))
    assert_refused(
        InvalidInputError,
        r"labels must lie in \[0, 2\], got 3 at row 1",
        lambda: MaxEntLoss.from_labels([0, 3, 1], 3),
    )
    assert_refused(
        InvalidInputError,
        r"labels must lie in \[0, 2\], got -1 at row 2",
        lambda: MaxEntLoss.from_labels([0, 1, -1], 3),
    )
    assert_refused(InvalidInputError, r"labels .*float32", lambda: MaxEntLoss.from_labels(torch.tensor([0.0, 1.0]), 2))
    assert_refused(InvalidInputError, r"one class, got 1 for class 2", lambda: MaxEntLoss.from_labels([2, 2], 3))
    assert_refused(
        InvalidInputError, r"counts must not be negative, got -1 for class 1", lambda: MaxEntLoss.from_counts([3, -1])
    )
    assert_refused(InvalidInputError, r"counts must not be all 0", lambda: MaxEntLoss.from_counts([0, 0]))
    assert_refused(InvalidInputError, r"one class, got 1 for class 0", lambda: MaxEntLoss.from_counts([5, 0]))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"class_values": [1.0, 2.0]}, r"class_values .*3 classes, got 2"),
        ({"class_values": [1.0, math.nan, 2.0]}, r"class_values must be finite, got nan for class 1"),
        ({"features": torch.ones(2, 2)}, r"features .*\(3, n_features\), got \(2, 2\)"),
        ({"features": torch.ones(3)}, r"features .*\(3, n_features\), got \(3,\)"),
        ({"features": torch.tensor([[1.0], [math.inf], [0.0]])}, r"features must be finite, got inf for class 1"),
        ({"gamma": -1.0}, r"gamma .*got -1"),
        ({"penalty": "signed"}, r"signed.*paper"),
        ({"penalty": "signed", "gibbs": "paper", "local": False}, r"signed.*paper"),
    ],
    ids=str,
)
def test_maxent_options(options: dict[str, object], match: str) -> None:
    assert_refused(InvalidInputError, match, lambda: MaxEntLoss(PRIOR, **options))


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("focal", {"gamma": -1.0}, r"gamma .*got -1"),
        ("inverse_focal", {"gamma": math.nan}, r"gamma .*got nan"),
        ("poly", {"epsilon": math.inf}, r"epsilon .*got inf"),
        ("avuc", {"beta": -1.0}, r"beta .*got -1"),
        ("avuc", {"threshold": -0.5}, r"threshold .*got -0\.5"),
        ("soft_avuc", {"temperature": 0.0}, r"temperature .*got 0"),
        ("soft_avuc", {"kappa": 1.0}, r"kappa .*got 1"),
        ("flsd", {"threshold": 2.0}, r"threshold .*got 2"),
        ("dual_focal", {"gamma": -1.0}, r"gamma .*got -1"),
        ("mmce", {"width": 0.0}, r"width .*got 0"),
        ("mmce", {"width": 0.01}, r"width .*got 0\.01"),
        ("mdca", {"gamma": -1.0}, r"gamma .*got -1"),
        ("mbls", {"margin": -1.0}, r"margin .*got -1"),
        ("label_relaxation", {"alpha": 0.0}, r"alpha .*got 0"),
        ("label_relaxation", {"alpha": 1.0}, r"alpha .*got 1"),
    ],
    ids=str,
)
def test_settings_of_the_baselines(name: str, options: dict[str, object], match: str) -> None:
    assert_refused(InvalidInputError, match, lambda: LOSSES[name](**options))


@pytest.mark.parametrize("name", LOSSES)
def test_options_of_every_loss(name: str) -> None:
    build, labels = build_of(name), torch.tensor([0, 1])
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


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"form": "meen"}, r"form 'meen'.*'mean'"),
        ({"form": "mean_varience"}, r"form 'mean_varience'.*'mean_variance'"),
        ({"penalty": "absolut"}, r"penalty 'absolut'.*'absolute'"),
        ({"gibbs": "normalised"}, r"gibbs 'normalised'.*'normalized'"),
        ({"reduction": "summ"}, r"reduction 'summ'.*'sum'"),
    ],
    ids=str,
)
def test_unknown_names(options: dict[str, str], match: str) -> None:
    assert_refused(UnknownNameError, match, lambda: MaxEntLoss(PRIOR, **options))


@pytest.mark.parametrize("gibbs", ["paper", "normalized"])
def test_prior_form_with_an_empty_class(gibbs: str) -> None:
    act = lambda: MaxEntLoss([0.5, 0.0, 0.5], "prior", gibbs=gibbs)  # noqa: E731
    assert_refused(NotConvergedError, r"class 1\b.*prior is 0", act)
