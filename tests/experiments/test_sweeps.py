"""Sweeps: what is done is not done again, what fails stops no other, and the rows do not depend on how it was run."""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from filelock import FileLock

from calibrant.calibrators import TemperatureScaling
from calibrant.errors import InterruptedRunError, NotConvergedError
from calibrant.experiments import ExperimentFolder, processes, run_experiment, tasks
from calibrant.experiments.processes import ProcessBackend
from calibrant.experiments.run import run_plan
from calibrant.training import results
from made.sweeps import (
    LONG,
    NAMES,
    SHORT,
    TWO,
    ForkContext,
    check_same,
    contents,
    plan_of,
    read_rows,
    sweep,
    write_sweep,
)
from made.training import Ended, at_moment, in_child, n_moments, some_moments

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

N_STOPS = 3
KEPT = ("*/weights.safetensors", "*/predictions/*", "*/metrics.parquet", "*/curves.parquet", "*/log.jsonl", "*/DONE")


def log_of(folder: Path) -> list[tuple[str, str | None]]:
    outcomes, n_broken = ExperimentFolder(folder).read_log()
    assert n_broken == 0
    return [(outcome.run, outcome.failure) for outcome in outcomes]


def runs_in(folder: Path) -> list[str]:
    """In the order of the rows."""
    return read_rows(folder)["run"].unique().to_pylist()


# What is done


def test_a_sweep_leaves_its_file_its_log_and_its_rows(short: Path) -> None:
    assert (short / "experiment.toml").read_bytes() == short.with_suffix(".toml").read_bytes()
    assert log_of(short) == [(name, None) for name in NAMES]
    assert runs_in(short) == list(NAMES)
    assert [path for path in short.rglob("*") if path.suffix == ".tmp" or path.name == "error.log"] == []


def test_runs_that_are_done_are_skipped(short: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(short, tmp_path / "sweep")
    before = contents(folder, *KEPT, "log.jsonl")
    (folder / ".rows.parquet.abc.tmp").write_bytes(b"half")  # what a killed sweep was writing
    result = sweep(folder, TWO, settings=SHORT)
    assert list(folder.glob(".*.tmp")) == []
    assert (result.n_done, result.failures, result.missing) == (2, (), ())
    assert contents(folder, *KEPT, "log.jsonl") == before
    check_same(folder, short)


def test_a_run_is_scored_once(short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test once as it was predicted, and once for each calibrator."""
    scored: list[int] = []
    score = results.score
    monkeypatch.setattr(results, "score", lambda test, **options: scored.append(len(test)) or score(test, **options))
    sweep(tmp_path / "sweep", {"loss": "focal"}, settings=SHORT)
    assert len(scored) == 2 * 2
    rows = read_rows(tmp_path / "sweep")
    assert rows.equals(pa.concat_tables([read_rows(short).slice(rows.num_rows)]))


def test_a_sweep_goes_on_with_what_is_missing(short: Path, tmp_path: Path) -> None:
    folder, file = tmp_path / "sweep", write_sweep(tmp_path / "sweep.toml", TWO, settings=SHORT)
    result = run_experiment(file, output=folder, only={"loss": "focal"})
    assert (result.n_done, result.missing) == (1, (NAMES[0],))
    assert runs_in(folder) == [NAMES[1]]
    before = contents(folder / NAMES[1], "weights.safetensors", "DONE")
    result = run_experiment(file, output=folder)
    assert (result.n_done, result.missing) == (2, ())
    assert contents(folder / NAMES[1], "weights.safetensors", "DONE") == before
    check_same(folder, short)  # in the order of the plan, though the second was done first


def test_a_sweep_that_grows_keeps_what_it_has(short: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(short, tmp_path / "sweep")
    assert sweep(folder, TWO, {"loss": "focal", "lr": 0.01, "variant": "slow"}, settings=SHORT).n_done == 3
    rows, before = read_rows(folder), read_rows(short)
    assert runs_in(folder) == [*NAMES, "digits-mlp-focal-slow-0"]
    assert rows.slice(0, before.num_rows).equals(before)
    assert rows.slice(before.num_rows)["variant"].unique().to_pylist() == ["slow"]
    assert sweep(folder, TWO, settings=SHORT).n_done == 2
    check_same(folder, short)


def test_rows_grow_with_each_run_that_has_ended(tmp_path: Path) -> None:
    """So that a report can be drawn anew; a run that failed adds none."""
    seen: list[tuple[str, list[str]]] = []
    plan = plan_of(tmp_path / "sweep", {"loss": "poly", "lr": 1e30}, TWO, settings=SHORT)
    run_plan(plan, tmp_path / "sweep.toml", on_run_end=lambda end: seen.append((end.run, runs_in(tmp_path / "sweep"))))
    assert seen == [("digits-mlp-poly-0", []), (NAMES[0], [NAMES[0]]), (NAMES[1], list(NAMES))]


def test_a_run_that_was_copied_in_is_measured_as_what_it_is_here(short: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    run = shutil.copytree(short / NAMES[1], folder / "digits-mlp-focal-copy-0")
    before = contents(run, "weights.safetensors")
    assert sweep(folder, {"loss": "focal", "variant": "copy"}, settings=SHORT).n_done == 1
    assert contents(run, "weights.safetensors") == before
    assert read_rows(folder)["variant"].unique().to_pylist() == ["copy"]


# What fails


def test_a_run_that_fails_stops_no_other(short: Path, tmp_path: Path) -> None:
    folder, grids = tmp_path / "sweep", ({"loss": "poly", "lr": 1e30}, TWO)
    result = sweep(folder, *grids, settings=SHORT)
    (failed,) = result.failures
    assert failed.run == "digits-mlp-poly-0"
    assert failed.failure is not None
    assert len(failed.failure.splitlines()) == 1
    assert "the loss is nan" in failed.failure
    assert (result.n_done, result.missing) == (2, ("digits-mlp-poly-0",))
    assert (folder / failed.run / "error.log").read_text() == f"{failed.failure}\n"
    assert log_of(folder) == [(failed.run, failed.failure), *((name, None) for name in NAMES)]
    check_same(folder, short)
    again = sweep(folder, *grids, settings=SHORT)  # it is tried again, and it alone
    assert [outcome.run for outcome in again.failures] == [failed.run]
    assert len(log_of(folder)) == 4


def test_the_log_of_an_error_goes_once_there_is_none(short: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    (folder / NAMES[0]).mkdir(parents=True)
    with FileLock(folder / NAMES[0] / ".lock"):
        result = sweep(folder, TWO, settings=SHORT)
    assert [outcome.failure for outcome in result.failures] == [f"{folder / NAMES[0]} is in use by another process"]
    assert (folder / NAMES[0] / "error.log").is_file()
    assert sweep(folder, TWO, settings=SHORT).failures == ()
    assert not (folder / NAMES[0] / "error.log").exists()
    check_same(folder, short)


def test_a_mistake_of_ours_is_one_line_and_the_log_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object) -> None:
        raise KeyError("first\nsecond")

    monkeypatch.setattr(tasks, "evaluate", mistaken)
    (failed,) = sweep(tmp_path / "sweep", {"loss": "focal", "epochs": 1}).failures
    assert failed.failure == r"KeyError: 'first\nsecond'"
    assert "Traceback" in (tmp_path / "sweep" / NAMES[1] / "error.log").read_text()


def test_a_calibrator_that_has_no_fit_leaves_the_others_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every validation row is correct there is no best temperature; the rows say that there is no value."""
    fit = TemperatureScaling.fit

    def without_grid(*given: Any, **options: Any) -> Any:
        if not options:
            raise NotConvergedError("there is no best temperature")
        return fit(*given, **options)

    monkeypatch.setattr(TemperatureScaling, "fit", without_grid)
    outcomes = []
    plan = plan_of(tmp_path / "sweep", {"epochs": 1}, calibrators=["temperature", "temperature_grid"])
    result = run_plan(plan, tmp_path / "sweep.toml", on_run_end=outcomes.append)
    assert (result.n_done, result.failures) == (1, ())
    note = "temperature could not be fitted: there is no best temperature"
    assert [outcome.notes for outcome in outcomes] == [(note,)]
    assert ExperimentFolder(tmp_path / "sweep").read_log()[0][0].notes == (note,)
    for row in read_rows(tmp_path / "sweep").to_pylist():
        assert (row["value"] is None) == (row["calibrator"] == "temperature"), row


# How it was run


@pytest.mark.parametrize("jobs", [1, 2], ids=["one as it is", "two forked"])
def test_rows_of_processes(short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """One with libraries that it loads itself, and two at a time, which are spared that."""
    if jobs == 2:
        context = ForkContext()
        monkeypatch.setattr(processes, "get_context", lambda method: context)
    shares: dict[str, list[float]] = {name: [] for name in NAMES}
    outcomes = []
    result = run_plan(
        plan_of(tmp_path / "sweep", TWO, settings=SHORT),
        tmp_path / "sweep.toml",
        backend=ProcessBackend(jobs, threads=1),
        progress=lambda run, share: shares[run].append(share),
        on_run_end=outcomes.append,
    )
    assert (result.n_done, result.failures, result.missing) == (2, (), ())
    assert {outcome.run for outcome in outcomes} == set(NAMES)
    for found in shares.values():
        assert found == pytest.approx(sorted(found))
        assert 0 < found[0] < 0.8 < found[-1] <= 1
    for name in NAMES:
        assert (tmp_path / "sweep" / name / "output.log").is_file()
    check_same(tmp_path / "sweep", short)


def stopped(file: Path, folder: Path) -> None:
    """What a command does where it is stopped."""
    try:
        run_experiment(file, output=folder)
    except InterruptedRunError as error:
        print(error)
        sys.exit(130)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def check_stopped(ended: Ended) -> None:
    assert ended.code == 130, ended
    assert len(ended.out.strip().splitlines()) == 1
    assert "the same command resumes" in ended.out


def test_rows_of_a_sweep_that_was_stopped_again_and_again(whole: Path, tmp_path: Path) -> None:
    """Wherever that is, in training, predicting or measuring; it always resumes there."""
    folder = tmp_path / "sweep"
    file = write_sweep(tmp_path / "sweep.toml", TWO, settings=LONG)
    at_all = n_moments(lambda: run_experiment(file, output=tmp_path / "other"), tmp_path / "other")
    n_stopped = 0
    for moment in some_moments(N_STOPS, at_all // 3, seed=1):
        ended = in_child(at_moment(moment, terminate, lambda: stopped(file, folder), folder))
        if ended.code == 130:
            check_stopped(ended)
            n_stopped += 1
        else:
            assert ended.code in (0, -signal.SIGTERM), ended
    assert n_stopped >= 1
    run_experiment(file, output=folder)
    check_same(folder, whole)
    assert list(folder.rglob("*.tmp")) == []


@pytest.mark.parametrize("name", ["evaluate", "train"], ids=["measuring", "predicting"])
def test_a_stop_between_two_runs_is_heeded(tmp_path: Path, name: str) -> None:
    """Also where the run that is asked has nothing left to stop: no other begins."""
    folder = tmp_path / "sweep"
    file = write_sweep(tmp_path / "sweep.toml", TWO, settings=SHORT)

    def action() -> None:
        from calibrant.training import run

        home, last_step = (tasks, "evaluate") if name == "evaluate" else (run, "Predictor")
        function = getattr(home, last_step)

        def asked(*given: Any, **options: Any) -> Any:
            terminate()
            return function(*given, **options)

        setattr(home, last_step, asked)
        stopped(file, folder)

    check_stopped(in_child(action))
    assert not (folder / NAMES[1]).exists()
    done = name == "evaluate"  # what is done can be looked at
    assert (runs_in(folder), (folder / NAMES[0] / "DONE").exists()) == ([NAMES[0]] if done else [], done)
