"""Runs of the command line, in this process or one of their own, and what they leave behind."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from calibrant import cli

FOUND = re.compile(r"^(?!calibrant: ).* from .*; (no labels|labels from |correct )")
MAX_SECONDS = 600  # which only a process that hangs needs


class Ran(NamedTuple):
    """What a run of the command line left behind."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> Any:
        """The JSON on standard output, which has no NaN and no Infinity."""
        assert self.code in (0, 3), self.err

        def refuse(word: str) -> float:
            raise AssertionError(f"{word} is not JSON")

        return json.loads(self.out, parse_constant=refuse)

    def done(self) -> str:
        """What a run that worked printed."""
        assert self.code == 0, self.err
        assert self.errors == []
        return self.out

    @property
    def found(self) -> list[str]:
        """The lines on standard error that say what the columns of files are."""
        return [line for line in self.err.splitlines() if FOUND.search(line)]

    @property
    def errors(self) -> list[str]:
        """All other lines there."""
        return [line for line in self.err.splitlines() if not FOUND.search(line)]

    def refused(self, message: str) -> None:
        """Exit code 2 with this in the one line on standard error."""
        assert self.code == 2, (self.out, self.err)
        assert self.out == ""
        (line,) = self.errors
        assert message in line
        assert "Traceback" not in line


Run = Callable[..., Ran]


def in_this_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`main`, on a terminal 200 columns wide unless told; the fixture `calibrant` is one of these."""
    app = cli.app

    def run(*arguments: object, width: int = 200) -> Ran:
        monkeypatch.setenv("COLUMNS", str(width))
        tokens = list(map(str, arguments))
        monkeypatch.setattr(cli, "app", lambda **options: app(tokens, **options))
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        assert isinstance(code, int)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


def run_process(*arguments: object, **environment: str) -> Ran:
    return run_in_one_process(arguments, **environment)[0]


PROGRAM = """
import json, sys
from calibrant.cli import main
*before, last = json.loads(sys.argv[1])
for tokens in before:
    sys.argv[1:], code = tokens, 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code or 0
    for stream in (sys.stdout, sys.stderr):
        print(end=f"\\x1e{code}\\x1e", file=stream, flush=True)
sys.argv[1:] = last
main()
"""


def run_in_one_process(*commands: Sequence[object], **environment: str) -> list[Ran]:
    """Commands one after the other in a process that loads the libraries once, and ends as the last of them does."""
    tokens = json.dumps([list(map(str, command)) for command in commands])
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, tokens],
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        env=os.environ | {"COLUMNS": "200"} | environment,
    )
    outs, errs = (f"{text}\x1e{found.returncode}".split("\x1e") for text in (found.stdout, found.stderr))
    assert len(outs) == len(errs) == 2 * len(commands), found
    return [Ran(int(code), out, err) for out, code, err in zip(outs[::2], outs[1::2], errs[::2], strict=True)]
