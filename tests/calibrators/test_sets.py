"""Set temperature: what unshifted, small and unlike sets get, and what the result says of the sets."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.calibrators import SetTemperature, TemperatureScaling
from calibrant.calibrators.sets import row_variance, set_means, set_statistics, with_prior
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


@pytest.mark.parametrize("same_prior", [False, True])
def test_unshifted_sets_of_any_size_keep_the_temperature_of_the_clean_rows(same_prior: bool) -> None:
    rows = validation()
    found = SetTemperature.fit(rows, same_prior=same_prior)
    clean = TemperatureScaling.fit(rows.where(corruption="none")).temperature
    assert found.base_temperature == pytest.approx(clean, rel=1e-9)
    statistics, mix = set_statistics(*set_means(rows.where(severity=0), np.zeros(1000, dtype=np.int64), ()), 10)
    at_clean = (with_prior(statistics, mix, found.prior) if same_prior else statistics) @ found.weight + found.intercept
    assert float(at_clean) == pytest.approx(math.log(clean), abs=1e-9)
    for n in (20, 60, 200, 2000):
        kept = [found.temperature_of(one_set("none", 0, n, 1000 + n + i)) for i in range(20)]
        assert np.median(kept) == pytest.approx(found.base_temperature, rel=1e-9)
        assert kept == pytest.approx([clean] * 20, rel=0.15)
    shifted = one_set("snow", 2, 600, 5)
    assert found.temperature_of(shifted) == pytest.approx(TemperatureScaling.fit(shifted).temperature, rel=0.15)


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
    record = {"sets": ["corruption", "severity"], "n_sets": 2, "n_small_sets": 1}
    assert record.items() <= found(rows).metadata["calibrator"].items()
    record = {"sets": ["severity"], "n_sets": 1, "n_small_sets": 0}
    assert record.items() <= found.with_sets("severity")(rows).metadata["calibrator"].items()
    bare = cb.Predictions.from_logits(rows.logits[:1])
    record = {"sets": [], "n_sets": 1, "n_small_sets": 1}
    assert record.items() <= found(bare).metadata["calibrator"].items()
    with pytest.raises(InvalidInputError, match=r"20 rows.*got 1"):
        found.adapt(bare)


@pytest.mark.parametrize("same_prior", [False, True])
def test_the_noise_of_a_set_is_that_of_its_rows(same_prior: bool) -> None:
    """Against the variance of the statistics of many samples."""
    rows = one_set("none", 1, 30_000, 3)
    prior = (torch.tensor([0.4, -0.3]).double(), torch.tensor([0.2, -9.0, 9.0]).double()) if same_prior else ()
    weight = torch.tensor([3.0, 2.0, -4.0][: 2 + same_prior]).double()
    number = np.zeros(len(rows), dtype=np.int64)
    n_whole, whole = set_means(rows, number, ())
    found = row_variance(rows, number, whole, weight, (), prior)
    statistics, mix = set_statistics(*set_means(rows, np.arange(len(rows)) // 100, ()), 10)
    assert float(mix.mean()) == pytest.approx(float(set_statistics(n_whole, whole, 10)[1]), abs=0.008)  # not 0.014 less
    samples = (with_prior(statistics, mix, prior) if same_prior else statistics) @ weight
    assert 100 * float(samples.var()) == pytest.approx(found, rel=0.25)  # 300 samples: three standard errors


def test_fewer_classes_are_not_taken_for_a_corruption_beyond_those_of_the_fit() -> None:
    found = SetTemperature.fit(validation(), same_prior=True)
    few = one_set("none", 0, 2000, 4, prior=torch.eye(10)[3] + torch.eye(10)[5])
    weight, constants = found.prior
    limit = found.weight[-1] * constants[1:]
    free = replace(found, prior=(weight, torch.tensor([float(constants[0]), -9.0, 9.0]).double()))
    assert math.log(found.temperature_of(few) / found.base_temperature) < float(limit.max()) + 0.1
    assert math.log(free.temperature_of(few) / found.base_temperature) > 2 * (float(limit.max()) + 0.1)


def test_one_type_is_enough_and_its_sets_are_left_out_one_by_one() -> None:
    rows = validation()
    found = SetTemperature.fit(rows.where(corruption=["none", "blur"]))
    assert found.temperature_of(one_set("snow", 3, 600, 5)) > 1.2 * found.base_temperature
    assert 0 < found.left_out_rmse < 1
    assert found.scalar_parameters["left_out_rmse"] == found.left_out_rmse


@pytest.mark.parametrize("n", [19, 21, 300])
def test_the_module_has_the_same_prior_and_the_same_noise(n: int) -> None:
    found = SetTemperature.fit(validation(), same_prior=True)
    with torch_may_deprecate():
        module = torch.jit.script(found.module())
    rows = cb.Predictions.from_logits(one_set("snow", 2, n, 8).logits.double())
    torch.testing.assert_close(module(rows.logits), found(rows).logits, rtol=1e-9, atol=1e-9)
