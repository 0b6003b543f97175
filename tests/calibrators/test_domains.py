"""Temperatures of perturbed rows, domains, sets and targets; `test_recovery` tests that they are true."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.calibrators import (
    CALIBRATORS,
    DomainTemperature,
    PerturbedTemperature,
    SetTemperature,
    TemperatureScaling,
    TransCal,
)
from calibrant.calibrators.domains import RIDGE_PENALTIES, fit_ridge
from calibrant.calibrators.transcal import control_variate
from calibrant.errors import CalibrantError, NotConvergedError
from made.calibrator_data import draw, draw32, row_temperatures


def test_perturbed_temperature_is_the_exact_one_of_all_rows() -> None:
    parts = [draw(300, 1.2 + i, i, columns={"kind": [kind] * 300}) for i, kind in enumerate(("none", "rain", "snow"))]
    rows = cb.Predictions.concat(parts)
    found = PerturbedTemperature.fit(rows, shift="kind")
    assert found.temperature == pytest.approx(TemperatureScaling.fit(rows).temperature, rel=1e-9)
    assert found.fitted.shifts == ("rain", "snow")
    assert row_temperatures(found, draw(50, seed=9)).numpy() == pytest.approx(found.temperature, rel=1e-6)
    with pytest.raises(CalibrantError, match="corrupted rows"):
        PerturbedTemperature.fit(parts[0], shift="kind")


def domains(names: Sequence[str], seed: int = 0, n: int = 800) -> cb.Predictions:
    """Domain "d3" has features near (3, 1, …) and a best temperature of exp(0.3 · 3)."""
    parts = []
    for name in names:
        place = float(name[1:])
        generator = torch.Generator().manual_seed(int(97 * place) + seed)
        features = torch.tensor([place, 1.0, -1.0]) + 0.1 * torch.randn(n, 3, generator=generator)
        columns = {"domain": [name] * n}
        parts.append(draw(n, math.exp(0.3 * place), int(31 * place) + seed, columns=columns, features=features))
    return cb.Predictions.concat(parts)


KNOWN = ("d0", "d1", "d2", "d4")


def test_rows_of_known_domains_have_its_temperature_and_others_that_of_their_features() -> None:
    rows = domains(KNOWN)
    found = DomainTemperature.fit(rows)
    for name in KNOWN:
        wanted = TemperatureScaling.fit(rows.where(domain=name)).temperature
        assert found.temperatures[name] == pytest.approx(wanted, rel=0.03)  # 800 rows leave a prior little to say
    mixed = domains((*KNOWN, "d3"), seed=1)
    mixed = mixed[torch.randperm(len(mixed), generator=torch.Generator().manual_seed(2))]
    names = mixed.column("domain").to_pylist()
    got = row_temperatures(found, mixed).numpy()
    known = np.array([name in KNOWN for name in names])
    assert got[known] == pytest.approx([found.temperatures[name] for name in names if name in KNOWN], rel=1e-4)
    assert np.median(got[~known]) == pytest.approx(math.exp(0.9), rel=0.2)
    unseen = mixed.where(domain="d3")
    bare = cb.Predictions.from_logits(unseen.logits, unseen.labels, features=unseen.features)
    torch.testing.assert_close(found(bare).logits, found(unseen).logits)
    assert cb.score(found(unseen)).nll < cb.score(TemperatureScaling.fit(rows)(unseen)).nll
    low, high = min(found.temperatures.values()), max(found.temperatures.values())
    assert unseen.features is not None
    for far, limit in ((40, high), (-40, low)):
        moved = unseen.with_features(unseen.features + torch.tensor([far, 0, 0]))
        assert row_temperatures(found, moved).numpy() == pytest.approx(limit, rel=1e-4)


def test_a_domain_whose_labels_do_not_follow_its_logits_is_named() -> None:
    rows = domains(KNOWN)
    labels = rows.labels.clone()
    labels[800:1600] = rows.logits[800:1600].argmin(1)
    with pytest.raises(CalibrantError, match="no temperature is best for domain 'd1': its labels do not follow"):
        DomainTemperature.fit(replace(rows, labels=labels))


def test_domains_are_compared_by_value() -> None:
    rows = [draw32(300, 3, seed, factor=factor) for seed, factor in ((0, 1.0), (1, 3.0))]
    both = cb.Predictions.concat(rows)

    def of(first: Any, second: Any) -> cb.Predictions:
        return cb.Predictions.from_logits(both.logits, both.labels, columns={"domain": [first] * 300 + [second] * 300})

    found = CALIBRATORS["domain_temperature"].fit(of(None, "None"))
    assert len(found.temperatures) == 2  # type: ignore[attr-defined]
    whole = CALIBRATORS["domain_temperature"].fit(of(1, 2))
    torch.testing.assert_close(whole.calibrate(of(1.0, 2.0)).logits, whole.calibrate(of(1, 2)).logits)


@pytest.mark.parametrize("name", ["spline", "domain_temperature", "set_temperature"])
def test_the_order_of_tied_rows_and_of_groups_does_not_count(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.8, 0.1, 0.1]])[torch.randint(2, (600,), generator=generator)]
    labels = probs.multinomial(1, generator=generator)[:, 0]
    features = torch.randn(600, 3, generator=generator)
    columns = {
        "domain": [f"d{i % 9}" for i in range(600)],
        "corruption": [("none", "b", "c", "d", "e", "f", "g")[i % 7] for i in range(600)],
        "severity": [i % 2 for i in range(600)],
    }
    rows = cb.Predictions.from_probs(probs, labels, features=features, columns=columns)
    new = cb.Predictions.from_probs([[0.6, 0.3, 0.1], [0.7, 0.2, 0.1]], features=torch.ones(2, 3))
    found = [
        CALIBRATORS[name].fit(rows[torch.randperm(600, generator=generator)]).calibrate(new).probs for _ in range(3)
    ]
    for probs in found[1:]:
        torch.testing.assert_close(probs, found[0], atol=1e-6, rtol=0)


def sets(seed: int, severities: Sequence[float], n: int) -> cb.Predictions:
    """The worse, the less the model knows and the more it overrates that: T = 1 + 0.3 severity."""
    parts = []
    for i, severity in enumerate(severities):
        for j, kind in enumerate(("blur", "noise")):
            columns = {"corruption": [kind] * n, "severity": [severity] * n}
            spread, number = 3 * 0.65**severity, 1000 * seed + 10 * i + j
            parts.append(draw(n, 1 + 0.3 * severity, number, spread=spread, n_classes=4, columns=columns))
    return cb.Predictions.concat(parts)


def test_several_sets_of_one_call_have_a_temperature_each() -> None:
    found = SetTemperature.fit(sets(1, (0.0, 1.0, 2.0, 3.0, 4.0), 500))
    new = sets(2, (0.5, 3.5), 700)
    shuffled = new[torch.randperm(len(new), generator=torch.Generator().manual_seed(3))]
    got = row_temperatures(found, shuffled)
    kinds = np.array(shuffled.column("corruption").to_pylist())
    severities = np.array(shuffled.column("severity").to_pylist())
    for kind in ("blur", "noise"):
        for severity in (0.5, 3.5):
            part = torch.tensor((kinds == kind) & (severities == severity))
            wanted = found.temperature_of(new.where(corruption=kind, severity=severity))
            assert got[part].numpy() == pytest.approx(wanted, rel=1e-5)
            assert wanted == pytest.approx(1 + 0.3 * severity, rel=0.15)
    bare = cb.Predictions.from_logits(new.logits)
    adapted = found.adapt(bare)
    assert adapted.fitted.nll_after is None
    assert adapted.temperature == found.temperature_of(bare)
    for calibrator in (found, adapted):
        assert row_temperatures(calibrator, bare).numpy() == pytest.approx(adapted.temperature, rel=1e-5)
    only = SetTemperature.fit(sets(1, (0.0, 1.0, 2.0, 3.0, 4.0), 300), sets=("severity",))
    assert only.temperature_of(sets(3, (4.0,), 500)) > only.temperature_of(sets(4, (0.0,), 500))


def covariate(n: int, centre: float, seed: int, *, labels: bool = True, features: bool = True) -> cb.Predictions:
    """The larger the first feature, the more overconfident the model: T = 1 + exp(x)."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.randn(n, 2, generator=generator, dtype=torch.float64) + torch.tensor([centre, 0.0])
    rows = draw(n, 1 + place[:, 0].clamp(-2, 2).exp(), seed + 1)
    return cb.Predictions.from_logits(
        rows.logits, rows.labels if labels else None, features=place if features else None
    )


def test_transfer_looks_at_features_or_logits_and_at_no_labels_of_the_target() -> None:
    source = covariate(3000, 0.0, 10)
    of_source = TemperatureScaling.fit(source).temperature
    labelled, bare = (covariate(3000, 1.0, 20, labels=labels) for labels in (True, False))
    transferred = TransCal.fit(source, target=bare)
    found = transferred.temperature
    assert TransCal.fit(source, target=labelled).temperature == found
    record = transferred.fitted  # weighted for the target, whose NLL it estimates
    assert (
        record.nll_before
        == pytest.approx(cb.score(labelled).nll, rel=0.2)
        != pytest.approx(cb.score(source).nll, rel=0.2)
    )
    assert record.nll_after == pytest.approx(cb.score(transferred(labelled)).nll, rel=0.2)
    assert abs(math.log(found / TemperatureScaling.fit(labelled).temperature)) < 0.3
    assert found > 1.3 * of_source
    same = TransCal.fit(source, target=covariate(3000, 0.0, 20, labels=False))
    assert same.temperature == pytest.approx(of_source, rel=0.1)
    source, target = (covariate(2000, centre, 10, features=False) for centre in (0.0, 1.0))
    blind = TransCal.fit(source, target=target)
    assert blind.temperature > TemperatureScaling.fit(source).temperature  # wide logits tell the target


def test_rows_that_hardly_overlap_carry_no_temperature_over() -> None:
    generator = torch.Generator().manual_seed(0)
    source = draw32(1000, 3, 0, features=torch.randn(1000, 2, generator=generator))
    target = draw32(1000, 3, 1, features=torch.randn(1000, 2, generator=generator) + 20)
    with pytest.raises(NotConvergedError, match="overlap"):
        CALIBRATORS["transcal"].fit(source, target=target)  # type: ignore[call-arg]


def test_weights_are_corrected_for_their_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = 0.8 + 0.5 * torch.rand(500, generator=generator, dtype=torch.float64)
    losses = torch.rand(500, generator=generator, dtype=torch.float64)
    found = control_variate(weights)
    assert found.mean().item() == pytest.approx(1.0, abs=1e-12)
    slope = np.cov((weights * losses).numpy(), weights.numpy(), bias=True)[0, 1] / weights.var(correction=0)
    wanted = (weights * losses).mean() - slope * (weights.mean() - 1)
    assert (found * losses).mean().item() == pytest.approx(wanted.item(), rel=1e-12)


@pytest.mark.parametrize("n_inputs", [4, 40])
def test_the_ridge_is_that_of_the_normal_equations_and_reports_its_error_over_groups_left_out(n_inputs: int) -> None:
    random = np.random.default_rng(1)
    inputs, groups, weights = 3 + random.normal(size=(24, n_inputs)), np.arange(24) % 4, random.uniform(0.5, 2, 24)
    targets = inputs[:, 0] + random.normal(size=24)
    weight, intercept, rmse = fit_ridge(torch.from_numpy(inputs), targets, groups, weights)
    spread = np.sqrt(np.average((inputs - np.average(inputs, 0, weights)) ** 2, 0, weights))

    def solve(known: np.ndarray, penalty: float) -> tuple[np.ndarray, float]:
        w, x, y = weights[known] / weights[known].sum(), inputs[known], targets[known]
        a, b = (x - w @ x) / spread, y - w @ y
        moments = (a.T * w) @ a
        ridge = penalty * np.trace(moments) / n_inputs * np.eye(n_inputs)
        slope = np.linalg.solve(moments + ridge, (a.T * w) @ b) / spread
        return slope, float(w @ y - slope @ (w @ x))

    errors = np.zeros(len(RIDGE_PENALTIES))
    for i, group in itertools.product(range(len(errors)), range(4)):
        slope, level = solve(groups != group, RIDGE_PENALTIES[i])
        out = groups == group
        errors[i] += weights[out] @ (inputs[out] @ slope + level - targets[out]) ** 2 / weights.sum()
    assert rmse == pytest.approx(np.sqrt(errors.min()), rel=1e-9)
    wanted, level = solve(np.ones(24, dtype=bool), RIDGE_PENALTIES[int(errors.argmin())])
    np.testing.assert_allclose(weight.numpy(), wanted, rtol=1e-9, atol=1e-12)
    assert intercept == pytest.approx(level, rel=1e-9)


def test_the_fit_names_its_steps() -> None:
    steps: list[str] = []
    DomainTemperature.fit(domains(KNOWN, n=60), progress=steps.append)
    assert steps[:2] == ["domain 'd0', 1 of 4", "domain 'd1', 2 of 4"]
    assert steps[4:] == [f"regression on features, fold {fold} of 4" for fold in (1, 2, 3, 4)]


def test_the_ridge_penalty_is_the_best_for_groups_left_out() -> None:
    random = np.random.default_rng(0)
    inputs, groups, weights = random.normal(size=(60, 20)), np.arange(60) % 10, np.ones(60)
    noise, linear = random.normal(size=60), inputs @ np.linspace(0, 1, 20)
    found, *_ = fit_ridge(torch.from_numpy(inputs), linear, groups, weights)
    np.testing.assert_allclose(found.numpy(), np.linspace(0, 1, 20), atol=1e-4)
    found, *_ = fit_ridge(torch.from_numpy(inputs), noise, groups, weights)
    overfitted, *_ = np.linalg.lstsq(inputs - inputs.mean(0), noise - noise.mean(), rcond=None)
    assert np.std(inputs @ found.numpy()) < 0.8 * np.std(inputs @ overfitted)
