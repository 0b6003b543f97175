"""The folder of an experiment: its rows, log and plan, read where neither torch nor pydantic is; and refusals."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from calibrant._parquet import write_table
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError, UnknownNameError
from calibrant.experiments import ExperimentFolder, RunKey
from calibrant.experiments.folder import RunOutcome
from calibrant.run_tables import CURVES, ROWS, run_keys
from made.sweeps import NAMES, SHORT, TWO, read_rows, sweep

WITHOUT_LIBRARIES = """
import sys
from pathlib import Path
sys.modules |= {"torch": None, "pydantic": None}
from calibrant.errors import MissingExtraError
from calibrant.experiments import ExperimentFolder
folder = ExperimentFolder(Path(sys.argv[1]))
names = folder.read_rows()["run"].unique().to_pylist()
assert folder.read_curves()["run"].unique().to_pylist() == names == [outcome.run for outcome in folder.read_log()[0]]
assert (folder.read_title(), folder.read_figures(), folder.read_data_root()) == ("", ["all"], None)
assert all(environment["torch"] for environment in folder.read_environments(names).values())
try:
    folder.read_plan()
except MissingExtraError as error:
    print(error)
"""


def test_rows_log_and_environments_need_neither_torch_nor_pydantic(short: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_LIBRARIES, str(short)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    needs = f"reading {short / 'experiment.toml'} needs the extra train: pip install 'calibrant[train]'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, needs, "")


def test_the_plan_has_the_keys_of_the_rows(short: Path) -> None:
    plan = ExperimentFolder(short).read_plan()
    assert plan == [RunKey("digits", "mlp", loss, "", 0.0, 0) for loss in TWO["loss"]]
    assert run_keys(read_rows(short)) == {key.name: key for key in plan}
    assert [key.name for key in plan] == list(NAMES)
    assert [key.kind for key in plan] == [("digits", "mlp", loss, "", 0.0) for loss in TWO["loss"]]


def test_the_plan_runs_no_code_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text("[[grid]]\ndata = 'digits'\nmodel = 'elsewhere/net.py:net'")
    assert ExperimentFolder(tmp_path).read_plan() == [RunKey("digits", "net", "cross_entropy")]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (RunKey("digits", "mlp", "focal"), "digits-mlp-focal-0"),
        (RunKey("digits", "timm:vit/tiny", "focal", seed=12), "digits-timm-vit-tiny-focal-12"),
        (RunKey("digits", "mlp", "focal", "global", 0.01), "digits-mlp-focal-global-smooth0.01-0"),
    ],
)
def test_runs_are_named_after_their_key(key: RunKey, name: str) -> None:
    assert key.name == key.columns()["run"] == name


def test_pandas_and_duckdb_read_the_same(short: Path) -> None:
    rows, path = read_rows(short), short / "rows.parquet"
    frame = pd.read_parquet(path)
    assert list(frame.columns) == ROWS.names
    assert frame.equals(rows.to_pandas())
    query = f"select loss, count(*), avg(value) from '{path}' where metric = 'nll' and shifted group by loss order by 1"
    by_loss = frame[(frame.metric == "nll") & frame.shifted].groupby("loss").value
    for (loss, count, mean), (name, values) in zip(duckdb.sql(query).fetchall(), by_loss, strict=True):
        assert (loss, count) == (name, len(values)) == (name, 2)  # raw, and with a temperature
        assert mean == pytest.approx(values.mean())
    (found,) = duckdb.sql(f"select sum(weight) from '{short}/curves.parquet' where curve = 'reliability'").fetchall()
    assert found == (frame[["run", "split", "calibrator", "n_rows"]].drop_duplicates().n_rows.sum(),)


# The log


def test_broken_lines_of_a_log_are_counted_and_written_behind(tmp_path: Path) -> None:
    """The machine went down while a line was written."""
    folder = ExperimentFolder(tmp_path)
    assert folder.read_log() == ([], 0)
    first, second = RunOutcome("a", "diverged", 1.5), RunOutcome("b", None, 2.25, ("no fit",))
    folder.append_log(first)
    others = ['{"run": "b", "sec', "7", '{"run": 7, "seconds": 1}', '{"run": "b", "failure": 7, "seconds": 1}']
    others += ['{"run": "b", "seconds": NaN}', '{"run": "b", "seconds": true}', '{"run": "b"}', "[" * 100_000]
    with folder.log_file.open("a") as file:
        file.write("\n".join(["", *others]))
    folder.append_log(second)
    assert folder.read_log() == ([first, second], len(others))


def test_the_log_of_a_sweep_goes_on_behind_a_line_that_was_cut_off(short: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "log.jsonl").write_text('{"run": "digits-mlp-focal-0", "fai')
    sweep(folder, {"loss": "focal"}, settings=SHORT)
    outcomes, n_broken = ExperimentFolder(folder).read_log()
    assert ([(outcome.run, outcome.failure) for outcome in outcomes], n_broken) == ([(NAMES[1], None)], 1)
    assert 0 < outcomes[0].seconds < 600


# What the experiment file says


def test_title_figures_and_data_root(tmp_path: Path) -> None:
    folder = ExperimentFolder(tmp_path)
    assert not folder.has_plan
    assert (folder.read_title(), folder.read_figures(), folder.read_data_root()) == ("", ["all"], None)
    folder.experiment_file.write_text("title = 'A'\nfigures = []\n[settings]\nroot = 'there'\n[[grid]]")
    assert folder.has_plan
    assert (folder.read_title(), folder.read_figures(), folder.read_data_root()) == ("A", [], "there")


def test_a_changed_copy_of_the_experiment_file_is_refused(tmp_path: Path) -> None:
    """Its first line says how to edit it; copied onto itself it stays as it is. Digests elsewhere are none of it."""
    folder, source = ExperimentFolder(tmp_path), tmp_path / "sweep.toml"
    source.write_text(f"# blake2b:{'0' * 32}\ntitle = 'A'")
    folder.copy_experiment(source)
    copy = folder.experiment_file.read_text()
    folder.copy_experiment(folder.experiment_file)
    assert folder.experiment_file.read_text() == copy
    for damaged in (copy.replace("'A'", "'B'"), *(copy[:end] for end in (0, 20, 80, len(copy) - 4))):
        folder.experiment_file.write_text(damaged)
        with pytest.raises(CorruptFileError, match=r"experiment\.toml is damaged"):
            folder.read_title()
    folder.experiment_file.write_text(copy.replace("'A'", "'B'").partition("\n")[2])
    assert folder.read_title() == "B"


REFUSED: dict[str, tuple[str, str | bytes | None, Callable[[ExperimentFolder], object], type[CalibrantError], str]] = {
    "no rows": ("", None, ExperimentFolder.read_rows, NoDataError, "has no rows.parquet: it is not the folder of an"),
    "no curves": ("", None, ExperimentFolder.read_curves, NoDataError, "has no curves.parquet: it is not the folder"),
    "empty rows": ("rows.parquet", b"", ExperimentFolder.read_rows, CorruptFileError, "is not a Parquet file"),
    "foreign rows": ("rows.parquet", b"PAR1 x", ExperimentFolder.read_rows, CorruptFileError, "is not a Parquet file"),
    "no plan": ("", None, ExperimentFolder.read_plan, NoDataError, "has no experiment.toml: it is not the folder of"),
    "no TOML": ("experiment.toml", "grid = [", ExperimentFolder.read_plan, CorruptFileError, "is not TOML"),
    "no TOML title": ("experiment.toml", "grid = [", ExperimentFolder.read_title, CorruptFileError, "is not TOML"),
    "unknown": ("experiment.toml", "gird = 1", ExperimentFolder.read_plan, UnknownNameError, "did you mean 'grid'"),
    "title": ("experiment.toml", "title = 1", ExperimentFolder.read_title, InvalidInputError, "a string, got 1"),
    "figures": ("experiment.toml", "figures = [1]", ExperimentFolder.read_figures, InvalidInputError, "got [1]"),
    "settings": ("experiment.toml", "settings = 1", ExperimentFolder.read_data_root, InvalidInputError, "got 1"),
    "root": ("experiment.toml", "settings = {root=1}", ExperimentFolder.read_data_root, InvalidInputError, "got 1"),
    "up": ("", None, lambda folder: folder.run(".."), InvalidInputError, "name of a folder in"),
    "below": ("", None, lambda folder: folder.run("a/b"), InvalidInputError, "got 'a/b'"),
    "nothing": ("", None, lambda folder: folder.read_environments([""]), InvalidInputError, "got ''"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_that_names_the_folder(tmp_path: Path, case: str) -> None:
    name, content, read, error, message = REFUSED[case]
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error, match=re.escape(message)) as refused:
        read(ExperimentFolder(tmp_path))
    assert str(tmp_path) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_other_columns_are_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.parquet", CURVES.empty_table())
    with pytest.raises(CorruptFileError, match=r"rows\.parquet has other columns than run, data, model"):
        read_rows(tmp_path)


def test_environments_that_are_not_there(short: Path, tmp_path: Path) -> None:
    shutil.copytree(short, tmp_path / "sweep")
    (tmp_path / "sweep" / NAMES[0] / "environment.json").write_text('{"torch": ')
    found = ExperimentFolder(tmp_path / "sweep").read_environments([*NAMES, "nowhere"])
    assert (found[NAMES[0]], found["nowhere"]) == (None, None)
    assert found[NAMES[1]] == ExperimentFolder(short).read_environments(NAMES)[NAMES[1]] != {}


def test_the_folder_may_be_text(short: Path) -> None:
    assert ExperimentFolder(str(short)).rows_file == ExperimentFolder(short).rows_file  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="path must be"):
        ExperimentFolder(3)  # type: ignore[arg-type]
