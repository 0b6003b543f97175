"""`calibrant audit`: as a real process where that matters, elsewhere through `main` in this process."""

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import calibrant
from calibrant.cli.audit import parse_gate
from calibrant.errors import InvalidInputError
from calibrant.metrics.workers import FileScores
from calibrant.metrics.workers import score_files as in_workers
from calibrant.predictions import Predictions
from calibrant.report.numbers import limits
from calibrant.scan import Scan
from made.cli import Run, in_this_process, run_process

OPTIONS = (
    "--by",
    "--compare",
    "--cluster",
    "--metrics",
    "--n-bins",
    "--weights",
    "--level",
    "--seed",
    "--fail-if",
    "--jobs",
    "--ray",
    "--report",
    "--json",
)


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(in_this_process(monkeypatch, capsys), "audit")


def predictions(n: int = 120, n_classes: int = 3, seed: int = 0) -> Predictions:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(n_classes, (n,), generator=draw)
    logits = torch.randn(n, n_classes, generator=draw) + 1.5 * torch.nn.functional.one_hot(labels, n_classes)
    columns = {
        "site": ["ABC"[7 * i // 5 % 3] for i in range(n)],
        "severity": [i % 4 for i in range(n)],
        "patient": [i // 4 for i in range(n)],
        "weight": torch.rand(n, generator=draw, dtype=torch.float64),
    }
    return Predictions.from_logits(logits, labels, columns=columns)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "model.parquet"
    predictions().save(target)
    return target


def foreign(path: Path, logits: Sequence[Sequence[float]], labels: Sequence[int], **columns: Sequence[object]) -> Path:
    """A file as another framework may write it."""
    pq.write_table(pa.table({"label": labels, "logits": pa.array(logits, pa.list_(pa.float32())), **columns}), path)
    return path


def values(record: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: metric["value"] for name, metric in record["metrics"].items()}


def rows_of(table: str, names: Sequence[str]) -> list[str]:
    """The first words of a table's lines that are among these names, in order."""
    return [words[0] for line in table.splitlines() if (words := line.split()) and words[0] in names]


# Real processes


def test_the_process_prints_a_table(path: Path) -> None:
    found = run_process("audit", path)
    assert found.code == 0, found.err
    assert found.err == ""
    card = calibrant.score(Predictions.load(path))
    assert "120 rows, 3 classes" in " ".join(found.out.split())  # a long path breaks the line
    assert rows_of(found.out, card.names) == list(card.names)
    assert f"{card.ece:.4f}" in found.out
    low, high = card.interval("ece")
    assert limits((low, high)) in found.out
    assert f"{card.noise_floor('ece'):.4f}" in found.out


def test_the_process_prints_json_and_exits_3_where_a_gate_fails(path: Path) -> None:
    found = run_process("audit", path, "--json", "--by", "site", "--fail-if", "ece > 0.0", "accuracy < 0.1")
    assert found.code == 3
    card = calibrant.score(Predictions.load(path))
    assert values(found.record) == card.values()
    assert found.record["failed"] == [f"ece > 0 (it is {card.ece:.6g})"]
    assert found.err == f"failed: ece > 0 (it is {card.ece:.6g})\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give at least one file, folder or glob of predictions"),
        (("x.parquet", "--fail-if", "ece over 0.1"), "--fail-if must be a condition such as"),
        (("x.parquet", "--jobs", "many"), "--jobs"),
    ],
)
def test_the_process_refuses_at_once_what_needs_no_file(arguments: tuple[str, ...], message: str) -> None:
    run_process("audit", *arguments).refused(message)


def test_help_names_every_option_and_loads_no_torch() -> None:
    code = (
        "import sys\nfrom calibrant.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    found = subprocess.run([sys.executable, "-c", code, "audit", "--help"], capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr
    for option in OPTIONS:
        assert option in found.stdout
    assert "exit code" in found.stdout.lower()


# Numbers


@pytest.mark.parametrize("n_classes", [2, 3])
def test_json_is_the_scorecard_to_the_last_digit(tmp_path: Path, audit: Run, n_classes: int) -> None:
    path = tmp_path / "x.parquet"
    predictions(n_classes=n_classes).save(path)
    record = audit(path, "--json", "--level", 0.9, "--seed", 3, "--n-bins", 10).record
    card = calibrant.score(Predictions.load(path), n_bins=10)
    assert record["files"] == [str(path)]
    assert (record["n_rows"], record["n_classes"], record["n_bins"], record["level"]) == (120, n_classes, 10, 0.9)
    assert values(record) == card.values()
    for name, metric in record["metrics"].items():
        assert metric["interval"] == list(card.interval(name, level=0.9, seed=3))
        floor = calibrant.METRICS[name].floor
        assert metric["noise_floor"] == (None if floor is None else card.noise_floor(name, seed=3))
        assert metric["error_bound"] == 0.0
    curve = card.reliability()
    assert [row["count"] for row in record["reliability"]] == curve.count.tolist()
    assert [row["accuracy"] for row in record["reliability"]] == curve.accuracy.tolist()
    assert sum(row["count"] for row in record["reliability"]) == 120


def test_metrics_are_those_asked_for_and_those_of_the_gates(path: Path, audit: Run) -> None:
    found = audit(path, "--json", "--metrics", "brier", "ece", "--fail-if", "nll > 99", "ece > 1")
    assert found.code == 0
    assert found.err == ""
    assert set(values(found.record)) == {"brier", "ece", "nll"}
    assert found.record["failed"] == []
    table = audit(path, "--metrics", "brier", "ece")
    assert rows_of(table.out, list(calibrant.METRICS)) == ["ece", "brier"]


def test_metrics_without_bins_have_no_reliability_curve(path: Path, audit: Run) -> None:
    assert audit(path, "--json", "--metrics", "nll").record["reliability"] is None


def test_weights_are_a_column(path: Path, audit: Run) -> None:
    loaded = Predictions.load(path)
    record = audit(path, "--json", "--weights", "weight", "--metrics", "ece", "nll", "--by", "site").record
    expected = calibrant.score(loaded, weights="weight", metrics=["ece", "nll"])
    assert values(record) == pytest.approx(expected.values(), abs=1e-15)
    assert expected.ece != calibrant.score(loaded).ece
    site = next(card for card in record["groups"]["site"]["groups"] if card["group"] == "A")
    assert values(site) == calibrant.score(loaded.where(site="A"), weights="weight", metrics=["ece", "nll"]).values()


def test_an_infinite_nll_is_a_string_in_json(tmp_path: Path, audit: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, -math.inf], [0.0, 1.0]], [1, 1])
    found = audit(path, "--json", "--fail-if", "nll > 5")
    assert found.code == 3
    metrics = found.record["metrics"]
    assert metrics["nll"]["value"] == metrics["nll_on_errors"]["value"] == "inf"
    assert metrics["nll"]["interval"] == ["inf", "inf"]
    assert math.isfinite(metrics["brier"]["value"])
    assert found.err == "failed: nll > 5 (it is inf)\n"
    assert " infinite " in audit(path).out


def test_an_undefined_metric_is_null_in_json_and_a_dash_in_the_table(tmp_path: Path, audit: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[3.0, 0.0], [0.0, 1.0]], [0, 1])
    metric = audit(path, "--json").record["metrics"]["nll_on_errors"]
    assert metric["value"] is None
    assert metric["interval"] is None
    [line] = [line for line in audit(path).out.splitlines() if line.split()[:1] == ["nll_on_errors"]]
    assert line.count("–") == 2


# Groups


def test_one_column_of_groups(path: Path, audit: Run) -> None:
    loaded = Predictions.load(path)
    groups = audit(path, "--json", "--by", "site", "--metrics", "ece", "accuracy").record["groups"]
    assert list(groups) == ["site"]
    expected = calibrant.score(loaded, by="site", metrics=["ece", "accuracy"])
    assert {card["group"]: values(card) for card in groups["site"]["groups"]} == {
        site: card.values() for site, card in expected.items()
    }
    assert groups["site"]["worst"] == {name: expected.worst(name)[0] for name in ("accuracy", "ece")}


def test_two_columns_of_groups_worst_first(path: Path, audit: Run) -> None:
    found = audit(path, "--by", "site", "severity")
    loaded = Predictions.load(path)
    first, second = found.out.index("by site, worst ece first"), found.out.index("by severity, worst ece first")
    assert first < second
    for column, text in (("site", found.out[first:second]), ("severity", found.out[second:])):
        cards = {str(group): card for group, card in calibrant.score(loaded, by=column).items()}
        order = rows_of(text, list(cards))
        assert sorted(order) == sorted(cards)
        assert all(cards[a].ece >= cards[b].ece for a, b in pairwise(order))
        for group, card in cards.items():
            [line] = [line for line in text.splitlines() if line.split()[:1] == [group]]
            assert f"{card.n_rows}" in line.split()
            assert f"{card.ece:.4f}" in line.split()


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_still_shows_the_groups_and_their_numbers(path: Path, audit: Run, width: int) -> None:
    text = audit(path, "--by", "site", width=width).out.partition("by site")[2]
    cards = calibrant.score(Predictions.load(path), by="site")
    assert sorted(rows_of(text, ["A", "B", "C"])) == ["A", "B", "C"]
    for card in cards.values():
        assert f"{card.ece:.4f}" in text
    assert "site" in text


def test_rows_without_a_value_are_a_group(tmp_path: Path, audit: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]], [1, 0, 1], site=["A", None, None])
    cards = audit(path, "--json", "--by", "site").record["groups"]["site"]["groups"]
    assert {card["group"]: card["n_rows"] for card in cards} == {"A": 1, None: 2}
    assert rows_of(audit(path, "--by", "site").out, ["A", "None"])


HOSTILE = ("[red]x", "[/]", "[link=https://example.org]y[/link]", ":smile:")


def test_group_names_are_text_and_no_markup(tmp_path: Path, audit: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, 1.0]] * 4, [0, 1, 0, 1], site=HOSTILE)
    found = audit(path, "--by", "site", "--compare", path, "--metrics", "accuracy", "ece")
    assert found.code == 0, found.err
    for name in HOSTILE:
        assert found.out.count(name) >= 2  # in the table of groups and in that of differences


def test_a_column_name_is_text_and_no_markup(tmp_path: Path, audit: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, 1.0]] * 2, [0, 1], **{"[red]site": ["A", "B"]})
    assert "by [red]site" in audit(path, "--by", "[red]site").out


@pytest.mark.parametrize("name", ["\x1b[31mred", "\x1b]0;title\x07", "a\rb", "a\x08b"])
def test_control_characters_of_group_names_do_not_reach_the_terminal(tmp_path: Path, audit: Run, name: str) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, 1.0]] * 2, [0, 1], site=[name, "A"])
    found = audit(path, "--by", "site", "--metrics", "accuracy")
    assert found.code == 0, found.err
    assert not [letter for letter in found.out if ord(letter) < 32 and letter != "\n"]
    assert audit(path, "--json", "--by", "site").record["groups"]["site"]["groups"][0]["group"] in (name, "A")


def test_control_characters_of_a_message_do_not_reach_the_terminal(audit: Run) -> None:
    found = audit("no\x1b[31mfile.parquet")
    assert found.code == 2
    assert "\x1b" not in found.err


# Comparison


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The same rows as in `path`, by a model of softer probabilities."""
    first = predictions()
    softer = Predictions.from_logits(first.logits / 3, first.labels, columns=first.columns)
    target = tmp_path / "other" / "model.parquet"
    target.parent.mkdir()
    softer.save(target)
    return target


def test_comparison_is_that_of_the_library(path: Path, other: Path, audit: Run) -> None:
    names = ["ece", "nll"]
    options = ("--compare", other, "--cluster", "patient", "--by", "site", "--metrics", *names, "--level", 0.8)
    rows = audit(path, "--json", *options).record["comparison"]
    pair = Predictions.load(path), Predictions.load(other)
    expected = calibrant.compare(*pair, metrics=names, by="site", cluster="patient", level=0.8)
    assert len(rows) == len(expected) == 8
    expected.sort(key=lambda wanted: not wanted.whole)  # all rows come first
    for row, wanted in zip(rows, expected, strict=True):
        assert row["by"] == (None if wanted.whole else "site")
        assert row["group"] == (None if wanted.whole else wanted.group)
        assert row["interval"] == list(wanted.interval)
        for field in ("metric", "n_rows", "a", "b", "difference", "p_value", "p_holm"):
            assert row[field] == getattr(wanted, field)
    unclustered = audit(path, "--json", "--compare", other, "--metrics", "nll").record["comparison"]
    assert unclustered[0]["by"] is None
    assert unclustered[0]["p_value"] != rows[1]["p_value"]


def test_comparison_is_shown_once_for_all_rows_and_by_each_column(path: Path, other: Path, audit: Run) -> None:
    found = audit(path, "--compare", other, "--by", "site", "severity", "--metrics", "nll")
    assert found.code == 0, found.err
    assert found.out.count("this model less the other, on the same rows") == 1
    assert found.out.count("this model less the other, by site") == 1
    assert found.out.count("this model less the other, by severity") == 1
    [row] = calibrant.compare(Predictions.load(path), Predictions.load(other), metrics=["nll"])
    assert f"{row.difference:+.4f}" in found.out


def test_weights_hold_in_the_comparison_too(path: Path, other: Path, audit: Run) -> None:
    options = ("--compare", other, "--weights", "weight", "--metrics", "nll")
    found = audit(path, "--json", *options)
    if found.code == 2:
        found.refused("weights")  # a comparison that knows no weights may say so
        return
    assert found.record["comparison"][0]["a"] == pytest.approx(values(found.record)["nll"], abs=1e-12)


def test_metrics_of_class_1_are_not_compared(tmp_path: Path, audit: Run) -> None:
    path = tmp_path / "x.parquet"
    predictions(n_classes=2).save(path)
    rows = audit(path, "--json", "--compare", path, "--metrics", "ece", "ece_positive").record["comparison"]
    assert [row["metric"] for row in rows] == ["ece"]
    found = audit(path, "--compare", path, "--metrics", "ece_positive")
    assert found.code == 2
    assert "ece_positive" in found.err


# Files


def test_files_folders_and_globs_name_the_same_rows(tmp_path: Path, audit: Run) -> None:
    whole = predictions()
    folder = tmp_path / "runs"
    (folder / "deep").mkdir(parents=True)
    whole[:50].save(folder / "a.parquet")
    whole[50:].save(folder / "deep" / "b.parquet")
    files = [folder / "a.parquet", folder / "deep" / "b.parquet"]
    expected = calibrant.score(whole).values()
    for arguments in (files, [folder], [folder / "**" / "*.parquet"], [*files, folder], [f"file://{folder}"]):
        record = audit(*arguments, "--json").record
        assert [Path(file).name for file in record["files"]] == ["a.parquet", "b.parquet"]
        assert values(record) == pytest.approx(expected, abs=1e-7)  # cece adds float32 within a batch
    assert "2 files: 120 rows" in audit(folder).out


def test_jobs_and_ray_reach_the_workers(path: Path, audit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str | None]] = []

    def score_files(scan: Scan, *, jobs: int, ray: str | None, **options: Any) -> FileScores:
        asked.append((jobs, ray))
        return in_workers(scan, **options)

    monkeypatch.setattr("calibrant.metrics.workers.score_files", score_files)
    audit(path, "--metrics", "ece")
    audit(path, "--metrics", "ece", "--jobs", 7)
    audit(path, "--metrics", "ece", "--ray", "auto")
    assert asked == [(1, None), (7, None), (1, "auto")]


# Refusals


def test_a_nan_in_a_file_is_named_by_file_column_and_row(tmp_path: Path, audit: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, 1.0]] * 5 + [[0.0, math.nan]], [0] * 6)
    audit(path).refused(f"{path}: logits must not be NaN, got nan at row 5, class 1")
    audit(path, "--json").refused("row 5")


def test_a_missing_file_is_refused(tmp_path: Path, audit: Run) -> None:
    audit(tmp_path / "none.parquet").refused(f"there is no file {tmp_path / 'none.parquet'}")
    audit(tmp_path).refused(f"there is no .parquet file in {tmp_path}")


def test_a_truncated_file_is_refused(path: Path, audit: Run) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    audit(path).refused(f"{path} is not a Parquet file")


def test_a_file_of_something_else_is_refused(tmp_path: Path, audit: Run) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("label,logits\n")
    audit(path).refused(f"{path} is not a Parquet file")
    path.write_bytes(b"")
    audit(path).refused(f"{path} is not a Parquet file")


def test_files_without_rows_are_refused(tmp_path: Path, audit: Run) -> None:
    path = tmp_path / "x.parquet"
    predictions()[:0].save(path)
    audit(path).refused("at least one row")


def test_rows_without_labels_are_refused(tmp_path: Path, audit: Run) -> None:
    path = tmp_path / "x.parquet"
    Predictions.from_logits([[0.0, 1.0]]).save(path)
    audit(path).refused("predictions must have labels to be scored")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "sites"), "unknown column 'sites'; did you mean 'site'?"),
        (("--by", "site", "sight"), "unknown column 'sight'"),
        (("--weights", "wait"), "unknown column 'wait'"),
        (("--weights", "site"), "weights must be numbers"),
        (("--metrics", "ecee"), "unknown metric 'ecee'; did you mean 'ece'?"),
        (("--metrics", "ece_positive"), "ece_positive is for two classes, the predictions have 3"),
        (("--fail-if", "ecee > 0.1"), "unknown metric 'ecee'; did you mean 'ece'?"),
        (("--fail-if", "ece"), "--fail-if must be a condition such as \"ece > 0.05\", got 'ece'"),
        (("--fail-if", "ece > nan"), "--fail-if must be a condition"),
        (("--fail-if", "ece > 0.1 > 0"), "--fail-if must be a condition"),
        (("--fail-if", "ece == 0.1"), "--fail-if must be a condition"),
        (("--fail-if", ""), "--fail-if must be a condition"),
        (("--jobs", "0"), "jobs must be an integer of at least 1, got 0"),
        (("--level", "2"), "level must lie between 0 and 1, got 2.0"),
        (("--level", "nan"), "level must lie between 0 and 1, got nan"),
        (("--n-bins", "0"), "n_bins must be an integer of at least 1, got 0"),
        (("--seed", "-1"), "seed"),
        (("--compare", "none.parquet"), "there is no file none.parquet"),
        (("--sead", "1"), "--sead"),
    ],
)
def test_bad_options_are_refused(path: Path, audit: Run, arguments: tuple[str, ...], message: str) -> None:
    audit(path, *arguments).refused(message)


def test_an_unknown_cluster_is_refused(path: Path, audit: Run) -> None:
    audit(path, "--compare", path, "--cluster", "patience").refused(
        "unknown column 'patience'; did you mean 'patient'?"
    )


def test_a_comparison_with_other_rows_is_refused(tmp_path: Path, path: Path, audit: Run) -> None:
    other = tmp_path / "other.parquet"
    predictions(seed=1).save(other)
    audit(path, "--compare", other).refused("must be predictions of the same rows in the same order")
    predictions(n=60).save(other)
    audit(path, "--compare", other).refused("120 rows of 3 classes and 60 of 3")


def test_ray_that_is_not_installed_is_one_line(path: Path, audit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    audit(path, "--ray", "local").refused("--ray needs the extra ray: pip install 'calibrant[ray]'")


# Gates


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("ece > 0.05", ("ece", ">", 0.05)),
        ("ece>=1e-3", ("ece", ">=", 1e-3)),
        ("  accuracy <.9 ", ("accuracy", "<", 0.9)),
        ("l2ce <= -1", ("l2ce", "<=", -1.0)),
    ],
)
def test_gates_are_read(text: str, gate: tuple[str, str, float]) -> None:
    assert parse_gate(text) == gate


@pytest.mark.parametrize("text", ["ece > inf", "> 1", "ece >", "ece > 5%", "ece => 1"])
def test_other_gates_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="must be a condition such as"):
        parse_gate(text)


def test_a_gate_fails_where_its_condition_holds(tmp_path: Path, audit: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, 0.0]] * 4, [0, 0, 0, 1])  # accuracy 0.75 and confidence 0.5, exactly
    for condition, code in {
        "accuracy < 0.75": 0,
        "accuracy <= 0.75": 3,
        "accuracy > 0.75": 0,
        "accuracy >= 0.75": 3,
    }.items():
        found = audit(path, "--metrics", "accuracy", "--fail-if", condition)
        assert found.code == code
        assert "accuracy" in found.out  # the table comes either way
        assert found.err == (f"failed: {condition} (it is 0.75)\n" if code else "")


def test_every_failed_gate_is_named(path: Path, audit: Run) -> None:
    found = audit(path, "--fail-if", "ece > 0", "accuracy < 2", "--fail-if", "nll < 0")
    assert found.code == 3
    assert [line.split("(")[0] for line in found.err.splitlines()] == ["failed: ece > 0 ", "failed: accuracy < 2 "]


def test_a_gate_on_an_undefined_metric_cannot_be_decided(tmp_path: Path, audit: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[3.0, 0.0], [0.0, 1.0]], [0, 1])
    found = audit(path, "--fail-if", "nll_on_errors > 3")
    found.refused("--fail-if nll_on_errors > 3 cannot be decided")
    assert "none of 2 rows is an error" in found.err


# The page


def test_the_page_is_written_and_named_last(path: Path, audit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["calibrant", "audit", "a b.parquet", "--by", "site"])
    page = path.parent / "audit.html"
    found = audit(path, "--by", "site", "--report", page, "--metrics", "ece", "nll", "--level", 0.9)
    assert found.done().splitlines()[-1] == f"open {page}"
    text = page.read_text(encoding="utf-8")
    card = calibrant.score(Predictions.load(path))
    low, high = card.interval("ece", level=0.9)
    assert f"{low:.4f} to {high:.4f}" in text
    assert "calibrant audit &#39;a b.parquet&#39; --by site" in text
    assert "By site" in text
    assert Predictions.load(path).fingerprint in text


def test_with_json_the_page_is_named_on_standard_error(path: Path, audit: Run) -> None:
    page = path.parent / "audit.html"
    found = audit(path, "--json", "--report", page, "--metrics", "ece")
    assert found.record["n_rows"] == 120
    assert found.err == f"open {page}\n"
    assert page.exists()


def test_the_page_is_written_where_a_gate_fails(path: Path, other: Path, audit: Run) -> None:
    page = path.parent / "audit.html"
    options = ("--compare", other, "--metrics", "ece", "nll", "--fail-if", "ece > 0", "nll > 99")
    found = audit(path, "--report", page, *options)
    assert found.code == 3
    assert found.out.splitlines()[-1] == f"open {page}"
    assert found.err.startswith("failed: ece > 0 (it is ")
    text = page.read_text(encoding="utf-8")
    assert "<strong>Failed</strong>: fails if ece &gt; 0 (it is " in text
    assert "<strong>Passed</strong>: fails if nll &gt; 99 (it is " in text
    assert "1 of 2 conditions of --fail-if hold" in text
    assert str(other) in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/audit.html", "cannot be written: No such file or directory"),
        ("model.parquet", "report must be a file of .html, .htm, got"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_read(
    path: Path, audit: Run, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    def read(*arguments: object) -> None:
        raise AssertionError("nothing is to be read")

    monkeypatch.setattr(Predictions, "scan", read)
    before = path.read_bytes()
    audit(path, "--report", path.parent / name).refused(message)
    assert path.read_bytes() == before


def test_a_page_without_the_extra_is_one_line(path: Path, audit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    audit(path, "--report", path.parent / "audit.html").refused("pip install 'calibrant[report]'")


def test_passwords_of_urls_are_shown_neither_in_the_table_nor_in_the_json(
    path: Path, audit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrant.scan.Scan.files", property(lambda _: ["s3://KEY:sec/ret@bucket/a?sig=1"]))
    assert audit(path, "--json", "--metrics", "ece").record["files"] == ["s3://…@bucket/a?…"]
    assert "s3://…@bucket/a?…: 120 rows" in audit(path, "--metrics", "ece").done()


def test_the_file_that_lacks_a_column_is_named(tmp_path: Path, audit: Run) -> None:
    rows = predictions()
    rows.save(tmp_path / "a.parquet")
    rows.select(["weight"]).save(tmp_path / "b.parquet")
    audit(tmp_path, "--by", "site").refused(f"{tmp_path / 'b.parquet'} has no column site")
    audit(tmp_path, "--by", "sight").refused("unknown column 'sight'")
