"""Finished sweeps, each made once; who changes one takes a copy."""

from pathlib import Path

import pytest

from made.sweeps import LONG, SHIFTED, SHORT, TWO, sweep


def made(factory: pytest.TempPathFactory, name: str, **options: object) -> Path:
    folder = factory.mktemp(name) / "sweep"
    result = sweep(folder, TWO, **options)
    assert (result.folder.path, result.n_done, result.failures, result.missing) == (folder, 2, (), ())
    return folder


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one epoch."""
    return made(tmp_path_factory, "short", settings=SHORT)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that are long enough to be stopped; nothing has disturbed these."""
    return made(tmp_path_factory, "whole", settings=LONG)


@pytest.fixture(scope="session")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a calibrator that is fitted to corrupted validation images."""
    return made(tmp_path_factory, "shifted", **SHIFTED)
