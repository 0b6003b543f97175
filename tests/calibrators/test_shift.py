"""Calibrators for data that shift: perturbed copies, domains, sets, targets, distances and scores."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import calibrant as cb
from calibrant.calibrators import (
    Calibrator,
    ConditionalTemperature,
    DensityAwareScaling,
    DomainTemperature,
    PerturbedTemperature,
    SetTemperature,
    TemperatureScaling,
    TransferTemperature,
    perturb_gaussian,
)
from calibrant.errors import CalibrantError, InvalidInputError


def draw(
    n: int, temperature: float | Tensor, seed: int, *, spread: float = 2.0, n_classes: int = 3, **options: Any
) -> cb.Predictions:
    """Rows whose best temperature is the one given, for all or for each of them."""
    generator = torch.Generator().manual_seed(seed)
    honest = spread * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    labels = honest.softmax(1).multinomial(1, generator=generator)[:, 0]
    scale = torch.as_tensor(temperature, dtype=torch.float64).reshape(-1, 1)
    return cb.Predictions.from_logits(honest * scale, labels, **options)


def temperatures(calibrator: Calibrator, predictions: cb.Predictions) -> Tensor:
    """What each row's logits were divided by."""
    after = calibrator(predictions, allow_same_rows=True).logits
    before = predictions.logits
    return (before.amax(1) - before.amin(1)) / (after.amax(1) - after.amin(1))


# Perturbed copies


def shifted(seed: int = 0, n: int = 300) -> cb.Predictions:
    """Clean rows and two corruption types in three severities, the worse the more overconfident."""
    parts = [draw(n, 1.2, seed, columns={"corruption": ["none"] * n, "severity": [0] * n})]
    for j, name in enumerate(("blur", "noise")):
        for severity in (1, 2, 3):
            columns = {"corruption": [name] * n, "severity": [severity] * n}
            temperature = 1.2 + severity * (0.4 + 0.3 * j)
            parts.append(
                draw(n, temperature, 100 * seed + 10 * j + severity, spread=2.2 - 0.4 * severity, columns=columns)
            )
    return cb.Predictions.concat(parts)


def test_perturbed_temperature_is_the_exact_one_of_all_rows() -> None:
    rows = shifted()
    found = PerturbedTemperature.fit(rows)
    assert found.temperature == pytest.approx(TemperatureScaling.fit(rows).temperature, rel=1e-9)
    assert found.temperature > 1.1 * TemperatureScaling.fit(rows.where(corruption="none")).temperature
    assert isinstance(found.fitted.shifts, tuple)
    assert set(found.fitted.shifts) - {"none"} == {"blur", "noise"}
    assert temperatures(found, shifted(seed=1)).numpy() == pytest.approx(found.temperature, rel=1e-6)


def test_perturbed_temperature_of_another_column() -> None:
    rows = draw(200, 2.0, 0, columns={"kind": ["rain", "snow"] * 100})
    assert set(PerturbedTemperature.fit(rows, shift="kind").fitted.shifts) == {"rain", "snow"}
    with pytest.raises(CalibrantError, match="corruption"):
        PerturbedTemperature.fit(rows)


class Linear(nn.Module):
    """Dot products with ten templates, and the image itself as features."""

    def __init__(self, templates: Tensor, *, features: bool = False) -> None:
        super().__init__()
        self.templates = templates
        self.features = features

    def forward(self, images: Tensor) -> Any:
        flat = images.flatten(1)
        logits = flat @ self.templates.T
        return (logits, flat[:, :5]) if self.features else logits


def pictures(n: int = 800, n_classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Templates of 3 × 6 × 6 pixels, images near them, and their labels."""
    generator = torch.Generator().manual_seed(0)
    templates = torch.randn(n_classes, 108, generator=generator)
    labels = torch.randint(n_classes, (n,), generator=generator)
    images = templates[labels] + 2.0 * torch.randn(n, 108, generator=generator)
    return templates / 10, images.reshape(n, 3, 6, 6), labels


@pytest.fixture(scope="module")
def perturbed() -> cb.Predictions:
    templates, images, labels = pictures()
    return perturb_gaussian(Linear(templates).eval(), images, labels, n_levels=8, seed=3)


def accuracies(predictions: cb.Predictions, levels: int) -> list[float]:
    return [
        (part.logits.argmax(1) == part.labels).double().mean().item()
        for part in (predictions.where(severity=level) for level in range(levels + 1))
    ]


def test_perturbations_are_copies_with_columns(perturbed: cb.Predictions) -> None:
    templates, images, labels = pictures()
    assert len(perturbed) == 9 * len(images)
    assert set(perturbed.groups("severity")[1]) == set(range(9))
    clean = perturbed.where(severity=0)
    torch.testing.assert_close(clean.logits, Linear(templates)(images), rtol=1e-4, atol=1e-4)
    assert torch.equal(clean.labels, labels)
    assert set(clean.column("corruption").to_pylist()) == {"none"}
    assert set(clean.column("noise").to_pylist()) == {0.0}
    others = perturbed.where(severity=list(range(1, 9)))
    assert set(others.column("corruption").to_pylist()) == {"gaussian_perturbation"}
    sigmas = [set(perturbed.where(severity=level).column("noise").to_pylist()) for level in range(9)]
    assert [len(values) for values in sigmas] == [1] * 9
    assert all(a.pop() < b for a, b in zip(sigmas[:-1], [max(values) for values in sigmas[1:]], strict=True))
    for level in range(1, 9):
        assert torch.equal(perturbed.where(severity=level).labels.sort()[0], labels.sort()[0])


def test_levels_spread_the_accuracy_evenly(perturbed: cb.Predictions) -> None:
    found = accuracies(perturbed, 8)
    clean, last = found[0], found[-1]
    assert clean > 0.9
    assert last < clean - 0.6 * (clean - 0.25)
    assert last > 0.2
    for level, accuracy in enumerate(found):
        assert accuracy == pytest.approx(clean + (last - clean) * level / 8, abs=0.07)


def test_perturbations_follow_the_seed_alone(perturbed: cb.Predictions) -> None:
    templates, images, labels = pictures()
    torch.manual_seed(99)
    model = Linear(templates).eval()
    again = perturb_gaussian(model, images, labels, n_levels=8, seed=3)
    assert again.fingerprint == perturbed.fingerprint
    assert perturb_gaussian(model, images, labels, n_levels=8, seed=4).fingerprint != perturbed.fingerprint
    assert not model.training


def test_perturbations_hold_the_features_of_the_model() -> None:
    templates, images, labels = pictures(60)
    found = perturb_gaussian(Linear(templates, features=True).eval(), images, labels, n_levels=2, batch_size=7)
    assert len(found) == 180
    assert found.features is not None
    assert found.features.shape == (180, 5)
    clean = found.where(severity=0)
    assert clean.features is not None
    torch.testing.assert_close(clean.features.float(), images.flatten(1)[:, :5], rtol=1e-2, atol=1e-2)


def test_a_model_in_training_mode_is_refused() -> None:
    templates, images, labels = pictures(20)
    with pytest.raises(InvalidInputError, match="eval"):
        perturb_gaussian(Linear(templates).train(), images, labels)


@pytest.mark.parametrize(("option", "value"), [("n_levels", 0), ("batch_size", 0)])
def test_bad_options_of_perturbations_are_refused(option: str, value: int) -> None:
    templates, images, labels = pictures(20)
    with pytest.raises(InvalidInputError, match=f"{option}.*{value}"):
        perturb_gaussian(Linear(templates).eval(), images, labels, **{option: value})


def test_images_and_labels_of_other_lengths_are_refused() -> None:
    templates, images, labels = pictures(20)
    with pytest.raises(CalibrantError, match="19"):
        perturb_gaussian(Linear(templates).eval(), images, labels[:19])


def test_a_temperature_of_perturbed_copies_is_larger_than_that_of_clean_rows(perturbed: cb.Predictions) -> None:
    found = PerturbedTemperature.fit(perturbed)
    assert "gaussian_perturbation" in found.fitted.shifts
    worst = perturbed.where(severity=8)
    assert cb.score(found(worst, allow_same_rows=True)).nll < cb.score(worst).nll


# Domains


def domains(names: Sequence[str], seed: int = 0, n: int = 800, *, features: bool = True) -> cb.Predictions:
    """Domain "d3" has features near (3, 1, …) and a best temperature of exp(0.3 · 3)."""
    parts = []
    for name in names:
        place = float(name[1:])
        generator = torch.Generator().manual_seed(int(97 * place) + seed)
        noise = 0.1 * torch.randn(n, 3, generator=generator)
        where = torch.tensor([place, 1.0, -1.0]) + noise
        options = {"features": where} if features else {}
        columns = {"domain": [name] * n}
        parts.append(draw(n, math.exp(0.3 * place), int(31 * place) + seed, columns=columns, **options))
    return cb.Predictions.concat(parts)


KNOWN = ("d0", "d1", "d2", "d4")


def test_known_domains_have_their_own_temperature() -> None:
    rows, other = domains(KNOWN), domains(KNOWN, seed=1)
    found = DomainTemperature.fit(rows)
    assert set(found.temperatures) == set(KNOWN)
    for name in KNOWN:
        wanted = TemperatureScaling.fit(rows.where(domain=name)).temperature
        assert found.temperatures[name] == pytest.approx(wanted, rel=0.03)  # 800 rows leave a prior little to say
        part = other.where(domain=name)
        assert temperatures(found, part).numpy() == pytest.approx(found.temperatures[name], rel=1e-4)
    mixed = other[torch.randperm(len(other), generator=torch.Generator().manual_seed(2))]
    wanted = [found.temperatures[name] for name in mixed.column("domain").to_pylist()]
    assert temperatures(found, mixed).numpy() == pytest.approx(np.array(wanted), rel=1e-4)


def test_unseen_domains_have_the_temperature_of_their_features() -> None:
    found = DomainTemperature.fit(domains(KNOWN))
    low, high = min(found.temperatures.values()), max(found.temperatures.values())
    unseen = domains(["d3"], seed=1)
    got = temperatures(found, unseen)
    assert low * (1 - 1e-4) <= got.min()
    assert got.max() <= high * (1 + 1e-4)
    assert got.median().item() == pytest.approx(math.exp(0.9), rel=0.2)
    nll = cb.score(found(unseen)).nll
    pooled = TemperatureScaling.fit(domains(KNOWN))
    assert nll < cb.score(pooled(unseen)).nll < cb.score(unseen).nll


def test_temperatures_of_unseen_domains_stay_within_the_known_range() -> None:
    found = DomainTemperature.fit(domains(KNOWN))
    low, high = min(found.temperatures.values()), max(found.temperatures.values())
    assert temperatures(found, domains(["d40"], seed=1)).numpy() == pytest.approx(high, rel=1e-4)
    far = domains(["d3"], seed=1)
    assert far.features is not None
    assert temperatures(found, far.with_features(far.features - 40)).numpy() == pytest.approx(low, rel=1e-4)


def test_rows_without_the_column_of_domains_go_by_their_features() -> None:
    found = DomainTemperature.fit(domains(KNOWN))
    rows = domains(["d3"], seed=1)
    bare = cb.Predictions.from_logits(rows.logits, rows.labels, features=rows.features)
    torch.testing.assert_close(found(bare).logits, found(rows).logits)


def test_domains_under_another_column() -> None:
    rows = draw(400, 2.0, 0, columns={"site": ["A", "B"] * 200})
    found = DomainTemperature.fit(rows, domain="site")
    assert set(found.temperatures) == {"A", "B"}
    with pytest.raises(CalibrantError, match="domain"):
        DomainTemperature.fit(rows)


def test_unseen_domains_without_features_are_refused() -> None:
    blind = DomainTemperature.fit(domains(KNOWN, features=False))
    known = domains(KNOWN, seed=1, features=False)
    got = temperatures(blind, known.where(domain="d4")).numpy()
    assert got == pytest.approx(blind.temperatures["d4"], rel=1e-4)
    with pytest.raises(InvalidInputError, match="features"):
        blind(domains(["d3"], features=False))
    seeing = DomainTemperature.fit(domains(KNOWN))
    with pytest.raises(InvalidInputError, match="features"):
        seeing(domains(["d3"], features=False))


def test_features_of_another_width_are_refused_by_domains() -> None:
    found = DomainTemperature.fit(domains(KNOWN))
    with pytest.raises(InvalidInputError, match=r"features.*(3.*2|2.*3)"):
        found(domains(["d3"]).with_features(torch.ones(800, 2)))


# Sets


def one_set(severity: float, seed: int, n: int = 2000, kind: str = "blur") -> cb.Predictions:
    """The worse, the less the model knows and the more it overrates that: T = 1 + 0.3 severity."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 4, generator=generator) + severity
    columns = {"corruption": [kind] * n, "severity": [severity] * n}
    spread = 3 * 0.65**severity
    return draw(n, 1 + 0.3 * severity, seed, spread=spread, n_classes=4, columns=columns, features=features)


def sets(seed: int, *, severities: Sequence[float] = (0.0, 1.0, 2.0, 3.0, 4.0), n: int = 2000) -> cb.Predictions:
    kinds = ("blur", "noise")
    return cb.Predictions.concat(
        [
            one_set(s, 1000 * seed + 10 * i + j, n, kind)
            for i, s in enumerate(severities)
            for j, kind in enumerate(kinds)
        ]
    )


def without_features(rows: cb.Predictions) -> cb.Predictions:
    return rows.select(["corruption", "severity"])


@pytest.mark.parametrize("features", [False, True], ids=["without features", "with features"])
def test_an_unseen_severity_has_a_temperature_between_those_of_its_neighbours(features: bool) -> None:
    rows, new = sets(1, n=800), one_set(1.5, 77)
    if features:
        found = SetTemperature.fit(rows, reference=one_set(0.0, 55, 300))
    else:
        rows, new = without_features(rows), without_features(new)
        found = SetTemperature.fit(rows)
    got = found.temperature_of(new)
    assert got == pytest.approx(1.45, rel=0.12)
    assert temperatures(found, new).numpy() == pytest.approx(got, rel=1e-6)
    assert cb.score(found(new)).nll < cb.score(new).nll


def test_a_set_is_adapted_to_without_labels() -> None:
    found = SetTemperature.fit(without_features(sets(1, n=500)))
    new = without_features(one_set(2.5, 78))
    bare = cb.Predictions.from_logits(new.logits)
    plain = found.adapt(bare)
    assert isinstance(plain, TemperatureScaling)
    assert plain.temperature == pytest.approx(found.temperature_of(bare), rel=1e-12)
    assert plain.temperature == pytest.approx(found.temperature_of(new), rel=1e-9)
    assert temperatures(plain, new).numpy() == pytest.approx(plain.temperature, rel=1e-6)


def test_several_sets_of_one_call_have_a_temperature_each() -> None:
    found = SetTemperature.fit(without_features(sets(1, n=500)))
    new = without_features(sets(2, severities=(0.5, 3.5), n=700))
    shuffled = new[torch.randperm(len(new), generator=torch.Generator().manual_seed(3))]
    got = temperatures(found, shuffled)
    kinds = np.array(shuffled.column("corruption").to_pylist())
    severities = np.array(shuffled.column("severity").to_pylist())
    for kind in ("blur", "noise"):
        for severity in (0.5, 3.5):
            part = torch.tensor((kinds == kind) & (severities == severity))
            wanted = found.temperature_of(new.where(corruption=kind, severity=severity))
            assert got[part].numpy() == pytest.approx(wanted, rel=1e-5)
    assert got.max() > 1.3 * got.min()
    bare = cb.Predictions.from_logits(new.logits)
    together = temperatures(found, bare)
    assert together.numpy() == pytest.approx(together[0].item(), rel=1e-5)


def test_sets_of_other_columns() -> None:
    rows = without_features(sets(1, n=300))
    found = SetTemperature.fit(rows, sets=("severity",))
    assert found.temperature_of(without_features(one_set(4.0, 79))) > found.temperature_of(
        without_features(one_set(0.0, 80))
    )
    with pytest.raises(CalibrantError, match="weather"):
        SetTemperature.fit(rows, sets=("severity", "weather"))


def test_too_few_sets_are_refused() -> None:
    rows = without_features(sets(1, severities=(0.0,), n=200))
    with pytest.raises(InvalidInputError, match=r"3.*2|2.*3"):
        SetTemperature.fit(rows)


# A target without labels


def covariate(n: int, centre: float, seed: int, *, labels: bool = True, features: bool = True) -> cb.Predictions:
    """The larger the first feature, the more overconfident the model: T = 1 + exp(x)."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.randn(n, 2, generator=generator, dtype=torch.float64) + torch.tensor([centre, 0.0])
    rows = draw(n, 1 + place[:, 0].clamp(-2, 2).exp(), seed + 1)
    return cb.Predictions.from_logits(
        rows.logits, rows.labels if labels else None, features=place if features else None
    )


def test_transfer_is_nearer_to_the_best_temperature_of_the_target() -> None:
    source, target = covariate(6000, 0.0, 10), covariate(6000, 1.0, 20)
    unlabelled = covariate(6000, 1.0, 20, labels=False)
    of_source, of_target = (TemperatureScaling.fit(rows).temperature for rows in (source, target))
    found = TransferTemperature.fit(source, target=unlabelled)
    assert of_target > 1.3 * of_source
    assert abs(math.log(found.temperature / of_target)) < 0.5 * abs(math.log(of_source / of_target))
    fresh = covariate(3000, 1.0, 30)
    assert temperatures(found, fresh).numpy() == pytest.approx(found.temperature, rel=1e-6)
    assert cb.score(found(fresh)).nll < cb.score(TemperatureScaling.fit(source)(fresh)).nll


def test_labels_of_the_target_are_not_looked_at() -> None:
    source = covariate(1000, 0.0, 10)
    labelled, bare = (covariate(1000, 1.0, 20, labels=labels) for labels in (True, False))
    wanted = TransferTemperature.fit(source, target=bare).temperature
    assert TransferTemperature.fit(source, target=labelled).temperature == pytest.approx(wanted, rel=1e-6)


def test_transfer_to_the_source_itself_is_the_temperature_of_the_source() -> None:
    source, target = covariate(4000, 0.0, 10), covariate(4000, 0.0, 20, labels=False)
    found = TransferTemperature.fit(source, target=target)
    assert found.temperature == pytest.approx(TemperatureScaling.fit(source).temperature, rel=0.1)


def test_transfer_without_features_goes_by_the_logits() -> None:
    source = covariate(2000, 0.0, 10, features=False)
    target = covariate(2000, 1.0, 20, labels=False, features=False)
    found = TransferTemperature.fit(source, target=target)
    assert math.isfinite(found.temperature)
    assert found.temperature > TemperatureScaling.fit(source).temperature  # wide logits tell the target


def test_a_target_is_needed_and_of_the_same_classes() -> None:
    source = covariate(100, 0.0, 10)
    with pytest.raises((TypeError, InvalidInputError), match="target"):
        TransferTemperature.fit(source)
    with pytest.raises(InvalidInputError, match=r"3.*4|4.*3"):
        TransferTemperature.fit(source, target=draw(50, 1.0, 0, n_classes=4, features=torch.ones(50, 2)))
    with pytest.raises(InvalidInputError, match="row"):
        TransferTemperature.fit(source, target=covariate(100, 1.0, 20, labels=False)[:0])


# Distances


def near_and_far(n: int, seed: int, *, far: float = 4.0) -> cb.Predictions:
    """The first half lies near one direction; the other anywhere, and is overconfident."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 6, generator=generator)
    features[: n // 2] = torch.eye(6)[0] + 0.03 * features[: n // 2]
    scale = torch.ones(n, dtype=torch.float64)
    scale[n // 2 :] = far
    return draw(n, scale, seed + 1, features=features * 5)


@pytest.fixture(scope="module")
def reference() -> cb.Predictions:
    return near_and_far(600, 50)[:300]


def test_density_aware_scaling_cools_down_what_is_far_away(reference: cb.Predictions) -> None:
    rows, new = near_and_far(2000, 10), near_and_far(1000, 20)
    found = DensityAwareScaling.fit(rows, reference=reference, k=10)
    assert found.w0 >= 0
    assert found.w1 > 0.5
    got = temperatures(found, new)
    assert got[:500].median().item() == pytest.approx(1.0, rel=0.25)
    assert got[500:].median() > 2.5
    assert cb.score(found(new)).nll < cb.score(TemperatureScaling.fit(rows)(new)).nll - 0.01


def test_where_distance_says_nothing_the_temperature_is_nearly_one(reference: cb.Predictions) -> None:
    rows, new = near_and_far(3000, 10, far=1.0), near_and_far(1000, 20)
    got = temperatures(DensityAwareScaling.fit(rows, reference=reference, k=10), new)
    assert got.max() < 1.2 * got.min()
    assert got.median().item() == pytest.approx(1.0, rel=0.1)


def test_density_aware_scaling_knows_directions_alone(reference: cb.Predictions) -> None:
    """Features are brought to length 1, so that a longer one is no farther away."""
    found = DensityAwareScaling.fit(near_and_far(1000, 10), reference=reference, k=5)
    new = near_and_far(200, 20)
    assert new.features is not None
    longer = new.with_features(new.features * 4)
    torch.testing.assert_close(temperatures(found, longer), temperatures(found, new), rtol=1e-3, atol=1e-3)


def test_the_validation_rows_are_a_reference_too() -> None:
    """Each is left out of its own neighbours: rows of few neighbours are far away though they are known."""
    rows, new = near_and_far(2000, 10), near_and_far(1000, 20)
    found = DensityAwareScaling.fit(rows)
    assert found.w1 > 0
    got = temperatures(found, new)
    assert got[500:].median() > 1.5 * got[:500].median()


def test_density_aware_scaling_needs_features(reference: cb.Predictions) -> None:
    bare = draw(100, 2.0, 0)
    with pytest.raises(InvalidInputError, match="features"):
        DensityAwareScaling.fit(bare)
    with pytest.raises(InvalidInputError, match="features"):
        DensityAwareScaling.fit(near_and_far(100, 10), reference=bare)
    found = DensityAwareScaling.fit(near_and_far(200, 10), reference=reference, k=5)
    with pytest.raises(InvalidInputError, match="features"):
        found(bare)
    with pytest.raises(InvalidInputError, match=r"k .*0"):
        DensityAwareScaling.fit(near_and_far(100, 10), k=0)


def test_features_of_another_width_are_refused_by_distances(reference: cb.Predictions) -> None:
    found = DensityAwareScaling.fit(near_and_far(200, 10), reference=reference, k=5)
    narrow = draw(100, 2.0, 0, features=torch.ones(100, 3))
    with pytest.raises(InvalidInputError, match=r"features.*(3.*6|6.*3)"):
        found(narrow)
    with pytest.raises(InvalidInputError, match=r"features.*(3.*6|6.*3)"):
        DensityAwareScaling.fit(near_and_far(100, 10), reference=narrow)


# Scores


def scored(n: int, seed: int, *, rising: bool = True) -> cb.Predictions:
    generator = torch.Generator().manual_seed(seed)
    score = torch.rand(n, generator=generator, dtype=torch.float64)
    temperature = 1 + 2 * (score if rising else 1 - score)
    return draw(n, temperature, seed + 1, columns={"score": score})


def curve(found: ConditionalTemperature, scores: Sequence[float]) -> Tensor:
    """The temperature of rows of these scores."""
    row = draw(1, 1.0, 5).logits.expand(len(scores), -1)
    return temperatures(found, cb.Predictions.from_logits(row, columns={"score": [float(s) for s in scores]}))


@pytest.mark.parametrize("rising", [True, False])
def test_conditional_temperature_is_monotone_and_near_the_truth(rising: bool) -> None:
    rows = scored(10_000, 0, rising=rising)
    found = ConditionalTemperature.fit(rows, score="score")
    places = np.linspace(0.05, 0.95, 50)
    got = curve(found, places.tolist())
    step = got.diff() if rising else -got.diff()
    assert step.min() >= -1e-6
    wanted = 1 + 2 * (places if rising else 1 - places)
    assert got.numpy() == pytest.approx(wanted, rel=0.2)
    new = scored(5000, 7, rising=rising)
    assert cb.score(found(new)).nll < cb.score(TemperatureScaling.fit(rows)(new)).nll - 0.002


def test_conditional_temperature_is_constant_outside_the_validation_range() -> None:
    rows = scored(3000, 0)
    found = ConditionalTemperature.fit(rows, score="score")
    seen = rows.column("score").to_pylist()
    below, above = curve(found, [min(seen), -1e-3, -5.0, -1e6]), curve(found, [max(seen), 1.001, 5.0, 1e6])
    assert below.numpy() == pytest.approx(below[0].item(), rel=1e-5)
    assert above.numpy() == pytest.approx(above[0].item(), rel=1e-5)
    assert above[0] > 1.5 * below[0]


@pytest.mark.parametrize("score", ["entropy", "logit_norm", "feature_norm"])
@pytest.mark.parametrize("n_knots", [2, 6])
def test_conditional_temperature_by_any_score(score: str, n_knots: int) -> None:
    rows, new = near_and_far(1500, 10), near_and_far(500, 20)
    found = ConditionalTemperature.fit(rows, score=score, n_knots=n_knots)
    assert found.fitted.nll_after <= TemperatureScaling.fit(rows).fitted.nll_after + 1e-6
    assert torch.equal(found(new).logits.argmax(1), new.logits.argmax(1))


def test_bad_options_of_conditional_temperature_are_refused() -> None:
    rows = scored(100, 0)
    with pytest.raises(CalibrantError, match="skore"):
        ConditionalTemperature.fit(rows, score="skore")
    with pytest.raises(InvalidInputError, match=r"n_knots.*0"):
        ConditionalTemperature.fit(rows, score="score", n_knots=0)
    found = ConditionalTemperature.fit(scored(500, 0), score="score")
    with pytest.raises(CalibrantError, match="score"):
        found(draw(20, 1.0, 3))
    named = draw(100, 2.0, 0, columns={"site": ["A", "B"] * 50})
    with pytest.raises(InvalidInputError, match="site"):
        ConditionalTemperature.fit(named, score="site")
