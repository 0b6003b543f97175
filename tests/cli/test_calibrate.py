"""`calibrant fit`, `apply` and `compare-calibrators`: real processes where that matters, elsewhere through `main`."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import calibrant as cb
from calibrant.calibrators import (
    DensityAwareScaling,
    DomainTemperature,
    HistogramBinning,
    PerturbedTemperature,
    SetTemperature,
    TemperatureScaling,
    TransferTemperature,
    VectorScaling,
)
from made.cli import Run, in_this_process, run_in_one_process

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "fit": (
        "--method",
        "--grid",
        "--bins",
        "--strength",
        "--domain",
        "--shift",
        "--sets",
        "--score",
        "--target",
        "--reference",
        "--k",
        "--weights",
        "--features",
        "--json",
    ),
    "apply": ("--features", "--allow-same-rows"),
    "compare-calibrators": ("--by", "--methods", "--metrics", "--shift", "--allow-same-rows", "--json"),
}


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_this_process(monkeypatch, capsys)


def draw(n: int = 300, seed: int = 0, n_classes: int = 3, temperature: float = 2.0) -> cb.Predictions:
    generator = torch.Generator().manual_seed(seed)
    honest = 2 * torch.randn(n, n_classes, generator=generator)
    labels = honest.softmax(1).multinomial(1, generator=generator)[:, 0]
    columns = {
        "corruption": [("none", "blur", "fog")[i % 3] for i in range(n)],
        "severity": [i // 3 % 2 for i in range(n)],
        "site": [("A", "B")[i // 6 % 2] for i in range(n)],
        "weight": torch.rand(n, generator=generator, dtype=torch.float64) + 0.1,
        "number": list(range(n)),
    }
    return cb.Predictions.from_logits(honest * temperature, labels, columns=columns)


def features_of(n: int = 300, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(1000 + seed))


class Files(NamedTuple):
    """Validation rows, test rows, and where a calibrator and its output go."""

    val: Path
    test: Path
    calibrator: Path
    output: Path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(*(tmp_path / name for name in ("val.parquet", "test.parquet", "c.json", "honest.parquet")))
    draw().save(found.val)
    draw(200, seed=1).save(found.test)
    return found


def fitted(files: Files) -> TemperatureScaling:
    """Temperature scaling of the validation rows, saved."""
    found = TemperatureScaling.fit(cb.Predictions.load(files.val))
    found.save(files.calibrator)
    return found


def write_features(path: Path, features: torch.Tensor) -> Path:
    if path.suffix == ".npy":
        np.save(path, features.numpy())
    else:
        column = pa.array(features.tolist(), pa.list_(pa.float32()))
        pq.write_table(pa.table({"features": column}), path)
    return path


# Real processes


def test_a_process_fits_applies_compares_and_refuses_in_one_line(files: Files) -> None:
    refused = files.calibrator.with_name("refused.json")
    fit, apply, compare, misspelt = run_in_one_process(
        ("fit", files.val, "--method", "temperature", "-o", files.calibrator),
        ("apply", files.calibrator, files.test, "-o", files.output),
        ("compare-calibrators", files.val, files.test, "--methods", "identity", "temperature"),
        ("fit", files.val, "--method", "temprature", "-o", refused),
    )
    wanted = TemperatureScaling.fit(cb.Predictions.load(files.val))
    out = fit.done()
    assert "temperature" in out
    assert "300" in out
    for nll in (wanted.fitted.nll_before, wanted.fitted.nll_after):
        assert f"{nll:.4f}"[:-1] in out
    apply.done()
    got, test = cb.Predictions.load(files.output), cb.Predictions.load(files.test)
    torch.testing.assert_close(got.log_probs(), wanted(test).log_probs(), rtol=1e-6, atol=1e-6)
    lines = [line.split()[:1] for line in compare.done().splitlines()]
    assert [line for line in lines if line in (["identity"], ["temperature"])] == [["identity"], ["temperature"]]
    misspelt.refused("did you mean 'temperature'")
    assert not refused.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option_and_loads_no_torch(command: str) -> None:
    code = (
        "import sys\nfrom calibrant.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    found = subprocess.run([sys.executable, "-c", code, command, "--help"], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    for option in COMMANDS[command]:
        assert option in found.stdout


# Fit


def test_fit_writes_the_calibrator_of_the_library(files: Files, calibrant: Run) -> None:
    val, test = cb.Predictions.load(files.val), cb.Predictions.load(files.test)
    calibrant("fit", files.val, "--method", "vector", "--strength", "0.25", "-o", files.calibrator).done()
    found = cb.load_calibrator(files.calibrator)
    assert isinstance(found, VectorScaling)
    torch.testing.assert_close(found(test).logits, VectorScaling.fit(val, strength=0.25)(test).logits)
    assert found.fitted.fingerprint == val.fingerprint


def test_fit_prints_json(files: Files, calibrant: Run) -> None:
    record = calibrant("fit", files.val, "--method", "temperature", "-o", files.calibrator, "--json").record
    wanted = cb.load_calibrator(files.calibrator).fitted
    assert record["method"] == "temperature"
    assert record["n_rows"] == 300
    assert record["nll_before"] == pytest.approx(wanted.nll_before, rel=1e-12)
    assert record["nll_after"] == pytest.approx(wanted.nll_after, rel=1e-12)
    assert record["nll_after"] < record["nll_before"]


@pytest.mark.parametrize(
    ("arguments", "options", "cls"),
    [
        (("--method", "temperature", "--grid", "1.25", "1.5", "7"), {"grid": (1.25, 1.5, 7)}, TemperatureScaling),
        (("--method", "temperature", "--weights", "weight"), {"weights": "weight"}, TemperatureScaling),
        (("--method", "histogram", "--bins", "4"), {"n_bins": 4}, HistogramBinning),
        (("--method", "domain_temperature", "--domain", "site"), {"domain": "site"}, DomainTemperature),
        (("--method", "perturbed_temperature", "--shift", "site"), {"shift": "site"}, PerturbedTemperature),
        (
            ("--method", "set_temperature", "--sets", "corruption", "site"),
            {"sets": ("corruption", "site")},
            SetTemperature,
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_reach_the_fit(
    files: Files, calibrant: Run, arguments: tuple[str, ...], options: dict[str, Any], cls: type[Any]
) -> None:
    calibrant("fit", files.val, *arguments, "-o", files.calibrator).done()
    found, wanted = cb.load_calibrator(files.calibrator), cls.fit(cb.Predictions.load(files.val), **options)
    assert type(found) is cls
    test = cb.Predictions.load(files.test)
    torch.testing.assert_close(found(test).logits, wanted(test).logits, rtol=1e-6, atol=1e-6)


def test_fit_takes_a_target_and_a_score(files: Files, calibrant: Run) -> None:
    val, test = cb.Predictions.load(files.val), cb.Predictions.load(files.test)
    calibrant("fit", files.val, "--method", "transcal", "--target", files.test, "-o", files.calibrator).done()
    found = cb.load_calibrator(files.calibrator)
    assert isinstance(found, TransferTemperature)
    assert found.temperature == pytest.approx(TransferTemperature.fit(val, target=test).temperature, rel=1e-9)
    arguments = ("--method", "conditional_temperature", "--score", "logit_norm")
    calibrant("fit", files.val, *arguments, "-o", files.calibrator).done()
    wanted = cb.CALIBRATORS["conditional_temperature"].fit(val, score="logit_norm")
    torch.testing.assert_close(cb.load_calibrator(files.calibrator)(test).logits, wanted(test).logits)


def test_fit_reads_several_files_and_folders(files: Files, tmp_path: Path, calibrant: Run) -> None:
    rows = cb.Predictions.load(files.val)
    folder = tmp_path / "parts"
    folder.mkdir()
    rows[:120].save(folder / "a.parquet")
    rows[120:].save(folder / "b.parquet")
    wanted = TemperatureScaling.fit(rows)
    for sources in ([folder / "a.parquet", folder / "b.parquet"], [folder], [folder / "*.parquet"]):
        calibrant("fit", *sources, "--method", "temperature", "-o", files.calibrator).done()
        found = cb.load_calibrator(files.calibrator)
        assert isinstance(found, TemperatureScaling)
        assert found.temperature == pytest.approx(wanted.temperature, rel=1e-9)
        assert found.fitted.fingerprint == rows.fingerprint


@pytest.mark.parametrize("name", ["features.npy", "features.parquet"])
def test_features_come_from_a_file(files: Files, tmp_path: Path, calibrant: Run, name: str) -> None:
    val, test = cb.Predictions.load(files.val), cb.Predictions.load(files.test)
    of_val = write_features(tmp_path / name, features_of())
    calibrant("fit", files.val, "--method", "density_aware", "--features", of_val, "-o", files.calibrator).done()
    found = cb.load_calibrator(files.calibrator)
    assert isinstance(found, DensityAwareScaling)
    wanted = DensityAwareScaling.fit(val.with_features(features_of()))
    assert (found.w0, found.w1) == pytest.approx((wanted.w0, wanted.w1), rel=1e-5, abs=1e-8)
    calibrant("apply", files.calibrator, files.test, "-o", files.output).refused("features")
    assert not files.output.exists()
    of_test = write_features(tmp_path / f"test {name}", features_of(200, seed=1))
    calibrant("apply", files.calibrator, files.test, "--features", of_test, "-o", files.output).done()
    given = test.with_features(features_of(200, seed=1))
    got = cb.Predictions.load(files.output)
    torch.testing.assert_close(got.log_probs(), wanted(given).log_probs(), rtol=1e-4, atol=1e-5)


def test_a_reference_and_k_reach_the_fit(files: Files, tmp_path: Path, calibrant: Run) -> None:
    val = cb.Predictions.load(files.val).with_features(features_of())
    reference = draw(80, seed=5).with_features(features_of(80, seed=5))
    val.save(files.val)
    reference.save(tmp_path / "train.parquet")
    options = ("--reference", tmp_path / "train.parquet", "--k", 3)
    calibrant("fit", files.val, "--method", "density_aware", *options, "-o", files.calibrator).done()
    found = cb.load_calibrator(files.calibrator)
    wanted = DensityAwareScaling.fit(val, reference=reference, k=3)
    assert isinstance(found, DensityAwareScaling)
    assert (found.w0, found.w1) == pytest.approx((wanted.w0, wanted.w1), rel=1e-5, abs=1e-8)


def test_features_of_another_number_of_rows_are_refused(files: Files, tmp_path: Path, calibrant: Run) -> None:
    short = write_features(tmp_path / "f.npy", features_of()[:250])
    options = ("--method", "density_aware", "--features", short, "-o", files.calibrator)
    calibrant("fit", files.val, *options).refused("250")
    assert not files.calibrator.exists()
    (tmp_path / "x.npy").write_text("no array")
    options = ("--method", "density_aware", "--features", tmp_path / "x.npy", "-o", files.calibrator)
    calibrant("fit", files.val, *options).refused("x.npy")
    options = ("--method", "density_aware", "--features", tmp_path / "none.npy", "-o", files.calibrator)
    calibrant("fit", files.val, *options).refused("none.npy")


def test_features_of_objects_are_refused_and_never_unpickled(files: Files, tmp_path: Path, calibrant: Run) -> None:
    np.save(tmp_path / "f.npy", np.array([{"a": 1}] * 300, dtype=object), allow_pickle=True)
    options = ("--method", "density_aware", "--features", tmp_path / "f.npy", "-o", files.calibrator)
    calibrant("fit", files.val, *options).refused("f.npy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "temprature"), "did you mean 'temperature'"),
        (("--method", "temperature", "--bins", "5"), "bins"),
        (("--method", "temperature", "--strength", "1"), "strength"),
        (("--method", "temperature", "--domain", "site"), "domain"),
        (("--method", "temperature", "--k", "3"), "k"),
        (("--method", "histogram", "--grid", "1.5"), "grid"),
        (("--method", "vector", "--weights", "weight"), "weights"),
        (("--method", "identity", "--score", "entropy"), "score"),
        (("--method", "temperature", "--target", "x.parquet"), "target"),
        (("--method", "temperature", "--sets", "site"), "sets"),
        (("--method", "temperature", "--shift", "site"), "shift"),
        (("--method", "temperature", "--reference", "x.parquet"), "reference"),
        (("--method", "histogram", "--bins", "0"), "n_bins"),
        (("--method", "histogram", "--bins", "many"), "bins"),
        (("--method", "vector", "--strength", "-1"), "-1"),
        (("--method", "temperature", "--grid", "-1.5"), "1.5"),
        (("--method", "temperature", "--weights", "wait"), "'wait'"),
        (("--method", "domain_temperature"), "'domain'"),
        (("--method", "domain_temperature", "--domain", "sight"), "'sight'"),
        (("--method", "transcal"), "target"),
        (("--method", "transcal", "--target", "none.parquet"), "none.parquet"),
        (("--method", "density_aware"), "features"),
        (("--method", "platt"), "3"),
        (("--methud", "temperature"), "--methud"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_options_of_fit_are_refused(files: Files, calibrant: Run, arguments: tuple[str, ...], message: str) -> None:
    calibrant("fit", files.val, *arguments, "-o", files.calibrator).refused(message)
    assert not files.calibrator.exists()


def test_bad_files_of_fit_are_refused(files: Files, tmp_path: Path, calibrant: Run) -> None:
    output = ("--method", "temperature", "-o", files.calibrator)
    calibrant("fit", tmp_path / "none.parquet", *output).refused(f"there is no file {tmp_path / 'none.parquet'}")
    rows = draw()
    cb.Predictions.from_logits(rows.logits).save(tmp_path / "bare.parquet")
    calibrant("fit", tmp_path / "bare.parquet", *output).refused("labels")
    rows[:0].save(tmp_path / "empty.parquet")
    calibrant("fit", tmp_path / "empty.parquet", *output).refused("row")
    cb.Predictions.from_logits(rows.logits, rows.logits.argmax(1)).save(tmp_path / "right.parquet")
    calibrant("fit", tmp_path / "right.parquet", *output).refused("")
    calibrant("fit", files.val, "--method", "temperature").refused("-o")
    calibrant("fit", files.val, "--method", "temperature", "-o", tmp_path / "no" / "c.json").refused("c.json")
    assert not files.calibrator.exists()


def test_a_refused_fit_leaves_the_old_file(files: Files, calibrant: Run) -> None:
    fitted(files)
    before = files.calibrator.read_bytes()
    calibrant("fit", files.val, "--method", "platt", "-o", files.calibrator).refused("3")
    assert files.calibrator.read_bytes() == before


# Apply


def test_apply_writes_all_rows_with_all_columns(files: Files, calibrant: Run) -> None:
    found = fitted(files)
    calibrant("apply", files.calibrator, files.test, "-o", files.output).done()
    got, test = cb.Predictions.load(files.output), cb.Predictions.load(files.test)
    assert got.columns.equals(test.columns)
    assert torch.equal(got.labels, test.labels)
    torch.testing.assert_close(got.log_probs(), found(test).log_probs(), rtol=1e-6, atol=1e-6)
    assert got.metadata["calibrator"] == {"method": "temperature", "fitted_on": found.fitted.fingerprint}


def test_apply_joins_several_files_in_order(files: Files, tmp_path: Path, calibrant: Run) -> None:
    found = fitted(files)
    parts = []
    for seed, n in ((11, 70), (12, 1), (13, 130)):
        parts.append(draw(n, seed))
        parts[-1].save(tmp_path / f"part {seed}.parquet")
    sources = [tmp_path / f"part {seed}.parquet" for seed in (11, 12, 13)]
    calibrant("apply", files.calibrator, *sources, "-o", files.output).done()
    got, whole = cb.Predictions.load(files.output), cb.Predictions.concat(parts)
    assert got.column("number").to_pylist() == whole.column("number").to_pylist()
    assert torch.equal(got.labels, whole.labels)
    torch.testing.assert_close(got.log_probs(), found(whole).log_probs(), rtol=1e-6, atol=1e-6)


def test_apply_needs_no_labels(files: Files, calibrant: Run) -> None:
    found = fitted(files)
    rows = draw(50, seed=3)
    bare = cb.Predictions.from_logits(rows.logits)
    bare.save(files.test)
    calibrant("apply", files.calibrator, files.test, "-o", files.output).done()
    got = cb.Predictions.load(files.output)
    assert torch.equal(got.labels, bare.labels)
    torch.testing.assert_close(got.log_probs(), found(bare).log_probs(), rtol=1e-6, atol=1e-6)


def test_apply_keeps_features(files: Files, calibrant: Run) -> None:
    fitted(files)
    draw(200, seed=1).with_features(features_of(200)).save(files.test)
    calibrant("apply", files.calibrator, files.test, "-o", files.output).done()
    got = cb.Predictions.load(files.output)
    assert got.features is not None
    assert torch.equal(got.features, features_of(200).half())


def test_rows_that_were_fitted_on_are_refused_and_the_old_output_stays(files: Files, calibrant: Run) -> None:
    found = fitted(files)
    calibrant("apply", files.calibrator, files.val, "-o", files.output).refused("same")
    assert not files.output.exists()
    files.output.write_text("kept")
    calibrant("apply", files.calibrator, files.val, "-o", files.output).refused("allow")
    calibrant("apply", files.calibrator, files.test, files.val, "-o", files.output).refused("allow")
    cb.Predictions.load(files.val)[:150].save(files.test)
    calibrant("apply", files.calibrator, files.test, "-o", files.output).refused("allow")
    assert files.output.read_text() == "kept"
    assert sorted(path.name for path in files.output.parent.iterdir()) == sorted(path.name for path in files)
    calibrant("apply", files.calibrator, files.val, "-o", files.output, "--allow-same-rows").done()
    got = cb.score(cb.Predictions.load(files.output)).nll
    assert got == pytest.approx(found.fitted.nll_after, rel=1e-5)


def test_bad_files_of_apply_are_refused_and_the_old_output_stays(files: Files, tmp_path: Path, calibrant: Run) -> None:
    fitted(files)
    files.output.write_text("kept")
    output = ("-o", files.output)
    calibrant("apply", tmp_path / "none.json", files.test, *output).refused("none.json")
    calibrant("apply", files.calibrator, tmp_path / "none.parquet", *output).refused("none.parquet")
    calibrant("apply", files.test, files.test, *output).refused("test.parquet")
    draw(20, n_classes=4).save(tmp_path / "four.parquet")
    calibrant("apply", files.calibrator, tmp_path / "four.parquet", *output).refused("4")
    calibrant("apply", files.calibrator, files.test, tmp_path / "four.parquet", *output).refused("4")
    bad = pa.table({"label": [0, 1], "logits": pa.array([[0.0, 1.0, 2.0], [0.0, float("nan"), 1.0]])})
    pq.write_table(bad, tmp_path / "nan.parquet")
    calibrant("apply", files.calibrator, tmp_path / "nan.parquet", *output).refused("row 1")
    calibrant("apply", files.calibrator, files.test).refused("-o")
    calibrant("apply", files.calibrator, *output).refused("")
    assert files.output.read_text() == "kept"


# Comparison


def rows_of(record: Any) -> list[dict[str, Any]]:
    """The rows of the table, which are the record or one of its parts."""
    if isinstance(record, list):
        return record
    [found] = [part for part in record.values() if isinstance(part, list) and part and isinstance(part[0], dict)]
    assert isinstance(found, list)
    return found


def test_comparison_is_that_of_the_library(files: Files, calibrant: Run) -> None:
    options = ("--methods", "identity", "temperature", "vector", "--metrics", "nll", "brier", "--by", "severity")
    rows = rows_of(calibrant("compare-calibrators", files.val, files.test, *options, "--json").record)
    val, test = cb.Predictions.load(files.val), cb.Predictions.load(files.test)
    methods = ["identity", "temperature", "vector"]
    wanted = cb.compare_calibrators(val, test, methods, by="severity", metrics=("nll", "brier"))
    assert len(rows) == len(wanted)
    for row, expected in zip(rows, wanted, strict=True):
        assert (row["method"], row["group"], row["n_rows"]) == (expected.method, expected.group, expected.n_rows)
        assert row["values"] == pytest.approx(expected.values, rel=1e-9)
        for name, interval in expected.intervals.items():
            assert row["intervals"][name] == pytest.approx(list(interval), rel=1e-9)


def test_comparison_prints_a_row_for_each_method(files: Files, calibrant: Run) -> None:
    out = calibrant("compare-calibrators", files.val, files.test, "--methods", "identity", "temperature").done()
    [row] = cb.compare_calibrators(cb.Predictions.load(files.val), cb.Predictions.load(files.test), ["temperature"])
    [line] = [line for line in out.splitlines() if line.split()[:1] == ["temperature"]]
    assert f"{row.values['nll']:.4f}" in line
    assert f"{row.values['ece']:.4f}" in line


def test_comparison_leaves_out_the_tested_type(files: Files, calibrant: Run) -> None:
    options = ("--methods", "perturbed_temperature", "--by", "corruption", "--metrics", "nll", "--json")
    rows = rows_of(calibrant("compare-calibrators", files.val, files.test, *options).record)
    val, test = cb.Predictions.load(files.val), cb.Predictions.load(files.test)
    calibrator = PerturbedTemperature.fit(val.where(corruption=["none", "fog"]))
    wanted = cb.score(calibrator(test.where(corruption="blur"))).nll
    [got] = [row["values"]["nll"] for row in rows if row["group"] == "blur"]
    assert got == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--methods", "temprature"), "did you mean 'temperature'"),
        (("--metrics", "ecee"), "did you mean 'ece'"),
        (("--by", "sight"), "'sight'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_options_of_comparison_are_refused(
    files: Files, calibrant: Run, arguments: tuple[str, ...], message: str
) -> None:
    calibrant("compare-calibrators", files.val, files.test, *arguments).refused(message)


def test_comparison_on_the_rows_of_the_fit_is_refused(files: Files, calibrant: Run) -> None:
    options = ("--methods", "temperature")
    calibrant("compare-calibrators", files.val, files.val, *options).refused("allow")
    calibrant("compare-calibrators", files.val, files.val, *options, "--allow-same-rows").done()
    calibrant("compare-calibrators", files.val).refused("")
