"""Set temperature: what unshifted, small and unlike sets get, and what the result says of the sets."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.calibrators import LeaveOneShiftOut, SetTemperature, TemperatureScaling, labelled_sets, sets
from calibrant.calibrators.labelled_sets import CONCENTRATIONS, N_MIXES, POOL_WEIGHT, LabelledSets
from calibrant.calibrators.likelihood import Likelihood, solve_temperature
from calibrant.calibrators.maps import log_mahalanobis
from calibrant.calibrators.set_statistics import (
    each_gaussian,
    fit_gaussian,
    fit_gaussians,
    held_out_distances,
    row_noise,
    set_means,
    set_statistics,
)
from calibrant.errors import InvalidInputError
from made.calibrator_check import torch_may_deprecate
from made.calibrator_data import row_temperatures

ALL_CLASSES = torch.full((10,), 0.1)


def one_set(kind: str, severity: int, n: int, seed: int, *, prior: torch.Tensor = ALL_CLASSES) -> cb.Predictions:
    """The logits see the label ever less, and class 0 ever more; T grows."""
    generator = torch.Generator().manual_seed(seed)
    labels = prior.multinomial(n, replacement=True, generator=generator)
    logits = torch.randn(n, 10, generator=generator)
    logits[torch.arange(n), labels] += 3 * 0.75**severity
    logits[:, 0] += 0.3 * severity
    columns = {"corruption": [kind] * n, "severity": [severity] * n}
    return cb.Predictions.from_logits((3 - 0.3 * severity) * logits, labels, columns=columns)


def validation() -> cb.Predictions:
    shifts = [(kind, severity) for kind in ("blur", "fog") for severity in (1, 2, 3)]
    corrupted = [one_set(kind, severity, 600, 7 * i) for i, (kind, severity) in enumerate(shifts)]
    return cb.Predictions.concat([one_set("none", 0, 1000, 100), *corrupted])


def test_unshifted_sets_of_any_size_keep_the_temperature_of_the_clean_rows() -> None:
    rows = validation()
    found = SetTemperature.fit(rows)
    clean = TemperatureScaling.fit(rows.where(corruption="none")).temperature
    assert found.base_temperature == pytest.approx(clean, rel=1e-9)
    for n in (20, 60, 200, 2000):
        kept = [found.temperature_of(one_set("none", 0, n, 1000 + n + i)) for i in range(20)]
        assert np.median(kept) == pytest.approx(found.base_temperature, rel=1e-9)
        assert kept == pytest.approx([clean] * 20, rel=0.15)
    shifted = one_set("snow", 2, 600, 5)
    best = TemperatureScaling.fit(shifted).temperature
    assert found.temperature_of(shifted) == pytest.approx(best, rel=0.15)
    low, high = found.temperature_interval(shifted)
    assert low < best < high < 1.5 * low
    narrow_low, narrow_high = found.temperature_interval(shifted, level=0.5)
    assert low < narrow_low < narrow_high < high


def test_sets_at_chance_level_do_not_pull_the_others() -> None:
    """Of them all high temperatures are alike, and nothing in their logits tells them from the others."""
    lost = [one_set("lost", severity, 600, 50 + severity) for severity in (1, 2, 3)]
    lost = [replace(rows, labels=rows.labels.roll(1)) for rows in lost]
    found = SetTemperature.fit(cb.Predictions.concat([validation(), *lost]))
    shifted = one_set("snow", 2, 600, 5)
    assert found.temperature_of(shifted) == pytest.approx(TemperatureScaling.fit(shifted).temperature, rel=0.2)


def test_the_noise_of_a_few_clean_rows_counts_too() -> None:
    clean, corrupted, new = (
        one_set("none", 0, 200, 6),
        validation().where(severity=[1, 2, 3]),
        one_set("none", 0, 2000, 9),
    )
    for start in range(0, 200, 25):
        found = SetTemperature.fit(cb.Predictions.concat([clean[start : start + 25], corrupted]))
        assert found.temperature_of(new) == pytest.approx(found.base_temperature, rel=0.05)


def test_small_sets_have_the_base_temperature_and_the_metadata_count_them() -> None:
    found = SetTemperature.fit(validation())
    parts = [one_set("snow", 3, n, 10 + n) for n in (19, 600)]
    rows = cb.Predictions.concat([parts[0], replace(parts[1], columns=one_set("frost", 3, 600, 0).columns)])
    got = row_temperatures(found, rows).numpy()
    assert got[:19] == pytest.approx(found.base_temperature, rel=1e-5)
    assert got[19:] == pytest.approx(found.temperature_of(parts[1]), rel=1e-5)
    assert found.temperature_of(parts[1]) > 1.3 * found.base_temperature
    record = {"sets": ["corruption", "severity"], "n_sets": 2, "n_small_sets": 1, "n_unlike_sets": 0}
    assert record.items() <= found(rows).metadata["calibrator"].items()
    record = {"sets": ["severity"], "n_sets": 1, "n_small_sets": 0, "n_unlike_sets": 0}
    assert record.items() <= found.with_sets("severity")(rows).metadata["calibrator"].items()
    bare = cb.Predictions.from_logits(rows.logits[:1])
    record = {"sets": [], "n_sets": 1, "n_small_sets": 1, "n_unlike_sets": 0}
    assert record.items() <= found(bare).metadata["calibrator"].items()
    with pytest.raises(InvalidInputError, match=r"20 rows.*got 1"):
        found.adapt(bare)


def test_the_noise_of_a_set_is_that_of_its_rows() -> None:
    """Against the covariance of the statistics of many samples; that of the entropy of the mean is of second order."""
    rows = one_set("none", 1, 30_000, 3)
    origin, covariance = row_noise(rows, (), None)
    samples = set_statistics(*set_means(rows, np.arange(len(rows)) // 100, ()), 10)
    assert samples.mean(0).tolist() == pytest.approx(origin.tolist(), abs=0.008)  # not 0.014 less, of the entropy
    covariance[-1, -1] += SetTemperature.fit(validation())._noise[1] / 100
    ratio = (100 * samples.T.cov() / covariance).diagonal().tolist()
    assert ratio[:2] == pytest.approx([1.0, 1.0], rel=0.25)  # 300 samples: three standard errors
    assert 0.4 < ratio[2] < 1.25  # probabilities vary less than draws from them


def test_another_class_mix_is_not_taken_for_a_corruption() -> None:
    """In a corrupted set the predictions are of few classes too, but uncertain."""
    found = SetTemperature.fit(validation())
    few = one_set("none", 0, 2000, 4, prior=torch.eye(10)[3] + torch.eye(10)[5])
    assert found.temperature_of(few) == pytest.approx(found.base_temperature, rel=0.15)
    corrupted = one_set("snow", 3, 2000, 4)
    assert found.temperature_of(corrupted) == pytest.approx(TemperatureScaling.fit(corrupted).temperature, rel=0.15)


def test_sets_far_outside_those_of_the_fit_are_counted_and_have_wide_intervals() -> None:
    found = SetTemperature.fit(validation())
    like, unlike = one_set("snow", 2, 600, 5), one_set("snow", 9, 600, 5)
    assert found(like).metadata["calibrator"]["n_unlike_sets"] == 0
    assert found(unlike).metadata["calibrator"]["n_unlike_sets"] == 1
    widths = [np.ptp(np.log(found.temperature_interval(rows))) for rows in (like, unlike)]
    assert widths[1] > 1.5 * widths[0]


def test_one_type_is_enough_and_its_sets_are_left_out_one_by_one() -> None:
    rows = validation()
    found = SetTemperature.fit(rows.where(corruption=["none", "blur"]))
    assert found.temperature_of(one_set("snow", 3, 600, 5)) > 1.2 * found.base_temperature
    assert 0 < found.left_out_rmse < 1
    assert found.scalar_parameters["left_out_rmse"] == found.left_out_rmse


@pytest.mark.parametrize("n", [19, 21, 300])
def test_the_module_has_the_same_statistics_and_the_same_noise(n: int) -> None:
    found = SetTemperature.fit(validation())
    with torch_may_deprecate():
        module = torch.jit.script(found.module())
    rows = cb.Predictions.from_logits(one_set("snow", 2, n, 8).logits.double())
    torch.testing.assert_close(module(rows.logits), found(rows).logits, rtol=1e-9, atol=1e-9)


# Features


def with_features(rows: cb.Predictions, severity: float, seed: int, *, n_features: int = 40) -> cb.Predictions:
    """Features around the mean of the class; a shift adds noise in directions that vary little."""
    random = torch.Generator().manual_seed(seed)
    means = 3 * torch.randn(10, n_features, generator=torch.Generator().manual_seed(99))
    scale = torch.linspace(0.05, 2.0, n_features)
    noise = torch.randn(len(rows), n_features, generator=random) * scale
    noise += 0.1 * severity * torch.randn(len(rows), n_features, generator=random)
    return rows.with_features(means[rows.logits.argmax(1)] + noise)


def test_the_distance_from_the_nearest_class_is_that_of_its_gaussian() -> None:
    rows = with_features(one_set("none", 0, 3000, 1), 0, 2)
    x, classes = rows.features.double().numpy(), rows.logits.argmax(1).numpy()  # type: ignore[union-attr]
    means = np.stack([x[classes == k].mean(0) for k in range(10)])
    covariance = (x - means[classes]).T @ (x - means[classes]) / len(x)
    values, vectors = np.linalg.eigh(covariance)
    kept = np.append(np.full(40 - 12, values[:-12].mean()), values[-12:]) + 1e-3 * values.mean()
    inverse = vectors / kept @ vectors.T
    squares = [[(row - mean) @ inverse @ (row - mean) for mean in means] for row in x[:50]]
    fitted = fit_gaussian(rows.features, rows.logits.argmax(1), 12)  # type: ignore[arg-type]
    got = log_mahalanobis(rows.features[:50], *fitted)  # type: ignore[index]
    assert got.numpy() == pytest.approx(0.5 * np.log(np.min(squares, axis=1)), rel=1e-8)


def test_distances_of_the_clean_rows_are_those_of_new_rows() -> None:
    """A fit to few rows of many features is nearer to its own rows."""
    known = with_features(one_set("none", 0, 300, 1), 0, 2)
    new = with_features(one_set("none", 0, 20_000, 3), 0, 4)
    _, of_classes = each_gaussian(fit_gaussians(known))
    own, of_new = (log_mahalanobis(rows.features, *of_classes).mean() for rows in (known, new))  # type: ignore[arg-type]
    held_out = held_out_distances(known).mean()
    assert own < of_new - 0.02
    assert float(held_out) == pytest.approx(float(of_new), abs=0.015)
    # the fit takes these for the clean set, and their variance for the noise of its rows
    distances = held_out_distances(known)
    origin, covariance = row_noise(known, fit_gaussians(known), distances)
    assert float(origin[3]) == pytest.approx(float(distances.mean()), rel=1e-12)
    assert float(covariance[3, 3]) == pytest.approx(float(distances.var(correction=0)), rel=1e-3)
    corrupted = [with_features(one_set(kind, 2, 100, 9), 2, i) for i, kind in enumerate(("fog", "blur"))]
    clean = with_features(one_set("none", 0, 300, 1), 0, 2)
    fitted = SetTemperature.fit(cb.Predictions.concat([clean, *corrupted]))
    assert float(fitted.scale[0, 3]) == pytest.approx(float(distances.mean()), rel=1e-9)


def test_with_features_an_unseen_corruption_gets_its_temperature_and_clean_sets_keep_theirs() -> None:
    def one(kind: str, severity: int, n: int, seed: int) -> cb.Predictions:
        rows = one_set(kind, 0, n, seed)
        sharp = replace(rows, logits=(1 + 0.4 * severity) * rows.logits)
        return with_features(sharp, severity, seed + 1)

    sets = [one(kind, severity, 800, 40 * i + severity) for i, kind in enumerate("abc") for severity in (1, 2, 3)]
    validation = cb.Predictions.concat([with_features(one_set("none", 0, 1500, 100), 0, 101), *sets])
    severities = torch.tensor([0] * 1500 + [severity for _ in "abc" for severity in (1, 2, 3) for _ in range(800)])
    kinds = ["none"] * 1500 + [kind for kind in "abc" for _ in range(2400)]
    columns = {"corruption": kinds, "severity": severities}
    validation = cb.Predictions.from_logits(
        validation.logits, validation.labels, columns=columns, features=validation.features
    )
    found = SetTemperature.fit(validation)
    for severity in (1, 2, 3):
        shifted = one("new", severity, 800, 900 + severity)
        best = TemperatureScaling.fit(shifted).temperature
        assert found.temperature_of(shifted) == pytest.approx(best, rel=0.15)
    kept = [found.temperature_of(with_features(one_set("none", 0, 400, 500 + i), 0, 600 + i)) for i in range(10)]
    assert np.median(kept) == pytest.approx(found.base_temperature, rel=0.02)


# Fits that leave out a type


@pytest.mark.slow
@pytest.mark.parametrize("known", ["", "features", "reference"])
@pytest.mark.parametrize("has_clean", [True, False])
def test_fits_that_share_sums_of_sets_are_bit_for_bit_those_of_each_alone(
    known: str, has_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    snow = [one_set("snow", severity, 300, 60 + severity) for severity in (1, 2)]
    rows = cb.Predictions.concat([validation(), *snow])
    rows = with_features(rows, 1, 3) if known else rows
    rows = rows if has_clean else rows.where(severity=[1, 2, 3])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(4))]
    reference = with_features(one_set("none", 0, 500, 8), 0, 9) if known == "reference" else None
    shared, noise, n_found = LeaveOneShiftOut(rows, reference=reference), labelled_sets.row_noise, []
    for kind in ("blur", "fog", "snow", "pixelate"):
        test = one_set(kind, 2, 50, 5)
        test = replace(with_features(test, 2, 6) if rows.features is not None else test, logits=test.logits.double())
        others = [other for other in ("none", "blur", "fog", "snow") if other != kind]
        alone = SetTemperature.fit(rows.where(corruption=others), reference=reference).calibrate(test)
        monkeypatch.setattr(labelled_sets, "row_noise", lambda *args: n_found.append(1) or noise(*args))
        assert torch.equal(shared.calibrate("set_temperature", test).logits, alone.logits)
        monkeypatch.undo()
    assert len(n_found) == (1 if has_clean else 4)


def test_a_call_finds_the_statistics_of_sets_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, means, calls = SetTemperature.fit(validation()), sets.set_means, []
    monkeypatch.setattr(sets, "set_means", lambda *args: calls.append(1) or means(*args))
    found(one_set("snow", 3, 600, 5))
    found.temperature_interval(one_set("snow", 3, 600, 5))
    assert len(calls) == 2


def test_statistics_and_temperatures_of_class_mixes_are_those_of_weighted_rows() -> None:
    parts = [one_set("none", 0, 300, 1), one_set("fog", 1, 250, 2), one_set("fog", 2, 250, 3)]
    rows, random, n_before = cb.Predictions.concat(parts), np.random.default_rng(0), 0
    statistics, log_t, _ = LabelledSets.of(rows, ("corruption", "severity"), None).mixed(0.1)
    for i, part in enumerate(parts):
        labels, probs = part.labels.numpy(), part.probs.double().numpy()
        counts = np.bincount(labels)
        entropies = -(probs * np.log(probs)).sum(1) / np.log(10)
        for j in range(N_MIXES + 1):
            shares = counts / len(part) if j == 0 else random.dirichlet(np.full(10, CONCENTRATIONS[(j - 1) % 2]))
            weights = (shares / counts)[labels]
            n_rows, mean = 1 / (weights @ weights), weights @ probs
            entropy = (-(mean * np.log(mean)).sum() + 9 / (2 * n_rows)) / np.log(10)
            wanted = [weights @ entropies, weights @ probs.max(1), entropy]
            assert statistics[i * (N_MIXES + 1) + j].tolist() == pytest.approx(wanted, rel=1e-6)
            pooled = np.full(len(rows), POOL_WEIGHT / len(rows))
            pooled[n_before : n_before + len(part)] += n_rows * weights
            best = solve_temperature(Likelihood(rows.logits, rows.labels, torch.from_numpy(pooled))).temperature
            assert float(log_t[i * (N_MIXES + 1) + j]) == pytest.approx(np.log(best), abs=0.01)
        n_before += len(part)
