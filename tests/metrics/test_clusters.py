"""Rows in clusters: whole clusters in bounded memory, values that stay, and intervals and tests that hold."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.special import ndtri

from calibrant._arrays import value_hashes
from calibrant.audits.verdict import calibration_p_values
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.metrics import Scorecard, score
from calibrant.metrics.clusters import MAX_CLUSTER_GROUPS, ClusterSums, clustered_ece_p_value
from calibrant.metrics.exact import GapDirection, combined_p_value
from calibrant.metrics.table import METRICS
from calibrant.predictions import Predictions
from made.audits import make_rows


def patients(n_patients: int, n_rows: int = 400, **options: Any) -> Predictions:
    return make_rows(n_rows, 3, patient=np.arange(n_rows) * 7 % n_patients, **options)


def clusters_of(card: Scorecard) -> ClusterSums:
    assert card.clusters is not None
    return card.clusters


# Whole clusters in bounded memory


@pytest.mark.parametrize("n_patients", [1, 64, 65, 300])
def test_groups_of_clusters_do_not_depend_on_order_or_batches(n_patients: int) -> None:
    rows = patients(n_patients)
    whole = clusters_of(score(rows, cluster="patient"))
    assert len(whole) == min(n_patients, 64) if n_patients <= 64 else 16 < len(whole) <= MAX_CLUSTER_GROUPS
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled = rows[order]
    batches = [shuffled[start : start + 23] for start in range(0, len(rows), 23)]
    for found in (score(batches, cluster="patient"), score(batches[::-1], cluster="patient")):
        clusters = clusters_of(found)
        assert torch.equal(clusters.key, whole.key)
        for name, part in whole.sums.items():
            torch.testing.assert_close(clusters.sums[name], part, rtol=1e-5, atol=1e-5)


def test_sums_of_each_cluster_are_those_of_its_rows() -> None:
    rows = patients(20)
    whole = clusters_of(score(rows, cluster="patient"))
    for patient in range(20):
        card = score(rows.where(patient=patient), cluster="patient")
        [row] = torch.nonzero(whole.key == clusters_of(card).key).squeeze(1).tolist()
        bins, classes = card.top_bins, card.class_bins
        sums = {name: part[row].double() for name, part in whole.sums.items()}
        torch.testing.assert_close(sums["bins"], torch.stack([bins.total, bins.confidence - bins.weight[:, 1]]))
        gaps = torch.stack([classes.total, classes.confidence - classes.weight[..., 1]]).flatten(1)
        torch.testing.assert_close(sums["classes"], gaps, rtol=1e-5, atol=1e-5)
        means = sums["means"].view(2, 2, -1)  # of the correct rows and of the errors
        torch.testing.assert_close(means.sum(1)[1], card.means.sums[0, :, 0])
        torch.testing.assert_close(means[1, 1], card.means.sums[1, :, 0])


def test_values_have_one_hash_in_any_type() -> None:
    def hashes(values: Any, kind: Any = None) -> list[int]:
        found: list[int] = value_hashes("id", pa.chunked_array([pa.array(values, kind)])).tolist()
        return found

    numbers = hashes([7, 12, None])
    assert len(set(numbers)) == 3
    for same in (
        hashes([7.0, 12.0, float("nan")]), hashes(["7", "12", None]), hashes(["7", "12", None], pa.large_string()),
        hashes([b"7", b"12", None]), hashes([0, 7, 12, None])[1:],
    ):  # fmt: skip
        assert same == numbers
    sliced = pa.chunked_array([pa.array(["x", "7", "12"])[1:], pa.array([None], pa.string())])
    assert value_hashes("id", sliced).tolist() == numbers
    assert value_hashes("id", pa.chunked_array([pa.array(["7", "12", None]).dictionary_encode()])).tolist() == numbers
    assert len(set(hashes([f"case {i}" for i in range(20_000)] + ["", "a", "aa", "ab", "ba"]))) == 20_005


# Values, intervals and noise floors


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "weights"), [(2, "w"), (3, None)])
def test_clusters_change_intervals_and_no_value(n_classes: int, weights: str | None) -> None:
    rows = make_rows(400, n_classes, patient=np.arange(400) // 10)
    copies = torch.arange(400).repeat_interleave(5)
    rows = Predictions.from_logits(
        rows.logits[copies], rows.labels[copies], columns=rows.columns.take(pa.array(copies.numpy()))
    )
    card, plain = (score(rows, weights=weights, cluster=cluster) for cluster in ("case_id", None))
    assert card.values() == plain.values()
    for name in card.names:
        if name.startswith(("mce", "underconfidence")):  # of one bin of a few rows; 0 for an overconfident model
            continue
        (low, high), (plain_low, plain_high) = card.interval(name), plain.interval(name)
        slack = 0.25 * (plain_high - plain_low)  # for the draws
        assert low <= plain_low + slack, name
        assert high >= plain_high - slack, name
        assert high - low > 1.3 * (plain_high - plain_low), name
    for name in ("ece", "kse", "smece", "cece"):
        assert card.noise_floor(name) > 1.5 * plain.noise_floor(name)
    assert card.n_effective == pytest.approx(plain.n_effective / 5, rel=0.4)


def test_equal_rows_of_a_cluster_count_as_one() -> None:
    """64 clusters or fewer, each its own group: the design effect is the number of copies, times J/(J − 1)."""
    rows = make_rows(60, 3, scale=1.0)
    copies = torch.arange(60).repeat_interleave(8)
    repeated = Predictions.from_logits(rows.logits[copies], rows.labels[copies], columns={"id": copies})
    card, once = score(repeated, cluster="id"), score(rows)
    assert card.n_effective == pytest.approx(59, rel=0.03)
    for name in ("accuracy", "nll", "brier", "confidence"):
        assert card.interval(name) == pytest.approx(once.interval(name), rel=0.03, abs=0.005), name
    for name in ("ece", "kse", "smece"):
        assert card.noise_floor(name) == pytest.approx(once.noise_floor(name), rel=0.15), name


def test_strata_of_many_confidences_have_whole_independent_rows() -> None:
    """120 patients of 20 rows that are correct or incorrect together: 256 strata of half an independent row each."""
    draw = np.random.default_rng(0)
    patient, correct = np.repeat(np.arange(120), 20), np.repeat(draw.permutation(120) < 84, 20)
    confidence = torch.from_numpy(draw.uniform(0.85, 0.99, 2400))
    rows = Predictions.from_positive_probs(confidence, torch.from_numpy(correct).long(), columns={"patient": patient})
    card = score(rows, metrics=["accuracy", "kse", "smece"], cluster="patient")
    low, high = card.interval("accuracy")
    for name in ("kse", "smece"):
        width = card.interval(name)[1] - card.interval(name)[0]
        assert width > 0.85 * (high - low), name


def test_rows_that_are_their_own_clusters_are_independent() -> None:
    rows = make_rows(3000, 3)
    card, plain = score(rows, cluster="case_id"), score(rows)
    assert card.n_effective == pytest.approx(3000, rel=0.4)
    for name in ("accuracy", "nll", "ece", "cece", "aurc"):
        low, high = card.interval(name)
        plain_low, plain_high = plain.interval(name)
        assert high - low < 1.35 * (plain_high - plain_low), name


def test_a_metric_of_the_user_has_the_largest_design_effect_of_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(card: Scorecard, level: float, _seed: int) -> tuple[float, float]:
        return card.means.interval("nll", level)

    own_metric = replace(METRICS["nll"], key="own", interval=own)
    monkeypatch.setitem(METRICS, "own", own_metric)
    card = score(patients(40), metrics=["own", "nll"], cluster="patient")
    (low, high), (nll_low, nll_high) = card.interval("own"), card.interval("nll")
    assert low <= nll_low < nll_high <= high


def test_without_errors_a_cluster_counts_as_one_row() -> None:
    """No variance tells how alike the rows of a cluster are."""
    rows = Predictions.from_logits([[5.0, 0.0]] * 200, [0] * 200, columns={"id": np.arange(200) // 20})
    assert score(rows, cluster="id").interval("accuracy")[0] == pytest.approx(score(rows[:10]).interval("accuracy")[0])


def test_one_cluster_gives_no_interval() -> None:
    card = score(make_rows(300, 3, patient=["P"] * 300), cluster="patient")
    assert card.n_effective == pytest.approx(1.0)
    assert card.interval("nll") == (0.0, np.inf)
    low, high = card.interval("accuracy")
    assert high - low > 0.9


# Groups, sums and errors


def test_groups_have_their_own_clusters() -> None:
    rows = patients(40)
    groups = score(rows, by="site", cluster="patient", weights="w", metrics=["ece", "accuracy"])
    for site, card in groups.items():
        alone = score(rows.where(site=site), cluster="patient", weights="w", metrics=["ece", "accuracy"])
        assert card.interval("accuracy") == pytest.approx(alone.interval("accuracy"), rel=0.1)
        assert len(clusters_of(card)) <= 32
    halves = [score(rows[half], by="site", cluster="patient") for half in (slice(0, 150), slice(150, None))]
    whole = score(rows, by="site", cluster="patient")
    assert (halves[0] + halves[1])["A"].interval("nll") == pytest.approx(whole["A"].interval("nll"))


def test_refusals() -> None:
    rows = patients(5)
    with pytest.raises(InvalidInputError, match="both have clusters, or neither"):
        score(rows, cluster="patient") + score(rows)
    with pytest.raises(UnknownNameError, match="unknown column 'patent'; did you mean 'patient'"):
        score(rows, cluster="patent")
    lists = Predictions.from_logits(rows.logits, rows.labels, columns={"boxes": [[1.0, 2.0]] * len(rows)})
    with pytest.raises(InvalidInputError, match="'boxes' cannot be grouped by: its type is list"):
        score(lists, cluster="boxes")


# Coverage: a small version of benchmarks/cluster_coverage.py


def calibrated_patients(seed: int, correlation: float = 0.3) -> Predictions:
    """50 patients of 20 rows: each row is as correct as it is confident, and those of a patient err together."""
    draw, patient = np.random.default_rng(seed), np.repeat(np.arange(50), 20)
    effect, own = draw.standard_normal(50)[patient], draw.standard_normal(1000)
    confidence = draw.uniform(0.52, 0.99, 1000)
    correct = np.sqrt(correlation) * effect + np.sqrt(1 - correlation) * own < ndtri(confidence)
    return Predictions.from_positive_probs(
        torch.from_numpy(confidence), torch.from_numpy(correct).long(), columns={"patient": patient}
    )


def test_the_verdict_of_calibrated_patients_is_rarely_false() -> None:
    mean_accuracy, covered, false, plain_false = (0.52 + 0.99) / 2, 0, 0, 0
    for seed in range(40):
        rows = calibrated_patients(seed)
        card, plain = (
            score(rows, metrics=["accuracy", "ece", "kse"], cluster=cluster) for cluster in ("patient", None)
        )
        low, high = card.interval("accuracy")
        covered += low <= mean_accuracy <= high
        false += combined_p_value(*calibration_p_values(card)) <= 0.05
        plain_false += combined_p_value(*calibration_p_values(plain)) <= 0.05
    assert covered >= 35
    assert false <= 4
    assert plain_false >= 10


@pytest.mark.parametrize("direction", ["both", "over", "under"])
def test_p_value_of_the_ece_agrees_with_random_signs_of_the_clusters(direction: GapDirection) -> None:
    """The gaps of a calibrated patient are as likely of the other sign, in all bins at once."""
    part = {"both": np.abs, "over": lambda gap: np.maximum(gap, 0.0), "under": lambda gap: np.maximum(-gap, 0.0)}
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (4000, 50))
    for seed in (3, 6, 8):
        card = score(calibrated_patients(seed), metrics=["ece"], cluster="patient")
        gaps = clusters_of(card).sums["bins"][:, 1].numpy()
        drawn, observed = (part[direction](gap).sum(-1) for gap in (signs @ gaps, gaps.sum(0)))
        wanted = float((drawn >= observed - 1e-9).mean())
        found = clustered_ece_p_value(clusters_of(card), card.top_bins, direction)
        assert 0.85 * wanted < found < wanted + 0.12
