"""Prediction sets: slow definitions, coverage by simulation, MAPIE and crepes, files, modules and refusals."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom, binom
from torch import Tensor

import calibrant as cb
from calibrant._arrays import uniforms
from calibrant.calibrators import TemperatureScaling
from calibrant.calibrators.importance import MIN_EFFECTIVE_ROWS, DensityRatio
from calibrant.decisions import SET_METHODS, ConformalSets, ConformityScore
from calibrant.decisions.prediction_sets import WeightedQuantile, conformal_quantile, min_rows
from calibrant.decisions.set_methods import descending_order
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, NotConvergedError, UnknownNameError
from made.calibrator_check import torch_may_deprecate
from made.calibrator_data import generator_of, permuted

OPTIONS: dict[str, dict[str, Any]] = {
    "lac": {"method": "lac"},
    "aps": {"method": "aps"},
    "raps": {"method": "raps", "penalty": 0.05, "k_reg": 1},
    "randomized aps": {"method": "aps", "randomized": True, "seed": 3},
    "randomized raps": {"method": "raps", "randomized": True, "penalty": 0.05, "k_reg": 1},
}


def draw(
    n: int, k: int = 5, seed: int = 0, *, scale: float = 1.5, wrong: float = 1.0, **options: Any
) -> cb.Predictions:
    """Labels of the probabilities softmax(z), predictions of the logits wrong · z, both in float32."""
    generator = generator_of(seed)
    logits = scale * torch.randn(n, k, generator=generator)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    return cb.Predictions.from_logits(wrong * logits, labels, **options)


def sets_of(rows: cb.Predictions) -> list[list[int]]:
    return rows.column("prediction_set").to_pylist()


def held(rows: cb.Predictions) -> np.ndarray:
    return np.array([label in found for label, found in zip(rows.labels.tolist(), sets_of(rows), strict=True)])


def slow_scores(logits: list[float], u: float, score: ConformityScore) -> dict[int, float]:
    """The score of each class, the most probable first, from the definition."""
    weights = [math.exp(z - max(logits)) for z in logits]
    probs = [w / sum(weights) for w in weights]
    found, before = {}, 0.0
    for rank, label in enumerate(sorted(range(len(probs)), key=lambda j: (-logits[j], j)), start=1):
        found[label] = 1 - probs[label] if score.method == "lac" else before + (1 - u) * probs[label]
        if score.method == "raps":
            assert score.penalty is not None
            assert score.k_reg is not None
            found[label] += score.penalty * max(0, rank - score.k_reg)
        before += probs[label]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
@given(
    logits=st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=10, max_size=30),
    labels=st.lists(st.integers(0, 2), min_size=30, max_size=30),
    coverage=st.sampled_from([0.5, 0.8, 0.9]),
)
def test_sets_are_those_of_the_definition(
    name: str, logits: list[list[int]], labels: list[int], coverage: float
) -> None:
    rows = cb.Predictions.from_logits([[z / 2 for z in row] for row in logits], labels[: len(logits)])
    sets = ConformalSets.fit(rows, coverage=coverage, **OPTIONS[name])
    u = uniforms(rows.row_hashes[0], sets.score.seed).tolist() if sets.score.randomized else [1.0] * len(rows)
    scores = [slow_scores(row, v, sets.score) for row, v in zip(rows.logits.tolist(), u, strict=True)]
    own = sorted(score[label] for score, label in zip(scores, labels, strict=False))
    rank = next(r for r in range(1, len(own) + 1) if Fraction(r, len(own) + 1) >= Fraction(str(coverage)))
    (threshold,) = sets.thresholds.tolist()
    assert threshold == pytest.approx(own[rank - 1], abs=1e-12)
    found = sets_of(sets(rows, allow_same_rows=True))
    for score, row in zip(scores, found, strict=True):
        near = {label for label, value in score.items() if abs(value - threshold) < 1e-9}
        assert [label for label, value in score.items() if value <= threshold or label in near] == [
            label for label in score if label in row or label in near
        ]
    covered = sum(label in row for label, row in zip(labels, found, strict=False))
    assert covered >= rank  # equal scores are in, to the last bit


def test_order_of_rows_and_of_classes_of_equal_logits() -> None:
    logits = torch.tensor([[0.0, -0.0, 1.0, -math.inf, -2.5, 1.0]])
    assert descending_order(logits).tolist() == [[2, 5, 0, 1, 4, 3]]
    random = torch.randn(200, 17, generator=generator_of(0)).round(decimals=1)
    assert torch.equal(descending_order(random), random.sort(dim=1, descending=True, stable=True).indices)


def test_quantile_is_exact_and_needs_enough_rows() -> None:
    scores = torch.arange(1.0, 100.0)
    for percent in range(1, 100):
        assert conformal_quantile(scores, percent / 100) == percent  # the rank (n + 1) · c, without rounding errors
    assert [min_rows(coverage) for coverage in (0.5, 0.9, 0.95, 0.99)] == [1, 9, 19, 99]
    rows = draw(19)
    assert float(ConformalSets.fit(rows, coverage=0.95).thresholds) == float(
        ConformityScore.of("aps").of_labels(rows).max()
    )
    with pytest.raises(InvalidInputError, match=r"at least 19 rows for coverage 0.95: it has 18"):
        ConformalSets.fit(rows[:18], coverage=0.95)


# Coverage: each run is a group, so that one fit and one call simulate them all


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("n", "coverage"), [(9, 0.9), (30, 0.8)])
def test_coverage_over_draws_of_validation(name: str, n: int, coverage: float) -> None:
    """Exact for scores without ties; APS and RAPS without random numbers may exceed it, by the score 0 alone."""
    runs, m = 2000, 10
    validation = draw(runs * n, wrong=2.0, seed=1, columns={"run": np.repeat(np.arange(runs), n)})
    test = draw(runs * m, wrong=2.0, seed=2, columns={"run": np.repeat(np.arange(runs), m)})
    sets = ConformalSets.fit(validation, coverage=coverage, by="run", **OPTIONS[name])
    covered = held(sets(test)).mean()
    rank = math.ceil((n + 1) * Fraction(str(coverage)))
    law = betabinom(m, rank, n + 1 - rank)
    chance = 4 * law.std() / m / math.sqrt(runs)
    assert covered >= law.mean() / m - chance
    if sets.score.randomized or name == "lac":
        assert covered <= law.mean() / m + chance


def test_a_model_more_accurate_than_the_coverage_has_sets_that_hold_more() -> None:
    """Without random numbers they are single classes, and none is empty; with them the coverage is exact."""
    validation, test = (draw(20_000, scale=6.0, seed=seed) for seed in (1, 2))
    accuracy = cb.score(test).accuracy
    plain, exact = (ConformalSets.fit(validation, coverage=0.7, randomized=r)(test) for r in (False, True))
    assert {len(found) for found in sets_of(plain)} == {1}
    assert held(plain).mean() == pytest.approx(accuracy)
    assert accuracy > 0.8
    assert held(exact).mean() == pytest.approx(0.7, abs=0.02)
    assert min(map(len, sets_of(exact))) == 0


def test_coverage_in_each_class_and_group() -> None:
    """Of a model that prefers class 0: marginal sets fail class 1, class-conditional ones hold in each."""

    def biased(n: int, seed: int) -> cb.Predictions:
        rows = draw(n, 3, seed, columns={"site": ["A", "B"] * (n // 2)})
        return replace(rows, logits=rows.logits + torch.tensor([2.0, -1.0, 0.0]))

    validation, test = biased(6000, 1), biased(20_000, 2)
    for by, lowest in ((None, 0.0), ("class", 0.85)):
        found = cb.score_sets(ConformalSets.fit(validation, by=by, method="lac")(test))
        worst = found.worst_class[1].value
        assert worst > lowest
        assert (worst < 0.85) == (by is None)
    thresholds = ConformalSets.fit(validation, by="class", method="lac").thresholds
    for label in range(3):
        alone = ConformalSets.fit(validation[validation.labels == label], method="lac").thresholds
        assert thresholds[label] == alone
    by_site = ConformalSets.fit(validation, by="site")
    expected = [float(ConformalSets.fit(validation.where(site=site)).thresholds) for site in "AB"]
    assert by_site.thresholds.tolist() == expected
    parts = [ConformalSets.fit(validation.where(site=site))(test.where(site=site)) for site in "AB"]
    assert sets_of(by_site(test).where(site="B")) == sets_of(parts[1])


def test_known_weights_restore_the_coverage_under_covariate_shift() -> None:
    """Tibshirani et al.: inputs N(0, 1) at validation and N(1, 1) at test; the noise of the score grows with them."""
    runs, n, m, coverage = 400, 60, 20, 0.8
    generator = generator_of(0)
    x = torch.randn(runs, n, generator=generator, dtype=torch.float64)
    y = torch.randn(runs, m, generator=generator, dtype=torch.float64) + 1
    scores, new = ((values.exp() * torch.randn(values.shape, generator=generator).abs()) for values in (x, y))
    weights, of_new = (x - 0.5).exp(), (y - 0.5).exp()
    ratio = DensityRatio(torch.zeros(1, dtype=torch.float64), 0.0, of_features=True)
    weighted = plain = 0.0
    for run in range(runs):
        quantile = WeightedQuantile.of(scores[run], weights[run], ratio)
        weighted += (new[run] <= quantile(of_new[run], coverage)).sum().item()
        plain += (new[run] <= conformal_quantile(scores[run], coverage)).sum().item()
    assert plain / (runs * m) < 0.7
    assert binom.ppf(0.001, runs * m // 5, coverage) <= weighted / 5  # rows of a run share a threshold
    assert weighted / (runs * m) < coverage + 0.05
    equal = WeightedQuantile.of(scores[0], torch.ones_like(scores[0]), ratio)
    assert float(equal(torch.ones(1), coverage)) == conformal_quantile(scores[0], coverage)
    assert equal(torch.tensor([1e9, math.inf]), coverage).tolist() == [math.inf, math.inf]


def covariate(n: int, centre: float, seed: int, *, features: bool = True) -> cb.Predictions:
    """The larger the feature, the more overconfident the model."""
    place = torch.randn(n, 1, generator=generator_of(seed)) + centre
    rows = draw(n, 6, seed + 1)
    logits = rows.logits * (1 + place.clamp(-2, 2).exp())
    return cb.Predictions.from_logits(logits, rows.labels, features=place if features else None)


@pytest.mark.parametrize("method", SET_METHODS)
def test_weights_of_a_target_restore_the_coverage(method: str) -> None:
    validation, target, test = covariate(4000, 0.0, 1), covariate(4000, 1.0, 3), covariate(8000, 1.0, 5)
    plain = cb.score_sets(ConformalSets.fit(validation, method=method)(test))
    sets = ConformalSets.fit(validation, method=method, target=target)
    weighted = cb.score_sets(sets(test))
    assert plain.coverage.value < 0.87
    assert weighted.coverage.value == pytest.approx(0.9, abs=0.02)
    assert sets.weighted is not None
    assert MIN_EFFECTIVE_ROWS < sets.effective_rows < 4000
    again = ConformalSets.fit(permuted(validation, 1), method=method, target=permuted(target, 2))
    assert sets_of(again(test)) == sets_of(sets(test))


# Batches, files, modules


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("by", [None, "class", "site"])
def test_sets_of_rows_do_not_depend_on_the_others_and_are_the_same_after_a_file(
    name: str, by: str | None, tmp_path: Any
) -> None:
    validation, test = (draw(300, seed=seed, columns={"site": ["A", "B"] * 150}) for seed in (1, 2))
    sets = ConformalSets.fit(validation, by=by, **OPTIONS[name])
    found = sets(test)
    order = torch.randperm(300, generator=generator_of(0))
    parts = cb.Predictions.concat([sets(test[order[:7]]), sets(test[order[7:]])])
    assert sets_of(parts) == [sets_of(found)[row] for row in order]
    sets.save(tmp_path / "sets.json")
    loaded = ConformalSets.load(tmp_path / "sets.json")
    assert loaded.summary() == sets.summary()
    test.save(tmp_path / "test.parquet")
    again = loaded(cb.Predictions.load(tmp_path / "test.parquet"))
    assert sets_of(again) == sets_of(found)
    again.save(tmp_path / "sets.parquet")
    assert sets_of(cb.Predictions.load(tmp_path / "sets.parquet")) == sets_of(found)
    assert again.metadata["prediction_sets"] == found.metadata["prediction_sets"]
    double = replace(test, logits=test.logits.double())
    assert sets_of(sets(double)) == sets_of(found)
    assert sets_of(sets(test[:0])) == []
    assert sets_of(sets(replace(test, labels=torch.full_like(test.labels, -1)))) == sets_of(found)
    other = replace(sets, score=replace(sets.score, seed=99))
    assert (sets_of(other(test)) == sets_of(found)) == (not sets.score.randomized)


def test_weighted_sets_survive_a_file(tmp_path: Any) -> None:
    validation, target = covariate(500, 0.0, 1), covariate(500, 1.0, 3)
    sets = ConformalSets.fit(validation, target=target)
    sets.save(tmp_path / "w.json")
    assert sets_of(ConformalSets.load(tmp_path / "w.json")(target)) == sets_of(sets(target))
    assert "weighted" in repr(sets)


@pytest.mark.parametrize("method", SET_METHODS)
@pytest.mark.parametrize("by", [None, "class"])
def test_modules_script_and_export_with_the_same_sets(method: str, by: str | None) -> None:
    validation, test = draw(400, seed=1), draw(200, seed=2)
    sets = ConformalSets.fit(validation, method=method, by=by)
    module = sets.module()
    mask = module(test.logits)
    assert [set(row.nonzero()[:, 0].tolist()) for row in mask] == list(map(set, sets_of(sets(test))))
    example = test.logits[:3]
    exported = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("n")},)).module()
    with torch_may_deprecate():
        scripted = torch.jit.script(module)
    for other in (scripted, exported):
        assert torch.equal(other(test.logits), mask)
    huge = torch.tensor([[1e300, 1e300 - 1e285, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert torch.equal(module(huge), module(torch.tensor([[0.0, -1e30, -1e30, -1e30, -1e30]])))
    with pytest.raises(InvalidInputError, match=r"shape \(n, 5\), got \[2, 4\]"):
        module(torch.zeros(2, 4))


# MAPIE and crepes


class Known(np.random.RandomState):
    """Random numbers that were drawn before, for scores (n,) and for sets (n, 1)."""

    def __init__(self, *draws: Tensor) -> None:
        super().__init__(0)
        self.draws = [values.numpy() for values in draws]

    def uniform(self, *_: Any, size: Any = None, **__: Any) -> Any:
        return self.draws.pop(0).reshape(size)


def mapie(
    method: str, rows: cb.Predictions, test: cb.Predictions, coverage: float, *u: Tensor, last: Any = True
) -> Any:
    """MAPIE's classifier, and its sets as a mask, of a model whose inputs are its probabilities."""
    from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Given(ClassifierMixin, BaseEstimator):
        def fit(self, probs: np.ndarray, _: Any) -> "Given":
            self.classes_ = np.arange(probs.shape[1])
            return self

        def predict_proba(self, probs: np.ndarray) -> np.ndarray:
            return probs

        def predict(self, probs: np.ndarray) -> np.ndarray:
            return probs.argmax(1)

    seen, new = (part.logits.double().softmax(1).numpy() for part in (rows, test))
    fitted = Given().fit(seen, None)
    options = {"confidence_level": coverage, "conformity_score": method, "random_state": Known(*u) if u else 0}
    found = SplitConformalClassifier(fitted, **options).conformalize(seen, rows.labels.numpy())
    if u:  # it draws more numbers from a copy, as scikit-learn does
        found._mapie_classifier.conformity_score_function_.random_state = Known(*u[1:])
    _, masks = found.predict_set(new, conformity_score_params={"include_last_label": last})
    return found, masks[:, :, 0]


def as_mask(rows: cb.Predictions) -> np.ndarray:
    mask = np.zeros(rows.logits.shape, dtype=bool)
    for row, found in zip(mask, sets_of(rows), strict=True):
        row[found] = True
    return mask


@pytest.mark.parametrize("coverage", [0.7, 0.9])
def test_sets_are_those_of_mapie(coverage: float) -> None:
    """APS without random numbers takes u = 1 in the scores; MAPIE then keeps the last label of each set as well."""
    validation, test = draw(700, 8, seed=1), draw(900, 8, seed=2)
    _, wanted = mapie("lac", validation, test, coverage)
    sets = ConformalSets.fit(validation, coverage=coverage, method="lac")
    assert (as_mask(sets(test)) == wanted).all()
    ones = torch.ones(700)
    _, wanted = mapie("aps", validation, test, coverage, ones)
    assert (as_mask(ConformalSets.fit(validation, coverage=coverage)(test)) == wanted).all()
    sets = ConformalSets.fit(validation, coverage=coverage, randomized=True, seed=5)
    u, v = (uniforms(rows.row_hashes[0], 5) for rows in (validation, test))
    _, wanted = mapie("aps", validation, test, coverage, u, v, last="randomized")
    assert (as_mask(sets(test)) == wanted).all()
    assert 0 < wanted.sum(1).min() + 1 < wanted.sum(1).max()


def test_randomized_raps_is_that_of_mapie_on_the_rows_that_it_keeps() -> None:
    """It tunes λ and k on some of the rows. Beyond k + 1 classes it divides by another number than the paper."""
    from sklearn.model_selection import StratifiedShuffleSplit

    validation, test = draw(1000, 8, seed=1), draw(900, 8, seed=2)
    split = StratifiedShuffleSplit(1, test_size=0.1, random_state=0)
    kept, _ = next(split.split(validation.logits.numpy(), validation.labels.numpy()))
    u, v = uniforms(validation[kept].row_hashes[0], 5), uniforms(test.row_hashes[0], 5)
    found, wanted = mapie("raps", validation, test, 0.9, u, v, last="randomized")
    chosen = found._mapie_classifier.conformity_score_function_
    penalty, k_reg = float(chosen.lambda_star), int(chosen.k_star[0])
    sets = ConformalSets.fit(validation[kept], method="raps", randomized=True, seed=5, penalty=penalty, k_reg=k_reg)
    mask = as_mask(sets(test))
    few = np.maximum(mask.sum(1), wanted.sum(1)) <= k_reg
    assert few.mean() > 0.8
    assert (mask == wanted)[few].all()


def test_lac_and_its_class_conditional_sets_are_those_of_crepes() -> None:
    from crepes import ConformalClassifier
    from crepes.extras import hinge

    validation, test = draw(700, 4, seed=1), draw(500, 4, seed=2)
    seen, new = (rows.logits.double().softmax(1).numpy() for rows in (validation, test))
    labels = validation.labels.numpy()
    alphas = hinge(seen, np.arange(4), labels)
    wanted = ConformalClassifier().fit(alphas).predict_set(hinge(new), confidence=0.9, smoothing=False)
    assert (as_mask(ConformalSets.fit(validation, method="lac")(test)) == wanted).all()
    fitted, found = ConformalClassifier().fit(alphas, bins=labels), np.zeros((500, 4), dtype=bool)
    for label in range(4):  # a row is in the category of the class that is asked about
        bins = np.full(500, label)
        found[:, label] = fitted.predict_set(hinge(new), bins=bins, confidence=0.9, smoothing=False)[:, label]
    assert (as_mask(ConformalSets.fit(validation, method="lac", by="class")(test)) == found).all()


# Refusals


def test_refusals_of_a_fit() -> None:
    rows = draw(100, columns={"site": ["A"] * 95 + ["B"] * 5, "hole": [None, "x"] * 50})
    unlabelled = replace(rows, labels=torch.full((100,), -1))
    far = replace(rows, logits=rows.logits + torch.tensor([40.0, 0, 0, 0, 0]))
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"coverage": 1.0}, InvalidInputError, r"coverage must be .* got 1.0"),
        ({"coverage": "0.9"}, InvalidInputError, r"coverage must be float, got '0.9'"),
        ({"method": "asp"}, UnknownNameError, r"did you mean 'aps'"),
        ({"by": "sight"}, UnknownNameError, r"did you mean 'site'"),
        ({"by": "site"}, InvalidInputError, r"at least 9 rows in each class or group for coverage 0.9: B has 5"),
        ({"by": "hole"}, InvalidInputError, r"hole must not be null to be grouped by, got null at row 0"),
        ({"by": "class", "coverage": 0.99}, InvalidInputError, r"at least 99 rows .*: 0 has \d+, 1 has"),
        ({"method": "lac", "randomized": True}, InvalidInputError, r"randomized .* is for aps, raps, not for lac"),
        ({"penalty": 0.1}, InvalidInputError, r"penalty \(--penalty\) is for raps, not for aps"),
        ({"k_reg": 1}, InvalidInputError, r"k_reg \(--k-reg\) is for raps, not for aps"),
        ({"method": "raps", "penalty": -1.0}, InvalidInputError, r"penalty must be .* got -1"),
        ({"method": "raps", "k_reg": -1}, InvalidInputError, r"k_reg must be .* got -1"),
        ({"randomized": True, "seed": -1}, InvalidInputError, r"seed must be .* got -1"),
        ({"target": rows, "by": "class"}, InvalidInputError, r"exclude each other"),
        ({"target": rows[:5]}, InvalidInputError, r"at least 10 rows each"),
        ({"target": draw(50, 4)}, InvalidInputError, r"5 classes .* got 4"),
        ({"target": far}, NotConvergedError, r"hardly overlap: .* no set can be promised with fewer than 30"),
    ]
    for options, error, message in wrong:
        with pytest.raises(error, match=message):
            ConformalSets.fit(rows, **options)
    with pytest.raises(NotConvergedError, match=r"no set can be promised with fewer than 99"):
        ConformalSets.fit(rows[:60], coverage=0.99, target=draw(100, seed=5))
    with pytest.raises(InvalidInputError, match=r"labels to fit prediction sets, got none at row 0"):
        ConformalSets.fit(unlabelled)
    with pytest.raises(InvalidInputError, match=r"at least one row"):
        ConformalSets.fit(rows[:0])


def test_refusals_of_a_call() -> None:
    columns = {"site": ["A", "B"] * 50}
    rows, test = (draw(100, seed=seed, columns=columns, class_names=list("abcde")) for seed in (0, 1))
    sets, by_site = ConformalSets.fit(rows), ConformalSets.fit(rows, by="site")
    temperature, other = TemperatureScaling.fit(rows), TemperatureScaling.fit(test)
    elsewhere = replace(test, columns=draw(100, columns={"site": ["C"] * 100}).columns)
    wrong = [
        (sets, rows, r"hold the rows that it was fitted on"),
        (sets, sets(test), r"must not have a column 'prediction_set' already"),
        (sets, draw(10, 4), r"5 classes .* got 4"),
        (sets, draw(10, seed=7, class_names=list("abced")), r"class 3 is 'e', not 'd'"),
        (sets, temperature.calibrate(test), r"by no calibrator, got temperature$"),
        (ConformalSets.fit(temperature.calibrate(rows)), test, r"by temperature, got no calibrator"),
        (ConformalSets.fit(temperature.calibrate(rows)), other.calibrate(test), r"was fitted to other rows"),
        (by_site, elsewhere, r"site must be one of the groups of the fit, got 'C'"),
    ]
    for fitted, given_rows, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            fitted(given_rows)
    for fitted, reason in (
        (by_site, "by 'site'"),
        (ConformalSets.fit(rows, randomized=True), "randomized"),
        (ConformalSets.fit(rows, target=test), "weighted for a target"),
    ):
        with pytest.raises(InvalidInputError, match=f"sets {reason} have no module"):
            fitted.module()
    assert len(sets(rows, allow_same_rows=True)) == 100


def test_files_that_are_damaged(tmp_path: Any) -> None:
    path = tmp_path / "sets.json"
    with pytest.raises(NoDataError):
        ConformalSets.load(path)
    sets = ConformalSets.fit(draw(100))
    sets.save(path)
    path.write_text(path.read_text().replace('"coverage": 0.9', '"coverage": 0.8'))
    with pytest.raises(CorruptFileError):
        ConformalSets.load(path)
    path.unlink()
    TemperatureScaling.fit(draw(100)).save(path)
    with pytest.raises(CorruptFileError, match="is not a conformal predictor of calibrant"):
        ConformalSets.load(path)
    with pytest.raises(InvalidInputError, match="thresholds must be"):
        replace(sets, thresholds=torch.zeros(2, dtype=torch.float64))
