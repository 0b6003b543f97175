"""Help and the manual page: description, options, examples that parse, exit codes; and letters that a stream lacks."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_run import in_this_process, run_process
from cyclopts import App

from calibrant.cli import app, manual
from calibrant.cli.examples import ALWAYS, EXAMPLES, EXITS, exit_codes

PAGE = Path(__file__).parents[2] / "man" / "calibrant.1"


def verbs(of: App, before: str = "") -> Iterator[str]:
    for name in of:
        if name not in (*of.help_flags, *of.version_flags):
            yield f"{before}{name}"
            yield from verbs(of[name], f"{before}{name} ")


VERBS = ["", *verbs(app)]


def test_every_verb_has_examples() -> None:
    assert sorted(EXAMPLES) == sorted(VERBS)
    assert set(EXITS) <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.replace(" ", "-") or "calibrant")
def test_help_has_all_parts(verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = in_this_process(monkeypatch, capsys)(*verb.split(), "--help", width=80).done()
    assert out.startswith(f"Usage: calibrant {verb}".rstrip())
    lines = [line.strip() for line in out.splitlines()]
    assert lines[2], "a description"
    for command, what in EXAMPLES[verb].items():
        assert command in lines, "in one line of 80 letters, to be copied"
        assert f"# {what}" in lines
    for code, meaning in exit_codes(verb):
        assert any(f"{code}: {meaning}".startswith(line.removeprefix("• ")) for line in lines if line)


@pytest.mark.parametrize(
    "command", [pytest.param(command, id=command) for examples in EXAMPLES.values() for command in examples]
)
def test_examples_parse(command: str) -> None:
    program, *tokens = shlex.split(command)
    assert program == "calibrant"
    function, _, ignored = app.parse_args(tokens, print_error=False, exit_on_error=False)
    assert not ignored
    assert function.__module__.startswith("calibrant.cli.")


def test_exit_codes_of_one_verb_win_over_those_of_all() -> None:
    codes = dict(exit_codes("run"))
    assert codes[0] == ALWAYS[0]
    assert codes[1] == EXITS["run"][1] != ALWAYS[1]
    assert list(codes) == [0, 1, 2, 130]


def test_the_manual_page_is_that_of_the_help() -> None:
    assert PAGE.read_text(encoding="ascii") == manual.page(), "make man writes it anew"


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_the_manual_page_renders_without_warnings() -> None:
    command = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", str(PAGE)]
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=600)
    assert ran.stderr == ""
    for text in ("calibrant audit [PATHS...] [OPTIONS]", "--fail-if", "losses × seeds", "maxent_mean,seed=0", "EXIT"):
        assert text in " ".join(ran.stdout.split())


def test_roff_prints_what_it_would_obey() -> None:
    assert manual._escaped(".toml is a 'file'") == "\\&.toml is a 'file'"
    assert manual._escaped(r"a\b", literal=True) == r"a\eb"
    assert manual._escaped("well-known --dry-run") == r"well-known \-\-dry\-run"
    assert manual._escaped("'a' --b", literal=True) == r"\(aqa\(aq \-\-b"
    assert manual._escaped("×") == r"\[u00D7]"


def test_letters_that_the_stream_lacks_are_replaced() -> None:
    assert "losses ? seeds" in run_process("--help", PYTHONIOENCODING="ascii").done()


def test_help_loads_no_more_than_it_needs() -> None:
    code = "import sys, calibrant.cli as cli\ncli.app.help_print([])\nprint(sorted(sys.modules), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    for name in ("torch", "pydantic", "calibrant.cli.completion", "calibrant.cli.manual", "cyclopts.completion.bash"):
        assert f"'{name}'" not in ran.stderr
