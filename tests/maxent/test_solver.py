"""Multipliers: golden values of the paper, scipy as an outside witness, invariants, and refusals."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import root, root_scalar
from torch import Tensor

from calibrant.errors import InvalidInputError, NotConvergedError, UnknownNameError
from calibrant.maxent import FORMS, GIBBS, constraints, gibbs_distribution, solve, solve_moments
from calibrant.maxent.solver import solve_constraints

CIFAR10_PRIOR = [0.0996, 0.1002, 0.0987, 0.1009, 0.0995, 0.0996, 0.1006, 0.0997, 0.1005, 0.1006]  # appendix A.2
MOMENT_FORMS = ("mean", "variance", "mean_variance")
WEIGHTS = {
    "uniform": lambda rank: torch.ones_like(rank),
    "zipf": lambda rank: 1 / rank,
    "rare": lambda rank: torch.where(rank % 3 == 2, 1e-6, 1.0),
}


def prior_of(kind: str, n_classes: int) -> Tensor:
    weights = WEIGHTS[kind](torch.arange(1, n_classes + 1, dtype=torch.float64))
    return weights / weights.sum()


def features_of(needed, row: int) -> Tensor:
    """Features of one class, written out: (n_classes, n_constraints)."""
    if needed.centers is None:
        return needed.base
    values = needed.base[:, 0]
    return torch.stack([values, (values - needed.centers[row]) ** 2], dim=1)


def moments_of(multipliers: Tensor, features: Tensor, gibbs: str) -> Tensor:
    """Moments of the Gibbs weights, from the definition."""
    weights = [math.exp(-float(multipliers @ row) - (gibbs == "paper")) for row in features]
    total = sum(weights) if gibbs == "normalized" else 1.0
    return sum(weight * row for weight, row in zip(weights, features, strict=True)) / total


def test_golden_root_of_the_sanity_check() -> None:
    """Appendix A.4, class 1 of CIFAR-10: μ = 2.7541; the exact root, and the printed 0.3294 within 5e-4."""
    solution = solve_moments(torch.arange(10.0)[:, None], torch.tensor([[2.7541]], dtype=torch.float64))
    assert solution.multipliers.item() == pytest.approx(0.3289838, abs=5e-8)
    assert solution.multipliers.item() == pytest.approx(0.3294, abs=5e-4)
    assert solution.residual <= 1e-12


def test_printed_prior_gives_the_printed_moments_within_its_rounding() -> None:
    """Appendix A.2 prints four digits of the prior, and μ_G = 4.5082, σ² = 8.2572."""
    needed = constraints(CIFAR10_PRIOR, "mean_variance")
    mean = needed.global_moments[0, 0].item()
    assert mean == pytest.approx(4.5082, abs=1e-3)
    variance = needed.global_moments[0, 1].item() - (mean - needed.centers[0].item()) ** 2
    assert variance == pytest.approx(8.2572, abs=2e-3)


def test_normalized_golden_values() -> None:
    found = solve([0.1] * 10, "mean", gibbs="normalized").multipliers[:, 0]
    assert found[[0, 4, 9]].tolist() == pytest.approx([0.315584, 0.030350, -0.315584], abs=5e-7)


def test_where_the_published_iteration_stops_early() -> None:
    assert solve([0.9, 0.1], "mean").multipliers[0].item() == pytest.approx(1.996, abs=5e-4)
    assert solve([0.5, 0.5], "mean").multipliers[1].item() == pytest.approx(-0.712, abs=5e-4)


REPRESENTABLE = [
    (n_classes, kind, form, gibbs)
    for n_classes, kind, form, gibbs in itertools.product((2, 3, 10, 700), WEIGHTS, MOMENT_FORMS, GIBBS)
    if (n_classes, kind, form, gibbs) != (2, "rare", "mean_variance", "paper")  # λ of 4e12, see below
]


@pytest.mark.parametrize(("n_classes", "kind", "form", "gibbs"), REPRESENTABLE)
def test_multipliers_reproduce_the_targets(n_classes: int, kind: str, form: str, gibbs: str) -> None:
    prior = prior_of(kind, n_classes)
    needed = constraints(prior, form)
    solution = solve_constraints(needed, gibbs)
    assert solution.residual <= 1e-12
    for row in {0, n_classes // 2, n_classes - 1}:
        found = moments_of(solution.multipliers[row], features_of(needed, row), gibbs)
        torch.testing.assert_close(found, needed.targets[row], rtol=1e-10, atol=0)


@pytest.mark.parametrize("form", MOMENT_FORMS)
@pytest.mark.parametrize("n_classes", [2, 7, 50])
def test_scipy_agrees(n_classes: int, form: str) -> None:
    prior = prior_of("zipf", n_classes)
    needed, found = constraints(prior, form), solve(prior, form).multipliers
    for row in range(0, n_classes, 6):
        features, target = features_of(needed, row).numpy(), needed.targets[row].numpy()

        def gap(multipliers: np.ndarray, features=features, target=target) -> np.ndarray:
            return np.exp(-1 - features @ multipliers) @ features - target

        if len(target) == 1:
            bracket = (-3 / features.max(), 30)
            expected = [root_scalar(lambda x, gap=gap: gap(np.array([x]))[0], bracket=bracket, xtol=1e-14).root]
        else:
            expected = root(gap, found[row].numpy() * 1.05, tol=1e-13).x
        assert found[row].tolist() == pytest.approx(expected, rel=1e-7, abs=1e-9)


@given(st.lists(st.integers(1, 20), min_size=2, max_size=6), st.sampled_from(GIBBS), st.sampled_from([0.0, 0.1]))
def test_prior_form_is_the_midpoint_of_prior_and_label(counts: list[int], gibbs: str, smoothing: float) -> None:
    prior = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    k = len(counts)
    multipliers = solve(prior, "prior", gibbs=gibbs, label_smoothing=smoothing).multipliers
    labels = (1 - smoothing) * torch.eye(k, dtype=torch.float64) + smoothing / k
    found = (-1 - multipliers).exp() if gibbs == "paper" else (-multipliers).softmax(1)
    torch.testing.assert_close(found, (prior + labels) / 2, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("gibbs", GIBBS)
def test_prior_form_is_the_general_solver_on_one_hot_features(gibbs: str) -> None:
    prior = torch.tensor([0.5, 0.3, 0.2])
    general = solve(prior, "mean", features=torch.eye(3), gibbs=gibbs).multipliers
    found = solve(prior, "prior", gibbs=gibbs).multipliers
    torch.testing.assert_close(found, general, rtol=1e-9, atol=1e-9)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(solve(prior[order], "prior", gibbs=gibbs).multipliers, found[order][:, order])


def test_underdetermined_multipliers_are_the_shortest() -> None:
    """Two classes, two constraints, normalized: all (a, b) with the same a + b(1 − 2μ) give the same distribution."""
    needed = constraints([0.7, 0.3], "mean_variance")
    found = solve([0.7, 0.3], "mean_variance", gibbs="normalized").multipliers
    for row in range(2):
        direction = features_of(needed, row)[1] - features_of(needed, row)[0]
        across = torch.stack([-direction[1], direction[0]])
        assert (found[row] @ across).item() == pytest.approx(0, abs=1e-12)


def test_class_values_may_be_negative_or_far_and_scale_inversely() -> None:
    prior = [0.2, 0.5, 0.3]
    small = solve(prior, "mean", class_values=[-1.0, 0.0, 1.5], gibbs="normalized").multipliers
    large = solve(prior, "mean", class_values=[-1e6, 0.0, 1.5e6], gibbs="normalized").multipliers
    torch.testing.assert_close(small, 1e6 * large, rtol=1e-9, atol=1e-12)
    far = solve(prior, "mean", class_values=[1e6 - 1, 1e6, 1e6 + 1.5], gibbs="normalized").multipliers
    torch.testing.assert_close(small, far, rtol=1e-8, atol=1e-9)  # from any origin
    assert solve(prior, "mean", class_values=[-1.0, 0.0, 1.0]).residual <= 1e-12


def test_without_local_moments_all_classes_share_their_multipliers() -> None:
    for form in FORMS:
        multipliers = solve(CIFAR10_PRIOR, form, local=False).multipliers
        assert multipliers.shape[0] == 10
        torch.testing.assert_close(multipliers, multipliers[:1].expand_as(multipliers))
    needed = constraints(CIFAR10_PRIOR, "mean_variance", local=False)
    assert needed.centers.tolist() == pytest.approx([needed.global_moments[0, 0].item()] * 10)


def test_smoothed_labels_move_the_local_moments() -> None:
    needed = constraints([0.25] * 4, "mean", label_smoothing=0.2)
    assert needed.local_moments[:, 0].tolist() == pytest.approx([0.8 * k + 0.2 * 1.5 for k in range(4)])


def test_large_problem_in_bounded_memory() -> None:
    """More classes than pilots and blocks: the spline start and the blocks are used, the answer is the same."""
    prior = prior_of("zipf", 3000)
    solution = solve(prior, "mean")
    assert solution.residual <= 1e-12
    needed = constraints(prior, "mean")
    falling = solve(prior, "mean", class_values=range(2999, -1, -1))
    assert max(solution.n_steps, falling.n_steps) <= 3  # from zero it takes 7
    alone = solve_moments(needed.base, needed.targets[[17, 2999]])
    torch.testing.assert_close(solution.multipliers[[17, 2999]], alone.multipliers, rtol=1e-10, atol=0)


def test_gibbs_distribution_of_figure_2() -> None:
    uniform = [0.1] * 10
    flat = gibbs_distribution(uniform, "mean")
    assert flat.tolist() == pytest.approx([0.1] * 10)
    shifted = gibbs_distribution(uniform, "mean_variance", targets=[6.0, 4.0])
    values = torch.arange(10.0, dtype=torch.float64)
    assert shifted.sum().item() == pytest.approx(1)
    assert (shifted @ values).item() == pytest.approx(6)
    assert (shifted @ (values - 6) ** 2).item() == pytest.approx(4)
    higher = gibbs_distribution(uniform, "mean", targets=[6.0])
    assert (higher.diff() > 0).all()
    unnormalized = gibbs_distribution(uniform, "variance", gibbs="paper")
    assert (unnormalized @ values**2).item() == pytest.approx(28.5)


def test_gibbs_distribution_has_the_greatest_entropy() -> None:
    """Moving along any direction that keeps mass and mean lowers the entropy."""
    best = gibbs_distribution([0.4, 0.3, 0.2, 0.1], "mean")
    direction = torch.tensor([1.0, -2.0, 1.0, 0.0], dtype=torch.float64)
    for step in (-1e-3, 1e-3):
        other = best + step * direction
        assert torch.special.entr(other).sum() < torch.special.entr(best).sum()


def test_refusals_name_class_and_reason() -> None:
    ladder, pairs = torch.arange(3.0)[:, None], torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])
    normalized = {"gibbs": "normalized"}
    for act, message in (
        (lambda: solve_moments(ladder, torch.tensor([[3.0]]), **normalized), r"0: target 3 of .* between 0 and 2"),
        (lambda: solve_moments(ladder, torch.tensor([[1.0], [-1.0]])), r"1: target -1 of .* between 0 and inf"),
        (lambda: solve_moments(pairs, torch.tensor([[1.0, 2.1]])), r"class 0: its targets \[1.0, 2.1\]"),
        (lambda: solve([0.5, 0.5, 0.0], "prior"), "class 2: its prior is 0"),
        (lambda: solve([0.5, 0.5, 0.0], "prior", **normalized), "class 2: its prior is 0"),
        (lambda: solve([0.5, 0.0, 0.5], "mean_variance", local=False, **normalized), "target 1 of constraint 1 "),
        (lambda: solve([1 - 1e-6, 1e-6], "mean_variance"), r"class 0.*too close to their edge"),  # λ of 4e12
        (lambda: gibbs_distribution([0.25] * 4, targets=[3.0]), "class 0"),
        (lambda: gibbs_distribution([0.5, 0.5], "prior", targets=[0.9, 0.2]), "positive, and of sum 1"),
    ):
        with pytest.raises(NotConvergedError, match=message):
            act()
    assert issubclass(NotConvergedError, ArithmeticError)


@pytest.mark.parametrize("target", [2.0, 2.0 + 1e-12, 2.0 - 1e-13, 0.0])
def test_the_edge_of_the_reachable_moments_is_out_of_reach(target: float) -> None:
    """There λ is infinite: a finite one would be only where the iteration stopped."""
    targets = torch.tensor([[target]], dtype=torch.float64)
    with pytest.raises(NotConvergedError, match=r"class 0: target .* strictly between 0 and 2"):
        solve_moments(torch.arange(3.0)[:, None], targets, gibbs="normalized")


@pytest.mark.parametrize("distance", [1e-3, 1e-6])
def test_nearly_dependent_features(distance: float) -> None:
    """Classes 1 and 2 determine both multipliers: e^(−1−λ·f) are the weights 0.15 and 0.75 for label 2."""
    features = torch.tensor([[0, 0], [1, 2], [2, 4 + distance]], dtype=torch.float64)
    found = solve([0.2, 0.3, 0.5], features=features)
    expected = -1 - torch.tensor([0.15, 0.75], dtype=torch.float64).log()
    torch.testing.assert_close(features[1:] @ found.multipliers[2], expected, rtol=1e-4, atol=0)


def test_features_that_double_precision_cannot_tell_apart_are_dependent() -> None:
    features = torch.tensor([[0, 0], [1, 2], [2, 4 + 1e-13]], dtype=torch.float64)
    found = solve([0.2, 0.3, 0.5], features=features).multipliers
    torch.testing.assert_close(found[:, 1], 2 * found[:, 0], rtol=1e-9, atol=0)


def test_prior_form_needs_no_cube_of_memory() -> None:
    found = gibbs_distribution([1 / 2000] * 2000, "prior")
    torch.testing.assert_close(found, torch.full((2000,), 1 / 2000, dtype=torch.float64))
    assert gibbs_distribution([0.5, 0.5], "prior", targets=[0.25, 0.75]).tolist() == [0.25, 0.75]


@pytest.mark.parametrize("form", FORMS)
def test_any_default_device_will_do(form: str) -> None:
    with torch.device("meta"):
        assert solve([0.5, 0.3, 0.2], form).multipliers.device.type == "cpu"


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.1, -0.1],), {}, "prior must not be negative, got -0.1 for class 1"),
        (([0.5, 0.4],), {}, "prior must sum to 1, got a sum of 0.9"),
        (([0.0, 1.0],), {}, "prior must not be all in one class, got 1 for class 1"),
        (([1.0],), {}, "prior must have 2 to 100,000 classes, got 1"),
        (([math.nan, 1.0],), {}, "prior must be finite, got nan for class 0"),
        (([[0.5, 0.5]],), {}, "prior must have one dimension"),
        ((["a", "b"],), {}, "prior must be numbers"),
        (([10**400, 1],), {}, "prior must be numbers"),
        (([0.5, 0.5],), {"features": "ab"}, "features must be numbers"),
        (([0.5, 0.5],), {"features": torch.tensor([[1.0, 0.0], [2.0, 0.0]])}, "as column 1 is"),
        (([0.5, 0.5], "prior"), {"class_values": [0, 1]}, "class_values are not used by"),
        (([0.5, 0.5],), {"class_values": [0, 1e200]}, "class_values must not exceed 1e100, got 1e.200"),
        (([0.5, 0.5],), {"label_smoothing": "a"}, "label_smoothing must be a number, got 'a'"),
        (([0.5, 0.5],), {"class_values": [1, 2, 3]}, "class_values must have one value for each of 2 classes, got 3"),
        (([0.5, 0.5],), {"class_values": [1, 1]}, "class_values must not all be equal"),
        (([0.5, 0.5],), {"features": torch.ones(3, 1)}, r"features must have shape \(2, n_features\), got \(3, 1\)"),
        (([0.5, 0.5],), {"features": torch.tensor([[1.0], [math.inf]])}, "must be finite, got inf for class 1"),
        (([0.5, 0.5], "prior"), {"label_smoothing": 2.0}, r"label_smoothing must lie in \[0, 1\), got 2.0"),
        (([0.5, 0.5],), {"label_smoothing": 1.0}, r"label_smoothing must lie in \[0, 1\), got 1.0"),
    ],
)
def test_bad_input(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        solve(*arguments, **options)


def test_bad_names_and_targets() -> None:
    with pytest.raises(UnknownNameError, match="unknown form 'maen'; did you mean 'mean'"):
        solve([0.5, 0.5], "maen")
    with pytest.raises(UnknownNameError, match="unknown gibbs 'xyz'; known: paper, normalized"):
        solve([0.5, 0.5], gibbs="xyz")
    with pytest.raises(InvalidInputError, match="targets must be numbers"):
        gibbs_distribution([0.5, 0.5], "mean", targets="ab")
