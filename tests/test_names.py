"""The names that commands check before torch is imported are the keys of the tables."""

import sys
from importlib import import_module

import pytest

from calibrant import _names
from calibrant.calibrators import CALIBRATORS
from calibrant.corruptions import CORRUPTIONS
from calibrant.data.table import CORRUPTED_TESTS, DATASETS
from calibrant.decisions import SET_METHODS
from calibrant.decisions.certifying import SELECTORS
from calibrant.estimates import ESTIMATORS
from calibrant.losses import LOSSES
from calibrant.metrics import METRICS
from calibrant.models import MODELS
from calibrant.ood import OOD_SCORES
from calibrant.report.figures import FIGURES
from calibrant.report.paper import TABLES


def test_the_names_are_the_keys_of_the_tables() -> None:
    assert tuple(CALIBRATORS) == _names.CALIBRATORS
    assert tuple(CORRUPTED_TESTS) == _names.CORRUPTED_TESTS
    assert tuple(CORRUPTIONS) == _names.CORRUPTIONS
    assert tuple(DATASETS) == _names.DATASETS
    assert tuple(ESTIMATORS) == _names.ESTIMATORS
    assert tuple(FIGURES) == _names.FIGURES
    assert tuple(LOSSES) == _names.LOSSES
    assert tuple(METRICS) == _names.METRICS
    assert tuple(MODELS) == _names.MODELS
    assert tuple(OOD_SCORES) == _names.OOD_SCORES
    assert tuple(SELECTORS) == _names.SELECTORS
    assert tuple(SET_METHODS) == _names.SET_METHODS
    assert tuple(TABLES) == _names.TABLES


@pytest.mark.parametrize("table", _names.EXTENSIBLE)
def test_entries_that_users_added_are_known(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = getattr(import_module(_names.EXTENSIBLE[table]), table)
    monkeypatch.setitem(entries, "mine", next(iter(entries.values())))
    assert _names.known_names(table) == (*getattr(_names, table), "mine")
    monkeypatch.delitem(sys.modules, _names.EXTENSIBLE[table])  # as before it is imported
    assert _names.known_names(table) == getattr(_names, table)
