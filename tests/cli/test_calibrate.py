"""`calibrant fit`, `apply` and `compare-calibrators`: what the verbs add to the library, and their errors."""

import inspect
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from cyclopts import Parameter

import calibrant as cb
from calibrant.calibrators import CALIBRATORS, TemperatureScaling
from calibrant.cli.fit import FitOptions, fit
from calibrant.errors import InvalidInputError
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
    }
    return Predictions.from_logits(2 * logits, labels, columns=columns)


def features_of(n: int = 300, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(1000 + seed))


class Files(NamedTuple):
    """Validation rows, test rows, a calibrator fitted to the first, and the path of an output."""

    val: Path
    test: Path
    calibrator: Path
    output: Path


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    found = Files(*(tmp_path / name for name in ("val.parquet", "test.parquet", "c.json", "out.parquet")))
    draw().save(found.val)
    draw(200, seed=1).save(found.test)
    TemperatureScaling.fit(Predictions.load(found.val)).save(found.calibrator)
    monkeypatch.chdir(tmp_path)
    return found


def assert_same(found: Predictions, wanted: Predictions) -> None:
    torch.testing.assert_close(found.log_probs, wanted.log_probs, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_fit_apply_and_compare(files: Files) -> None:
    files.calibrator.unlink()
    fitting, applying, comparing, misspelt = run_in_one_process(
        ("fit", files.val, "-o", files.calibrator),
        ("apply", files.calibrator, files.test, "-o", files.output),
        ("compare-calibrators", files.val, files.test, "--calibrators", "identity", "temperature"),
        ("fit", files.val, "--calibrator", "temprature", "-o", "refused.json"),
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
    assert not Path("refused.json").exists()


# Fit


def test_every_option_is_a_flag_whose_help_names_its_calibrators() -> None:
    hints = get_type_hints(FitOptions, include_extras=True)
    assert set(hints) == {option for cls in CALIBRATORS.values() for option in cls.options()}
    for option, hint in hints.items():
        [text] = [part.help for part in hint.__metadata__ if isinstance(part, Parameter) and part.help]
        named = text.partition(":")[0].split(", ")
        assert named == [name for name, cls in CALIBRATORS.items() if option in cls.options()], option
    described = inspect.getdoc(fit) or ""
    assert all(name in described for name in CALIBRATORS)


OPTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("temperature", "--bounds 0.5 1.5 --at-bound clip", {"bounds": (0.5, 1.5), "at_bound": "clip"}),
    ("temperature", "--weights weight", {"weights": "weight"}),
    ("temperature", "--clip 0.01", {"clip": 0.01}),
    ("temperature_grid", "--grid 1.25 1.5 7", {"grid": (1.25, 1.5, 7.0)}),
    ("vector", "--strength 0.25", {"strength": 0.25}),
    ("histogram", "--n-bins 4 --equal-width", {"n_bins": 4, "equal_width": True}),
    ("spline", "--n-knots 3", {"n_knots": 3}),
    ("conditional_temperature", "--score logit_norm", {"score": "logit_norm"}),
    ("domain_temperature", "--domain site", {"domain": "site"}),
    ("perturbed_temperature", "--shift site", {"shift": "site"}),
    ("set_temperature", "--sets corruption site", {"sets": ("corruption", "site")}),
    ("transcal", "--target other.parquet", {"target": draw(150, seed=2)}),
    ("density_aware", "--reference known.parquet --k 3", {"reference": None, "k": 3}),
]


@pytest.mark.slow
def test_options_reach_the_fit(files: Files, calibrant: Run) -> None:
    known = draw(80, seed=5).with_features(features_of(80, seed=5))
    draw(150, seed=2).save("other.parquet")
    known.save("known.parquet")
    val, test = (draw(n, seed=i).with_features(features_of(n, seed=i)) for i, n in enumerate((300, 200)))
    val.save(files.val)
    for name, arguments, options in OPTIONS:
        record = calibrant("fit", files.val, "--calibrator", name, *arguments.split(), "-o", "c.json", "--json").record
        given = {option: known if option == "reference" else value for option, value in options.items()}
        wanted = CALIBRATORS[name].fit(val, **given)
        summary = wanted.summary() | {"output": "c.json"}
        assert record.pop("parameters") == pytest.approx(summary.pop("parameters"), rel=1e-9), name
        assert record == summary | {"nll_after": pytest.approx(summary["nll_after"], rel=1e-9)}, name
        found = cb.load_calibrator(files.calibrator)
        assert type(found) is CALIBRATORS[name]
        assert_same(found(test), wanted(test))


def test_a_temperature_has_an_interval_and_a_warning_if_few_rows_decide(files: Files, calibrant: Run) -> None:
    few = Predictions.from_logits([[2.0, 0.0]] * 200, [1, 1, *[0] * 198])
    for rows, warned in ((draw(), False), (few, True)):
        rows.save(files.val)
        low, high = TemperatureScaling.fit(rows).interval or ()
        out = calibrant("fit", files.val, "-o", "c.json").done()
        assert f"interval {low:.4g} to {high:.4g} (95 %)" in " ".join(out.split())
        assert ("About 2 rows decide" in " ".join(out.split())) == warned
        found = calibrant("fit", files.val, "-o", "c.json", "--json").record
        assert found["interval"] == pytest.approx([low, high], rel=1e-6)


def test_weighted_nlls_say_so(files: Files, calibrant: Run) -> None:
    wanted = TemperatureScaling.fit(draw(), weights="weight").fitted
    lines = calibrant("fit", files.val, "--weights", "weight", "-o", "c.json").done().splitlines()
    for when, value in (("before", wanted.nll_before), ("after", wanted.nll_after)):
        assert [f"weighted NLL {when} {value:.4f}"] == [
            " ".join(line.split()) for line in lines if f"NLL {when} " in line
        ][:1]
    assert not any(line.lstrip().startswith("NLL ") for line in lines)


def test_each_domain_has_a_temperature_in_the_table_and_in_json(files: Files, calibrant: Run) -> None:
    command = ("fit", files.val, "--calibrator", "domain_temperature", "--domain", "site", "-o", "c.json")
    lines = [line.split() for line in calibrant(*command).done().splitlines()]
    found = calibrant(*command, "--json").record["temperatures"]
    highest_first = sorted(found.items(), key=lambda item: -item[1])
    assert len(found) > 1
    assert lines[lines.index(["site", "temperature"]) + 2 :] == [[name, f"{t:.6g}"] for name, t in highest_first]


def test_features_come_from_a_file(files: Files, calibrant: Run) -> None:
    val, test = Predictions.load(files.val), Predictions.load(files.test)
    np.save("features.npy", features_of().numpy())
    calibrant("fit", files.val, "--calibrator", "density_aware", "--features", "features.npy", "-o", "c.json").done()
    wanted = CALIBRATORS["density_aware"].fit(val.with_features(features_of()))
    calibrant("apply", "c.json", files.test, "-o", files.output).refused("features")
    of_test = features_of(200, seed=1)
    pq.write_table(pa.table({"features": pa.array(of_test.tolist(), pa.list_(pa.float32()))}), "features.parquet")
    test[:120].save("first.parquet")
    test[120:].save("second.parquet")
    apply = ("apply", "c.json", "first.parquet", "second.parquet", "-o", files.output, "--features")
    calibrant(*apply, "features.npy").refused("300")
    assert not files.output.exists()
    calibrant(*apply, "features.parquet").done()
    assert_same(Predictions.load(files.output), wanted(test.with_features(of_test)))


@pytest.mark.slow
def test_features_that_are_not_finite_are_refused_from_every_file(files: Files, calibrant: Run) -> None:
    val, test = Predictions.load(files.val), Predictions.load(files.test)
    val.with_features(features_of()).save(files.val)
    for name in ("density_aware", "set_temperature"):
        calibrant("fit", files.val, "--calibrator", name, "-o", f"{name}.json").done()
    for value in (np.nan, np.inf, 7e4):
        damaged = features_of(200, seed=1).numpy()
        damaged[7, 1] = value
        np.save("damaged.npy", damaged)
        lists = pa.array(list(damaged), pa.list_(pa.float32()))
        test.save("good.parquet")
        pq.write_table(pq.read_table("good.parquet").append_column("features", lists), "damaged.parquet")
        message = f"features must be finite in float16, got {value:g} at row 7, column 1"
        for name in ("density_aware", "set_temperature"):
            apply = ("apply", f"{name}.json", "-o", files.output)
            calibrant(*apply, "damaged.parquet").refused(f"damaged.parquet: {message}")
            for features in ("damaged.npy", "damaged.parquet"):
                calibrant(*apply, files.test, "--features", features).refused(f"{features}: {message}")
            fit = ("fit", "damaged.parquet", "--calibrator", name, "-o", "x.json")
            calibrant(*fit).refused(f"damaged.parquet: {message}")
            reference = ("fit", files.val, "--calibrator", name, "--reference", "damaged.parquet", "-o", "x.json")
            calibrant(*reference).refused(f"damaged.parquet: {message}")
        for tensor in (torch.from_numpy(damaged), damaged, lists):
            with pytest.raises(InvalidInputError, match=f"^{message}$"):
                test.with_features(tensor)
    assert not files.output.exists()


@pytest.mark.slow
def test_classes_in_another_order_are_reordered_where_asked(files: Files, calibrant: Run) -> None:
    val, test = (replace(Predictions.load(path), class_names=("a", "b", "c")) for path in (files.val, files.test))
    val.save(files.val)
    test.save(files.test)
    test.match_names(["c", "a", "b"]).save("turned.parquet")
    TemperatureScaling.fit(val).save(files.calibrator)
    runs: tuple[tuple[object, ...], ...] = (
        ("apply", files.calibrator, "turned.parquet", "-o", files.output),
        ("fit", files.val, "turned.parquet", "-o", "t.json"),
        ("fit", files.val, "--calibrator", "transcal", "--target", "turned.parquet", "-o", "t.json"),
        ("compare-calibrators", files.val, "turned.parquet", "--calibrators", "temperature", "vector"),
        ("audit", files.val, "turned.parquet", "--metrics", "ece"),
    )
    for run in runs:
        calibrant(*run).refused("class 0 is 'c', not 'a'; the names are the same: match_names (--match-names)")
        straight = ("test.parquet" if token == "turned.parquet" else token for token in run)
        matched = calibrant(*run, "--match-names").done()
        assert matched == calibrant(*straight).done().replace("test.parquet", "turned.parquet")
    assert torch.equal(Predictions.load(files.output).labels, test.labels)


def test_a_failed_fit_leaves_the_old_file(files: Files, calibrant: Run) -> None:
    rows = draw()
    Predictions.from_logits(rows.logits).save("bare.parquet")
    Path("text.npy").write_text("no array")
    np.save("complex.npy", np.zeros((300, 2), complex))
    twice = pa.Table.from_arrays(2 * [pa.array([[1.0]] * 300)], ["features", "features"])
    pq.write_table(twice, "twice.parquet")
    before = files.calibrator.read_bytes()
    for arguments, message in (
        ((), "at least one file"),
        (("none.parquet",), "there is no file none.parquet"),
        (("bare.parquet",), "bare.parquet has no column label"),
        (("val.parquet", "--n-bins", "5"), "n_bins is no option of temperature"),
        (("val.parquet", "--k", "3"), "k is no option of temperature"),
        (("val.parquet", "--calibrator", "histogram", "--n-bins", "many"), "n-bins"),
        (("val.parquet", "--calibrator", "transcal", "--target", "none.parquet"), "none.parquet"),
        (("val.parquet", "--calibrator", "density_aware", "--features", "text.npy"), "text.npy"),
        (("val.parquet", "--calibrator", "density_aware", "--features", "complex.npy"), "real numbers, got complex128"),
        (
            ("val.parquet", "--calibrator", "density_aware", "--features", "twice.parquet"),
            "must have one column features",
        ),
        (("val.parquet", "--methud", "temperature"), "--methud"),
    ):
        calibrant("fit", *arguments, "-o", files.calibrator).refused(message)
    calibrant("fit", files.val, "-o", "no/c.json").refused("c.json")
    calibrant("fit", files.val).refused("-o")
    assert files.calibrator.read_bytes() == before


# Apply


def test_apply_joins_files_in_order_with_all_columns(files: Files, calibrant: Run) -> None:
    parts = [draw(n, seed).with_features(features_of(n, seed)) for seed, n in ((11, 70), (12, 1), (13, 130))]
    sources = [f"part {number}.parquet" for number in range(3)]
    for path, part in zip(sources, parts, strict=True):
        part.save(path)
    calibrant("apply", files.calibrator, *sources, "-o", files.output).done()
    got, given, calibrator = Predictions.load(files.output), Predictions.concat(parts), cb.load_calibrator("c.json")
    assert got.columns.equals(given.columns)
    assert torch.equal(got.labels, given.labels)
    assert torch.equal(got.features, given.features)  # type: ignore[arg-type]
    assert_same(got, calibrator(given))
    assert got.metadata["calibrator"] == {"name": "temperature", "fitted_on": calibrator.fitted.fingerprint}
    bare = Predictions.from_logits(given.logits)
    for rows in (bare, bare[:0]):
        rows.save(files.test)
        calibrant("apply", files.calibrator, files.test, "-o", files.output).done()
        assert torch.equal(Predictions.load(files.output).labels, rows.labels)


def test_files_without_labels(files: Files, calibrant: Run) -> None:
    for path in (files.val, files.test):
        pq.write_table(pq.read_table(path).drop_columns("label"), f"bare {path.name}")
    calibrant("apply", files.calibrator, "bare test.parquet", files.test, "-o", files.output).done()
    wanted = cb.load_calibrator(files.calibrator)(Predictions.load(["bare test.parquet", files.test]))
    got = Predictions.load(files.output)
    assert_same(got, wanted)
    assert torch.equal(got.labels, wanted.labels)
    assert got.labels.eq(-1).sum() == 200
    calibrant("apply", files.calibrator, "bare test.parquet", "-o", files.output).done()
    assert "label" not in pq.read_schema(files.output).names
    calibrant("apply", files.calibrator, "bare val.parquet", "-o", files.output).refused("--allow-same-rows")
    record = {
        target: calibrant(
            "fit", files.val, "--calibrator", "transcal", "--target", target, "-o", "t.json", "--json"
        ).record
        for target in ("test.parquet", "bare test.parquet")
    }
    assert record["test.parquet"] == record["bare test.parquet"]
    for verb in (
        ("fit", "bare val.parquet", "-o", "x.json"),
        ("compare-calibrators", "bare val.parquet", files.test),
        ("compare-calibrators", files.test, "bare val.parquet"),
    ):
        calibrant(*verb).refused(
            "bare val.parquet has no column label: type --label with that of its labels (its other columns are"
        )


def test_a_failed_apply_leaves_the_old_output(files: Files, calibrant: Run) -> None:
    Predictions.load(files.val)[:150].save("part.parquet")
    draw(20, n_classes=4).save("four.parquet")
    bad = pa.table({"label": [0, 1], "logits": pa.array([[0.0, 1.0, 2.0], [0.0, float("nan"), 1.0]])})
    pq.write_table(bad, "nan.parquet")
    calibrant("apply", "c.json", "test.parquet", "-o", files.output).done()
    before = files.output.read_bytes()
    names = sorted(path.name for path in Path().iterdir())
    for arguments, message in (
        (("c.json", "val.parquet"), "allow_same_rows=True (--allow-same-rows)"),
        (("c.json", "test.parquet", "val.parquet"), "--allow-same-rows"),
        (("c.json", "part.parquet"), "--allow-same-rows"),
        (("none.json", "test.parquet"), "none.json"),
        (("test.parquet", "test.parquet"), "test.parquet"),
        (("c.json", "test.parquet", "four.parquet"), "4"),
        (("c.json", "nan.parquet"), "row 1"),
        (("c.json",), "at least one file"),
    ):
        calibrant("apply", *arguments, "-o", files.output).refused(message)
    assert files.output.read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == names
    calibrant("apply", "c.json", "val.parquet", "-o", files.output, "--allow-same-rows").done()
    found = cb.score(Predictions.load(files.output)).nll
    assert found == pytest.approx(cb.load_calibrator("c.json").fitted.nll_after, rel=1e-5)


def test_apply_says_its_sets(files: Files, calibrant: Run) -> None:
    fitted, test = CALIBRATORS["set_temperature"].fit(draw()), draw(200, seed=1)
    fitted.save(files.calibrator)
    base = f"have the base temperature {fitted.scalar_parameters['base_temperature']:.3g}"
    apply = ("apply", files.calibrator, files.test, "-o", files.output)
    start = f"{files.output}: 200 rows, calibrated by set_temperature, "
    assert calibrant(*apply).done() == f"{start}6 sets by corruption, severity\n"
    assert calibrant(*apply, "--sets", "site").done() == f"{start}2 sets by site\n"
    assert_same(Predictions.load(files.output), fitted.with_sets(["site"])(test))  # type: ignore[attr-defined]
    draw(30, seed=1).save(files.test)
    few = calibrant(*apply).done().strip()
    assert few.endswith(f"6 sets by corruption, severity; 6 with fewer than 20 rows {base}")
    test.select(["site"]).save(files.test)
    assert calibrant(*apply).done() == f"{start}all rows as one set\n"
    calibrant(*apply, "--sets", "sight").refused("did you mean 'site'")
    TemperatureScaling.fit(draw()).save(files.calibrator)
    calibrant(*apply, "--sets", "site").refused("sets is an option of set_temperature, not of temperature")


# Comparison


def test_a_comparison_prints_that_of_the_library(files: Files, calibrant: Run) -> None:
    names = ("identity", "perturbed_temperature", "platt")
    options = ("--calibrators", *names, "--metrics", "nll", "ece", "--by", "corruption", "--level", "0.9")
    compare = ("compare-calibrators", files.val, files.test, *options)
    val, test = Predictions.load(files.val), Predictions.load(files.test)
    wanted = cb.compare_calibrators(val, test, names, by="corruption", metrics=("nll", "ece"), level=0.9)
    assert calibrant(*compare, "--json").record == [row.to_dict() for row in wanted]
    lines = calibrant(*compare).done().splitlines()
    assert [line for line in lines if line.startswith("platt: ")] == [f"platt: {wanted[-1].failure}"]
    overall, by_group = ([line for line in lines if line.split()[:1] == ["calibrator"]][i].split() for i in (0, 1))
    assert overall == ["calibrator", "nll", "90%", "interval", "ece", "90%", "interval"]
    assert by_group == ["calibrator", "corruption", "rows", "nll", "ece", "90%", "interval"]
    rows = [line.split() for line in lines if line.split()[:1] and line.split()[0] in names]
    groups = sorted({row.group for row in wanted if not row.overall})
    order = [row for group in (None, *groups) for row in wanted if row.group == group and row.failure is None]
    assert groups == ["blur", "fog", "none"]
    for line, row in zip(rows, order, strict=True):
        first = [row.calibrator] if row.overall else [row.calibrator, row.group, str(row.n_rows)]
        assert line[: len(first)] == first
        assert all(f"{value:.4f}" in line for value in row.values.values())


@pytest.mark.slow
def test_a_comparison_says_its_sets_and_takes_a_reference(files: Files, calibrant: Run) -> None:
    val, test, known = (draw(n, seed=i).with_features(features_of(n, seed=i)) for i, n in enumerate((300, 200, 80)))
    for rows, path in ((val, files.val), (test, files.test), (known, "known.parquet")):
        rows.save(path)
    names = ("set_temperature", "density_aware")
    compare = ("compare-calibrators", files.val, files.test, "--calibrators", *names, "--by", "site")
    assert "set_temperature: sets by corruption, severity, site" in calibrant(*compare).done().splitlines()
    more = (*compare, "--sets", "site", "--reference", "known.parquet")
    assert "set_temperature: sets by site" in calibrant(*more).done().splitlines()
    wanted = cb.compare_calibrators(val, test, names, by="site", sets=["site"], reference=known)
    assert calibrant(*more, "--json").record == [row.to_dict() for row in wanted]


def test_errors_of_a_comparison(files: Files, calibrant: Run) -> None:
    calibrant("compare-calibrators", files.val, files.test, "--level", "2").refused("level")
    same = ("compare-calibrators", files.val, files.val, "--calibrators", "temperature")
    calibrant(*same).refused("--allow-same-rows")
    calibrant(*same, "--allow-same-rows").done()


def test_help_loads_no_torch() -> None:
    code = (
        "import sys\nfrom calibrant.cli import app\nfor verb in ('fit', 'apply', 'compare-calibrators'):\n"
        "    app([verb, '--help'], exit_on_error=False, result_action='return_value')\n"
        "assert 'torch' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("Usage: ") == 3
