"""Estimates of accuracy without labels: each method where its assumption holds, intervals, files and refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.calibrators import SetTemperature
from calibrant.errors import CorruptFileError, InvalidInputError, UnknownNameError
from calibrant.estimates import ESTIMATORS, fit_estimator, load_estimator

KINDS = ("blur", "fog", "noise", "rain")


def one_set(kind: str, severity: float, n: int = 800, *, seed: int = 0) -> cb.Predictions:
    """With severity the logits see the label less, and are too large; types differ by a little."""
    generator = torch.Generator().manual_seed(1000 * seed + 10 * len(kind) + int(10 * severity))
    labels = torch.randint(0, 4, (n,), generator=generator)
    logits = torch.randn(n, 4, generator=generator)
    logits[torch.arange(n), labels] += 3 * 0.7 ** (severity * (1 + 0.05 * len(kind)))
    columns = {"corruption": [kind] * n, "severity": [severity] * n, "site": [f"site {i % 2}" for i in range(n)]}
    return cb.Predictions.from_logits(2 * logits, labels, columns=columns)


def reference() -> cb.Predictions:
    shifted = [one_set(kind, severity) for kind in KINDS for severity in (1.0, 2.0, 3.0)]
    return cb.Predictions.concat([one_set("none", 0.0, 2000), *shifted])


def accuracy(rows: cb.Predictions) -> float:
    return float((rows.logits.argmax(1) == rows.labels).double().mean())


def without_labels(rows: cb.Predictions) -> cb.Predictions:
    return replace(rows, labels=torch.full_like(rows.labels, -1))


@pytest.fixture(scope="module")
def known() -> cb.Predictions:
    return reference()


@pytest.mark.parametrize("method", ESTIMATORS)
def test_every_method_is_right_on_rows_like_the_reference(method: str, known: cb.Predictions, tmp_path) -> None:
    estimator = fit_estimator(known, method)
    rows = one_set("none", 0.0, 2000, seed=5)
    found = estimator(without_labels(rows))
    assert found.accuracy.value == pytest.approx(accuracy(rows), abs=0.04)
    assert found.accuracy.low < accuracy(rows) < found.accuracy.high
    assert found.gap.value == pytest.approx(found.confidence - found.accuracy.value)
    assert (found.n_rows, found.method, found.labels_ignored) == (2000, method, False)
    assert estimator(rows).labels_ignored
    assert estimator(rows).accuracy == found.accuracy
    estimator.save(tmp_path / "e.json")
    assert load_estimator(tmp_path / "e.json")(rows) == estimator(rows)


def test_set_temperature_is_right_on_an_unseen_shift_and_the_clean_temperature_is_not(known: cb.Predictions) -> None:
    rows = one_set("snow", 2.5, 2000, seed=3)
    found = cb.estimate(without_labels(rows), known)
    assert found.method == "set_temperature"
    assert found.accuracy.value == pytest.approx(accuracy(rows), abs=0.04)
    assert found.accuracy.low < accuracy(rows) < found.accuracy.high
    assert found.accuracy.high - found.accuracy.low < 0.2
    assert cb.estimate(rows, known, method="confidence").accuracy.value > accuracy(rows) + 0.05
    calibrated = SetTemperature.fit(known)(rows)
    card = cb.score(calibrated, metrics=("accuracy", "ece"))
    assert found.ece_after is not None
    assert card.ece < found.ece_after.high + card.noise_floor("ece")
    assert found.ece is not None
    assert found.ece.value == pytest.approx(cb.score(rows).ece, abs=0.05)
    recalls = [float((rows.logits.argmax(1)[rows.labels == k] == k).double().mean()) for k in range(4)]
    assert [q.value for q in found.recall if q] == pytest.approx(recalls, abs=0.1)
    assert all(q is not None and q.low < truth < q.high for q, truth in zip(found.recall, recalls, strict=True))
    assert found.temperature is not None
    given = cb.estimate(rows, known, calibrator=SetTemperature.fit(known))
    assert given.temperature == pytest.approx(found.temperature, rel=1e-9)
    assert {test.name for test in found.tests} == {"confidence", "entropy", "class_mix"}


@pytest.mark.slow
def test_intervals_cover_unseen_types(known: cb.Predictions) -> None:
    """Of each method: 90 % on types left out, within chance of 36 sets."""
    for method in ("set_temperature", "confidence", "doc", "atc_confidence"):
        covered = []
        for kind in KINDS:
            kinds = np.array(known.column("corruption").to_pylist())
            estimator = fit_estimator(known[np.flatnonzero(kinds != kind)], method)
            sets = [one_set(kind, severity, seed=9 + i) for i in range(3) for severity in (1.0, 2.0, 3.0)]
            covered += [e.accuracy.low <= accuracy(rows) <= e.accuracy.high for rows in sets for e in [estimator(rows)]]
        assert np.mean(covered) >= 0.75, method


def test_a_reference_without_shifted_rows_says_so_and_groups_are_sets_of_their_own(known: cb.Predictions) -> None:
    clean = one_set("none", 0.0, 2000)
    target = cb.Predictions.concat([one_set("snow", 3.0, 300, seed=4), one_set("none", 0.0, 15, seed=6)])
    found = cb.estimate(target, clean, by="corruption")
    assert (found.method, found.shifts, found.by) == ("confidence", (), "corruption")
    assert (list(found.groups), found.small_groups) == (["snow"], ("none",))
    shifted = cb.estimate(target, known, by="site")
    assert shifted.shifts == KINDS
    assert json.loads(json.dumps(shifted.to_dict()))["groups"]["site 0"]["n_rows"] == 158
    assert shifted.failed(["accuracy < 0.99", "accuracy < 0.1"]) == [
        f"accuracy < 0.99 (accuracy = {shifted.accuracy.value:.6g})"
    ]


def test_refusals(known: cb.Predictions, tmp_path) -> None:
    target = one_set("snow", 2.0, 100, seed=4)
    other = cb.Predictions.from_logits(torch.randn(100, 3))
    with pytest.raises(InvalidInputError, match=r"at least 20 rows, got 5"):
        cb.estimate(target[:5], known)
    with pytest.raises(InvalidInputError, match=r"classes"):
        cb.estimate(other, known)
    with pytest.raises(InvalidInputError, match=r"rows that it was fitted on|the rows"):
        cb.estimate(known, known)
    with pytest.raises(UnknownNameError, match=r"atc_confidence"):
        cb.estimate(target, known, method="atc")
    with pytest.raises(InvalidInputError, match=r"not shifted, got 0"):
        cb.estimate(target, one_set("fog", 1.0))
    with pytest.raises(InvalidInputError, match=r"does not estimate ece"):
        cb.estimate(target, known, method="doc").failed(["ece > 0.1"])
    with pytest.raises(InvalidInputError, match=r"method set_temperature, got the method doc"):
        cb.estimate(target, known, method="doc", calibrator=SetTemperature.fit(known))
    path = tmp_path / "e.json"
    fit_estimator(known, "doc").save(path)
    path.write_text(path.read_text().replace('"doc"', '"dog"'))
    with pytest.raises(CorruptFileError):
        load_estimator(path)
