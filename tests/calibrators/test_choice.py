"""Choosing a calibrator: folds, cross-fitting, the table of candidates, and the comparison on test rows."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import calibrant as cb
from calibrant.calibrators import HistogramBinning, PerturbedTemperature, TemperatureScaling, VectorScaling
from calibrant.errors import CalibrantError, InvalidInputError, NotConvergedError


def draw(n: int, temperature: float = 2.5, seed: int = 0, *, n_classes: int = 3, **options: Any) -> cb.Predictions:
    generator = torch.Generator().manual_seed(seed)
    honest = 2 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    labels = honest.softmax(1).multinomial(1, generator=generator)[:, 0]
    return cb.Predictions.from_logits(honest * temperature, labels, **options)


def always_right(n: int = 60) -> cb.Predictions:
    rows = draw(n)
    return cb.Predictions.from_logits(rows.logits, rows.logits.argmax(1))


def shuffled(rows: cb.Predictions, seed: int = 0) -> tuple[cb.Predictions, torch.Tensor]:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order], order


# Cross-fitting


@pytest.mark.parametrize(
    ("method", "options"), [("temperature", {}), ("vector", {"strength": 2.0}), ("histogram", {"n_bins": 4})]
)
def test_each_row_is_mended_by_the_fit_of_the_other_folds(method: str, options: dict[str, Any]) -> None:
    rows = draw(400, columns={"number": list(range(400))})
    found = cb.cross_fit(rows, method, folds=4, **options)
    assert torch.equal(found.predictions.labels, rows.labels)
    assert found.predictions.column("number").to_pylist() == list(range(400))
    assert found.fold.dtype == torch.int64
    assert found.fold.shape == (400,)
    assert sorted(set(found.fold.tolist())) == [0, 1, 2, 3]
    for fold in range(4):
        held_out = found.fold == fold
        assert 40 <= int(held_out.sum()) <= 160
        calibrator = cb.CALIBRATORS[method].fit(rows[~held_out], **options)
        wanted = calibrator(rows[held_out]).log_probs()
        torch.testing.assert_close(found.predictions[held_out].log_probs(), wanted, rtol=1e-9, atol=1e-9)


def test_the_calibrator_of_a_cross_fit_is_that_of_all_rows() -> None:
    rows = draw(400)
    found = cb.cross_fit(rows)
    assert isinstance(found.calibrator, TemperatureScaling)
    assert found.calibrator.temperature == pytest.approx(TemperatureScaling.fit(rows).temperature, rel=1e-12)
    assert found.calibrator.fitted.n_rows == 400
    assert len(set(found.fold.tolist())) == 5
    binned = cb.cross_fit(rows, "histogram", n_bins=3)
    new = draw(50, seed=1)
    torch.testing.assert_close(binned.calibrator(new).logits, HistogramBinning.fit(rows, n_bins=3)(new).logits)


def test_folds_do_not_depend_on_the_order_of_rows() -> None:
    rows = draw(300)
    moved, order = shuffled(rows)
    first, second = cb.cross_fit(rows), cb.cross_fit(moved)
    assert torch.equal(first.fold[order], second.fold)
    torch.testing.assert_close(
        first.predictions.log_probs()[order], second.predictions.log_probs(), rtol=1e-6, atol=1e-6
    )


def test_equal_rows_share_a_fold() -> None:
    rows = draw(120)
    copies, _ = shuffled(rows[[i % 120 for i in range(360)]], seed=1)
    fold = cb.cross_fit(copies, folds=3).fold.tolist()
    seen: dict[tuple[float, ...], set[int]] = {}
    for logits, label, number in zip(copies.logits.tolist(), copies.labels.tolist(), fold, strict=True):
        seen.setdefault((*logits, label), set()).add(number)
    assert len(seen) == 120
    assert {len(numbers) for numbers in seen.values()} == {1}
    assert len(set(fold)) == 3


@pytest.mark.parametrize("names", [[f"patient {i}" for i in range(40)], list(range(40))], ids=["words", "numbers"])
def test_rows_of_one_group_share_a_fold(names: Sequence[object]) -> None:
    rows = draw(400, columns={"patient": [names[i % 40] for i in range(400)]})
    found = cb.cross_fit(rows, by="patient")
    folds: dict[object, set[int]] = {}
    for name, number in zip(rows.column("patient").to_pylist(), found.fold.tolist(), strict=True):
        folds.setdefault(name, set()).add(number)
    assert len(folds) == 40
    assert {len(numbers) for numbers in folds.values()} == {1}
    assert len(set(found.fold.tolist())) == 5
    moved, order = shuffled(rows)
    assert torch.equal(cb.cross_fit(moved, by="patient").fold, found.fold[order])


def test_a_map_that_learns_rows_by_heart_gains_nothing_by_copies() -> None:
    """Labels drawn by lot, every row ten times: folds that shared copies would make fine bins look good."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (60,), generator=generator)
    copies = cb.Predictions.from_logits(logits.repeat(10, 1), labels.repeat(10))
    by_heart = HistogramBinning.fit(copies, n_bins=60).fitted.nll_after
    honest = cb.score(cb.cross_fit(copies, "histogram", n_bins=60).predictions).nll
    assert by_heart < 0.45
    assert honest > 0.65


@pytest.mark.parametrize(
    ("folds", "message"), [(1, "folds.*1"), (0, "folds.*0"), (21, "folds.*21"), (2.5, "folds.*2.5")]
)
def test_a_bad_number_of_folds_is_refused(folds: int, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        cb.cross_fit(draw(20), folds=folds)


def test_other_refusals_of_cross_fit() -> None:
    rows = draw(100)
    with pytest.raises(CalibrantError, match=r"temprature.*did you mean 'temperature'"):
        cb.cross_fit(rows, "temprature")
    with pytest.raises(CalibrantError, match="patient"):
        cb.cross_fit(rows, by="patient")
    with pytest.raises(InvalidInputError, match="labels"):
        cb.cross_fit(cb.Predictions.from_logits(rows.logits))


# Choice


def test_the_best_candidate_is_chosen_and_fitted_on_all_rows() -> None:
    rows = draw(800)
    found = cb.choose(rows, ("identity", "temperature", "histogram"))
    assert found.method == "temperature"
    assert isinstance(found.calibrator, TemperatureScaling)
    assert found.calibrator.temperature == pytest.approx(TemperatureScaling.fit(rows).temperature, rel=1e-12)
    assert found.table[0].method == "temperature"
    assert {row.method for row in found.table} == {"identity", "temperature", "histogram"}
    scores = [row.score for row in found.table]
    assert scores == sorted(scores)
    assert all(row.standard_error > 0 and row.failure is None for row in found.table)
    for row in found.table:
        wanted = cb.score(cb.cross_fit(rows, row.method).predictions).nll
        assert row.score == pytest.approx(wanted, rel=1e-6)
    assert cb.score(rows).nll == pytest.approx(next(r.score for r in found.table if r.method == "identity"), rel=1e-6)


def test_the_brier_score_may_decide() -> None:
    rows = draw(600)
    found = cb.choose(rows, ["identity", "temperature"], by="brier", folds=3)
    assert found.method == "temperature"
    wanted = cb.score(cb.cross_fit(rows, "temperature", folds=3).predictions).brier
    assert found.table[0].score == pytest.approx(wanted, rel=1e-6)


def test_candidates_may_be_left_out() -> None:
    found = cb.choose(draw(250), folds=2)
    assert found.method != "identity"
    assert {"identity", "temperature"} <= {row.method for row in found.table}


def test_the_choice_does_not_depend_on_the_order_of_rows() -> None:
    rows = draw(300, temperature=1.2)
    names = ("identity", "temperature", "vector")
    first, second = cb.choose(rows, names, folds=2), cb.choose(shuffled(rows)[0], names, folds=2)
    assert [row.method for row in first.table] == [row.method for row in second.table]
    assert [row.score for row in first.table] == pytest.approx([row.score for row in second.table], rel=1e-6)


def test_a_candidate_that_fails_is_listed_last_with_its_reason() -> None:
    found = cb.choose(draw(200), ("platt", "temperature", "identity"))
    assert found.method == "temperature"
    last = found.table[-1]
    assert (last.method, last.score) == ("platt", None)
    assert "3" in last.failure
    found = cb.choose(always_right(), ("temperature", "identity"))
    assert found.method == "identity"
    assert found.table[-1].method == "temperature"
    assert found.table[-1].score is None
    assert found.table[-1].failure


def test_no_candidate_that_works_is_an_error() -> None:
    with pytest.raises(NotConvergedError, match="temperature"):
        cb.choose(always_right(), ("temperature",))
    with pytest.raises(NotConvergedError, match="platt"):
        cb.choose(draw(100), ("platt", "beta"))


def test_refusals_of_the_choice() -> None:
    rows = draw(100)
    with pytest.raises(CalibrantError, match="ece"):
        cb.choose(rows, ("identity",), by="ece")
    with pytest.raises(CalibrantError, match="vectr"):
        cb.choose(rows, ("identity", "vectr"))
    with pytest.raises(InvalidInputError, match="candidates"):
        cb.choose(rows, ())
    with pytest.raises(InvalidInputError, match=r"folds.*1"):
        cb.choose(rows, ("identity",), folds=1)


# Comparison on test rows


def shifted(seed: int, n: int = 200) -> cb.Predictions:
    parts = []
    for i, (name, temperature) in enumerate({"none": 1.5, "blur": 2.0, "fog": 3.0, "noise": 5.0}.items()):
        parts.append(draw(n, temperature, 10 * seed + i, columns={"corruption": [name] * n, "severity": [i] * n}))
    return cb.Predictions.concat(parts)


def test_a_comparison_scores_what_each_method_makes_of_the_test_rows() -> None:
    validation, test = draw(400), draw(300, seed=1)
    rows = cb.compare_calibrators(validation, test, ["identity", "temperature", "vector"])
    assert [row.method for row in rows] == ["identity", "temperature", "vector"]
    assert all((row.group, row.n_rows, row.failure) == (None, 300, None) for row in rows)
    by_name = {row.method: row for row in rows}
    for name, calibrated in {
        "identity": test,
        "temperature": TemperatureScaling.fit(validation)(test),
        "vector": VectorScaling.fit(validation)(test),
    }.items():
        card = cb.score(calibrated)
        assert by_name[name].values == pytest.approx({"nll": card.nll, "ece": card.ece}, abs=1e-6)
        assert set(by_name[name].intervals) == {"nll", "ece"}
        low, high = by_name[name].intervals["nll"]
        assert low < by_name[name].values["nll"] < high


def test_a_comparison_by_groups_and_other_metrics() -> None:
    validation, test = shifted(1), shifted(2)
    rows = cb.compare_calibrators(validation, test, ["temperature"], by="severity", metrics=("brier",))
    calibrated = TemperatureScaling.fit(validation.where(corruption="none"))(test)
    found = {row.group: row for row in rows}
    assert {0, 1, 2, 3} <= set(found)
    for severity in range(4):
        part = calibrated.where(severity=severity)
        assert found[severity].n_rows == 200
        assert found[severity].values == pytest.approx({"brier": cb.score(part).brier}, abs=1e-6)


def test_methods_of_corrupted_rows_never_see_the_type_that_they_are_tested_on() -> None:
    validation, test = shifted(1), shifted(2)
    rows = cb.compare_calibrators(validation, test, ["perturbed_temperature", "temperature"], by="corruption")
    found = {(row.method, row.group): row.values["nll"] for row in rows}
    for name in ("blur", "fog", "noise"):
        others = [other for other in ("none", "blur", "fog", "noise") if other != name]
        calibrator = PerturbedTemperature.fit(validation.where(corruption=others))
        wanted = cb.score(calibrator(test.where(corruption=name))).nll
        assert found["perturbed_temperature", name] == pytest.approx(wanted, rel=1e-6)
        informed = PerturbedTemperature.fit(validation)
        assert abs(cb.score(informed(test.where(corruption=name))).nll - wanted) > 1e-4


def test_a_comparison_may_name_another_column_of_types() -> None:
    validation, test = shifted(1), shifted(2)
    renamed = [
        cb.Predictions.from_logits(rows.logits, rows.labels, columns={"kind": rows.column("corruption")})
        for rows in (validation, test)
    ]
    rows = cb.compare_calibrators(*renamed, ["perturbed_temperature"], by="kind", shift="kind")
    calibrator = PerturbedTemperature.fit(validation.where(corruption=["none", "blur", "fog"]))
    wanted = cb.score(calibrator(test.where(corruption="noise"))).nll
    assert next(row.values["nll"] for row in rows if row.group == "noise") == pytest.approx(wanted, rel=1e-6)


def test_a_method_that_fails_has_a_row_with_its_reason() -> None:
    rows = cb.compare_calibrators(draw(100), draw(100, seed=1), ["platt", "identity"])
    found = {row.method: row for row in rows}
    assert "3" in found["platt"].failure
    assert found["identity"].failure is None


def test_test_rows_of_other_classes_are_a_failure_of_every_method() -> None:
    rows = cb.compare_calibrators(draw(100), draw(50, seed=1, n_classes=4), ["temperature", "vector"])
    assert [row.method for row in rows] == ["temperature", "vector"]
    assert all("3" in row.failure and "4" in row.failure for row in rows)


def test_all_methods_are_compared_unless_told() -> None:
    rows = cb.compare_calibrators(draw(200, n_classes=2), draw(100, seed=1, n_classes=2), metrics=["nll"])
    names = [row.method for row in rows]
    assert len(names) == len(set(names))
    assert {"identity", "temperature", "platt", "beta", "histogram", "isotonic"} <= set(names) <= set(cb.CALIBRATORS)
    found = {row.method: row for row in rows}
    assert found["temperature"].values["nll"] < found["identity"].values["nll"]


def test_test_rows_that_were_fitted_on_are_refused() -> None:
    rows = draw(200)
    with pytest.raises(InvalidInputError, match="allow_same_rows=True"):
        cb.compare_calibrators(rows, rows[:100], ["temperature"])
    [found] = cb.compare_calibrators(rows, rows, ["temperature"], allow_same_rows=True)
    assert found.values["nll"] == pytest.approx(TemperatureScaling.fit(rows).fitted.nll_after, rel=1e-6)


def test_refusals_of_the_comparison() -> None:
    rows, test = draw(100), draw(50, seed=1)
    with pytest.raises(CalibrantError, match="temprature"):
        cb.compare_calibrators(rows, test, ["temprature"])
    with pytest.raises(CalibrantError, match="ecee"):
        cb.compare_calibrators(rows, test, ["identity"], metrics=["ecee"])
    with pytest.raises(CalibrantError, match="site"):
        cb.compare_calibrators(rows, test, ["identity"], by="site")
    with pytest.raises(InvalidInputError, match="labels"):
        cb.compare_calibrators(rows, cb.Predictions.from_logits(test.logits), ["identity"])


# Features that come later


def test_features_may_be_added_later() -> None:
    rows = draw(20, columns={"site": ["A"] * 20}, metadata={"seed": 1}, class_names=["x", "y", "z"])
    features = torch.randn(20, 7, generator=torch.Generator().manual_seed(0))
    found = rows.with_features(features)
    assert rows.features is None
    assert found.features is not None
    torch.testing.assert_close(found.features, features.half())
    assert torch.equal(found.logits, rows.logits)
    assert torch.equal(found.labels, rows.labels)
    assert found.fingerprint == rows.fingerprint
    assert found.column("site").to_pylist() == ["A"] * 20
    assert (found.class_names, dict(found.metadata)) == (("x", "y", "z"), {"seed": 1})
    replaced = found.with_features(features[:, :2].numpy())
    assert replaced.features is not None
    assert replaced.features.shape == (20, 2)


def test_features_of_other_rows_are_refused() -> None:
    rows = draw(20)
    with pytest.raises(InvalidInputError, match=r"features.*20.*19"):
        rows.with_features(torch.ones(19, 3))
    features = torch.ones(20, 3)
    features[4, 1] = float("nan")
    with pytest.raises(InvalidInputError, match=r"features.*nan.*row 4"):
        rows.with_features(features)
