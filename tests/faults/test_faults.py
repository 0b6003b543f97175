"""A few trials of every module of faults, and the table that `make faults` prints of many."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faults.running import Part, batteries, run
from made.cli import MAX_SECONDS

TESTS = Path(__file__).parents[1]
MODULES = batteries()
QUICK, SLOW = 12, 4  # trials in this process, and trials that start others; a module may state its own SUITE
SOME_FAIL = """
import os, time
from faults.trial import Trial

SECONDS = 3

def trials(n, seed):
    def attempt(action):
        def run(folder):
            (folder / "left").write_text("")
            return action()
        return run

    yield Trial("sound", "a", attempt(lambda: None))
    yield Trial("loud", "b", attempt(lambda: "two\\nlines"))
    yield Trial("loud", "c", attempt(lambda: 1 / 0))
    yield Trial("dead", "d", attempt(lambda: os._exit(7)))
    yield Trial("sound", "e", attempt(lambda: None))
    yield Trial("slow", "f", attempt(lambda: time.sleep(100)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_held(name: str, tmp_path: Path) -> None:
    """In a process of its own: trials fork, and threads of other tests, as those that draw figures, would be lost."""
    module = MODULES[name]
    n = getattr(module, "SUITE", SLOW if getattr(module, "SLOW", False) else QUICK)
    results = run([Part(name, n, seed=0, first=0, step=1)], 1, tmp_path)
    assert [f"{result.kind}: {result.name}: {result.failure}" for result in results if result.failure] == []


def test_the_page_lists_every_kind() -> None:
    page = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert [name for name in MODULES if f"`{name}`" not in page] == []


@pytest.mark.slow
def test_the_table_counts_what_did_not_hold(tmp_path: Path) -> None:
    package = tmp_path / "faults"
    package.mkdir()
    for file in ("__init__.py", "__main__.py", "running.py", "trial.py"):
        (package / file).symlink_to(TESTS / "faults" / file)
    (package / "some_fail.py").write_text(SOME_FAIL)

    def faults(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "faults", "--jobs", "1", *arguments]
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=MAX_SECONDS, env=environment
        )

    found = faults("--trials", "6")
    assert found.returncode == 1
    rows = re.findall(r"^(\w+) +(\d+) +(\d+)$", found.stdout, re.MULTILINE)
    assert rows == [("sound", "2", "2"), ("loud", "2", "0"), ("dead", "1", "0"), ("slow", "1", "0"), ("all", "6", "2")]
    assert "not held: loud: b: two lines\n" in found.stdout
    assert "ZeroDivisionError: division by zero" in found.stdout
    assert "the process ended: 7\n    python -m faults --kinds some_fail --trials 6 --seed 0 --only 3\n" in found.stdout
    assert "not held: slow: f: took more than 3 s\n" in found.stdout
    assert len(list(tmp_path.glob("calibrant-faults-*/*/left"))) == 4
    assert faults("--trials", "6", "--only", "4").returncode == 0
