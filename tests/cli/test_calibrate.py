"""`calibrant fit`, `apply` and `compare-calibrators`: what the verbs add to the library, and what they refuse."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from cyclopts import Parameter

import calibrant as cb
from calibrant.calibrators import CALIBRATORS, Calibrator, TemperatureScaling
from calibrant.cli.fit import FitOptions, fit
from calibrant.predictions import Predictions
from made.cli import Run, in_this_process, run_in_one_process


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_this_process(monkeypatch, capsys)


def draw(n: int = 300, seed: int = 0, n_classes: int = 3) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_classes, generator=generator)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    columns = {
        "corruption": [("none", "blur", "fog")[i % 3] for i in range(n)],
        "severity": [i // 3 % 2 for i in range(n)],
        "site": [("A", "B")[i // 6 % 2] for i in range(n)],
        "weight": torch.rand(n, generator=generator, dtype=torch.float64) + 0.1,
        "number": list(range(n)),
    }
    return Predictions.from_logits(2 * logits, labels, columns=columns)


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
    found = Files(*(tmp_path / name for name in ("val.parquet", "test.parquet", "c.json", "out.parquet")))
    draw().save(found.val)
    draw(200, seed=1).save(found.test)
    TemperatureScaling.fit(Predictions.load(found.val)).save(found.calibrator)
    return found


def write_features(path: Path, features: torch.Tensor) -> Path:
    if path.suffix == ".npy":
        np.save(path, features.numpy())
    else:
        pq.write_table(pa.table({"features": pa.array(features.tolist(), pa.list_(pa.float32()))}), path)
    return path


def assert_same(found: Predictions, wanted: Predictions) -> None:
    torch.testing.assert_close(found.log_probs(), wanted.log_probs(), rtol=1e-5, atol=1e-5)


def test_a_process_fits_applies_compares_and_refuses(files: Files) -> None:
    files.calibrator.unlink()
    refused = files.calibrator.with_name("refused.json")
    fitting, applying, comparing, misspelt = run_in_one_process(
        ("fit", files.val, "-o", files.calibrator),
        ("apply", files.calibrator, files.test, "-o", files.output),
        ("compare-calibrators", files.val, files.test, "--calibrators", "identity", "temperature"),
        ("fit", files.val, "--calibrator", "temprature", "-o", refused),
    )
    wanted = TemperatureScaling.fit(Predictions.load(files.val))
    out = fitting.done()
    assert "temperature, fitted to 300 rows of 3 classes" in out
    for value in (wanted.fitted.nll_before, wanted.fitted.nll_after):
        assert f"{value:.4f}" in out
    assert applying.done() == f"{files.output}: 200 rows, calibrated by temperature\n"
    assert_same(Predictions.load(files.output), wanted(Predictions.load(files.test)))
    first = [line.split()[0] for line in comparing.done().splitlines() if line.split()]
    assert [word for word in first if word in CALIBRATORS] == ["identity", "temperature"]
    misspelt.refused("did you mean 'temperature'")
    assert not refused.exists()


def test_help_loads_no_torch() -> None:
    code = (
        "import sys\nfrom calibrant.cli import app\nfor verb in ('fit', 'apply', 'compare-calibrators'):\n"
        "    app([verb, '--help'], exit_on_error=False, result_action='return_value')\n"
        "assert 'torch' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("Usage: ") == 3


# Fit


def test_every_option_of_every_method_is_a_flag_whose_help_names_them() -> None:
    hints = get_type_hints(FitOptions, include_extras=True)
    assert set(hints) == {option for cls in CALIBRATORS.values() for option in cls.options()}
    for option, hint in hints.items():
        [text] = [part.help for part in hint.__metadata__ if isinstance(part, Parameter) and part.help]
        named = text.partition(":")[0].split(", ")
        assert named == [name for name, cls in CALIBRATORS.items() if option in cls.options()], option
    described = inspect.getdoc(fit) or ""
    assert all(name in described for name in CALIBRATORS)


OPTIONS: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("temperature", ("--bounds", "0.5", "1.5", "--at-bound", "clip"), {"bounds": (0.5, 1.5), "at_bound": "clip"}),
    ("temperature", ("--weights", "weight"), {"weights": "weight"}),
    ("temperature_grid", ("--grid", "1.25", "1.5", "7"), {"grid": (1.25, 1.5, 7.0)}),
    ("vector", ("--strength", "0.25"), {"strength": 0.25}),
    ("histogram", ("--n-bins", "4", "--equal-width"), {"n_bins": 4, "equal_width": True}),
    ("spline", ("--n-knots", "3"), {"n_knots": 3}),
    ("conditional_temperature", ("--score", "logit_norm"), {"score": "logit_norm"}),
    ("domain_temperature", ("--domain", "site"), {"domain": "site"}),
    ("perturbed_temperature", ("--shift", "site"), {"shift": "site"}),
    (
        "set_temperature",
        ("--sets", "corruption", "site", "--same-prior"),
        {"sets": ("corruption", "site"), "same_prior": True},
    ),
    ("transcal", ("--target", "other.parquet"), {"target": draw(150, seed=2)}),
    ("density_aware", ("--reference", "known.parquet", "--k", "3"), {"reference": None, "k": 3}),
]


def test_options_reach_the_fit(files: Files, calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = draw(80, seed=5).with_features(features_of(80, seed=5))
    draw(150, seed=2).save("other.parquet")
    known.save("known.parquet")
    val, test = (draw(n, seed=i).with_features(features_of(n, seed=i)) for i, n in enumerate((300, 200)))
    val.save(files.val)
    for name, arguments, options in OPTIONS:
        record = calibrant("fit", files.val, "--calibrator", name, *arguments, "-o", files.calibrator, "--json").record
        given = {name: known if name == "reference" else value for name, value in options.items()}
        wanted = CALIBRATORS[name].fit(val, **given)
        summary = wanted.summary() | {"output": str(files.calibrator)}
        assert record.pop("parameters") == pytest.approx(summary.pop("parameters"), rel=1e-9), name
        assert record == summary | {"nll_after": pytest.approx(summary["nll_after"], rel=1e-9)}, name
        found = cb.load_calibrator(files.calibrator)
        assert type(found) is CALIBRATORS[name]
        assert_same(found(test), wanted(test))


@pytest.mark.parametrize("name", ["features.npy", "features.parquet"])
def test_features_come_from_a_file(files: Files, tmp_path: Path, calibrant: Run, name: str) -> None:
    val, test = Predictions.load(files.val), Predictions.load(files.test)
    of_val = write_features(tmp_path / name, features_of())
    calibrant("fit", files.val, "--calibrator", "density_aware", "--features", of_val, "-o", files.calibrator).done()
    wanted = CALIBRATORS["density_aware"].fit(val.with_features(features_of()))
    calibrant("apply", files.calibrator, files.test, "-o", files.output).refused("features")
    of_test = write_features(tmp_path / f"test {name}", features_of(200, seed=1))
    parts = [tmp_path / "first.parquet", tmp_path / "second.parquet"]
    test[:120].save(parts[0])
    test[120:].save(parts[1])
    apply = ("apply", files.calibrator, *parts, "-o", files.output, "--features")
    calibrant(*apply, of_val).refused("300")
    assert not files.output.exists()
    calibrant(*apply, of_test).done()
    assert_same(Predictions.load(files.output), wanted(test.with_features(features_of(200, seed=1))))


FIT_REFUSED: list[tuple[tuple[str, ...], str]] = [
    ((), "at least one file"),
    (("none.parquet",), "there is no file none.parquet"),
    (("bare.parquet",), "labels"),
    (("correct.parquet",), "correct"),
    (("val.parquet", "--calibrator", "temprature"), "did you mean 'temperature'"),
    (("val.parquet", "--n-bins", "5"), "n_bins is no option of temperature"),
    (("none.parquet", "--k", "3"), "k is no option of temperature"),
    (("val.parquet", "--calibrator", "histogram", "--n-bins", "many"), "n-bins"),
    (("val.parquet", "--calibrator", "transcal", "--target", "none.parquet"), "none.parquet"),
    (("val.parquet", "--calibrator", "density_aware", "--features", "none.npy"), "none.npy"),
    (("val.parquet", "--calibrator", "density_aware", "--features", "text.npy"), "text.npy"),
    (("val.parquet", "--calibrator", "density_aware", "--features", "objects.npy"), "objects.npy"),
    (("val.parquet", "--calibrator", "density_aware", "--features", "short.npy"), "250"),
    (("val.parquet", "--methud", "temperature"), "--methud"),
    (("val.parquet", "-o", "no/c.json"), "c.json"),
]


def test_fit_refuses_and_leaves_the_old_file(
    files: Files, calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = draw()
    Predictions.from_logits(rows.logits).save("bare.parquet")
    Predictions.from_logits(rows.logits, rows.logits.argmax(1)).save("correct.parquet")
    Path("text.npy").write_text("no array")
    np.save("objects.npy", np.array([{"a": 1}] * 300, dtype=object), allow_pickle=True)
    write_features(Path("short.npy"), features_of()[:250])
    before = files.calibrator.read_bytes()
    for arguments, message in FIT_REFUSED:
        output = () if "-o" in arguments else ("-o", files.calibrator)
        calibrant("fit", *arguments, *output).refused(message)
    calibrant("fit", files.val).refused("-o")
    assert files.calibrator.read_bytes() == before


# Apply


def fitted(files: Files) -> Calibrator:
    return cb.load_calibrator(files.calibrator)


def test_apply_joins_files_in_order_with_all_columns(files: Files, tmp_path: Path, calibrant: Run) -> None:
    parts = [draw(n, seed).with_features(features_of(n, seed)) for seed, n in ((11, 70), (12, 1), (13, 130))]
    for number, part in enumerate(parts):
        part.save(tmp_path / f"part {number}.parquet")
    sources = [tmp_path / f"part {number}.parquet" for number in range(3)]
    calibrant("apply", files.calibrator, *sources, "-o", files.output).done()
    got, whole = Predictions.load(files.output), Predictions.concat(parts)
    assert got.columns.equals(whole.columns)
    assert torch.equal(got.labels, whole.labels)
    assert got.features is not None
    assert torch.equal(got.features, torch.cat([features_of(n, s) for s, n in ((11, 70), (12, 1), (13, 130))]).half())
    assert_same(got, fitted(files)(whole))
    assert got.metadata["calibrator"] == {"name": "temperature", "fitted_on": fitted(files).fitted.fingerprint}
    bare = Predictions.from_logits(whole.logits)
    for rows in (bare, bare[:0]):
        rows.save(files.test)
        calibrant("apply", files.calibrator, files.test, "-o", files.output).done()
        assert torch.equal(Predictions.load(files.output).labels, rows.labels)


def test_apply_refuses_and_leaves_the_old_output(
    files: Files, calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Predictions.load(files.val)[:150].save("part.parquet")
    draw(20, n_classes=4).save("four.parquet")
    bad = pa.table({"label": [0, 1], "logits": pa.array([[0.0, 1.0, 2.0], [0.0, float("nan"), 1.0]])})
    pq.write_table(bad, "nan.parquet")
    names = sorted(path.name for path in tmp_path.iterdir())
    files.output.write_text("kept")
    for arguments, message in (
        (("c.json", "val.parquet"), "allow_same_rows=True (--allow-same-rows)"),
        (("c.json", "test.parquet", "val.parquet"), "--allow-same-rows"),
        (("c.json", "part.parquet"), "--allow-same-rows"),
        (("none.json", "test.parquet"), "none.json"),
        (("c.json", "none.parquet"), "none.parquet"),
        (("test.parquet", "test.parquet"), "test.parquet"),
        (("c.json", "test.parquet", "four.parquet"), "4"),
        (("c.json", "nan.parquet"), "row 1"),
        (("c.json",), "at least one file"),
    ):
        calibrant("apply", *arguments, "-o", files.output).refused(message)
    calibrant("apply", "c.json", "test.parquet").refused("-o")
    assert files.output.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, files.output.name])
    calibrant("apply", "c.json", "val.parquet", "-o", files.output, "--allow-same-rows").done()
    found = cb.score(Predictions.load(files.output)).nll
    assert found == pytest.approx(fitted(files).fitted.nll_after, rel=1e-5)


# Comparison


def test_comparison_prints_that_of_the_library(files: Files, calibrant: Run) -> None:
    names = ("identity", "perturbed_temperature", "platt")
    options = ("--calibrators", *names, "--metrics", "nll", "brier", "--by", "corruption", "--level", "0.9")
    compare = ("compare-calibrators", files.val, files.test, *options)
    val, test = Predictions.load(files.val), Predictions.load(files.test)
    wanted = cb.compare_calibrators(val, test, names, by="corruption", metrics=("nll", "brier"), level=0.9)
    assert calibrant(*compare, "--json").record == [row.to_dict() for row in wanted]
    out = calibrant(*compare).done()
    lines = [line.split() for line in out.splitlines()]
    assert "90% interval" in out
    assert [line for line in out.splitlines() if line.startswith("platt: ")] == [f"platt: {wanted[-1].failure}"]
    groups = list(dict.fromkeys(row.group for row in wanted if not row.overall))
    assert [line[1] for line in lines if line[1:2] and line[1] in groups] == [g for g in groups for _ in range(2)]
    for row in wanted[:-1]:
        names = [row.calibrator] if row.overall else [row.calibrator, row.group, str(row.n_rows)]
        [line] = [
            line
            for line in lines
            if line[: len(names)] == names and (not row.overall or line[1] not in "none blur fog")
        ]
        for value in row.values.values():
            assert f"{value:.4f}" in line


def test_comparison_refuses(files: Files, calibrant: Run) -> None:
    for arguments, message in (
        ((files.test, "--calibrators", "temprature"), "did you mean 'temperature'"),
        ((files.test, "--metrics", "ecee"), "did you mean 'ece'"),
        ((files.test, "--by", "sight"), "'sight'"),
        ((files.test, "--level", "2"), "level"),
        ((files.val, "--calibrators", "temperature"), "--allow-same-rows"),
        ((), ""),
    ):
        calibrant("compare-calibrators", files.val, *arguments).refused(message)
    calibrant("compare-calibrators", files.val, files.val, "--calibrators", "temperature", "--allow-same-rows").done()
