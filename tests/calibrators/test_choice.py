"""Choosing a calibrator: folds, cross-fitting, the table of candidates, and the comparison on test rows."""

from typing import Any

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.calibrators import (
    Calibrator,
    HistogramBinning,
    LeaveOneShiftOut,
    PerturbedTemperature,
    TemperatureScaling,
)
from calibrant.calibrators.choice import row_folds
from calibrant.errors import CalibrantError, NotConvergedError
from made.calibrator_check import CALIBRATORS
from made.calibrator_data import draw, nll_per_row, permuted


def always_correct(n: int = 60) -> cb.Predictions:
    rows = draw(n)
    return cb.Predictions.from_logits(rows.logits, rows.logits.argmax(1))


# Cross-fitting


@pytest.mark.parametrize(
    ("calibrator", "options"), [("temperature", {}), ("vector", {"strength": 2.0}), ("histogram", {"n_bins": 4})]
)
def test_each_row_is_calibrated_by_the_fit_of_the_other_folds(calibrator: str, options: dict[str, Any]) -> None:
    rows = draw(400, columns={"number": list(range(400))})
    found = cb.cross_fit(rows, calibrator, folds=4, **options)
    assert torch.equal(found.predictions.labels, rows.labels)
    assert found.predictions.columns.equals(rows.columns)
    assert found.predictions.metadata["calibrator"] == {"name": calibrator, "cross_fit": 4}
    for fold in range(4):
        held_out = found.fold == fold
        assert 40 <= int(held_out.sum()) <= 160
        wanted = CALIBRATORS[calibrator].fit(rows[~held_out], **options)(rows[held_out]).log_probs
        torch.testing.assert_close(found.predictions[held_out].log_probs, wanted, rtol=1e-9, atol=1e-9)
    new = draw(50, seed=1)
    assert torch.equal(found.calibrator(new).logits, CALIBRATORS[calibrator].fit(rows, **options)(new).logits)


def test_folds_do_not_depend_on_the_order_of_rows() -> None:
    names = [f"patient {i % 40}" for i in range(400)]
    rows = draw(400, columns={"patient": names, "number": list(range(400))})
    moved = permuted(rows, 1)
    order = moved.column("number").to_pylist()
    for cluster in (None, "patient"):
        first, second = cb.cross_fit(rows, cluster=cluster), cb.cross_fit(moved, cluster=cluster)
        assert torch.equal(first.fold[order], second.fold)
        assert first.fold.unique().tolist() == [0, 1, 2, 3, 4]
        torch.testing.assert_close(
            first.predictions.log_probs[order], second.predictions.log_probs, rtol=1e-6, atol=1e-6
        )
    assert len(set(zip(names, first.fold.tolist(), strict=True))) == 40, "the rows of a cluster share a fold"


def test_equal_rows_share_a_fold_so_that_learning_by_heart_gains_nothing() -> None:
    """Labels drawn by lot, every row ten times: folds that shared copies would make fine bins look good."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (60,), generator=generator)
    copies = cb.Predictions.from_logits(logits.repeat(10, 1), labels.repeat(10))
    by_heart = HistogramBinning.fit(copies, n_bins=60).fitted.nll_after
    found = cb.cross_fit(copies, "histogram", n_bins=60, folds=7)
    assert (found.fold.reshape(10, 60) == found.fold[:60]).all()
    assert by_heart is not None
    assert by_heart < 0.45
    assert cb.score(found.predictions).nll > 0.65


@pytest.mark.parametrize("sizes", [[1] * 5 + [1000] + [1] * 5, [1000, 1, 1], [1, 1, 1000], [3] * 30])
def test_no_fold_is_empty(sizes: list[int]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    rows = draw(len(groups), columns={"patient": groups})
    folds = min(5, len(sizes))
    fold = row_folds(rows, folds, "patient")
    assert torch.bincount(fold, minlength=folds).min() > 0
    assert all(len(fold[groups == group].unique()) == 1 for group in range(len(sizes)))


# Choice


@pytest.mark.parametrize("score", ["nll", "brier"])
def test_the_best_candidate_is_chosen_and_fitted_on_all_rows(score: str) -> None:
    rows, names = draw(600, 2.5), ("identity", "temperature", "histogram")
    calibrator, table = cb.choose(rows, names, score=score, folds=3)
    assert isinstance(calibrator, TemperatureScaling)
    assert calibrator.temperature == pytest.approx(TemperatureScaling.fit(rows).temperature, rel=1e-12)
    assert table[0].calibrator == "temperature"
    assert [row.calibrator for row in table if row.chosen] == ["temperature"]
    assert {row.calibrator for row in table} == set(names)
    scores = [row.score for row in table]
    assert scores == sorted(scores)
    for row in table:
        crossed = cb.score(cb.cross_fit(rows, row.calibrator, folds=3).predictions, metrics=[score])
        assert row.score == pytest.approx(getattr(crossed, score), rel=1e-6)
        assert row.difference == pytest.approx(row.score - table[0].score, abs=1e-12)
        assert row.standard_error > 0
        assert row.failure is None
    _, moved = cb.choose(permuted(rows, 1), names, score=score, folds=3)
    assert [row.calibrator for row in moved] == [row.calibrator for row in table]
    assert [row.score for row in moved] == pytest.approx(scores, rel=1e-6)


@pytest.mark.slow
def test_the_simplest_calibrator_within_one_standard_error_of_the_best_is_chosen() -> None:
    """Of a calibrated model, another than the identity is often the best by chance."""
    names = ("vector", "temperature", "identity")
    best, chosen = [], []
    for seed in range(10):
        rows = draw(150, 1.0, seed)
        calibrator, table = cb.choose(rows, names)
        scores = {name: nll_per_row(cb.cross_fit(rows, name).predictions).numpy() for name in names}
        best.append(table[0].calibrator)
        chosen.append(calibrator.name)
        assert best[-1] == min(scores, key=lambda name: scores[name].mean())
        differences = {name: scores[name] - scores[best[-1]] for name in ("identity", "temperature", "vector")}
        errors = {name: d.std(ddof=1) / len(d) ** 0.5 for name, d in differences.items()}
        assert chosen[-1] == next(name for name, d in differences.items() if d.mean() <= errors[name])
        for row in table:
            assert row.difference == pytest.approx(differences[row.calibrator].mean(), abs=1e-9)
            assert row.difference_error == pytest.approx(errors[row.calibrator], abs=1e-9)
            assert row.chosen == (row.calibrator == chosen[-1])
    assert best.count("identity") < 8
    assert chosen.count("identity") >= 9


def test_rows_of_a_cluster_are_neither_split_nor_independent() -> None:
    """Thirty patients with twenty nearly equal rows each: split, they make learning by heart look good."""
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(30, 3, generator=generator, dtype=torch.float64)
    labels = true.softmax(1).multinomial(1, generator=generator)[:, 0].repeat_interleave(20)
    noise = 0.01 * torch.randn(600, 3, generator=generator, dtype=torch.float64)
    patients = [f"patient {i // 20}" for i in range(600)]
    rows = cb.Predictions.from_logits(true.repeat_interleave(20, 0) + noise, labels, columns={"patient": patients})
    names = ("identity", "temperature", "histogram")
    split, table = cb.choose(rows, names)
    identity = next(row for row in table if row.calibrator == "identity")
    assert split.name == "histogram"
    assert identity.difference > 10 * identity.difference_error
    kept, table = cb.choose(rows, names, cluster="patient")
    assert kept.name == "identity"
    for row in table:
        scores = nll_per_row(cb.cross_fit(rows, row.calibrator, cluster="patient").predictions)
        means = scores.reshape(30, 20).mean(1)
        assert row.score == pytest.approx(float(means.mean()), rel=1e-9)
        assert row.standard_error == pytest.approx(float(means.std()) / 30**0.5, rel=1e-9)


def test_infinite_scores_are_never_as_good_as_finite_ones() -> None:
    rows = draw(100, 2.0)
    rows.logits[7, rows.labels[7]] = -torch.inf
    calibrator, table = cb.choose(rows, ("identity", "temperature", "isotonic_multiclass"))
    assert calibrator.name == "isotonic_multiclass"
    assert (table[1].calibrator, table[1].difference) == ("identity", torch.inf)
    assert cb.choose(rows, ("identity",))[0].name == "identity"


@pytest.mark.slow
def test_the_default_candidates() -> None:
    default = {name for name, cls in CALIBRATORS.items() if cls.default_candidate}
    assert {"identity", "temperature", "beta"} <= default
    for n_classes, wanted in ((2, default), (3, default - {"platt", "beta"})):
        _, table = cb.choose(draw(60, n_classes=n_classes), folds=2)
        assert {row.calibrator for row in table} == wanted


def test_a_candidate_that_fails_is_listed_last_with_its_reason() -> None:
    for rows, names, best in (
        (draw(200), ("platt", "temperature", "identity"), "temperature"),
        (always_correct(), ("temperature", "identity"), "identity"),
    ):
        calibrator, table = cb.choose(rows, names)
        assert calibrator.name == table[0].calibrator == best
        assert (table[-1].calibrator, table[-1].score) == (names[0], None)
        assert table[-1].failure
        with pytest.raises(NotConvergedError, match=names[0]):
            cb.choose(rows, names[:1])


# Comparison on test rows


KINDS = {"none": 1.5, "blur": 2.0, "fog": 3.0, "noise": 5.0}


def shifted(seed: int, n: int = 200, column: str = "corruption") -> cb.Predictions:
    parts = []
    for i, (name, temperature) in enumerate(KINDS.items()):
        parts.append(draw(n, temperature, 10 * seed + i, columns={column: [name] * n, "severity": [i] * n}))
    return cb.Predictions.concat(parts)


def test_a_comparison_scores_each_calibrator_makes_of_the_test_rows() -> None:
    validation, test, names = draw(400), draw(300, seed=1), ["identity", "temperature", "platt", "vector"]
    steps: list[str] = []
    rows = cb.compare_calibrators(validation, test, names, progress=steps.append)
    assert [row.calibrator for row in rows] == steps == names
    for row in rows:
        assert (row.group, row.overall, row.n_rows) == (None, True, 300)
        if row.calibrator == "platt":
            assert row.failure is not None
            assert "3" in row.failure
            continue
        card = cb.score(CALIBRATORS[row.calibrator].fit(validation)(test))
        assert row.values == pytest.approx({"nll": card.nll, "ece": card.ece}, abs=1e-6)
        assert set(row.intervals) == {"nll", "ece"}
        low, high = row.intervals["nll"]
        assert low < card.nll < high
    [found] = cb.compare_calibrators(validation, validation, ["temperature"], allow_same_rows=True)
    assert found.values["nll"] == pytest.approx(TemperatureScaling.fit(validation).fitted.nll_after, rel=1e-6)


@pytest.mark.parametrize("column", ["corruption", "kind"])
def test_calibrators_of_corrupted_rows_never_see_the_type_that_they_are_tested_on(column: str) -> None:
    validation, test = shifted(1, column=column), shifted(2, column=column)
    names = ["perturbed_temperature", "temperature"]
    rows = cb.compare_calibrators(validation, test, names, by=column, shift=column, metrics=("nll", "brier"))
    found = {(row.calibrator, row.group): row.values for row in rows}
    clean = TemperatureScaling.fit(validation.where(**{column: "none"}))
    for kind in KINDS:
        part = test.where(**{column: kind})
        assert found["temperature", kind]["brier"] == pytest.approx(cb.score(clean(part)).brier, rel=1e-6)
        others = [other for other in KINDS if other != kind or kind == "none"]
        calibrator = PerturbedTemperature.fit(validation.where(**{column: others}), shift=column)
        assert found["perturbed_temperature", kind]["nll"] == pytest.approx(cb.score(calibrator(part)).nll, rel=1e-6)
    with pytest.raises(CalibrantError, match="types of corruption other than noise, which test has"):
        LeaveOneShiftOut(validation.where(**{column: ["none", "noise"]}), shift=column).calibrate(names[0], part)
    informed = PerturbedTemperature.fit(validation, shift=column)
    assert abs(cb.score(informed(part)).nll - cb.score(calibrator(part)).nll) > 1e-4


def test_each_type_is_fitted_once_unless_the_fit_needs_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fits, exact = LeaveOneShiftOut(shifted(1)), TemperatureScaling.fit
    count = dict.fromkeys(("temperature", "perturbed_temperature", "transcal"), 0)
    for name in count:

        def counting_fit(rows: cb.Predictions, *, name: str = name, **options: Any) -> Calibrator:
            count[name] += 1
            return exact(rows)

        monkeypatch.setattr(CALIBRATORS[name], "fit", counting_fit)
    for seed in (2, 3):
        for kind in KINDS:
            for name in count:
                fits.calibrate(name, shifted(seed).where(corruption=kind))
    assert count == {"temperature": 1, "perturbed_temperature": len(KINDS), "transcal": 2 * len(KINDS)}
    with pytest.raises(CalibrantError, match="allow_same_rows"):
        fits.check_disjoint(shifted(1).where(corruption="fog"))


# Refusals


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        *(("cross_fit", {"folds": folds}, f"folds.*{folds}") for folds in (1, 0, 101, 2.5)),
        ("cross_fit", {"calibrator": "temprature"}, "temprature.*did you mean 'temperature'"),
        ("cross_fit", {"cluster": "patient"}, "patient"),
        ("choose", {"cluster": "patient"}, "patient"),
        ("choose", {"score": "ece"}, "ece"),
        ("choose", {"candidates": ("identity", "vectr")}, "vectr"),
        ("choose", {"candidates": ()}, "candidates"),
        ("choose", {"folds": 1}, "folds.*1"),
        ("compare", {"calibrators": ["temprature"]}, "temprature"),
        ("compare", {"metrics": ["ecee"]}, "ecee"),
        ("compare", {"by": "site"}, "site"),
        ("compare", {"test": draw(100)[:50]}, "allow_same_rows=True"),
        (
            "compare",
            {"test": cb.Predictions.from_logits(torch.zeros(9, 7), [0] * 9)},
            "test must have the 3 classes.*7",
        ),
        ("compare", {"test": cb.Predictions.from_logits(draw(50, seed=1).logits)}, "labels"),
    ],
    ids=str,
)
def test_refusals(function: str, options: dict[str, Any], message: str) -> None:
    rows, test = draw(100), draw(50, seed=1)
    call = cb.compare_calibrators if function == "compare" else getattr(cb, function)
    given = ({"test": test, "calibrators": ["identity"]} if function == "compare" else {}) | options
    with pytest.raises(CalibrantError, match=message):
        call(rows, **given)
    with pytest.raises(CalibrantError, match="labels"):
        call(cb.Predictions.from_logits(rows.logits), **(given | {"test": test} if function == "compare" else {}))


# Features that come later


def test_features_may_be_added_later() -> None:
    rows = draw(20, columns={"site": ["A"] * 20}, metadata={"seed": 1}, class_names=["x", "y", "z"])
    features = torch.randn(20, 7, generator=torch.Generator().manual_seed(0))
    found = rows.with_features(features)
    assert rows.features is None
    assert torch.equal(found.features, features.half())
    assert found.fingerprint == rows.fingerprint
    assert found.columns.select(["site"]).equals(rows.columns)
    assert (found.class_names, dict(found.metadata)) == (("x", "y", "z"), {"seed": 1})
    assert found.with_features(features[:, :2].numpy()).features.shape == (20, 2)
    with pytest.raises(CalibrantError, match=r"features.*20.*19"):
        rows.with_features(torch.ones(19, 3))
    features[4, 1] = float("nan")
    with pytest.raises(CalibrantError, match=r"features.*nan.*row 4"):
        rows.with_features(features)
