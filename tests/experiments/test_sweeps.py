"""Sweeps: what is done is not done again, what fails stops no other, and the rows do not depend on how it was run."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock
from sweep_run import NAMES, TWO, Forking, check_same, contents, plan_of, sweep, write_sweep
from training_run import Ended, at_moment, in_child, n_moments, some_moments

from calibrant.errors import InterruptedRunError
from calibrant.experiments import processes, read_rows, run_experiment
from calibrant.experiments import work as work_module
from calibrant.experiments.processes import Processes
from calibrant.experiments.run import carry_out

if TYPE_CHECKING:
    from calibrant.experiments.work import Outcome

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

OFTEN = {"checkpoint_minutes": 0.0}  # a checkpoint after every step
N_STOPS = 3
KEPT = ("*/weights.safetensors", "*/predictions/*", "*/evaluation.parquet", "*/log.jsonl", "*/DONE")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two runs that nothing has disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "sweep"
    result = sweep(folder, TWO)
    assert (result.folder, result.n_done, result.failures, result.missing) == (folder, 2, (), ())
    return folder


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def runs_in(folder: Path) -> list[str]:
    """In the order of the rows."""
    return list(dict.fromkeys(read_rows(folder).column("run").to_pylist()))


# What is done


def test_a_sweep_leaves_its_file_its_log_and_its_rows(whole: Path) -> None:
    assert (whole / "experiment.toml").read_bytes() == whole.with_suffix(".toml").read_bytes()
    assert [(line["run"], line["failure"]) for line in log_of(whole)] == [(name, None) for name in NAMES]
    assert all(0 < line["seconds"] < 600 for line in log_of(whole))
    assert runs_in(whole) == list(NAMES)
    assert [path for path in whole.rglob("*") if path.suffix == ".tmp" or path.name == "error.log"] == []


def test_runs_that_are_done_are_skipped(whole: Path) -> None:
    before, log, rows = contents(whole, *KEPT), log_of(whole), read_rows(whole)
    result = sweep(whole, TWO)
    assert (result.n_done, result.failures, result.missing) == (2, (), ())
    assert contents(whole, *KEPT) == before
    assert log_of(whole) == log
    assert read_rows(whole).equals(rows)


def test_a_sweep_goes_on_with_what_is_missing(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    file = write_sweep(tmp_path / "sweep.toml", TWO)
    result = run_experiment(file, output=folder, only={"loss": "focal"})
    assert (result.n_done, result.missing) == (1, (NAMES[0],))
    assert runs_in(folder) == [NAMES[1]]
    before = contents(folder / NAMES[1], "weights.safetensors", "DONE")
    result = run_experiment(file, output=folder)
    assert (result.n_done, result.missing) == (2, ())
    assert contents(folder / NAMES[1], "weights.safetensors", "DONE") == before
    check_same(folder, whole)  # in the order of the plan, though the second was done first


def test_a_sweep_that_grows_keeps_what_it_has(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    sweep(folder, {"loss": "focal"}, settings={"epochs": 2})
    result = sweep(folder, TWO, {"loss": "focal", "lr": 0.01, "variant": "slow"})
    assert result.n_done == 3
    rows = read_rows(folder)
    assert runs_in(folder) == [*NAMES, "digits-mlp-focal-slow-0"]
    assert rows.slice(0, read_rows(whole).num_rows).equals(read_rows(whole))
    assert set(rows.slice(read_rows(whole).num_rows).column("variant").to_pylist()) == {"slow"}
    smaller = sweep(folder, TWO)
    assert smaller.n_done == 2
    check_same(folder, whole)


# What fails


def test_a_run_that_fails_stops_no_other(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    result = sweep(folder, {"loss": "poly", "lr": 1e30}, TWO)
    (failed,) = result.failures
    assert failed.run == "digits-mlp-poly-0"
    assert failed.failure is not None
    assert len(failed.failure.splitlines()) == 1
    assert "the loss is nan" in failed.failure
    assert (result.n_done, result.missing) == (2, ("digits-mlp-poly-0",))
    assert (folder / failed.run / "error.log").read_text() == f"{failed.failure}\n"
    assert [(line["run"], line["failure"]) for line in log_of(folder)] == [
        (failed.run, failed.failure),
        *((name, None) for name in NAMES),
    ]
    check_same(folder, whole)
    again = sweep(folder, {"loss": "poly", "lr": 1e30}, TWO)  # it is tried again, and it alone
    assert [outcome.run for outcome in again.failures] == [failed.run]
    assert len(log_of(folder)) == 4


def test_the_log_of_an_error_goes_once_there_is_none(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    (folder / NAMES[0]).mkdir(parents=True)
    with FileLock(folder / NAMES[0] / ".lock"):
        result = sweep(folder, TWO)
    assert [outcome.failure for outcome in result.failures] == [f"{folder / NAMES[0]} is in use by another process"]
    assert (folder / NAMES[0] / "error.log").is_file()
    assert sweep(folder, TWO).failures == ()
    assert not (folder / NAMES[0] / "error.log").exists()
    check_same(folder, whole)


def test_a_mistake_of_ours_is_one_line_and_the_log_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object) -> None:
        raise KeyError("first\nsecond")

    monkeypatch.setattr(work_module, "evaluate", mistaken)
    (failed,) = sweep(tmp_path / "sweep", {"loss": "focal", "epochs": 1}).failures
    assert failed.failure == r"KeyError: 'first\nsecond'"
    assert "Traceback" in (tmp_path / "sweep" / NAMES[1] / "error.log").read_text()


def test_a_calibrator_that_has_no_fit_leaves_the_others_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every validation row is right there is no best temperature; the rows say that there is no value."""
    from calibrant.calibrators import TemperatureScaling
    from calibrant.errors import NotConvergedError

    fit = TemperatureScaling.fit

    def without_grid(*given: Any, **options: Any) -> Any:
        if not options:
            raise NotConvergedError("there is no best temperature")
        return fit(*given, **options)

    monkeypatch.setattr(TemperatureScaling, "fit", without_grid)
    heard: list[Outcome] = []
    plan = plan_of(tmp_path / "sweep", {"epochs": 1}, calibrators=["temperature", "temperature_grid"])
    result = carry_out(plan, tmp_path / "sweep.toml", heard=heard.append)
    assert (result.n_done, result.failures) == (1, ())
    assert [outcome.notes for outcome in heard] == [("temperature could not be fitted: there is no best temperature",)]
    for row in read_rows(tmp_path / "sweep").to_pylist():
        assert (row["value"] is None) == (row["calibrator"] == "temperature"), row


# How it was run


@pytest.mark.parametrize("jobs", [1, 2], ids=["one as it is", "two forked"])
def test_rows_of_processes(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """One with libraries that it loads itself, and two at a time, which are spared that."""
    if jobs == 2:
        context = Forking()
        monkeypatch.setattr(processes, "get_context", lambda method: context)
    shares: dict[str, list[float]] = {name: [] for name in NAMES}
    heard: list[Outcome] = []
    plan = plan_of(tmp_path / "sweep", TWO)
    result = carry_out(
        plan,
        tmp_path / "sweep.toml",
        backend=Processes(jobs, threads=1),
        report=lambda run, share: shares[run].append(share),
        heard=heard.append,
    )
    assert (result.n_done, result.failures, result.missing) == (2, (), ())
    assert {outcome.run for outcome in heard} == set(NAMES)
    for found in shares.values():
        assert found == pytest.approx(sorted(found))
        assert 0 < found[0] < 0.8 < found[-1] <= 1
    for name in NAMES:
        assert (tmp_path / "sweep" / name / "output.log").is_file()
    check_same(tmp_path / "sweep", whole)


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
    assert "the same command goes on" in ended.out


def test_rows_of_a_sweep_that_was_stopped_again_and_again(whole: Path, tmp_path: Path) -> None:
    """Wherever that is, in training, predicting or measuring; it always goes on from there."""
    folder = tmp_path / "sweep"
    file = write_sweep(tmp_path / "sweep.toml", TWO, settings=OFTEN)
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


@pytest.mark.parametrize("name", ["write_metrics", "Predictor"], ids=["metrics", "predictions"])
def test_a_stop_between_two_runs_is_heeded(tmp_path: Path, name: str) -> None:
    """Also where the run that is asked has nothing left to stop: no other begins."""
    folder = tmp_path / "sweep"
    file = write_sweep(tmp_path / "sweep.toml", TWO)

    def action() -> None:
        from calibrant.training import run

        last_step = getattr(run, name)

        def asked(*given: Any, **options: Any) -> Any:
            terminate()
            return last_step(*given, **options)

        setattr(run, name, asked)
        stopped(file, folder)

    check_stopped(in_child(action))
    assert not (folder / NAMES[1]).exists()
    assert set(read_rows(folder).column("run").to_pylist()) <= {NAMES[0]}  # what is done can be looked at
    assert (folder / NAMES[0] / "DONE").exists() == (read_rows(folder).num_rows > 0)


def test_a_run_that_was_copied_in_is_measured_as_what_it_is_here(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    settings = {"epochs": 1}
    sweep(first, {"loss": "focal"}, settings=settings)
    shutil.copytree(first / "digits-mlp-focal-0", second / "digits-mlp-focal-copy-0")
    weights = second / "digits-mlp-focal-copy-0" / "weights.safetensors"
    before = weights.stat().st_mtime_ns
    assert sweep(second, {"loss": "focal", "variant": "copy"}, settings=settings).n_done == 1
    assert weights.stat().st_mtime_ns == before
    assert set(read_rows(second).column("variant").to_pylist()) == {"copy"}
