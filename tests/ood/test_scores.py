"""Every score by slow loops and scikit-learn, saturation, features without variance, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf
from sklearn.neighbors import NearestNeighbors

import calibrant as cb
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.ood import OOD_SCORES, ood_score

N_FEATURES = 5


def rows_of(n: int, seed: int, *, shift: float = 0.0, n_classes: int = 4) -> cb.Predictions:
    """Features around class means, and their logits; with shift, further away."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(n_classes, (n,), generator=generator)
    features = 2.0 * torch.eye(n_classes, N_FEATURES)[labels] + 0.7 * torch.randn(n, N_FEATURES, generator=generator)
    features[:, -1] += shift
    logits = 2.0 * features[:, :n_classes] + 1.0
    columns = {"mutual_information": torch.rand(n, generator=generator).tolist(), "image": list(range(n))}
    return cb.Predictions.from_logits(logits, labels, features=features, columns=columns)


@pytest.fixture(scope="module")
def known() -> cb.Predictions:
    return rows_of(150, 0)


@pytest.fixture(scope="module")
def rows() -> cb.Predictions:
    return rows_of(40, 1)


def loops_over_logits(logits: list[float]) -> dict[str, float]:
    total = sum(math.exp(z) for z in logits)
    probs = [math.exp(z) / total for z in logits]
    return {
        "max_probability": 1 - max(probs),
        "entropy": -sum(p * math.log(p) for p in probs),
        "max_logit": -max(logits),
        "energy": -math.log(total),
    }


def test_scores_of_logits_by_loops(rows: cb.Predictions) -> None:
    wanted = [loops_over_logits(row) for row in rows.logits.tolist()]
    for name in wanted[0]:
        found = ood_score(rows, name)
        assert found.dtype == torch.float64
        assert found.tolist() == pytest.approx([row[name] for row in wanted], abs=1e-6)


def test_confident_rows_keep_their_order() -> None:
    margins = torch.tensor([20.0, 40.0, 80.0, 200.0, 600.0])
    rows = cb.Predictions.from_logits(torch.stack([margins, torch.zeros(5), torch.full((5,), -math.inf)], dim=1))
    for name in ("max_probability", "entropy", "max_logit", "energy"):
        assert (ood_score(rows, name).diff() < 0).all(), name


def test_scores_do_not_depend_on_storage_or_batch(rows: cb.Predictions, known: cb.Predictions, tmp_path) -> None:
    double = replace(rows, logits=rows.logits.double() + 1e-12)
    double.save(tmp_path / "rows.parquet")
    loaded = cb.Predictions.load(tmp_path / "rows.parquet")
    for name in OOD_SCORES:
        found = ood_score(rows, name, reference=known)
        assert torch.equal(ood_score(loaded, name, reference=known), ood_score(double, name, reference=known)), name
        parts = [ood_score(rows[part], name, reference=known) for part in (slice(0, 7), slice(7, 40))]
        assert torch.cat(parts).tolist() == pytest.approx(found.tolist(), rel=1e-12), name


def normalised(features: torch.Tensor) -> np.ndarray:
    array = features.double().numpy()
    return array / np.linalg.norm(array, axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 3, 150])
def test_nearest_neighbors_are_those_of_scikit_learn(rows: cb.Predictions, known: cb.Predictions, k: int) -> None:
    witness = NearestNeighbors(n_neighbors=k).fit(normalised(known.features))
    wanted = witness.kneighbors(normalised(rows.features))[0][:, -1]
    found = ood_score(rows, "nearest_neighbors", reference=known, k=k)
    assert found.numpy() == pytest.approx(wanted, abs=1e-9)
    slow = [sorted(math.dist(a, b) for b in normalised(known.features))[k - 1] for a in normalised(rows.features[:3])]
    assert found[:3].tolist() == pytest.approx(slow, abs=1e-9)


def test_neighbors_by_default_are_a_hundredth_and_at_most_fifty(known: cb.Predictions, rows: cb.Predictions) -> None:
    many = rows_of(6000, 7)
    for reference, k in ((known[:30], 1), (known, 1), (many[:400], 4), (many, 50)):
        default, given = (ood_score(rows, "nearest_neighbors", reference=reference, **o) for o in ({}, {"k": k}))
        assert torch.equal(default, given)


def test_mahalanobis_by_loops(rows: cb.Predictions, known: cb.Predictions) -> None:
    features, labels = known.features.double().numpy(), known.labels.numpy()
    means = {label: features[labels == label].mean(0) for label in set(labels.tolist())}
    residuals = np.stack([x - means[label] for x, label in zip(features, labels.tolist(), strict=True)])
    precision = np.linalg.inv(LedoitWolf(assume_centered=True).fit(residuals).covariance_)
    wanted = [
        min(math.sqrt((x - mean) @ precision @ (x - mean)) for mean in means.values())
        for x in rows.features.double().numpy()
    ]
    found = ood_score(rows, "mahalanobis", reference=known)
    assert found.tolist() == pytest.approx(wanted, rel=1e-9)


def test_mahalanobis_with_more_features_than_rows_and_with_dead_ones(
    known: cb.Predictions, rows: cb.Predictions
) -> None:
    padded = [
        part.with_features(torch.cat([part.features.float(), torch.zeros(len(part), 60)], 1)) for part in (known, rows)
    ]
    few = padded[0][:12]
    found = ood_score(padded[1], "mahalanobis", reference=few)
    assert found.isfinite().all()
    assert (found > 0).all()
    line = torch.tensor(
        [[1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]]
    )  # not shrunk at all: a singular covariance
    reference = cb.Predictions.from_logits(
        torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), [0] * 4, features=line
    )
    off = cb.Predictions.from_logits([[1.0, 0.0]], features=[[1.0, -1.0]])
    assert 1 < float(ood_score(off, "mahalanobis", reference=reference)) < math.inf


def test_mutual_information_is_read_from_its_column(rows: cb.Predictions) -> None:
    assert ood_score(rows, "mutual_information").tolist() == rows.column("mutual_information").to_pylist()


def test_features_of_zeros(rows: cb.Predictions, known: cb.Predictions) -> None:
    zeros = rows.with_features(torch.zeros(40, N_FEATURES))
    distances = ood_score(zeros, "nearest_neighbors", reference=known)
    assert distances.tolist() == pytest.approx([1.0] * 40)  # of the origin from the sphere
    assert ood_score(zeros, "mahalanobis", reference=known).isfinite().all()
    flat = known.with_features(torch.zeros(150, N_FEATURES))
    for name in ("nearest_neighbors", "mahalanobis"):
        with pytest.raises(InvalidInputError, match=f"reference must have features that differ for {name}"):
            ood_score(rows, name, reference=flat)
    with pytest.raises(InvalidInputError, match="differ within a class for mahalanobis"):
        ood_score(
            rows, "mahalanobis", reference=known[[int((known.labels == label).nonzero()[0]) for label in range(4)]]
        )


def test_logits_without_their_constant_are_refused(rows: cb.Predictions) -> None:
    lost = {
        "probs": cb.Predictions.from_probs(rows.probs),
        "rounded": cb.Predictions.from_probs((rows.probs * 5000).round() / 5000),
        "log_probs": cb.Predictions.from_log_probs(rows.log_probs),
        "largest is 0": replace(rows, logits=rows.logits - rows.logits.amax(1, keepdim=True)),
        "calibrated": cb.TemperatureScaling.fit(rows)(rows_of(30, 5)),
        "dirichlet": cb.CALIBRATORS["dirichlet"].fit(rows)(rows_of(30, 5)),
    }
    for what, predictions in lost.items():
        for name in ("max_logit", "energy"):
            with pytest.raises(InvalidInputError, match=rf"logits of the model for {name}.*without them: max_prob"):
                ood_score(predictions, name)
        assert len(ood_score(predictions, "entropy")) == len(predictions), what
    mixed = cb.Predictions.concat([rows, replace(rows, logits=rows.log_probs)])
    assert len(ood_score(mixed, "energy")) == 80


def test_needs_are_refused_in_one_line(rows: cb.Predictions, known: cb.Predictions) -> None:
    plain = replace(rows, features=None)
    unlabelled = replace(known, labels=torch.full_like(known.labels, -1))
    wider = rows.with_features(torch.ones(40, N_FEATURES + 1))
    others = rows_of(30, 3, n_classes=3)
    nan = cb.Predictions.from_logits(rows.logits, columns={"mutual_information": [math.nan] * 40})
    for match, method, part, reference in [
        ("unknown OOD score 'enrgy'; did you mean 'energy'", "enrgy", rows, None),
        ("reference must be given for nearest_neighbors", "nearest_neighbors", rows, None),
        ("with features and labels", "mahalanobis", rows, None),
        ("predictions must have features for nearest", "nearest_neighbors", plain, known),
        ("reference must have features for nearest", "nearest_neighbors", rows, replace(known, features=None)),
        ("reference must have labels to fit mahalanobis, got none at row 0", "mahalanobis", rows, unlabelled),
        ("features must be the 5 that mahalanobis was fitted on, got 6", "mahalanobis", wider, known),
        ("predictions must have the 3 classes of reference, got 4", "nearest_neighbors", rows, others),
        ("reference must have at least one row", "nearest_neighbors", rows, known[:0]),
        ("predictions must have at least one row", "energy", rows[:0], None),
        ("column mutual_information .* calibrant average", "mutual_information", rows.select("image"), None),
        ("score must be finite", "mutual_information", nan, None),
        ("predictions must hold other rows than reference", "nearest_neighbors", known[:100], known),
    ]:
        with pytest.raises((InvalidInputError, UnknownNameError), match=match) as caught:
            ood_score(part, method, reference=reference)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="k is no option of energy, whose options are: none"):
        ood_score(rows, "energy", k=3)
    with pytest.raises(InvalidInputError, match="k must be an integer from 1 to 150, got 151"):
        ood_score(rows, "nearest_neighbors", reference=known, k=151)
    own = ood_score(known, "nearest_neighbors", reference=known, k=1, allow_same_rows=True)
    assert own.numpy() == pytest.approx(np.zeros(150), abs=1e-7)
