"""The command line as a whole: help, examples that parse, exit codes, one line for every error, completion."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import get_args

import pytest
import torch
from cyclopts import App, Argument, CycloptsError

from calibrant import Predictions, cli
from calibrant.cli import app
from calibrant.cli.examples import ALWAYS, EXAMPLES, EXITS, exit_codes
from calibrant.cli.options import integer
from calibrant.errors import (
    CorruptFileError,
    FailedRunsError,
    InterruptedRunError,
    InvalidInputError,
    NoDataError,
    UnknownNameError,
)
from made.cli import MAX_SECONDS, Run, in_this_process, run_process


def verbs(of: App, before: str = "") -> Iterator[str]:
    for name in of:
        if name not in (*of.help_flags, *of.version_flags):
            yield f"{before}{name}"
            yield from verbs(of[name], f"{before}{name} ")


VERBS = ["", *verbs(app)]


def arguments(kinds: set[type]) -> Iterator[tuple[list[str], Argument]]:
    """The arguments of every verb of these types, or of tuples and unions of them, each after the words of its verb."""
    for verb in VERBS:
        command = reduce(App.__getitem__, verb.split(), app)
        if command.default_command is not None:
            for argument in command.assemble_argument_collection():
                if kinds & {argument.hint, *get_args(argument.hint)}:
                    yield verb.split(), argument


# Help


@pytest.mark.slow
def test_every_verb_has_examples_that_parse() -> None:
    assert sorted(EXAMPLES) == sorted(VERBS)
    assert set(EXITS) <= set(VERBS)
    for verb, examples in EXAMPLES.items():
        for command in examples:
            program, *tokens = shlex.split(command)
            assert program == "calibrant"
            assert not verb or tokens[: len(verb.split())] == verb.split(), command
            _, _, ignored = app.parse_args(tokens, print_error=False, exit_on_error=False)
            assert not ignored, command


@pytest.mark.slow
def test_help_has_all_parts(calibrant: Run) -> None:
    for verb in VERBS:
        out = calibrant(*verb.split(), "--help", width=80).done()
        assert out.startswith(f"Usage: calibrant {verb}".rstrip())
        lines = [line.strip() for line in out.splitlines()]
        assert lines[2], f"{verb} has no description"
        for command, what in EXAMPLES[verb].items():
            assert command in lines, "in one line of 80 characters, to be copied"
            assert f"# {what}" in lines
        for code, meaning in exit_codes(verb):
            assert any(f"{code}: {meaning}".startswith(line.removeprefix("• ")) for line in lines if line), (verb, code)


def test_exit_codes_of_one_verb_win_over_those_of_all() -> None:
    codes = dict(exit_codes("run"))
    assert codes[0] == ALWAYS[0]
    assert codes[1] == EXITS["run"][1] != ALWAYS[1]
    assert list(codes) == [0, 1, 2, 130, 143]


def test_train_says_the_same_before_and_after_it_is_loaded() -> None:
    function = app["train"].default_command
    assert function is not None
    said = " ".join((function.__doc__ or "").partition("Parameters")[0].split())
    assert " ".join(cli.TRAIN.split()) == said


QUICK = """
import sys
import calibrant
assert "numpy" not in sys.modules and dir(calibrant) and calibrant.__version__ and calibrant.errors
from calibrant.cli import app
app.help_print([])
app.help_print(["solve"])
slow = {"torch", "numpy", "pyarrow", "pydantic", "fsspec", "calibrant.cli.train", "cyclopts.completion.bash"}
assert not slow & set(sys.modules), slow & set(sys.modules)
"""


def test_import_and_help_load_no_torch() -> None:
    subprocess.run([sys.executable, "-c", QUICK], check=True, capture_output=True, timeout=MAX_SECONDS)


def test_characters_that_the_stream_lacks_are_replaced() -> None:
    assert "losses ? seeds" in run_process("--help", PYTHONIOENCODING="ascii").done()


# Errors: what a verb refuses is tested with its library; that all of them say it the same way, here


WRONG: dict[str, tuple[str, str]] = {
    "": ("slove", 'Did you mean "solve"'),
    "apply": ("t.json -o x.parquet", "give at least one file, folder or glob of predictions"),
    "audit": ("no.parquet", "there is no file no.parquet"),
    "average": ("a.parquet -o x.parquet", "give at least two files, folders or globs of predictions"),
    "certify": ("no.parquet -o t.json", "there is no file no.parquet"),
    "compare-calibrators": ("no.parquet no.parquet", "there is no file no.parquet"),
    "convert": ("no.csv -o x.parquet", "there is no file no.csv"),
    "corrupt": ("photos fog 2.5", "'2.5' is not a whole number"),
    "data": ("fetsh cifar10", 'Did you mean "fetch"'),
    "data check": ("cifar11", "unknown data 'cifar11'; did you mean 'cifar10'?"),
    "data fetch": ("cifar11", "unknown data 'cifar11'; did you mean 'cifar10'?"),
    "data list": ("cifar10", "Unused Tokens: ['cifar10']"),
    "data where": ("--rot x", "Did you mean --root?"),
    "detect": ("no.parquet no.parquet", "there is no file no.parquet"),
    "estimate": ("no.parquet --reference no.parquet", "there is no file no.parquet"),
    "export": ("no.json -o x.onnx", "there is no file no.json"),
    "figure": ("sevrity runs", "unknown figure 'sevrity'; did you mean 'severity'?"),
    "fit": ("no.parquet --calibrator spine -o x.json", "unknown calibrator 'spine'; did you mean 'spline'?"),
    "label": ("no.parquet no.csv --id i -o x.parquet", "there is no file no.parquet"),
    "monitor": ("no.parquet --reference no.parquet --every 1y", "there is no file no.parquet"),
    "predict": ("no_module:model", "your own model needs --data and --output"),
    "report": ("no_folder", "no_folder has no rows.parquet"),
    "run": ("no.toml", "there is no file no.toml"),
    "schema": ("-o no_folder/x.json", "no_folder/x.json cannot be written"),
    "sets": ("chek x.parquet", 'Did you mean "check"'),
    "sets apply": ("s.json -o x.parquet", "give at least one file, folder or glob of predictions"),
    "sets check": ("no.parquet", "there is no file no.parquet"),
    "sets fit": ("no.parquet -o x.json", "there is no file no.parquet"),
    "solve": ("", "give either --prior or --counts"),
    "table": ("no_folder", "no_folder has no rows.parquet"),
    "train": ("no.toml", "there is no file no.toml"),
    "--install-completion": ("--shell tcsh", 'Invalid value "tcsh" for --shell'),
}


def test_a_wrong_call_of_every_verb_gives_one_line_and_exit_2(
    calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sorted(WRONG) == sorted(VERBS)
    for verb, (arguments, message) in WRONG.items():
        calibrant(*verb.split(), *arguments.split()).refused(message)
    assert list(tmp_path.iterdir()) == []


WITHOUT = """
import json
import sys

refused, calls = map(json.loads, sys.argv[1:])
from calibrant.cli import main

for tokens in calls:
    sys.argv[1:], code = tokens, 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    imported = sorted(set(refused) & set(sys.modules))
    assert not imported, (tokens, imported)
    print(code)
"""


def codes_without(libraries: list[str], calls: list[list[str]], folder: Path) -> tuple[list[int], str]:
    """The exit codes of calls in one process, none of which imports one of the libraries, and standard error."""
    command = [sys.executable, "-c", WITHOUT, json.dumps(libraries), json.dumps(calls)]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=MAX_SECONDS)
    assert found.returncode == 0, found.stderr
    return [int(line) for line in found.stdout.splitlines() if line.isdecimal()], found.stderr


BAD_NAMES = (
    "audit no.parquet --metrics ecee",
    "audit no.parquet --fail-if 'ecee > 0.1'",
    "average no.parquet no.parquet --compare-calibrator spine",
    "certify no.parquet -o t.json --method sgrr",
    "compare-calibrators no.parquet no.parquet --calibrators spine",
    "corrupt photos fogg 3 -o x",
    "corrupt photos fog 3 -o x",
    "detect no.parquet no.parquet --method energyy",
    "estimate no.parquet --reference no.parquet --method atc",
    "predict no_run",
    "predict no_module:model --data cifar11 -o x",
    "run bad.toml",
    "sets fit no.parquet -o x.json --method apss",
    "solve --prior no.json",
    "table runs --name 3",
    "train bad.toml",
    "train --loss focall",
    "train --data cifar11",
)


def test_an_error_that_needs_no_tensors_imports_no_library(tmp_path: Path) -> None:
    """Missing files, unknown flags and names, and bad TOML: a person waits for them."""
    (tmp_path / "bad.toml").write_text("[")
    calls = [[*verb.split(), *call.split()] for verb, (call, _) in WRONG.items()]
    calls += [[*verb.split(), "--flga"] for verb in VERBS]
    calls += map(shlex.split, BAD_NAMES)
    codes, errors = codes_without(["torch", "numpy", "pyarrow", "scipy", "fsspec"], calls, tmp_path)
    assert (codes, errors.count("\n")) == ([2] * len(calls), len(calls)), errors


def test_commands_import_no_more_than_they_need(tmp_path: Path) -> None:
    """Half a second: pandas, for which pyarrow looks, and the parts of scipy that a temperature does not need."""
    draws = torch.Generator().manual_seed(0)
    for name in ("val", "test"):
        logits, noise = torch.randn(2, 300, 3, generator=draws)
        Predictions.from_logits(logits, (logits + noise).argmax(1)).save(tmp_path / f"{name}.parquet")
    calls = ["fit val.parquet -o t.json", "apply t.json test.parquet -o calibrated.parquet"]
    libraries = ["pandas", "scipy.optimize", "scipy.interpolate", "sklearn"]
    codes, _ = codes_without(libraries, [call.split() for call in calls], tmp_path)
    assert codes == [0, 0]
    light = [["schema"], ["data", "list"], ["data", "list", "--json"]]
    assert codes_without(["torch", "numpy", "pyarrow", "pydantic"], light, tmp_path)[0] == [0, 0, 0]


def test_every_error_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    codes = {InvalidInputError: 2, UnknownNameError: 2, NoDataError: 2, CorruptFileError: 2}
    for error, code in {**codes, FailedRunsError: 1, InterruptedRunError: 130}.items():

        def broken(*_: object, error: type[Exception] = error, **__: object) -> None:
            raise error("[red]one\x1b[2J\nline")

        monkeypatch.setattr(cli, "app", broken)
        ran = in_this_process(monkeypatch, capsys)()
        assert (ran.code, ran.out, ran.err) == (code, "", "calibrant: [red]one\\x1b[2J\\nline\n")
        with monkeypatch.context() as patched:  # of the processes of torchrun, one speaks
            patched.setenv("RANK", "1")
            monkeypatch.setattr(cli, "app", broken)
            assert in_this_process(monkeypatch, capsys)() == (code, "", "")

    def unreadable(*_: object, **__: object) -> None:
        Path("x" * 300).stat()

    monkeypatch.setattr(cli, "app", unreadable)
    in_this_process(monkeypatch, capsys)().refused("x cannot be used: File name too long")

    def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "app", bug)
    with pytest.raises(ZeroDivisionError):  # what is not ours is not hidden
        in_this_process(monkeypatch, capsys)()


def refusal(*tokens: str) -> str:
    with pytest.raises(CycloptsError) as caught:
        app.parse_args(list(tokens), print_error=False, exit_on_error=False)
    return str(caught.value)


def test_whole_numbers_are_not_rounded() -> None:
    found = list(arguments({int}))
    assert {"--n-bins", "--seed", "--n-knots", "--k", "--severity", "--jobs", "--batch-size"} <= {
        argument.name for _, argument in found
    }
    for verb, argument in found:
        assert argument.parameter.converter is integer, (verb, argument.name)
    for text in ("1.5", "2.0", "1e3", "1_000", "0x10", "", "nan", "٣", "9" * 19):
        assert f"--seed: {text!r} is not a whole number" in refusal("train", "--seed", text)


def test_no_argument_is_empty_or_has_a_nul() -> None:
    """An unset variable of a shell must not name the working directory, or the root of the machine."""
    for verb, argument in arguments({str, Path}):
        ours = verb != ["--install-completion"]
        assert not ours or argument.hint not in (Path, Path | None), "that of an empty text is the working directory"
    for text in ("", "a\0b"):
        for line in ("audit x ", "audit x --by a ", "fit x -o y --target ", "train --data ", "corrupt x fog 3 -o "):
            assert refusal(*line.split(), text).endswith("must not be empty or have a NUL character"), line


# Streams

TALK = """
import sys, time
from rich.console import Console
from calibrant.cli.output import prepare_streams
prepare_streams()
for _ in range(3):
    print("x" * 100_000)
    Console().print("y", soft_wrap=True)
    time.sleep(0.1)
sys.exit(3)
"""


def test_unbuffered_output_stays_unbuffered() -> None:
    """As PYTHONUNBUFFERED=1 and -u ask for; what is printed is read although the process dies at once."""
    program = "import os; from calibrant.cli.output import prepare_streams; prepare_streams(); print('x'); os._exit(0)"
    for value, output in ("", b""), ("1", b"x"):
        environment = os.environ | {"PYTHONUNBUFFERED": value}
        found = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, timeout=MAX_SECONDS, env=environment
        )
        assert (found.stdout.strip(), found.stderr) == (output, b"")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no bash")
def test_exit_codes_do_not_depend_on_who_reads(tmp_path: Path) -> None:
    (tmp_path / "talk.py").write_text(TALK)
    calibrant, wrong = f"{sys.executable} -m calibrant", "data where --rot x"
    for line, codes, error in (
        (f"{sys.executable} talk.py | head -c1", "3 0", ""),
        (f"{calibrant} data where >&-", "0", ""),
        (f"{calibrant} data where > /dev/full", "2", "calibrant: standard output cannot be written: No space left"),
        (f"{calibrant} {wrong} 2>&1 | true", "2 0", ""),
        (f"{calibrant} {wrong} 2> /dev/full", "2", ""),
        (
            f"mkdir x; (cd x; rmdir ../x; {calibrant} data where)",
            "2",
            "calibrant: the working directory cannot be used",
        ),
    ):
        command = ["bash", "-c", f"{line}; echo ${{PIPESTATUS[*]}} > codes"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=MAX_SECONDS)
        assert (line, (tmp_path / "codes").read_text().strip()) == (line, codes)
        assert ran.stderr.startswith(error), line
        assert ran.stderr.count("\n") == bool(error), ran.stderr


# Completion, which is that of cyclopts


def test_completion_is_installed_once(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (tmp_path / ".bashrc").write_text("alias l=ls")
    place = tmp_path / ".local" / "share" / "bash-completion" / "completions" / "calibrant"
    for _ in range(2):
        assert str(place) in calibrant("--install-completion", "--shell", "bash").done()
    lines = (tmp_path / ".bashrc").read_text().splitlines()
    assert lines[0] == "alias l=ls"
    assert sum(str(place) in line for line in lines) == 1
    script = place.read_text(encoding="utf-8")
    assert {name for name in app if not name.startswith("-")} <= set(re.findall(r"[\w-]+", script))


OFFERED: dict[str, set[str]] = {
    "aud": {"audit"},
    "data ": {"list", "fetch", "check", "where"},
    "run --d": {"--dry-run"},
    "solve --form ": {"mean", "variance", "mean_variance", "prior"},
    "train --precision ": {"32", "bf16", "16"},
    "audit fr": {"frozen.parquet"},
    "fit val.parquet --target fr": {"frozen.parquet"},
    "table fr": {"frozen.parquet"},
    "figure severity fr": {"frozen.parquet"},
    "run -o fr": {"frozen.parquet"},
}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no bash")
def test_bash_offers_verbs_options_choices_and_files(tmp_path: Path) -> None:
    (tmp_path / "frozen.parquet").touch()
    (tmp_path / "script").write_text(app.generate_completion(shell="bash"), encoding="utf-8")
    lines = [
        f"COMP_WORDS=({shlex.join(['calibrant', *line.split(' ')])}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        'COMPREPLY=(); _calibrant; echo "${COMPREPLY[*]}"'
        for line in OFFERED
    ]
    command = ["bash", "-c", "\n".join(["source ./script", *lines])]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=MAX_SECONDS)
    assert ran.stderr == ""
    assert dict(zip(OFFERED, map(set, map(str.split, ran.stdout.splitlines())), strict=True)) == OFFERED
