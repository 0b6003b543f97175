"""Paired differences: against brute-force resampling, clusters, Holm's correction, and what two equal models give."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import calibrant
from calibrant.metrics import METRICS, Difference, compare
from calibrant.metrics.compare import _joint_covariance
from calibrant.metrics.exact import holm
from calibrant.metrics.influence import BinnedResiduals
from calibrant.metrics.intervals import ABSOLUTE_SUM
from calibrant.predictions import Predictions

PAIRED = [name for name, metric in METRICS.items() if not metric.binary]
Columns = dict[str, list[object]]


def pair_of(
    n: int, n_classes: int, seed: int, sharpness: tuple[float, float] = (2.5, 0.4), columns: Columns | None = None
) -> tuple[Predictions, Predictions]:
    """Two models that see the truth through noise; one is overconfident, the other underconfident."""
    generator = torch.Generator().manual_seed(seed)
    truth = 1.5 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(truth.softmax(1), 1, generator=generator).squeeze(1)
    seen = [truth + 0.5 * torch.randn(truth.shape, generator=generator, dtype=torch.float64) for _ in sharpness]
    first, second = (
        Predictions.from_logits(scale * logits, labels, columns=columns)
        for scale, logits in zip(sharpness, seen, strict=True)
    )
    return first, second


def width(row: Difference) -> float:
    return row.interval[1] - row.interval[0]


def rows_of(a: Predictions, b: Predictions, metrics: list[str], **options: object) -> dict[str, Difference]:
    return {row.metric: row for row in compare(a, b, metrics=metrics, **options)}  # type: ignore[arg-type]


# Values


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_difference_of_the_scores(n_classes: int) -> None:
    a, b = pair_of(300, n_classes, 100)
    cards = calibrant.score(a), calibrant.score(b)
    found = compare(a, b)
    assert [row.metric for row in found] == PAIRED
    for row in found:
        assert (row.a, row.b) == (cards[0][row.metric], cards[1][row.metric]), row.metric
        assert row.difference == row.a - row.b
        assert row.interval[0] < row.difference < row.interval[1]
        margin = min(row.difference - row.interval[0], row.interval[1] - row.difference)
        if row.metric != "l2ce":  # its interval is that of the squares
            assert margin == pytest.approx(1.96 * row.standard_error, rel=0.03)  # Student's, of errors − 1 at least
        assert 0 <= row.p_value <= 1
        assert row.p_holm == row.p_value
        assert row.overall
        assert row.group is None
        assert row.n_rows == 300


def test_swapped_and_identical_models() -> None:
    a, b = pair_of(200, 3, 101)
    names = [name for name in PAIRED if name != "smece"]  # slow
    for forward, backward in zip(compare(a, b, metrics=names), compare(b, a, metrics=names), strict=True):
        assert forward.difference == -backward.difference
        assert width(forward) == pytest.approx(width(backward), rel=0.1), forward.metric  # other draws
    for row in compare(a, a):
        assert (row.difference, row.p_value) == (0, 1), row.metric
        assert row.interval == pytest.approx((0, 0), abs=1e-6), row.metric  # √ of the rounding of a variance


def test_p_value_and_interval_agree() -> None:
    """An interval of level 1 − p just reaches 0."""
    a, b = pair_of(200, 3, 103, sharpness=(1.2, 0.9))
    for row in compare(a, b, metrics=["accuracy", "nll", "aurc", "ece", "adaece", "cece"]):
        if 1e-6 < row.p_value < 1:
            [again] = compare(a, b, metrics=[row.metric], level=1 - row.p_value)
            assert min(map(abs, again.interval)) == pytest.approx(0, abs=1e-9), row.metric


def test_level_and_seed() -> None:
    a, b = pair_of(200, 3, 104)
    assert rows_of(a, b, ["ece", "kse"], seed=3) == rows_of(a, b, ["ece", "kse"], seed=3)
    wide, narrow = rows_of(a, b, ["ece"], level=0.99)["ece"], rows_of(a, b, ["ece"], level=0.9)["ece"]
    assert width(wide) - width(narrow) == pytest.approx(
        2 * (2.600760 - 1.652547) * wide.standard_error, rel=1e-5
    )  # t(199)
    assert rows_of(a, b, ["ece"], seed=1)["ece"].interval != rows_of(a, b, ["ece"], seed=2)["ece"].interval


def test_a_mean_by_hand() -> None:
    """Paired NLL differences of log 2 · (1, 2, 3): Student's interval with 2 degrees of freedom, and an unseen error.

    By its own probabilities, an error of model a has a mean NLL of log 2 · (2/4 + 3/8 + 4/16) / (1/4 + 1/8 + 1/16), and
    one of model b log 2: one more error would move the difference by a third of theirs.
    """
    labels = [1, 1, 1]
    a = Predictions.from_positive_probs(torch.tensor([0.25, 0.125, 0.0625], dtype=torch.float64), labels)
    b = Predictions.from_positive_probs(torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64), labels)
    row = rows_of(a, b, ["nll"])["nll"]
    unseen = math.log(2) * (1.125 / 0.4375 - 1) / 3
    error = math.hypot(math.log(2) / math.sqrt(3), unseen)
    assert row.difference == pytest.approx(2 * math.log(2))
    assert width(row) / 2 == pytest.approx(4.302653 * error + unseen / 2, rel=1e-6)
    assert row.p_value == pytest.approx(2 * stats.t.sf(2 * math.log(2) / error, 2), rel=1e-6)


def test_models_without_errors_are_not_told_apart_by_their_confidence() -> None:
    """All 100 rows are correct: the more confident model has the lower NLL, unless errors were missed by chance."""
    rows = [Predictions.from_positive_probs(torch.full((100,), p).double(), [1] * 100) for p in (0.999, 0.97)]
    for name, row in rows_of(*rows, ["nll", "brier", "ece", "l2ce", "cece"]).items():
        assert row.p_value > 0.005, name
        assert width(row) > 0.1 * abs(row.difference), name
    assert rows_of(*rows, ["nll"])["nll"].p_value > 0.5


def test_a_mean_over_three_errors_by_hand() -> None:
    """The same differences on three errors: 2 degrees of freedom, however many rows are correct."""
    labels = [1, 1, 1] + [0] * 50
    pair = []
    for logs in ([2, 3, 4], [1, 1, 1]):  # −log₂ p of the label on the errors, which are predicted as class 2
        p = torch.tensor([0.1 * 0.5**x for x in logs], dtype=torch.float64)
        wrong = torch.stack([0.1 - p, p, torch.full_like(p, 0.9)], dim=1)
        right = torch.tensor([[0.8, 0.1, 0.1]], dtype=torch.float64).expand(50, 3)
        pair.append(Predictions.from_probs(torch.cat([wrong, right]), labels))
    row = rows_of(*pair, ["nll_on_errors"])["nll_on_errors"]
    assert row.difference == pytest.approx(2 * math.log(2))
    assert width(row) / 2 == pytest.approx(4.302653 * math.log(2) / math.sqrt(3), rel=1e-6)
    assert row.p_value == pytest.approx(0.0741799, rel=1e-4)


def test_an_infinite_nll_is_shown_for_all_rows() -> None:
    """One label of probability 0 in site x: the overall row stays the first, and no site takes its place."""
    columns: Columns = {"site": ["x", "x", "y", "y", "y"]}
    a = Predictions.from_positive_probs([0.0, 0.6, 0.9, 0.4, 0.8], [1, 1, 1, 1, 0], columns=columns)
    b = Predictions.from_positive_probs([0.3, 0.7, 0.8, 0.3, 0.6], [1, 1, 1, 1, 0], columns=columns)
    for metrics in (None, ["nll", "nll_on_errors"]):
        for first, second in ((a, b), (b, a), (a, a)):
            found = compare(first, second, metrics=metrics, by="site")
            for name in ("nll", "nll_on_errors"):
                overall, x, y = (row for row in found if row.metric == name)
                assert [(row.overall, row.group) for row in (overall, x, y)] == [
                    (True, None),
                    (False, "x"),
                    (False, "y"),
                ]
                for row in (overall, x):
                    assert math.inf in (row.a, row.b)
                    assert (row.interval, row.p_value) == ((-math.inf, math.inf), 1)
                    assert math.isnan(row.difference) if row.a == row.b else row.difference == row.a - row.b
                assert math.isfinite(y.difference)


# Standard errors


@pytest.mark.parametrize("name", ["nll", "brier_on_errors", "ece"])
def test_unequal_clusters_against_the_jackknife(name: str) -> None:
    sizes = [40, 80, 120, 160, 240]
    sites: Columns = {"site": [site for site, size in enumerate(sizes) for _ in range(size)]}
    a, b = pair_of(sum(sizes), 3, 108, sharpness=(4.0, 0.2), columns=sites)
    row = rows_of(a, b, [name], cluster="site")[name]
    site = torch.tensor(sites["site"])
    squares = 0.0
    for left_out in range(len(sizes)):
        first, second = (calibrant.score(model[site != left_out], metrics=[name])[name] for model in (a, b))
        squares += (first - second - row.difference) ** 2
    jackknife = math.sqrt(squares * (len(sizes) - 1) / len(sizes))
    assert row.standard_error == pytest.approx(jackknife, rel=0.06 if name == "ece" else 1e-3)


@pytest.mark.parametrize("rows_of_a_cluster", [1, 3])
def test_covariance_of_the_gaps_by_its_definition(rows_of_a_cluster: int) -> None:
    """Rows that are clusters take another way than clusters of several rows."""
    generator = torch.Generator().manual_seed(5)
    n, n_bins = 60, (4, 7)
    clusters = torch.randperm(n, generator=generator) // rows_of_a_cluster
    share = torch.bincount(clusters, torch.rand(n, generator=generator, dtype=torch.float64) + 0.5)
    share /= share.sum()
    models = [
        BinnedResiduals(
            torch.randint(k, (n,), generator=generator),
            torch.randn(n, generator=generator, dtype=torch.float64),
            np.ones(k),
            lambda gap: gap,
            ABSOLUTE_SUM,
        )
        for k in n_bins
    ]
    deviations = np.zeros((len(share), sum(n_bins)))
    for model, first_bin in zip(models, (0, n_bins[0]), strict=True):
        for cluster, number, residual in zip(
            clusters.tolist(), model.number.tolist(), model.residual.tolist(), strict=True
        ):
            deviations[cluster, first_bin + number] += residual
    gap = deviations.sum(0)
    deviations -= np.outer(share, gap)
    deviations *= (np.sqrt((len(share) - 1) / len(share)) / (1 - share.numpy()))[:, None]
    found = _joint_covariance(models[0], models[1], clusters, share)
    assert found == pytest.approx(deviations.T @ deviations, rel=1e-6)  # the factor is float32


def test_sites_that_agree_leave_no_doubt() -> None:
    """Copies of the same rows, from two to five at a site: a difference that all sites share is not their spread."""
    a, b = pair_of(300, 3, 110)
    copies = [2, 3, 4, 5]
    index = torch.arange(300).repeat(sum(copies))
    sites: Columns = {"site": [site for site, n in enumerate(copies) for _ in range(300 * n)]}
    pair = [Predictions.from_logits(model.logits[index], model.labels[index], columns=sites) for model in (a, b)]
    single, clustered = rows_of(a, b, PAIRED), rows_of(*pair, PAIRED, cluster="site")
    for name in PAIRED:
        assert clustered[name].standard_error < 0.02 * single[name].standard_error, name


@pytest.mark.slow
def test_standard_errors_against_a_bootstrap() -> None:
    """The standard deviation of 300 resamples has an error of 4 %."""
    metrics = ["nll", "brier", "accuracy", "aurc", "ece", "cece", "adaece"]
    n, reps = 1000, 300
    a, b = pair_of(n, 4, 105)
    generator = torch.Generator().manual_seed(106)
    drawn = torch.empty(reps, len(metrics), dtype=torch.float64)
    for i in range(reps):
        index = torch.randint(0, n, (n,), generator=generator)
        cards = [calibrant.score(model[index], metrics=metrics) for model in (a, b)]
        drawn[i] = torch.tensor([cards[0][name] - cards[1][name] for name in metrics])
    found = rows_of(a, b, metrics)
    for name, deviation in zip(metrics, drawn.std(0).tolist(), strict=True):
        assert found[name].standard_error == pytest.approx(deviation, rel=0.25), name


def test_four_copies_of_a_row_are_one_row() -> None:
    n, times = 400, 4
    clusters: Columns = {"patient": [i // times for i in range(n * times)]}
    a, b = pair_of(n, 3, 107)
    copies = [
        Predictions.from_logits(
            model.logits.repeat_interleave(times, 0), model.labels.repeat_interleave(times), columns=clusters
        )
        for model in (a, b)
    ]
    single, clustered = rows_of(a, b, PAIRED), rows_of(*copies, PAIRED, cluster="patient")
    independent = rows_of(*copies, PAIRED)
    for name in PAIRED:
        error, of_copies = single[name].standard_error, independent[name].standard_error
        # Copies reduce the bias that the L2-CE subtracts; the noise of a class is that of independent rows.
        assert clustered[name].standard_error == pytest.approx(error, rel=0.1 if name in ("l2ce", "cece") else 0.03)
        if name == "mce":  # the error of a maximum does not fall as 1/√n
            assert clustered[name].standard_error > 1.5 * of_copies
        else:
            assert of_copies == pytest.approx(error / 2, rel=0.1), name


def test_one_cluster_or_one_row_is_never_significant() -> None:
    a, b = pair_of(60, 3, 109, columns={"site": ["x"] * 60})
    for row in [*compare(a, b, cluster="site"), *compare(a[:1], b[:1])]:
        assert (row.p_value, row.standard_error, row.interval) == (1, math.inf, (-math.inf, math.inf)), row.metric


def test_empty_bins_have_no_noise() -> None:
    """Tied confidences leave bins of equal mass empty; what rounding leaves there must not be divided by their mass."""
    for seed in range(5):
        a, b = pair_of(50, 2, 120 + seed, sharpness=(1.0, 1.0))
        pair = [Predictions.from_logits((2 * model.logits).round() / 2, model.labels) for model in (a, b)]
        for row in compare(*pair, metrics=["mce", "rmsce", "adaece", "l2ce"]):
            assert 0 < row.standard_error < 0.5, row.metric


@pytest.mark.slow
@pytest.mark.parametrize("sharpness", [1.0, 2.0], ids=["calibrated", "overconfident"])
def test_equally_good_models_differ_one_time_in_twenty(sharpness: float) -> None:
    """Of 200 tests at 5 %, 4 to 18 reject (2 % to 9 %): fewer or more has a chance below 1.5 % on either side."""
    metrics = ["nll", "ece"]
    rejected, reps = dict.fromkeys(metrics, 0), 200
    for seed in range(reps):
        a, b = pair_of(400, 4, 10_000 + seed, sharpness=(sharpness, sharpness))
        for name, row in rows_of(a, b, metrics).items():
            rejected[name] += row.p_value < 0.05
    for name, count in rejected.items():
        assert 4 <= count <= 18, f"{name} rejects {count} of {reps}"


@pytest.mark.slow
def test_equally_good_models_rarely_differ_in_a_debiased_error() -> None:
    """Of 100 tests at 5 %, more than 11 have a chance of half a percent; that of the plain norm rejects 17."""
    rejected = 0
    for seed in range(100):
        a, b = pair_of(300, 4, 20_000 + seed, sharpness=(0.8, 0.8))
        rejected += rows_of(a, b, ["l2ce"])["l2ce"].p_value < 0.05
    assert rejected <= 11


def test_the_true_difference_of_a_calibrated_and_an_overconfident_model() -> None:
    """Noise adds more to the ECE of the calibrated one, though no bin of the other has a significant gap."""
    names, reps, n = ["ece", "adaece"], 40, 400
    pair = pair_of(200_000, 4, 140, sharpness=(1.6, 0.8))
    a, b = (calibrant.score(model, metrics=names) for model in pair)
    covered = dict.fromkeys(names, 0)
    for i in range(reps):
        rows = slice(i * n, (i + 1) * n)
        for row in compare(pair[0][rows], pair[1][rows], metrics=names):
            covered[row.metric] += row.interval[0] <= a[row.metric] - b[row.metric] <= row.interval[1]
    assert min(covered.values()) >= 35, covered  # of 40 intervals of 95 %, fewer once in two hundred


# Groups


def test_groups() -> None:
    sites = [["a", "b", None, "c", "d"][i % 5] for i in range(500)]
    a, b = pair_of(500, 3, 111, sharpness=(1.3, 1.0), columns={"site": list(sites)})
    metrics = ["accuracy", "nll", "ece", "aurc"]
    found = compare(a, b, metrics=metrics, by="site")
    overall = rows_of(a, b, metrics)
    for name in metrics:
        rows = [row for row in found if row.metric == name]
        assert rows[0] == overall[name]
        assert {row.group for row in rows[1:]} == {"a", "b", None, "c", "d"}
        assert not any(row.overall for row in rows[1:])
        assert [row.p_holm for row in rows[1:]] == holm([row.p_value for row in rows[1:]])
        for row in rows[1:]:
            index = torch.tensor([i for i, site in enumerate(sites) if site == row.group])
            alone = rows_of(a[index], b[index], [name])[name]
            assert (row.n_rows, row.a, row.b, row.p_value) == (100, alone.a, alone.b, alone.p_value)
            assert row.interval == alone.interval


def test_undefined_in_one_group() -> None:
    """A group without errors has no NLL on errors: it is left out of that metric, and of its correction."""
    columns: Columns = {"site": ["a", "a", "a", "b"]}
    a = Predictions.from_positive_probs([0.9, 0.2, 0.7, 0.8], [1, 1, 0, 1], columns=columns)
    b = Predictions.from_positive_probs([0.8, 0.4, 0.6, 0.9], [1, 1, 0, 1], columns=columns)
    found = compare(a, b, metrics=["nll_on_errors", "nll"], by="site")
    assert [(row.metric, row.group) for row in found if row.metric == "nll_on_errors"] == [
        ("nll_on_errors", None),
        ("nll_on_errors", "a"),
    ]
    assert len([row for row in found if row.metric == "nll"]) == 3


@pytest.mark.slow
def test_a_sharp_and_a_blunt_model_that_are_both_calibrated() -> None:
    """Noise adds more to the errors of the sharp one, which fills all bins; that is no difference of the models."""
    names, reps = ["ece", "rmsce", "adaece", "cece", "smece"], 15
    rejected = dict.fromkeys(names, 0)
    generator = torch.Generator().manual_seed(170)
    typical = (3 * torch.randn(10**6, generator=generator, dtype=torch.float64)).abs().sigmoid().mean()
    for seed in range(reps):
        margin = 3 * torch.randn(1000, generator=generator, dtype=torch.float64)
        labels = (torch.rand(1000, generator=generator, dtype=torch.float64) < margin.sigmoid()).long()
        blunt = torch.where(margin > 0, typical, 1 - typical)
        pair = [Predictions.from_positive_probs(probs, labels) for probs in (margin.sigmoid(), blunt)]
        for row in compare(*pair, metrics=names, seed=seed):
            rejected[row.metric] += row.p_value < 0.05
    assert max(rejected.values()) <= 4, rejected  # of 15 tests at 5 %, more than 4 once in a hundred and eighty
