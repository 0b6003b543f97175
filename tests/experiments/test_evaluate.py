"""What is found of a finished run: the same as from its files of predictions by hand, and not by training again."""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from made.sweeps import check_same, contents, read_curves, read_rows, sweep

sys.path.append(str(Path(__file__).parents[1] / "data"))
from calibrant import Predictions, score
from calibrant.calibrators import CALIBRATORS, Calibrator
from calibrant.calibrators.domains import PerturbedTemperature
from calibrant.calibrators.sets import SetTemperature
from calibrant.experiments.config import PAPER_METRICS
from calibrant.metrics.jackknife import jackknife, jackknife_groups
from calibrant.training.results import score_rows
from made.image_files import paint

RUN = "digits-mlp-focal-0"
GRID = {"loss": "focal"}
TESTS = ("test", "fog-3", "fog-5", "brightness-2")  # fog is among the corruptions of validation, brightness is not
CALIBRATION = ("fog", "spatter", "contrast")
NORMS = ("feature_norm", "logit_norm")
FITTED = ("temperature", "temperature_grid", "set_temperature", "perturbed_temperature")
ASKED: dict[str, Any] = {
    "metrics": list(PAPER_METRICS),
    "intervals": ["accuracy", "nll"],
    "calibrators": list(FITTED),
    "calibration_shifts": list(CALIBRATION),
    "settings": {"shifts": list(TESTS[1:]), "epochs": 4},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("evaluation") / "sweep"
    assert sweep(found, GRID, **ASKED).failures == ()
    return found


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """By test, calibrator and metric."""
    found = read_rows(folder).to_pylist()
    by_key = {(row["split"], row["calibrator"], row["metric"]): row for row in found}
    assert len(by_key) == len(found)
    return by_key


def load(folder: Path, *names: str) -> Predictions:
    return Predictions.concat(Predictions.load(folder / RUN / "predictions" / f"{name}.parquet") for name in names)


def refitted(folder: Path, name: str, test: str) -> Calibrator:
    """By hand, without the corruption that the test is under."""
    if name in ("temperature", "temperature_grid"):
        return CALIBRATORS[name].fit(load(folder, "val"))
    seen = [corruption for corruption in CALIBRATION if corruption != test.split("-")[0]]
    shifted = [f"val+{corruption}-{severity}" for corruption in seen for severity in range(1, 6)]
    kind = SetTemperature if name == "set_temperature" else PerturbedTemperature
    return kind.fit(load(folder, "val", *shifted))


def calibrated(folder: Path, calibrator: str, test: str) -> Predictions:
    found = load(folder, test)
    return found if calibrator == "none" else refitted(folder, calibrator, test)(found)


# Rows


@pytest.mark.slow
@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("calibrator", ["none", *FITTED])
def test_values_are_those_of_the_files(folder: Path, rows: dict[Any, Any], calibrator: str, test: str) -> None:
    card = score(calibrated(folder, calibrator, test), metrics=PAPER_METRICS)
    for metric, value in card.values().items():
        row = rows[test, calibrator, metric]
        assert row["value"] == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)), metric
        interval = card.interval(metric) if metric in ("accuracy", "nll") else (None, None)
        assert (row["low"], row["high"]) == (pytest.approx(interval) if interval[0] is not None else interval)
    predictions = calibrated(folder, calibrator, test)
    without = jackknife(predictions, card, jackknife_groups(predictions))
    for metric, values in without.items():
        assert rows[test, calibrator, metric]["jackknife"] == pytest.approx(values, rel=1e-5, abs=1e-7)
    assert rows[test, calibrator, "ece"]["majority"] == np.bincount(predictions.labels).max() / len(predictions)


@pytest.mark.parametrize("test", TESTS)
def test_means_are_those_of_the_rows(folder: Path, rows: dict[Any, Any], test: str) -> None:
    """In plain numpy."""
    found = load(folder, test)
    logits = found.logits.double().numpy()
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    labels = found.labels.numpy()
    values = {
        "accuracy": (probs.argmax(1) == labels).mean(),
        "confidence": probs.max(1).mean(),
        "nll": -np.log(probs[np.arange(len(labels)), labels]).mean(),
        "feature_norm": np.mean(found.column("feature_norm").to_pylist()),
        "logit_norm": np.mean(found.column("logit_norm").to_pylist()),
    }
    for metric, value in values.items():
        assert rows[test, "none", metric]["value"] == pytest.approx(value, rel=1e-5)


def test_unseen_corruptions_are_left_out_and_others_are_not(folder: Path, rows: dict[Any, Any]) -> None:
    """That the two fits of the oracle differ: else it would prove nothing."""
    everything = PerturbedTemperature.fit(
        load(folder, "val", *(f"val+{name}-{severity}" for name in CALIBRATION for severity in range(1, 6)))
    )
    for test in ("fog-3", "fog-5"):
        seen = score(everything(load(folder, test)), metrics=["nll"]).values()["nll"]
        assert rows[test, "perturbed_temperature", "nll"]["value"] != pytest.approx(seen, rel=1e-6)
    unseen = score(everything(load(folder, "brightness-2")), metrics=["nll"]).values()["nll"]
    assert rows["brightness-2", "perturbed_temperature", "nll"]["value"] == pytest.approx(unseen, rel=1e-9)


def test_every_test_has_every_calibrator_and_metric(rows: dict[Any, Any]) -> None:
    measured = {*PAPER_METRICS, "confidence"}
    wanted = {(test, calibrator, metric) for test in TESTS for calibrator in ("none", *FITTED) for metric in measured}
    norms = {(test, "none", norm) for test in TESTS for norm in NORMS}
    assert wanted | norms <= rows.keys()
    assert {metric for _, _, metric in rows} == measured | set(NORMS)


def test_rows_say_what_they_are_of(folder: Path, rows: dict[Any, Any]) -> None:
    wanted = {"test": ("none", 0, False), "fog-3": ("fog", 3, True), "fog-5": ("fog", 5, True)}
    wanted["brightness-2"] = ("brightness", 2, True)
    n_rows = {test: len(load(folder, test)) for test in TESTS}
    for (test, _, _), row in rows.items():
        assert (row["corruption"], row["severity"], row["shifted"], row["n_rows"]) == (*wanted[test], n_rows[test])
        run = {"run": RUN, "data": "digits", "model": "mlp", "loss": "focal", "variant": "", "seed": 0}
        assert run.items() <= row.items()
        assert row["label_smoothing"] == 0.0
        assert row["origin"] == ("published" if test == "test" else "generated")


# Curves


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("calibrator", ["none", "set_temperature"])
def test_curves_are_those_of_the_rows(folder: Path, calibrator: str, test: str) -> None:
    points = [
        point
        for point in read_curves(folder).to_pylist()
        if (point["split"], point["calibrator"]) == (test, calibrator)
    ]
    found = calibrated(folder, calibrator, test)
    confidence, predicted = (values.numpy() for values in found.probs.double().max(1))
    correct = predicted == found.labels.numpy()
    bins = [point for point in points if point["curve"] == "reliability"]
    risks = [point for point in points if point["curve"] == "risk_coverage"]
    assert len(bins) + len(risks) == len(points)
    number = np.ceil(confidence * 10).astype(int)
    there = sorted(set(number))
    assert len(there) == len(bins) <= 10
    for i, point in zip(there, bins, strict=True):
        inside = number == i
        wanted = (confidence[inside].mean(), correct[inside].mean(), inside.sum())
        assert point["point"] == i - 1  # of ten, also where others are empty
        assert (point["x"], point["y"], point["weight"]) == pytest.approx(wanted, abs=1e-6)
    assert sum(point["weight"] for point in bins) == len(found)
    assert [point["point"] for point in risks] == list(range(20))
    assert [point["x"] for point in risks] == pytest.approx(np.arange(1, 21) / 20)
    assert risks[-1]["y"] == pytest.approx(1 - correct.mean())
    ranked = correct[np.argsort(-confidence, kind="stable")]
    assert risks[9]["y"] == pytest.approx(1 - ranked[: -(-len(ranked) // 2)].mean(), abs=2 / len(ranked))


# Other measures, the same training

KEPT = (f"{RUN}/weights.safetensors", f"{RUN}/log.jsonl", f"{RUN}/predictions/*.parquet", f"{RUN}/DONE")


@pytest.mark.slow
def test_other_calibrators_are_measured_without_training(folder: Path, tmp_path: Path) -> None:
    """Corrupted validation images are predicted only when a calibrator needs them, and those alone."""
    plain = {**ASKED, "calibrators": ["temperature", "temperature_grid"]}
    other = tmp_path / "sweep"
    sweep(other, GRID, **plain)
    predictions = {path.stem for path in (other / RUN / "predictions").iterdir()}
    assert predictions == {"val", *TESTS}
    before = contents(other, *KEPT[:-1])
    assert sweep(other, GRID, **ASKED).failures == ()
    after = contents(other, *KEPT[:-1])
    assert {name: after[name] for name in before} == before
    added = {Path(name).stem for name in after.keys() - before.keys()}
    assert added == {f"val+{name}-{severity}" for name in CALIBRATION for severity in range(1, 6)}
    assert (other / RUN / "DONE").read_bytes() == (folder / RUN / "DONE").read_bytes()  # with their sizes
    check_same(other, folder)


def test_fewer_measures_are_fewer_rows(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "sweep"
    shutil.copytree(folder, other)
    before = contents(other, *KEPT)
    sweep(other, GRID, **{**ASKED, "calibrators": [], "metrics": ["nll"], "intervals": []})
    assert contents(other, *KEPT) == before
    found = read_rows(other)
    assert set(found.column("calibrator").to_pylist()) == {"none"}
    assert set(found.column("metric").to_pylist()) == {"nll", "accuracy", "confidence", *NORMS}
    assert found.column("low").null_count == found.column("high").null_count == found.num_rows
    assert len(set(read_curves(other).column("calibrator").to_pylist())) == 1


# ImageFiles, and shifts in the wild


def test_images_of_one_patient_are_left_out_together() -> None:
    patients = [row % 3 for row in range(60)]
    predictions = Predictions.from_logits(torch.randn(60, 2), torch.arange(60) % 2, columns={"patient": patients})
    (row,) = score_rows(predictions, ["accuracy"])
    rest = [score(predictions[torch.tensor(patients) != patient]).accuracy for patient in range(3)]
    assert sorted(row["jackknife"]) == pytest.approx(sorted(rest))


def test_shifts_in_the_wild(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    for part, n in (("train", 20), ("test", 6), ("hospital_b", 4)):
        for label, name in enumerate(("cat", "dog")):
            for i in range(n):
                colour = 60 + 100 * label + int(torch.randint(60, (), generator=generator))
                paint(tmp_path / f"data/{part}/{name}/{i}.png", (colour, colour, colour), side=8)
    settings = {"data": "image_folder", "root": str(tmp_path / "data"), "image_size": 8, "workers": 0, "batch_size": 8}
    settings["shifts"] = ["hospital_b", "fog-3"]
    assert sweep(tmp_path / "sweep", {}, settings=settings, calibrators=[]).failures == ()
    found = read_rows(tmp_path / "sweep").to_pylist()
    about = {(row["split"], row["corruption"], row["severity"], row["shifted"], row["n_rows"]) for row in found}
    assert about == {
        ("test", "none", 0, False, 12),
        ("hospital_b", "hospital_b", 0, True, 8),
        ("fog-3", "fog", 3, True, 12),
    }


def test_columns_are_those_of_the_contract(folder: Path) -> None:
    names = (
        "run data model loss variant label_smoothing seed split corruption severity shifted origin calibrator n_rows"
    )
    assert read_rows(folder).column_names == [*names.split(), "majority", "metric", "value", "low", "high", "jackknife"]
    assert read_curves(folder).column_names == [*names.split(), "curve", "point", "x", "y", "weight"]
    assert read_rows(folder).schema.field("shifted").type == pa.bool_()
