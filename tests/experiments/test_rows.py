"""Rows of an experiment: read by us, pandas and DuckDB alike, and chosen by conditions that cannot write."""

import re
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from sweep_run import TWO, sweep

from calibrant._parquet import write_table
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError
from calibrant.experiments import read_curves, read_rows, where
from calibrant.experiments.rows import CURVES, ROWS

VALUES: dict[str, list[Any]] = {
    "run": ["a", "b", "c"],
    "loss": ["focal", "it's", "focal"],
    "seed": [0, 1, 2],
    "severity": [0, 3, 5],
    "shifted": [False, True, True],
    "value": [0.25, None, 0.75],
}
TABLE = pa.table(VALUES)
CONDITIONS = {
    "loss = 'focal'": "ac",
    "loss = 'it''s'": "b",
    "loss like 'f%' and seed > 0": "c",
    "severity between 1 and 4 or run in ('a')": "ab",
    "shifted": "bc",
    "not shifted": "a",
    "shifted = 1": "bc",
    "value is null": "b",
    "value > 0.2": "ac",
    "value > (select avg(value) from rows)": "c",
    "abs(value - 0.25) < 1e-9": "a",
    "1": "abc",
    "0": "",
    "seed = 0 -- the first": "a",
}
REFUSED = {
    "nothing": "",
    "a column": "los = 'focal'",
    "a function": "cosine(value) > 0",
    "an open string": "loss = 'focal",
    "an open string over lines": "loss = 'focal\nx",
    "an open bracket": "(loss = 'focal'",
    "a second statement": "1); drop table rows; --",
    "another second statement": "1); delete from rows where (1",
    "another table": "seed in (select 1 from other)",
    "an attached file": "1); attach 'x.db' as x; --",
    "other rows": "0) union select 7 from rows where (1",
    "no rows": "0) union select 'x' from rows where (1",
    "a null character": "loss = '\0'",
    "half of a letter": "loss = '\ud800'",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows") / "sweep"
    sweep(found, TWO, settings={"epochs": 1})
    return found


# Conditions


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions(condition: str) -> None:
    found = where(TABLE, condition)
    assert found.schema == TABLE.schema
    assert found.to_pylist() == [row for row in TABLE.to_pylist() if row["run"] in CONDITIONS[condition]]


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_condition_is_refused_in_one_line(case: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^where must be a condition on run, loss, seed") as refused:
        where(TABLE, REFUSED[case])
    assert len(str(refused.value).splitlines()) == 1
    assert TABLE.to_pydict() == VALUES


def test_conditions_agree_with_duckdb(folder: Path) -> None:
    rows = read_rows(folder)
    for condition in ("metric = 'ece' and shifted", "value > 0.5 or low is not null", "calibrator <> 'none'"):
        found = duckdb.sql(f"select count(*) from '{folder}/rows.parquet' where {condition}").fetchall()
        assert found == [(where(rows, condition).num_rows,)]
        assert 0 < found[0][0] < rows.num_rows


def test_no_rows_are_no_rows() -> None:
    assert where(ROWS.empty_table(), "value > 0").num_rows == 0


# Other programs


def test_pandas_and_duckdb_read_the_same(folder: Path) -> None:
    path = folder / "rows.parquet"
    rows = read_rows(folder)
    frame = pd.read_parquet(path)
    assert len(frame) == rows.num_rows
    assert list(frame.columns) == ROWS.names
    assert frame.equals(rows.to_pandas())
    query = (
        f"select loss, count(*), avg(value) from '{path}' where metric = 'nll' and shifted group by loss order by loss"
    )
    by_loss = frame[(frame.metric == "nll") & frame.shifted].groupby("loss").value
    for (loss, count, mean), (name, values) in zip(duckdb.sql(query).fetchall(), by_loss, strict=True):
        assert (loss, count) == (name, len(values)) == (name, 2)  # raw, and with a temperature
        assert mean == pytest.approx(values.mean())


def test_curves_are_read_by_others_too(folder: Path) -> None:
    (found,) = duckdb.sql(f"select sum(weight) from '{folder}/curves.parquet' where curve = 'reliability'").fetchall()
    frame = pd.read_parquet(folder / "rows.parquet")
    tests = frame[["run", "split", "calibrator", "n_rows"]].drop_duplicates()
    assert found == (tests.n_rows.sum(),)


# Folders


@pytest.mark.parametrize("reader", [read_rows, read_curves])
def test_folders_without_rows(tmp_path: Path, reader: Any) -> None:
    name = f"{reader.__name__.removeprefix('read_')}.parquet"
    message = rf"^{re.escape(str(tmp_path))} has no {name}: .*experiment"
    with pytest.raises(NoDataError, match=message):
        reader(tmp_path)
    with pytest.raises(NoDataError, match=f"has no {name}"):
        reader(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(NoDataError, match=f"has no {name}"):
        reader(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more"], ids=["empty", "foreign"])
def test_files_that_are_no_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.parquet").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"rows\.parquet is not a Parquet file") as refused:
        read_rows(tmp_path)
    assert len(str(refused.value).splitlines()) == 1


def test_other_columns_are_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.parquet", CURVES.empty_table())
    with pytest.raises(CorruptFileError, match=r"rows\.parquet has other columns than run, data, model"):
        read_rows(tmp_path)
