"""Settings of every test: one thread, the same examples on every run, and the longest files first."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

pytest.register_assert_rewrite("made")

from made.cli import Run, in_this_process  # noqa: E402

torch.set_num_threads(1)
settings.register_profile("calibrant", deadline=None, derandomize=True)
settings.load_profile("calibrant")

# xdist gives whole files to its workers: one of these at the end would keep the others waiting
LONGEST = (
    "experiments/test_cluster.py",
    "losses/test_modules.py",
    "test_docs.py",
    "metrics/test_intervals.py",
    "audits/test_statistics.py",
    "experiments/test_processes.py",
    "metrics/test_histogram.py",
    "test_parallel.py",
    "training/test_engine.py",
    "experiments/test_run.py",
    "calibrators/test_recovery.py",
    "report/test_browser.py",
)


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process, without the data folder of whoever runs the tests."""
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    return in_this_process(monkeypatch, capsys)


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # which would put the files of most tests first


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    rank = {tests / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(LONGEST)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is loaded until the tests begin is no garbage, and need not be looked through again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else libraries that count what they leave behind complain at the end
