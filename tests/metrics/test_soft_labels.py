"""Soft labels: equal to rows expanded by hand, with intervals and noise floors of the expected correctness."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import calibrant as cb
from calibrant.data import class_prior
from calibrant.errors import InvalidInputError
from calibrant.metrics.table import METRICS
from calibrant.predictions import Predictions

N_CLASSES = 4


def truth(n: int, seed: int = 0) -> np.ndarray:
    """Probabilities of the labels of n rows."""
    z = np.random.default_rng(seed).normal(size=(n, N_CLASSES)) * 1.5
    return np.exp(z) / np.exp(z).sum(1, keepdims=True)


def annotated(probs: np.ndarray, n_annotators: int, seed: int = 1) -> np.ndarray:
    """Shares of annotators, each of whom draws a label."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.multinomial(n_annotators, row) for row in probs]) / n_annotators


def rows(n: int = 300, n_annotators: int = 6, **options: Any) -> Predictions:
    probs = truth(n)
    return Predictions.from_probs(probs, annotated(probs, n_annotators), **options)


def by_hand(predictions: Predictions, soft: np.ndarray, weights: np.ndarray | None = None) -> Predictions:
    """Every row once for each class of positive probability, in loops."""
    logits, labels, weight, number = [], [], [], []
    for i, row in enumerate(soft):
        for label, share in enumerate(row):
            if share > 0:
                logits.append(predictions.logits[i])
                labels.append(label)
                weight.append(share * (1 if weights is None else weights[i]))
                number.append(i)
    return Predictions.from_logits(torch.stack(logits), labels, columns={"w": weight, "row": number})


def test_every_metric_is_that_of_the_expanded_rows() -> None:
    predictions = rows(columns={"weight": np.linspace(0.5, 2, 300)})
    soft = predictions.soft_labels().numpy()
    for weights in (None, "weight"):
        card = cb.score(predictions, weights=weights)
        given = None if weights is None else np.linspace(0.5, 2, 300)
        expected = cb.score(by_hand(predictions, soft, given), weights="w")
        assert card.values() == pytest.approx(expected.values(), abs=1e-12)
        assert card.n_rows == 300 < expected.n_rows


def test_metrics_by_their_definitions() -> None:
    probs = truth(200)
    soft = annotated(probs, 6)
    card = cb.score(Predictions.from_probs(probs, soft), n_bins=10)
    top, confidence = probs.argmax(1), probs.max(1)
    expected = soft[np.arange(200), top]
    assert card.accuracy == pytest.approx(expected.mean(), abs=1e-12)
    assert card.nll == pytest.approx(-(soft * np.log(probs)).sum() / 200, abs=1e-12)
    brier = [
        sum(q * ((np.eye(N_CLASSES)[y] - p) ** 2).sum() for y, q in enumerate(qs))
        for p, qs in zip(probs, soft, strict=True)
    ]
    assert card.brier == pytest.approx(np.mean(brier), abs=1e-12)
    ece = sum(abs((confidence - expected)[np.ceil(confidence * 10) == b].sum()) for b in range(1, 11)) / 200
    assert card.ece == pytest.approx(ece, abs=1e-12)
    entropy = -sum(q * np.log(q) for q in soft.ravel() if q > 0) / 200
    ratios = soft * np.log(np.where(soft > 0, soft, 1) / probs)
    assert card.nll - entropy == pytest.approx(ratios.sum() / 200, abs=1e-12)


def test_one_annotator_is_a_label() -> None:
    probs = truth(2000)
    soft = annotated(probs, 1)
    card = cb.score(Predictions.from_probs(probs, soft))
    hard = cb.score(Predictions.from_probs(probs, soft.argmax(1)))
    assert card.values() == pytest.approx(hard.values(), abs=1e-12)
    assert card.n_rows == hard.n_rows
    for name in ("accuracy", "nll", "brier"):
        widths = [high - low for low, high in (each.interval(name) for each in (card, hard))]
        assert 0.7 < widths[0] / widths[1] < 1.4
    assert 0.7 < card.noise_floor("ece") / hard.noise_floor("ece") < 1.4


def test_labels_equal_to_the_predictions_leave_no_error() -> None:
    probs = truth(500)
    card = cb.score(Predictions.from_probs(probs, probs))
    for name in card.names:
        if METRICS[name].floor is not None and name not in ("smece", "adaece"):
            assert card[name] < 1e-12, name
            assert card.noise_floor(name) < 0.01, name
    assert card.interval("ece")[1] < 0.002
    assert cb.audit(Predictions.from_probs(probs, probs)).verdict.p_value > 0.05


@pytest.mark.parametrize("n_annotators", [1, 10])
def test_noise_floor_and_intervals_hold(n_annotators: int) -> None:
    """The noise floor is the mean ECE of calibrated models, and intervals of the accuracy cover its expectation."""
    n_draws, n = 40, 600
    expected = truth(200_000, seed=5).max(1).mean()
    eces, floors, covered = [], [], 0
    for seed in range(n_draws):
        probs = truth(n, seed=100 + seed)
        card = cb.score(
            Predictions.from_probs(probs, annotated(probs, n_annotators, seed)), metrics=["accuracy", "ece"]
        )
        eces.append(card.ece)
        floors.append(card.noise_floor("ece"))
        low, high = card.interval("accuracy")
        covered += low <= expected <= high
    assert np.mean(eces) == pytest.approx(np.mean(floors), rel=0.12)
    assert covered >= 35  # of 40: fewer has a probability of 0.3 %


@pytest.mark.slow
def test_in_files_in_batches_by_group_and_with_clusters(tmp_path: Path) -> None:
    predictions = rows(
        columns={"site": ["A", "B", "B"] * 100, "patient": np.arange(300) // 3}, class_names=list("abcd")
    )
    predictions.save(tmp_path / "soft.parquet")
    loaded = Predictions.load(tmp_path / "soft.parquet")
    assert torch.equal(loaded.soft_labels(), predictions.soft_labels())
    scan = Predictions.scan(tmp_path / "soft.parquet", batch_rows=7)
    card, streamed = cb.score(loaded, by="site"), cb.score(scan, by="site")
    assert [each.n_rows for each in card.values()] == [each.n_rows for each in streamed.values()] == [100, 200]
    assert streamed.overall.values() == pytest.approx(card.overall.values(), abs=1e-9)
    assert streamed.overall.interval("accuracy") == pytest.approx(card.overall.interval("accuracy"), abs=1e-9)
    alone = cb.score(loaded.where(site="A"))
    assert card["A"].values() == pytest.approx(alone.values(), abs=1e-12)
    assert cb.score(loaded, cluster="patient").interval("nll") != card.overall.interval("nll")
    reordered = loaded.match_names(list("dcba"))
    assert torch.allclose(reordered.soft_labels(), predictions.soft_labels().flip(1), atol=1e-15)
    assert cb.score(reordered).nll == pytest.approx(card.overall.nll, abs=1e-7)  # of logits in float32


def test_audit(tmp_path: Path) -> None:
    predictions = rows(columns={"site": ["A", "B", "B"] * 100, "weight": [1.0, 0.0, 2.0] * 100})
    found, card = cb.audit(predictions, by="site"), cb.score(predictions)
    assert found.scorecard.values() == card.values()
    assert (found.weights, found.cluster, found.verdict.n_rows, found.n_zero_weight) == (
        "label_weight",
        "label_row",
        300,
        0,
    )
    assert found.statistics.fingerprint == predictions.fingerprint
    assert all(row.row < 300 for row in found.statistics.errors)
    weighted = cb.audit(predictions, weights="weight")
    assert (weighted.verdict.n_rows, weighted.n_zero_weight) == (200, 100)
    assert weighted.scorecard.values() == cb.score(predictions, weights="weight").values()
    predictions.save(tmp_path / "soft.parquet")
    of_file = cb.audit(tmp_path / "soft.parquet", jobs=1)
    assert of_file.verdict.n_rows == 300
    assert of_file.statistics.fingerprint == predictions.fingerprint


def test_compare() -> None:
    probs = truth(300)
    soft = annotated(probs, 6)
    a, b = (Predictions.from_logits(scale * np.log(probs), soft) for scale in (1.0, 2.0))
    (row,) = cb.compare(a, b, metrics=["nll"])
    assert row.difference == pytest.approx(cb.score(a).nll - cb.score(b).nll, abs=1e-12)
    of_rows = (soft * (a.log_probs - b.log_probs).numpy()).sum(1)
    assert row.standard_error == pytest.approx(of_rows.std(ddof=1) / np.sqrt(300), rel=0.02)
    other = soft.copy()
    other[3] = [1, 0, 0, 0]
    with pytest.raises(InvalidInputError, match=r"same rows .* soft labels .* at row 3, class 0"):
        cb.compare(a, Predictions.from_probs(probs, other))


def test_forms_of_soft_labels() -> None:
    probs = truth(5)
    soft = annotated(probs, 3)
    expected = Predictions.from_probs(probs, soft).soft_labels()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(soft.ravel()), N_CLASSES)
    for form in (torch.tensor(soft), soft.tolist(), lists, soft.astype(np.float32), np.round(soft, 4)):
        assert torch.allclose(Predictions.from_probs(probs, form).soft_labels(), expected, atol=1e-4)
        assert (Predictions.from_probs(probs, form).soft_labels().sum(1) - 1).abs().max() < 1e-15
    dense = Predictions.from_logits(torch.zeros(2, N_CLASSES, 3), torch.full((2, N_CLASSES, 3), 0.25))
    assert torch.equal(dense.soft_labels(), torch.full((6, N_CLASSES), 0.25, dtype=torch.float64))
    assert repr(dense) == "Predictions(6 rows, 4 classes, columns: label_probs)"


def test_refusals() -> None:
    both = Predictions.from_probs(truth(3), [0, 1, 2], columns={"label_probs": annotated(truth(3), 3).tolist()})
    with pytest.raises(InvalidInputError, match="a label or label_probs, got both at row 0"):
        cb.score(both)
    bad = annotated(truth(3), 4)
    bad[1] = 0.5
    for column, message in (
        (bad.tolist(), r"label_probs must sum to 1, got 2 at row 1"),
        (bad[:, :2].tolist(), r"label_probs must have a number for each of 4 classes, got 2|must have 4 numbers"),
        ([[0.25] * 4, None, [0.25] * 4], r"label_probs must not be null, got null at row 1"),
        (["a", "b", "c"], r"label_probs must be lists of numbers, got string"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            cb.score(Predictions.from_probs(truth(3), columns={"label_probs": column}))
    with pytest.raises(InvalidInputError, match=r"one label for each row .* got label_probs: only temperature and"):
        cb.calibrators.VectorScaling.fit(rows())


def test_temperature_of_soft_labels() -> None:
    predictions = Predictions.from_logits(2 * np.log(truth(2000)), annotated(truth(2000), 10))
    expanded = predictions.expand_labels()
    for cls in (cb.TemperatureScaling, cb.calibrators.CALIBRATORS["temperature_grid"]):
        calibrator = cls.fit(predictions)
        assert calibrator.temperature == cls.fit(expanded, weights="label_weight").temperature
        assert calibrator.temperature == pytest.approx(2, abs=0.1)
        assert calibrator.fitted.n_rows == 2000
        with pytest.raises(InvalidInputError, match="fitted"):
            calibrator(predictions)
    assert cb.score(calibrator(predictions, allow_same_rows=True)).nll < cb.score(predictions).nll


def test_class_prior() -> None:
    soft = torch.tensor([[0.5, 0.5, 0.0], [0.75, 0.0, 0.25]])
    expected = torch.tensor([0.625, 0.25, 0.125], dtype=torch.float64)
    assert torch.equal(class_prior(soft, 3), expected)
    losses = cb.MaxEntLoss.from_labels(soft, 3), cb.MaxEntLoss(expected)
    assert torch.equal(losses[0].multipliers, losses[1].multipliers)
    for make in (lambda labels: class_prior(labels, 3), lambda labels: cb.MaxEntLoss.from_labels(labels, 3)):
        with pytest.raises(InvalidInputError, match=r"labels must sum to 1, got 1\.5 at row 1"):
            make(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5]]))
