"""Calibrators for data that shift: perturbed copies, domains, sets, targets, distances and scores.

That each finds what is true is in `test_proofs`.
"""

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
    TransCal,
    perturb_gaussian,
)
from calibrant.errors import CalibrantError
from made.calibrator_data import draw


def temperatures(calibrator: Calibrator, predictions: cb.Predictions) -> Tensor:
    """What each row's logits were divided by."""
    after = calibrator(predictions, allow_same_rows=True).logits
    before = predictions.logits
    return (before.amax(1) - before.amin(1)) / (after.amax(1) - after.amin(1))


# Perturbed copies


def test_perturbed_temperature_is_the_exact_one_of_all_rows() -> None:
    parts = [draw(300, 1.2 + i, i, columns={"kind": [kind] * 300}) for i, kind in enumerate(("none", "rain", "snow"))]
    rows = cb.Predictions.concat(parts)
    found = PerturbedTemperature.fit(rows, shift="kind")
    assert found.temperature == pytest.approx(TemperatureScaling.fit(rows).temperature, rel=1e-9)
    assert found.fitted.shifts == ("rain", "snow")
    assert temperatures(found, draw(50, seed=9)).numpy() == pytest.approx(found.temperature, rel=1e-6)
    with pytest.raises(CalibrantError, match="corrupted rows"):
        PerturbedTemperature.fit(parts[0], shift="kind")


class Linear(nn.Module):
    """Dot products with templates, and the image itself as features."""

    def __init__(self, templates: Tensor, *, features: bool = False) -> None:
        super().__init__()
        self.templates, self.features = templates, features

    def forward(self, images: Tensor) -> Any:
        flat = images.flatten(1)
        logits = flat @ self.templates.T
        return (logits, flat[:, :5]) if self.features else logits


def made_images(n: int = 800, n_classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Templates of 3 × 6 × 6 pixels, images near them, and their labels."""
    generator = torch.Generator().manual_seed(0)
    templates = torch.randn(n_classes, 108, generator=generator)
    labels = torch.randint(n_classes, (n,), generator=generator)
    images = templates[labels] + 2.0 * torch.randn(n, 108, generator=generator)
    return templates / 10, images.reshape(n, 3, 6, 6), labels


def test_perturbations_are_copies_with_columns_whose_levels_spread_the_accuracy_evenly() -> None:
    templates, images, labels = made_images()
    perturbed = perturb_gaussian(Linear(templates).eval(), images, labels, n_levels=8, seed=3)
    levels = [perturbed.where(severity=level) for level in range(9)]
    assert sum(map(len, levels)) == len(perturbed) == 9 * len(images)
    torch.testing.assert_close(levels[0].logits, Linear(templates)(images), rtol=1e-4, atol=1e-4)
    sigmas, found = [], []
    for level, part in enumerate(levels):
        assert torch.equal(part.labels, labels)
        [kind] = set(part.column("corruption").to_pylist())
        assert kind == ("gaussian_perturbation" if level else "none")
        sigmas += set(part.column("noise").to_pylist())
        found.append((part.logits.argmax(1) == part.labels).double().mean().item())
    assert sigmas[0] == 0
    assert sigmas == sorted(set(sigmas))
    assert len(sigmas) == 9
    clean, last = found[0], found[-1]
    assert clean > 0.9
    assert 0.2 < last < clean - 0.6 * (clean - 0.25)
    assert found == pytest.approx([clean + (last - clean) * level / 8 for level in range(9)], abs=0.07)
    calibrator = PerturbedTemperature.fit(perturbed)
    assert cb.score(calibrator(levels[8], allow_same_rows=True)).nll < cb.score(levels[8]).nll


def test_perturbations_follow_the_seed_alone_and_hold_features() -> None:
    templates, images, labels = made_images(60)
    model = Linear(templates, features=True).eval()
    found = perturb_gaussian(model, images, labels, n_levels=2, seed=3, batch_size=7)
    torch.manual_seed(99)
    assert perturb_gaussian(model, images, labels, n_levels=2, seed=3, batch_size=7).fingerprint == found.fingerprint
    assert perturb_gaussian(model, images, labels, n_levels=2, seed=4, batch_size=7).fingerprint != found.fingerprint
    assert not model.training
    clean = found.where(severity=0)
    assert clean.features is not None
    torch.testing.assert_close(clean.features.float(), images.flatten(1)[:, :5], rtol=1e-2, atol=1e-2)


def test_refusals_of_perturbations() -> None:
    templates, images, labels = made_images(20)
    model = Linear(templates).eval()
    for given, options, message in (
        (Linear(templates).train(), {}, "eval"),
        (model, {"n_levels": 0}, r"n_levels.*0"),
        (model, {"batch_size": 0}, r"batch_size.*0"),
        (model, {"labels": labels[:19]}, "19"),
        (model, {"images": images.byte()}, "uint8"),
    ):
        with pytest.raises(CalibrantError, match=message):
            perturb_gaussian(given, **({"images": images, "labels": labels} | options))  # type: ignore[arg-type]


# Domains


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
    got = temperatures(found, mixed).numpy()
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
        assert temperatures(found, moved).numpy() == pytest.approx(limit, rel=1e-4)


# Sets


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
    got = temperatures(found, shuffled)
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
        assert temperatures(calibrator, bare).numpy() == pytest.approx(adapted.temperature, rel=1e-5)
    only = SetTemperature.fit(sets(1, (0.0, 1.0, 2.0, 3.0, 4.0), 300), sets=("severity",))
    assert only.temperature_of(sets(3, (4.0,), 500)) > only.temperature_of(sets(4, (0.0,), 500))


# A target without labels


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
    found = TransCal.fit(source, target=bare).temperature
    assert TransCal.fit(source, target=labelled).temperature == found
    assert abs(math.log(found / TemperatureScaling.fit(labelled).temperature)) < 0.3
    assert found > 1.3 * of_source
    same = TransCal.fit(source, target=covariate(3000, 0.0, 20, labels=False))
    assert same.temperature == pytest.approx(of_source, rel=0.1)
    source, target = (covariate(2000, centre, 10, features=False) for centre in (0.0, 1.0))
    blind = TransCal.fit(source, target=target)
    assert blind.temperature > TemperatureScaling.fit(source).temperature  # wide logits tell the target


# Distances


def near_and_far(n: int, seed: int, *, far: float = 4.0) -> cb.Predictions:
    """The first half lies near one direction; the other anywhere, and is overconfident."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 6, generator=generator)
    features[: n // 2] = torch.eye(6)[0] + 0.03 * features[: n // 2]
    scale = torch.ones(n, dtype=torch.float64)
    scale[n // 2 :] = far
    return draw(n, scale, seed + 1, features=features * 5)


def test_density_aware_scaling_knows_directions_alone() -> None:
    """Features are brought to length 1; where distance tells nothing, all temperatures are about the same."""
    reference, new = near_and_far(600, 50)[:300], near_and_far(400, 20)
    found = DensityAwareScaling.fit(near_and_far(2000, 10), reference=reference, k=10)
    assert new.features is not None
    got, longer = (temperatures(found, new.with_features(new.features * factor)) for factor in (1, 4))
    torch.testing.assert_close(longer, got, rtol=1e-3, atol=1e-3)
    assert got[:200].median().item() == pytest.approx(1.0, rel=0.25)
    assert got[200:].median() > 2.5
    own = temperatures(DensityAwareScaling.fit(near_and_far(2000, 10)), new)
    assert own[200:].median() > 1.5 * own[:200].median()
    level = temperatures(DensityAwareScaling.fit(near_and_far(3000, 10, far=1.0), reference=reference, k=10), new)
    assert level.max() < 1.2 * level.min()
    assert level.median().item() == pytest.approx(1.0, rel=0.1)


# Scores


def scored(n: int, seed: int, *, rising: bool = True) -> cb.Predictions:
    score = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return draw(n, 1 + 2 * (score if rising else 1 - score), seed + 1, columns={"score": score})


@pytest.mark.parametrize("rising", [True, False])
def test_conditional_temperature_is_monotone_and_constant_beyond_what_it_knows(rising: bool) -> None:
    found = ConditionalTemperature.fit(scored(5000, 0, rising=rising), score="score")
    places = np.array([-1e6, -5.0, -1e-3, *np.linspace(0.05, 0.95, 50), 1.001, 5.0, 1e6])
    row = draw(1, 1.0, 5).logits.expand(len(places), -1)
    got = temperatures(found, cb.Predictions.from_logits(row, columns={"score": places})).numpy()
    assert (np.diff(got) * (1 if rising else -1)).min() >= -1e-6
    inside = places[3:-3]
    assert got[3:-3] == pytest.approx(1 + 2 * (inside if rising else 1 - inside), rel=0.2)
    assert got[:3] == pytest.approx(got[0], rel=1e-5)
    assert got[-3:] == pytest.approx(got[-1], rel=1e-5)


@pytest.mark.parametrize("score", ["entropy", "logit_norm", "feature_norm"])
def test_conditional_temperature_by_any_score(score: str) -> None:
    rows, new = near_and_far(1500, 10), near_and_far(500, 20)
    for n_knots in (2, 6):
        found = ConditionalTemperature.fit(rows, score=score, n_knots=n_knots)
        after, plain = found.fitted.nll_after, TemperatureScaling.fit(rows).fitted.nll_after
        assert after is not None
        assert plain is not None
        assert after <= plain + 1e-6
        assert torch.equal(found(new).logits.argmax(1), new.logits.argmax(1))
