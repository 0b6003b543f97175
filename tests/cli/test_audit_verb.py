"""`calibrant audit`: what it prints, its options and its exit codes; the audit itself has tests of its own."""

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrant as cb
from calibrant.audits import Audit, audit
from calibrant.predictions import Predictions
from made.audits import made
from made.cli import MAX_SECONDS, Run, run_in_one_process

OPTIONS = ("by", "compare", "cluster", "metrics", "n-bins", "weights", "level", "seed", "fail-if", "jobs", "ray",
           "report", "json")  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model that is overconfident, in a file."""
    target = tmp_path / "model.parquet"
    made(n=120, n_classes=3).save(target)
    return target


@pytest.fixture
def other(path: Path) -> Path:
    """The same rows by a model of softer probabilities."""
    rows = Predictions.load(path)
    target = path.parent / "other" / "model.parquet"
    target.parent.mkdir()
    Predictions.from_logits(rows.logits / 3, rows.labels, columns=rows.columns).save(target)
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


def test_processes_print_text_or_json_and_exit_3_where_a_gate_fails(path: Path) -> None:
    text, json, none, gate, jobs = run_in_one_process(
        ("audit", path),
        ("audit", path, "--json", "--by", "site", "--fail-if", "ece > 0.0", "accuracy < 0.1"),
        ("audit",),
        ("audit", "x.parquet", "--fail-if", "ece over 0.1"),
        ("audit", path, "--jobs", "many"),
    )
    card = cb.score(Predictions.load(path))
    low, high = card.interval("ece")
    assert "120 rows, 3 classes" in " ".join(text.done().split())  # a long path breaks the line
    assert rows_of(text.out, card.names) == list(card.names)
    for number in (f"{card.ece:.4f}", f"{low:.4f} to {high:.4f}", f"{card.noise_floor('ece'):.4f}"):
        assert number in text.out
    assert json.code == 3
    assert values(json.record) == card.values()
    assert json.record["failed"] == [f"ece > 0 (it is {card.ece:.6g})"]
    assert json.err == f"failed: ece > 0 (it is {card.ece:.6g})\n"
    none.refused("give at least one file, folder or glob of predictions")
    gate.refused("must be a condition such as")
    jobs.refused("--jobs")


def test_help_names_every_option_and_loads_no_torch_and_text_loads_no_altair(path: Path) -> None:
    code = """
import sys
from calibrant.cli import main
try:
    main()
finally:
    assert not {modules!r} & set(sys.modules), set(sys.modules)
"""
    for arguments, modules in ((["--help"], {"torch", "pyarrow"}), ([str(path), "--by", "site"], {"altair", "jinja2"})):
        found = subprocess.run(
            [sys.executable, "-c", code.format(modules=modules), "audit", *arguments],
            capture_output=True, text=True, timeout=MAX_SECONDS,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        if arguments == ["--help"]:
            assert all(f"--{option}" in found.stdout for option in OPTIONS)
            assert "exit code" in found.stdout.lower()


# What is printed


def test_json_is_the_record_of_the_audit_with_its_words(path: Path, other: Path, calibrant: Run) -> None:
    options = ("--level", 0.9, "--seed", 3, "--n-bins", 10, "--by", "site", "case_id", "--weights", "w")
    more = ("--compare", other, "--cluster", "site", "--metrics", "ece", "nll", "--fail-if", "brier > 99")
    record = calibrant("audit", path, "--json", *options, *more).record
    wanted = audit(
        path, level=0.9, seed=3, n_bins=10, by=["site", "case_id"], weights="w", other=other, cluster="site",
        compared=["ece", "nll"], gates=["brier > 99"],
    )  # fmt: skip
    words = record.pop("words")
    assert record == wanted.to_dict(["ece", "nll", "brier"])
    assert list(values(record)) == ["ece", "nll", "brier"]
    assert (len(words["summary"]), len(words["advice"])) == (6, len(wanted.advice))
    unclustered = calibrant("audit", path, "--json", "--compare", other, "--metrics", "nll").record["comparison"]
    assert unclustered[0]["by"] is None
    assert unclustered[0]["p_value"] != record["comparison"][1]["p_value"]


def test_text_has_the_verdict_the_advice_and_the_tables(path: Path, other: Path, calibrant: Run) -> None:
    out = calibrant("audit", path, "--by", "site", "--compare", other, "--metrics", "nll", "brier").done()
    found = audit(path, by=["site"])
    for part in (
        f"Overconfident by {100 * found.verdict.ece:.1f} percentage points.",
        "What to do:\n- ",
        "Groups of site, worst first",
        "This model − the other, on all rows",
        "This model − the other, by site",
    ):
        assert out.count(part) == 1
    table = out.partition("Groups of site")[2].partition("This model")[0]
    assert rows_of(table, ["A", "B", "C"]) == [group.value for group in found.groups["site"].rows]
    for card in found.groups["site"].cards.values():
        assert f"{card.brier:.4f}" in table
    assert rows_of(out.partition("Groups")[0], list(cb.METRICS)) == ["nll", "brier"]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_still_shows_the_groups_and_their_numbers(path: Path, calibrant: Run, width: int) -> None:
    out = calibrant("audit", path, "--by", "site", width=width).done()
    assert max(map(len, out.splitlines())) <= width
    text = out.partition("Groups of site")[2]
    assert set(rows_of(text, ["A", "B", "C"])) == {"A", "B", "C"}
    for card in cb.score(Predictions.load(path), by="site").values():
        assert f"{100 * card.ece:.1f} (" in text


def test_infinite_and_undefined_metrics(tmp_path: Path, calibrant: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, -math.inf], [0.0, 1.0]], [1, 1])
    found = calibrant("audit", path, "--json", "--fail-if", "nll > 5")
    assert (found.code, found.record["metrics"]["nll"]["value"]) == (3, "inf")
    assert found.err == "failed: nll > 5 (it is inf)\n"
    assert " infinite " in calibrant("audit", path).done()
    path = foreign(tmp_path / "y.parquet", [[3.0, 0.0], [0.0, 1.0]], [0, 1])
    [line] = [x for x in calibrant("audit", path).done().splitlines() if x.split()[:1] == ["nll_on_errors"]]
    assert line.count("–") == 3


HOSTILE = ("[red]x", "[/]", "[link=https://example.org]y[/link]", ":smile:", "\x1b[31mred", "a\rb", "a\x08b", None)


def test_what_a_user_wrote_is_text(tmp_path: Path, calibrant: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, 1.0]] * 8, [0, 1] * 4, **{"[red]site": HOSTILE})
    out = calibrant("audit", path, "--by", "[red]site", "--compare", path, "--metrics", "ece").done()
    for name in (*HOSTILE[:4], "(no value)"):
        assert out.count(str(name)) >= 2  # in the table of groups and in that of differences
    assert "Groups of [red]site" in out
    assert not [letter for letter in out if ord(letter) < 32 and letter != "\n"]
    groups = calibrant("audit", path, "--json", "--by", "[red]site", "--metrics", "ece").record["groups"]["[red]site"]
    assert {card["group"] for card in groups["groups"]} == set(HOSTILE)
    assert "\x1b" not in calibrant("audit", "no\x1b[31mfile.parquet").err


def test_files_folders_and_globs_name_the_same_rows(tmp_path: Path, calibrant: Run) -> None:
    rows = made(n=120)
    folder = tmp_path / "runs"
    (folder / "deep").mkdir(parents=True)
    files = [folder / "a.parquet", folder / "deep" / "b.parquet"]
    rows[:50].save(files[0])
    rows[50:].save(files[1])
    for arguments in (files, [folder], [folder / "**" / "*.parquet"], [*files, folder], [f"file://{folder}"]):
        record = calibrant("audit", *arguments, "--json", "--metrics", "ece").record
        assert [Path(file).name for file in record["files"]] == ["a.parquet", "b.parquet"]
        assert record["fingerprint"] == rows.fingerprint
    assert "2 files: 120 rows" in calibrant("audit", folder).done()


def test_jobs_and_ray_reach_the_audit(path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str | None]] = []

    def fake(source: Any, *, jobs: int, ray: str | None, **options: Any) -> Audit:
        asked.append((jobs, ray))
        return audit(source, **options)

    monkeypatch.setattr("calibrant.audits.audit", fake)
    for arguments in ((), ("--jobs", 7), ("--ray", "auto")):
        calibrant("audit", path, "--metrics", "ece", *arguments).done()
    assert asked == [(1, None), (7, None), (1, "auto")]


# The page


def test_the_page_is_written_and_named_last_also_where_a_gate_fails(
    path: Path, other: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["calibrant", "audit", "a b.parquet", "--by", "site"])
    page = path.parent / "audit.html"
    found = calibrant("audit", path, "--report", page, "--compare", other, "--metrics", "nll", "--fail-if", "ece > 0")
    assert found.code == 3
    assert found.out.splitlines()[-1] == f"open {page}"
    assert found.err.startswith("failed: ece > 0 (it is ")
    text = page.read_text(encoding="utf-8")
    assert "<strong>Failed</strong>: fails if ece &gt; 0 (it is " in text
    assert "calibrant audit &#39;a b.parquet&#39; --by site" in text
    assert str(other) in text
    page.unlink()
    found = calibrant("audit", path, "--json", "--report", page, "--metrics", "ece")
    assert found.record["n_rows"] == 120
    assert found.err == f"open {page}\n"
    assert page.exists()


# Refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "sites"), "unknown column 'sites'; did you mean 'site'?"),
        (("--metrics", "ecee"), "unknown metric 'ecee'; did you mean 'ece'?"),
        (("--metrics", "ece_positive"), "ece_positive is for two classes, the predictions have 3"),
        (("--cluster", "site"), "cluster needs another model"),
        (("--fail-if", "ece"), "must be a condition such as \"ece > 0.05\", got 'ece'"),
        (("--fail-if", ""), "must be a condition"),
        (("--jobs", "0"), "jobs must be an integer of at least 1, got 0"),
        (("--level", "nan"), "level must lie between 0 and 1, got nan"),
        (("--compare", "none.parquet"), "there is no file none.parquet"),
        (("--report", "none/audit.html"), "cannot be written: No such file or directory"),
        (("--report", "model.parquet"), "report must be a file of .html, .htm, got"),
        (("--sead", "1"), "--sead"),
    ],
)
def test_bad_options_are_refused(
    path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(path.parent)
    before = path.read_bytes()
    calibrant("audit", path, *arguments).refused(message)
    assert path.read_bytes() == before


def test_what_is_missing_is_one_line(path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrant("audit", path.parent / "none.parquet").refused(f"there is no file {path.parent / 'none.parquet'}")
    monkeypatch.setitem(sys.modules, "ray", None)
    calibrant("audit", path, "--ray", "local").refused("running on Ray needs the extra ray: pip install")
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.setattr(Predictions, "scan", lambda *_: 1 // 0)  # nothing is to be read
    calibrant("audit", path, "--report", path.parent / "audit.html").refused("pip install 'calibrant[report]'")


def test_passwords_of_urls_are_shown_neither_as_text_nor_in_the_json(
    path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrant.scan.Scan.files", property(lambda _: ["s3://KEY:sec/ret@bucket/a?sig=1"]))
    assert calibrant("audit", path, "--json", "--metrics", "ece").record["files"] == ["s3://…@bucket/a?…"]
    assert "s3://…@bucket/a?…: 120 rows" in calibrant("audit", path, "--metrics", "ece").done()
