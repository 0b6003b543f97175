"""Rows with only the confidence of the predicted class: equal to the full rows where that is defined, else refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.made.cli import Run

import calibrant as cb
from calibrant import Predictions
from calibrant.audits import audit
from calibrant.calibrators import CALIBRATORS, LabelShift, SetTemperature, TransCal, choose, cross_fit
from calibrant.calibrators.base import OF_CONFIDENCE
from calibrant.calibrators.comparison import compare_calibrators
from calibrant.calibrators.proportions import class_proportions
from calibrant.calibrators.table import load_calibrator
from calibrant.decisions import ConformalSets, certify, check_threshold, score_sets
from calibrant.errors import InvalidInputError
from calibrant.estimates.shift_tests import shift_tests
from calibrant.metrics import METRICS, brier_decomposition, compare, score
from calibrant.metrics.jackknife import jackknife, jackknife_groups
from calibrant.ood import compare_ood_scores, ood_score

N, K = 2000, 6
OF_TOP_LABEL = [name for name in METRICS if not METRICS[name].all_classes]
ONLY = "only the confidence of the predicted class"


def _pair(seed: int = 0, n: int = N, *, grid: bool = False) -> tuple[Predictions, Predictions]:
    """Full predictions, overconfident, and what is left of them when only the confidence was logged."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(n, K)) * 1.3
    truth = np.exp(0.8 * logits)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    if grid:  # of ties, 0 and 1
        probs = random.multinomial(4, np.full(K, 1 / K), size=n) / 4
        truth = probs + 0.05
    truth /= truth.sum(1, keepdims=True)
    labels = (truth.cumsum(1) < random.random((n, 1))).sum(1).clip(max=K - 1)
    columns = {"site": random.choice(["A", "B"], n), "w": random.random(n), "patient": random.integers(0, n // 5, n)}
    full = Predictions.from_probs(probs, labels, columns=columns)
    top = Predictions.from_confidence(probs.max(1), probs.argmax(1) == labels, columns=columns)
    return full, top


def _binary(n: int = 800, seed: int = 0) -> tuple[Predictions, Predictions]:
    """A binary problem where class 1 is predicted in every row, and the same as confidence and correctness."""
    random = np.random.default_rng(seed)
    positive = 0.5 + 0.49 * random.random(n)
    labels = (random.random(n) < positive**1.5).astype(int)
    return Predictions.from_positive_probs(positive, labels), Predictions.from_confidence(positive, labels == 1)


def _cards(rows: Any, **options: Any) -> list[Any]:
    found = score(rows, **options)
    return [found.overall, *found.values()] if "by" in options else [found]


@pytest.mark.slow
@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("options", [{}, {"weights": "w"}, {"cluster": "patient"}, {"by": "site"}], ids=str)
def test_metrics_are_those_of_the_full_predictions(options: dict[str, str], grid: bool) -> None:
    full, top = _pair(grid=grid)
    assert (top.probs[:, 1] < 0.5).double().mean() > 0.2
    for of_full, of_top in zip(_cards(full, metrics=OF_TOP_LABEL, **options), _cards(top, **options), strict=True):
        assert of_top.names == tuple(OF_TOP_LABEL)
        for name in OF_TOP_LABEL:
            assert of_top[name] == pytest.approx(of_full[name], abs=1e-12), name
            assert of_top.interval(name) == pytest.approx(of_full.interval(name), abs=1e-12), name
            if METRICS[name].floor is not None:
                assert of_top.noise_floor(name) == pytest.approx(of_full.noise_floor(name), abs=1e-12), name


def test_streams_and_jackknife() -> None:
    full, top = _pair()
    batches = [[rows[i : i + 600] for i in range(0, N, 600)] for rows in (full, top)]
    of_full, of_top = (score(iter(each), metrics=OF_TOP_LABEL) for each in batches)
    assert of_top.values() == pytest.approx(of_full.values(), abs=1e-12)
    groups = jackknife_groups(top)
    first, second = (jackknife(rows, card, groups) for rows, card in ((full, of_full), (top, of_top)))
    for name in OF_TOP_LABEL:
        assert second[name] == pytest.approx(first[name], abs=1e-12), name


def test_comparison_of_two_models() -> None:
    """Correctness differs between the models of the same rows: only their number must agree."""
    pairs = [_pair(0), _pair(0)]
    sharper = pairs[1][0].logits * 1.5
    full = Predictions(sharper, pairs[1][0].labels, pairs[1][0].columns)
    wrong = torch.arange(N) % 10 == 0
    full.labels[wrong] = pairs[0][0].labels[wrong]
    probs = full.probs
    top = Predictions.from_confidence(probs.amax(1), probs.argmax(1) == full.labels, columns=full.columns)
    expected = compare(pairs[0][0], full, metrics=OF_TOP_LABEL)
    found = compare(pairs[0][1], top)
    assert [row.metric for row in found] == [row.metric for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.difference == pytest.approx(other.difference, abs=1e-12)
        assert one.interval == pytest.approx(other.interval, abs=1e-9)
        assert one.p_value == pytest.approx(other.p_value, abs=1e-9)
    with pytest.raises(InvalidInputError, match=f"a has {ONLY}, b the probabilities of all classes"):
        compare(top, full)
    with pytest.raises(InvalidInputError, match="got 2000 rows of 2 classes and 10"):
        compare(top, top[:10])


def test_metrics_that_need_all_classes() -> None:
    _, top = _pair()
    for name in set(METRICS) - set(OF_TOP_LABEL):
        with pytest.raises(InvalidInputError, match=f"{name} needs the probabilities of all classes"):
            score(top, metrics=[name])
    card = score(top)
    with pytest.raises(InvalidInputError, match="nll needs the probabilities of all classes"):
        card["nll"]
    with pytest.raises(InvalidInputError, match="brier needs"):
        brier_decomposition(top)
    full = score(_pair()[0], metrics=["ece"])
    with pytest.raises(InvalidInputError, match="scorecards must have the same"):
        full + score(top, metrics=["ece"])


def test_value() -> None:
    _, top = _pair(n=50)
    assert repr(top[:2]) == "Predictions(2 rows, confidence of the predicted class, columns: site, w, patient)"
    for rows in (top[3:9], top.where(site="A"), top.select("w"), top.with_columns({"z": [1] * 50})):
        assert rows.top_label
    assert Predictions.concat([top, top]).top_label
    assert top.to_frame().column_names == ["correct", "confidence", "site", "w", "patient"]
    with pytest.raises(InvalidInputError, match="the first part has the probabilities"):
        Predictions.concat([_pair(n=50)[0], top])
    for name in ("confidence", "correct"):
        with pytest.raises(InvalidInputError, match=f"must not be named '{name}'"):
            top.with_columns({name: [1] * 50})
        with pytest.raises(InvalidInputError, match=f"must not be named '{name}'"):
            Predictions.from_confidence([0.5], columns={name: [1]})


def test_constructor() -> None:
    forms: tuple[Any, ...] = (
        [True, False],
        [1, 0],
        np.array([1.0, 0.0]),
        torch.tensor([True, False]),
        pa.array([1, 0]),
    )
    for correct in forms:
        rows = Predictions.from_confidence([0.9, 0.3], correct)
        assert rows.labels.tolist() == [1, 0]
        assert rows.probs[:, 1].tolist() == pytest.approx([0.9, 0.3])
    for unknown in ([True, None], pa.chunked_array([[1, None]])):
        assert Predictions.from_confidence([0.9, 0.3], unknown).labels.tolist() == [1, -1]
    assert Predictions.from_confidence([0.9, 0.3]).labels.tolist() == [-1, -1]
    cases: tuple[tuple[Any, Any, str], ...] = (
        ([87.0, 12.0], None, "got 87 at row 0: divide percentages by 100"),
        ([0.5, np.nan], None, "confidence must not be NaN, got nan at row 1"),
        ([[0.5, 0.5]], None, r"confidence must have shape \(n,\), got \(1, 2\)"),
        ([0.5, 0.5], [0, 2], "got 2 at row 1: it must be true or false, or 1 or 0"),
        ([0.5, 0.5], [0.5, 1], "got 0.5 at row 0: it must be"),
        ([0.5, 0.5], [1], "correct must have 2 values, got 1"),
        ([0.5, 0.5], [[1], [0]], r"correct must have shape \(n,\)"),
        ([0.5, 0.5], ["yes", None], "got 'yes' at row 0: it must be"),
    )
    for confidence, correct, message in cases:
        with pytest.raises(InvalidInputError, match=message):
            Predictions.from_confidence(confidence, correct)


@pytest.mark.parametrize("name", OF_CONFIDENCE)
def test_calibrators(name: str, tmp_path: Path) -> None:
    """As the binary path where class 1 is predicted everywhere; on any confidences a function of the confidence."""
    (full, top), (more_full, more_top) = _binary(), _binary(seed=1)
    fitted = CALIBRATORS[name].fit(top)
    found = fitted(more_top)
    assert found.top_label
    assert torch.equal(found.labels, more_top.labels)
    if name != "spline":  # which the binary path keeps above 1/2
        expected = CALIBRATORS[name].fit(full)(more_full)
        assert torch.equal(found.logits, expected.logits)
    fitted.save(tmp_path / "c.json")
    loaded = load_calibrator(tmp_path / "c.json")
    assert loaded.top_label
    assert '"top_label": true' in (tmp_path / "c.json").read_text()
    assert torch.equal(loaded(more_top).logits, found.logits)
    with pytest.raises(InvalidInputError, match=f"what {name} was fitted on has {ONLY}, predictions the prob"):
        loaded(more_full)
    with pytest.raises(InvalidInputError, match=f"has the probabilities of all classes, predictions {ONLY}"):
        CALIBRATORS[name].fit(full)(more_top)
    before, after = (rows.probs[:, 1] for rows in (more_top, found))
    if name in ("isotonic", "platt", "beta", "venn_abers", "identity"):
        assert bool((after[before.argsort()].diff() >= -1e-12).all())
    if name != "identity":
        assert score(found).ece < score(more_top).ece


def test_isotonic_is_that_of_sklearn() -> None:
    from sklearn.isotonic import IsotonicRegression

    top = _pair(3)[1]
    x, y = top.probs[:, 1].numpy(), (top.labels == 1).double().numpy()
    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    model.fit(np.append(x, [x.min(), x.max()]), np.append(y, [1.0, 0.0]))  # the two rows that keep it from 0 and 1
    new = _pair(4)[1]
    found = CALIBRATORS["isotonic"].fit(top)(new).probs[:, 1].numpy()
    assert found == pytest.approx(model.predict(new.probs[:, 1].numpy()), abs=1e-9)


def test_spline_leaves_the_half() -> None:
    """A confidence may fall below 1/2, and a low one may rise above it: no class takes the place of the predicted."""
    random = np.random.default_rng(0)
    confidence = random.random(4000)
    top = Predictions.from_confidence(confidence, random.random(4000) < 0.8 - 0.6 * confidence)
    found = CALIBRATORS["spline"].fit(top).calibrate(top).probs[:, 1].numpy()
    assert np.abs(found - (0.8 - 0.6 * confidence)).mean() < 0.03


def test_confidences_of_0_and_1() -> None:
    """Said confidences of 100 % that are wrong: the likelihood refuses them, the others do not."""
    random = np.random.default_rng(0)
    said = random.choice([0.0, 0.5, 0.8, 0.9, 1.0], 2000)
    top = Predictions.from_confidence(said, random.random(2000) < 0.2 + 0.6 * said)
    new = Predictions.from_confidence(random.choice([0.0, 0.5, 0.8, 0.9, 1.0], 2000))
    for name in OF_CONFIDENCE:
        if name in ("platt", "beta"):
            with pytest.raises(InvalidInputError, match=f"validation must have no .* for {name}, got one at row"):
                CALIBRATORS[name].fit(top)
        elif name != "identity":
            after = CALIBRATORS[name].fit(top)(new).probs[:, 1]
            assert float(after[new.probs[:, 1] == 1].max()) == pytest.approx(0.8, abs=0.06), name


def test_calibrators_of_all_classes() -> None:
    _, top = _binary()
    assert {name for name, cls in CALIBRATORS.items() if cls.of_confidence} == set(OF_CONFIDENCE)
    for name in CALIBRATORS.keys() - set(OF_CONFIDENCE) - {"label_shift"}:  # which checks its target first
        with pytest.raises(InvalidInputError, match=f"fit a calibrator other than identity, platt, .*, got {ONLY}"):
            CALIBRATORS[name].fit(top)


def test_choice_and_comparison_of_calibrators() -> None:
    (_, top), (_, test) = _binary(), _binary(seed=1)
    calibrator, ranked = choose(top)
    assert calibrator.top_label
    assert {row.calibrator for row in ranked} == {"identity", "beta", "spline", "histogram"}
    assert cross_fit(top, "isotonic").predictions.top_label
    rows = compare_calibrators(top, test)
    assert {row.calibrator for row in rows} == set(OF_CONFIDENCE)
    assert all(row.failure is None and list(row.values) == ["ece"] for row in rows)
    with pytest.raises(InvalidInputError, match="nll needs the probabilities of all classes"):
        compare_calibrators(top, test, metrics=["nll"])


@pytest.mark.slow
def test_audit() -> None:
    full, top = _pair()
    found, expected = (audit(rows, by="site") for rows in (top, full))
    assert found.top_label
    assert found.verdict.ece == pytest.approx(expected.verdict.ece, abs=1e-12)
    assert found.verdict.kind == expected.verdict.kind == "overconfident"
    assert found.decision.threshold == expected.decision.threshold
    assert (found.classes, found.decision.sets, found.constant_class) == ((), (), None)
    assert found.advice[0].action == "recalibrate_confidence"
    record = found.to_dict()
    assert (record["top_label"], record["n_classes"], record["classes"]) == (True, None, [])
    assert set(record["metrics"]) == set(OF_TOP_LABEL)
    assert {row["label"] for row in record["errors"]} == {None}
    assert record["errors"][0]["confidence"] == pytest.approx(expected.to_dict()["errors"][0]["confidence"], abs=1e-12)
    assert record["temperature"]["failure"] == "a temperature needs the probabilities of all classes"
    with pytest.raises(InvalidInputError, match="cece needs"):
        audit(top, gates=["cece > 0.1"])
    compared = audit(top, other=top[torch.arange(N)], compare_metrics=["ece"])
    assert compared.differences(["ece"])[0][1].difference == 0
    with pytest.raises(InvalidInputError, match=f"source has {ONLY}, other the probabilities"):
        audit(top, other=full)


def test_audit_with_groups_that_need_different_calibrators() -> None:
    random = np.random.default_rng(0)
    confidence, site = random.random(6000), np.repeat(["A", "B"], 3000)
    correct = random.random(6000) < np.where(site == "A", confidence**2, np.sqrt(confidence))
    found = audit(Predictions.from_confidence(confidence, correct, columns={"site": site}), by="site")
    assert [item.action for item in found.advice][:2] == ["no_single_calibrator", "recalibrate_confidence_per_group"]


@pytest.mark.slow
def test_audit_page_and_text(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, top = _pair()
    top.save("a.parquet")
    text = calibrant("audit", "a.parquet", "--by", "site", "--report", "a.html").out
    line = "The files hold only the confidence of the predicted class: classwise errors, NLL over classes, "
    assert "a.parquet: 2,000 rows, confidence of the predicted class" in text
    assert line in " ".join(text.split())
    page = (tmp_path / "a.html").read_text()
    assert line in page
    for id in ("classes", "temperature"):
        assert f'<section id="{id}">' not in page
    assert "sets fit" not in page
    assert ">Predicted<" not in page
    assert '<section id="errors">' in page


def test_thresholds() -> None:
    """A threshold of the confidence is that of the full predictions."""
    random = np.random.default_rng(0)
    probs = random.dirichlet([0.1] * 4, 3000)
    labels = np.array([random.choice(4, p=row) for row in probs])
    full = Predictions.from_probs(probs, labels)
    top = Predictions.from_confidence(probs.max(1), probs.argmax(1) == labels)
    found, expected = certify(top, 0.1), certify(full, 0.1)
    assert found.groups["overall"].n_accepted == expected.groups["overall"].n_accepted > 0
    assert found.groups["overall"].value == pytest.approx(expected.groups["overall"].value, abs=1e-6)
    new = Predictions.from_confidence([0.2, 0.999], [False, True])
    assert found(new).column("accepted").to_pylist() == [False, True]
    assert check_threshold(found, new).rows[0].n_accepted == 1
    with pytest.raises(InvalidInputError, match=f"validation of the threshold has {ONLY}, predictions the prob"):
        found(_binary()[0])
    for options in ({"target_class": 1}, {"score": "entropy"}, {"score": "margin"}):
        with pytest.raises(InvalidInputError, match=f"got {ONLY}"):
            certify(top, **options)


REFUSED: dict[str, Callable[[Predictions, Predictions], Any]] = {  # of full and of top-label predictions
    "sets": lambda full, top: ConformalSets.fit(top),
    "sets of full": lambda full, top: ConformalSets.fit(full)(top, allow_same_rows=True),
    "score_sets": lambda full, top: score_sets(top.with_columns({"prediction_set": [[0]] * len(top)})),
    "estimate": lambda full, top: cb.estimate(top, full),
    "estimate from": lambda full, top: cb.estimate(full, top),
    "shift_tests": lambda full, top: shift_tests(top, full),
    "monitor": lambda full, top: cb.monitor(top, full, every=100),
    "monitor from": lambda full, top: cb.monitor(full, top, every=100),
    "average": lambda full, top: cb.average([top, top]),
    "ood_score": lambda full, top: ood_score(top, "max_probability"),
    "detect": lambda full, top: compare_ood_scores(full, top, ["entropy"]),
    "label_shift": lambda full, top: LabelShift.fit(full, target=top),
    "transcal": lambda full, top: TransCal.fit(full, target=top),
    "class_proportions": lambda full, top: class_proportions(top, full),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """No number comes out of what would take the two outcomes for two classes."""
    with pytest.raises(InvalidInputError, match=ONLY) as error:
        REFUSED[name](*_binary(n=200))
    assert len(str(error.value).splitlines()) == 1
    assert SetTemperature.of_confidence is False


def test_files_from_fit_to_audit(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a language model: fitted, applied, audited; the result is again a file of confidence and correctness."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("val", "test")):
        rows = _pair(seed)[1]
        lines = [f"{c:.4f},{bool(k)}\n" for c, k in zip(rows.probs[:, 1].tolist(), rows.labels.tolist(), strict=True)]
        (tmp_path / f"{name}.csv").write_text("confidence,correct\n" + "".join(lines))
    said = calibrant("fit", "val.csv", "--calibrator", "isotonic", "-o", "c.json").out
    assert "the confidence of the predicted class" in said
    assert "NLL of correctness after" in said
    calibrant("apply", "c.json", "test.csv", "-o", "a.parquet").done()
    after, before = score(Predictions.scan("a.parquet")), score(Predictions.scan("test.csv"))
    assert after.top_label
    assert after.accuracy == before.accuracy
    assert after.ece < before.ece
    assert calibrant("audit", "a.parquet", "--json").record["verdict"]["kind"] == "no_evidence"
    calibrant("fit", "val.csv", "-o", "t.json").refused("other than identity, platt, beta, spline, histogram")
    calibrant("sets", "fit", "val.csv", "-o", "s.json").refused(ONLY)
    calibrant("average", "val.csv", "test.csv", "-o", "m.parquet").refused(ONLY)
    calibrant("estimate", "test.csv", "--reference", "val.csv").refused(ONLY)
