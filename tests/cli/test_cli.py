"""The command line as a user meets it: real processes, their output and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import in_this_process

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from calibrant.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.fixture
def prior(tmp_path: Path) -> str:
    path = tmp_path / "prior.json"
    path.write_text('{"cat": 0.5, "dog": 0.3, "[red]fox": 0.2}')
    return str(path)


@pytest.mark.parametrize(
    "statement",
    [
        "import calibrant; dir(calibrant); calibrant.__version__; calibrant.errors",
        "import calibrant.cli; calibrant.cli.app.help_print([])",
        "import calibrant.cli; calibrant.cli.app.help_print(['solve'])",
    ],
)
def test_import_and_help_load_no_torch(statement: str) -> None:
    code = f"import sys\n{statement}\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=600)


def test_solve_prints_a_table(prior: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = in_this_process(monkeypatch, capsys)("solve", "--prior", prior, "--form", "mean", "prior").done()
    assert "[red]fox" in out
    assert "form mean, gibbs paper" in out
    assert "form prior, gibbs paper" in out


def test_solve_prints_json(prior: str) -> None:
    from calibrant import solve

    found = run("solve", "--prior", prior, "--form", "mean_variance", "--gibbs", "normalized", "--json")
    assert found.returncode == 0, found.stderr
    record = json.loads(found.stdout)["mean_variance"]
    assert record["classes"] == ["cat", "dog", "[red]fox"]
    expected = solve([0.5, 0.3, 0.2], "mean_variance", gibbs="normalized")
    assert record["multipliers"] == expected.multipliers.tolist()
    assert record["residual"] <= 1e-12


def test_counts_become_a_prior(
    tmp_path: Path, prior: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrant = in_this_process(monkeypatch, capsys)
    counts = tmp_path / "counts.json"
    counts.write_text("[5, 3, 2]")
    by_counts = calibrant("solve", "--counts", counts, "--json").record["mean"]["multipliers"]
    by_prior = calibrant("solve", "--prior", prior, "--json").record["mean"]["multipliers"]
    assert by_counts == by_prior


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (None, (), "there is no file"),
        ("[0.5, 0.5", (), "is not a JSON file"),
        ('"abc"', (), "must hold a list or an object of numbers"),
        ('[0.5, "x"]', (), "must give each class a number, got 'x' for class 1"),
        ("[0.5, 0.4]", (), "prior must sum to 1, got a sum of 0.9"),
        ("[1.0, 0.0]", (), "prior must not be all in one class"),
        ("[0.5, 0.5]", ("--form", "men"), 'Did you mean "mean"'),
        ("[0.5, 0.5]", ("--label-smoothing", "2"), "label_smoothing must lie in [0, 1), got 2.0"),
        ("[0.5, 0.5, 0.0]", ("--form", "prior"), "no multipliers for class 2: its prior is 0"),
        ("[0.5, 0.5]", ("--counts", "x.json"), "give either --prior or --counts"),
        ("[0.5, 0.5]", ("--form",), "form"),
        ("[" * 100_000, (), "is not a JSON file"),
        (f"[{10**400}, 1]", (), "prior must be numbers"),
        ('{"cat": 0.5, "cat": 0.5}', (), "gives the class cat twice"),
    ],
)
def test_bad_input_gives_one_line_and_exit_2(
    tmp_path: Path,
    content: str | None,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "prior.json"
    if content is not None:
        path.write_text(content)
    in_this_process(monkeypatch, capsys)("solve", "--prior", path, *arguments).refused(message)


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "prior.json"
    path.write_text(json.dumps([0.001] * 1000))
    program = f"{sys.executable} -c 'from calibrant.cli import main; main()' solve --form prior --json --prior {path}"
    found = subprocess.run(f"{program} | head -1", shell=True, capture_output=True, text=True, timeout=600)
    assert found.stdout == "{\n"
    assert found.stderr == ""


def test_choices_are_those_of_the_library() -> None:
    from typing import get_args

    from calibrant.cli.solve import Form
    from calibrant.maxent import FORMS

    assert get_args(Form) == FORMS


def test_unknown_verb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    in_this_process(monkeypatch, capsys)("slove").refused('Did you mean "solve"')
