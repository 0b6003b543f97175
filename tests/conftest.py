"""Settings of every test: one thread, the same examples on every run, and the longest files first."""

import gc
from collections.abc import Generator

import pytest
import torch
from hypothesis import settings

pytest.register_assert_rewrite("made")

from made.cli import Run, in_this_process  # noqa: E402

torch.set_num_threads(1)
settings.register_profile("calibrant", deadline=None, derandomize=True)
settings.load_profile("calibrant")

# xdist gives whole files to its workers: one of these at the end would keep all others waiting
LONGEST = (
    "test_cluster.py",
    "test_sklearn.py",
    "test_intervals.py",
    "test_parallel.py",
    "test_compare.py",
    "test_table.py",
    "test_engine.py",
    "test_metric_table.py",
    "test_calibrator_table.py",
    "test_checkpoint.py",
    "test_audit.py",
    "test_streams.py",
    "test_run.py",
    "test_processes.py",
    "test_browser.py",
)


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process, without the data folder of whoever runs the tests."""
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    return in_this_process(monkeypatch, capsys)


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # which would put the files of most tests first


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))


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
