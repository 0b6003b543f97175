"""What a watched folder tells of itself: the same counts as its page, and a word that changes when the page would."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from calibrant.cli.watch import Watched

sys.path.append(str(Path(__file__).parents[1] / "experiments"))
from sweep_run import NAMES, TWO, sweep, write_sweep


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of two runs is done."""
    folder = tmp_path_factory.mktemp("watch") / "runs"
    sweep(folder, {"loss": ["cross_entropy"]}, figures=["samples"])
    return folder


@pytest.fixture
def folder(swept: Path) -> Path:
    """As swept, with the copy of its file as it is before the test."""
    write_sweep(swept / "experiment.toml", TWO, figures=["samples"])
    return swept


def count_of(said: str) -> str:
    found = re.match(r"\d+ of \d+ runs?", said)
    assert found, said
    return found[0]


def test_counts_are_those_of_the_page(folder: Path) -> None:
    watched = Watched(folder)
    state = watched.look()
    assert state.said.startswith("1 of 2 runs are done; last news ")
    assert f"<p>{count_of(state.said)} is done, 1 left." in watched.page(state)
    (folder / NAMES[1]).mkdir()
    try:
        assert watched.look().said.startswith("1 of 2 runs are done; ")  # an empty folder is not begun
        (folder / NAMES[1] / "config.json").write_text("{}")
        assert watched.look().said.startswith("1 of 2 runs are done, 1 begun; ")
        assert "1 of 2 runs is done, 1 left (1 begun)." in watched.page(state)
    finally:
        (folder / NAMES[1] / "config.json").unlink(missing_ok=True)
        (folder / NAMES[1]).rmdir()


def test_files_that_were_measured_by_something_else_do_not_count(folder: Path) -> None:
    watched = Watched(folder)
    before = watched.look()
    write_sweep(folder / "experiment.toml", TWO, figures=["samples"], metrics=["accuracy", "ece"])
    after = watched.look()
    assert after.said.startswith("0 of 2 runs are done, 1 begun; ")
    assert after.word != before.word


def append(log: Path, **record: Any) -> None:
    with log.open("a") as file:
        file.write(json.dumps(record) + "\n")


@pytest.mark.parametrize(
    ("record", "changes"),
    [({"failure": None, "seconds": 1}, False), ({"failure": "the disk is full", "seconds": 1}, True)],
    ids=["done", "failed"],
)
def test_the_log_alone_is_news_only_where_a_run_has_failed(
    folder: Path, record: Mapping[str, Any], changes: bool
) -> None:
    watched = Watched(folder)
    before = watched.look()
    append(folder / "log.jsonl", run=NAMES[1], **record)
    after = watched.look()
    assert (after.word != before.word) == changes
    assert watched.look().word == after.word


def test_files_that_are_done_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(folder)
    first = watched.look()
    monkeypatch.setattr("calibrant.experiments.evaluate.is_evaluated", lambda *of: False)
    assert watched.look() == first
    assert Watched(folder).look().said.startswith("0 of 2 runs are done")
