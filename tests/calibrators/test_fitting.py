"""Probabilities of 0: refused with what to do, or clipped by the fit, the calibrator, its file, module and graph."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import calibrant as cb
from calibrant.calibrators import CALIBRATORS, load_calibrator
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

CLIP = 1e-3
CLIPPING = [name for name, cls in CALIBRATORS.items() if "clip" in cls.options()]
Split = tuple[Predictions, Predictions]


@pytest.fixture(scope="module")
def forest() -> dict[int, Split]:
    """Validation and test rows of random forests of three trees, of ten and of two classes."""
    images, digits = load_digits(return_X_y=True)
    types = np.where(np.arange(897) % 5 == 0, "none", np.array(list("abcdefghij"))[digits[900:]])
    columns = {"domain": digits[900:] % 3, "corruption": types, "severity": np.arange(897) % 3}
    found = {}
    for n_classes, labels in ((10, digits), (2, digits >= 5)):
        model = RandomForestClassifier(3, random_state=0).fit(images[:900], labels[:900])
        probs = model.predict_proba(images[900:])
        rows = Predictions.from_probs(probs, labels[900:], columns=columns, features=images[900:] / 16)
        found[n_classes] = rows[:450], rows[450:]
    return found


def clipped(predictions: Predictions) -> Predictions:
    """The same rows, clipped by numpy."""
    probs = predictions.probs.numpy().clip(CLIP, None)
    columns = predictions.columns.select(["domain", "corruption", "severity"])
    rows = Predictions.from_probs(probs / probs.sum(1, keepdims=True), predictions.labels, columns=columns)
    return rows if predictions.features is None else rows.with_features(predictions.features.float())


def test_random_forest(forest: dict[int, Split]) -> None:
    validation, test = forest[10]
    assert cb.score(test).nll == math.inf
    with pytest.raises(InvalidInputError, match=r"0 for class 5 at row 30; clip=1e-6 \(--clip 1e-6\) raises"):
        cb.TemperatureScaling.fit(validation)
    calibrator = cb.TemperatureScaling.fit(validation, clip=1e-6)
    assert cb.score(calibrator(test)).nll < 1.1
    with pytest.raises(InvalidInputError, match="fitted"):
        calibrator(validation)
    for name in ("histogram", "bbq", "isotonic", "isotonic_multiclass"):  # those that the error names
        assert math.isfinite(cb.score(CALIBRATORS[name].fit(validation)(test)).nll)
    assert math.isfinite(cb.score(CALIBRATORS["venn_abers"].fit(forest[2][0])(forest[2][1])).nll)


@pytest.mark.parametrize("name", CLIPPING)
def test_clip_is_clipping_before(name: str, forest: dict[int, Split], tmp_path: Path) -> None:
    cls = CALIBRATORS[name]
    validation, test = forest[2 if cls.two_classes_only else 10]
    if cls.needs_target:  # the forest knows its features too well for importance weights
        validation, test = (replace(rows, features=None) for rows in (validation, test))
    options: dict[str, Any] = {"target": test} if cls.needs_target else {}
    before: dict[str, Any] = {"target": clipped(test)} if cls.needs_target else {}
    with pytest.raises(InvalidInputError, match="labels must have a probability above 0"):
        cls.fit(validation, **options)
    calibrator, by_hand = cls.fit(validation, clip=CLIP, **options), cls.fit(clipped(validation), **before)
    assert calibrator.fitted.fingerprint == validation.fingerprint
    found = calibrator(test)
    atol = 5e-3 if name == "conditional_temperature" else 1e-5  # entropies that differ by rounding alone
    torch.testing.assert_close(found.probs, by_hand(clipped(test)).probs, rtol=2e-2 if atol > 1e-5 else 1e-4, atol=atol)
    assert found.probs.min() > 0
    calibrator.save(tmp_path / "calibrator.json")
    loaded = load_calibrator(tmp_path / "calibrator.json")
    assert loaded.clip == CLIP
    assert torch.equal(loaded(test).logits, found.logits)
    if name not in ("set_temperature", "domain_temperature"):  # whose modules are of one set, and of unknown domains
        torch.testing.assert_close(calibrator.module()(*calibrator._inputs(test)), found.logits, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_onnx_clips(forest: dict[int, Split], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    validation, test = forest[10]
    calibrator = cb.TemperatureScaling.fit(validation, clip=CLIP)
    calibrator.to_onnx(tmp_path / "t.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "t.onnx")
    (found,) = session.run(None, {"logits": test.logits.float().numpy()})
    np.testing.assert_allclose(torch.tensor(found).softmax(1), calibrator(test).probs, atol=1e-6)


def test_files_without_clip_are_as_before(forest: dict[int, Split], tmp_path: Path) -> None:
    cb.TemperatureScaling.fit(clipped(forest[10][0])).save(tmp_path / "t.json")
    assert "clip" not in (tmp_path / "t.json").read_text()


@pytest.mark.parametrize("clip", [0, 0.11, -1e-6, math.nan, "1e-6", True])
def test_bad_clip(clip: Any, forest: dict[int, Split]) -> None:
    with pytest.raises(InvalidInputError, match=r"clip must be a (number|finite number in \[1e-30, 0\.1\]), got"):
        cb.TemperatureScaling.fit(forest[10][0], clip=clip)
