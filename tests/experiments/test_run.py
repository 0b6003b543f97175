"""Experiments: their plan, their runs, what fails, and rows that do not depend on how the runs were done."""

import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from filelock import FileLock

from calibrant import Predictions, score
from calibrant._files import _open_temporary
from calibrant._parquet import write_table
from calibrant.calibrators import TemperatureScaling
from calibrant.errors import InterruptedRunError, InvalidInputError, NoDataError, NotConvergedError, UnknownNameError
from calibrant.experiments import ExperimentFolder, config, processes, run, run_experiment, tasks
from calibrant.experiments.cluster import RayBackend
from calibrant.experiments.processes import ProcessBackend
from calibrant.experiments.run import choose_backend, plan_experiment, run_plan
from calibrant.experiments.tasks import in_this_process
from calibrant.runs import RunFolder
from calibrant.training import Settings, results
from calibrant.training.folder import config_digest, open_run_folder
from made.sweeps import (
    LONG,
    NAMES,
    SETTINGS,
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


# The plan

MANY = (
    {"loss": ["cross_entropy", "focal"], "seed": [0, 1], "label_smoothing": [0, 0.1]},
    {"loss": "focal", "seed": [0, 1], "epochs": 3, "variant": "long"},
)


def start_run(folder: Path, run: str, **settings: object) -> None:
    values: dict[str, Any] = {**SETTINGS, **settings}
    with open_run_folder(RunFolder(folder / run), Settings(**values)):
        pass


def states_of(folder: Path, *grids: dict[str, Any], **options: Any) -> list[str]:
    file = write_sweep(folder.parent / "other.toml", *grids, **options)
    return list(plan_experiment(file, output=folder).states.values())


def test_states_are_those_of_the_folders(short: Path, tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / NAMES[0]).symlink_to(short / NAMES[0])
    start_run(tmp_path / "sweep", "digits-mlp-poly-0", loss="poly", epochs=1)
    plan = plan_of(tmp_path / "sweep", {"loss": ["cross_entropy", "poly", "focal"]}, settings=SHORT)
    found = {key.loss: state for key, state in plan.states.items()}
    assert found == {"cross_entropy": "done", "poly": "started", "focal": "to do"}
    assert [task.key.loss for task in plan.tasks()] == ["poly", "focal"]
    assert {task.key.loss for task in plan.tasks(redo=True)} == set(found)


def test_a_run_that_was_measured_by_something_else_is_not_done(short: Path) -> None:
    assert states_of(short, TWO, settings=SHORT) == ["done", "done"]
    for change in (
        {"calibrators": []},
        {"metrics": ["accuracy", "ece"]},
        {"intervals": []},
        {"calibration_shifts": ["fog"]},
    ):
        assert states_of(short, TWO, settings=SHORT, **change) == ["started", "started"], change
    free = {**SHORT, "workers": 0, "checkpoint_minutes": 1.0, "device": "cpu"}
    assert states_of(short, TWO, settings=free, title="Other", figures=[]) == ["done", "done"]


def test_a_plan_makes_nothing(tmp_path: Path) -> None:
    assert set(plan_of(tmp_path / "sweep", TWO).states.values()) == {"to do"}
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


def test_the_grid_is_expanded_once_and_each_loss_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Settings] = []
    monkeypatch.setattr(config, "check_settings", checked.append)
    plan = plan_of(tmp_path / "sweep", *MANY)
    plan.tasks()
    assert [(settings.loss, settings.label_smoothing, settings.epochs) for settings in checked] == [
        *((loss, smoothing, 2) for loss in ("cross_entropy", "focal") for smoothing in (0, 0.1)),
        ("focal", 0, 3),
    ]


def test_each_data_set_is_opened_once_for_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no file of a run that has not begun is looked for: a plan of 100,000 seeds takes seconds."""
    opened: list[str] = []
    open_data = run.open_data
    monkeypatch.setattr(run, "open_data", lambda settings: opened.append(settings.data) or open_data(settings))
    monkeypatch.setattr(RunFolder, "__init__", lambda self, path: pytest.fail(f"{path} has not begun"))
    plan = plan_of(tmp_path / "sweep", {"seed": list(range(200)), "loss": ["cross_entropy", "focal"]})
    assert (len(plan.remaining()), opened) == (400, ["digits"])


def test_a_folder_of_another_configuration_is_refused_before_anything_is_trained(short: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in short.rglob("*")}
    file = write_sweep(tmp_path / "other.toml", {"loss": ["maxent_mean", "cross_entropy"]}, settings={"epochs": 2})
    for only in (None, {"loss": "maxent_mean"}):  # also where that run is not chosen
        with pytest.raises(InvalidInputError, match=r"was started with epochs = 1, not 2") as refused:
            run_experiment(file, output=short, only=only)
        message = str(refused.value)
        assert len(message.splitlines()) == 1
        assert str(short / NAMES[0]) in message
        assert re.findall(r"\b[0-9a-f]{12}\b", message) == [
            config_digest(Settings(**{**SETTINGS, "epochs": epochs}).identity) for epochs in (1, 2)
        ]
    assert {path: path.stat().st_mtime_ns for path in short.rglob("*")} == before


# Order and choice


def test_started_runs_come_first_and_all_losses_of_a_seed_before_the_next(tmp_path: Path) -> None:
    start_run(tmp_path / "sweep", "digits-mlp-focal-1", loss="focal", seed=1)
    plan = plan_of(tmp_path / "sweep", {"loss": ["poly", "focal"], "seed": [1, 0]}, {"loss": "maxent_mean", "seed": 0})
    names = ["focal-1", "poly-0", "focal-0", "maxent_mean-0", "poly-1"]
    assert [task.name for task in plan.tasks()] == [f"digits-mlp-{name}" for name in names]
    assert {task.folder.path for task in plan.tasks()} == {tmp_path / "sweep" / f"digits-mlp-{name}" for name in names}


def test_only_some_are_chosen(tmp_path: Path) -> None:
    for only, n_runs in (
        ({}, 10),
        ({"loss": "focal"}, 6),
        ({"seed": "1"}, 5),
        ({"label_smoothing": "0"}, 6),
        ({"label_smoothing": "0.0"}, 6),
        ({"label_smoothing": "0.1", "loss": "focal", "seed": "0"}, 1),
        ({"variant": "long"}, 2),
        ({"variant": ""}, 8),
        ({"data": "digits", "model": "mlp"}, 10),
    ):
        plan = plan_of(tmp_path / "sweep", *MANY, only=only)
        assert len(plan.states) == 10
        assert len(plan.chosen) == len(plan.tasks()) == n_runs, only
        for key in plan.chosen:
            for axis, value in only.items():
                assert str(getattr(key, axis)).removesuffix(".0") == value.removesuffix(".0")


# Where runs are done


@pytest.mark.parametrize(
    ("n_cores", "n_gpus", "jobs", "expected"),
    [
        (1, 0, None, in_this_process),
        (4, 0, None, ProcessBackend(4, 1, 0)),
        (64, 0, None, ProcessBackend(8, 8, 0)),
        (64, 2, None, ProcessBackend(2, 32, 2)),
        (4, 0, 2, ProcessBackend(2, 2, 0)),
        (4, 0, 30, ProcessBackend(10, 1, 0)),
        (4, 2, 1, in_this_process),
    ],
)
def test_processes_by_cores_gpus_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_cores: int, n_gpus: int, jobs: int | None, expected: object
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: n_cores)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    assert choose_backend(plan_of(tmp_path / "sweep", *MANY), jobs=jobs) == expected


def test_a_cluster_is_asked_for_what_the_file_says(short: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "sweep", *MANY, resources={"cpus": 2, "gpus": 0.5})
    assert choose_backend(plan, ray="auto") == RayBackend("auto", cpus=2, gpus=0.5)
    file = write_sweep(tmp_path / "done.toml", TWO, settings=SHORT)
    done = plan_experiment(file, output=short)
    assert choose_backend(done, jobs=2) is in_this_process  # there is nothing to do
    assert choose_backend(done, jobs=2, redo=True) == ProcessBackend(
        2, max(1, (os.cpu_count() or 1) // 2), torch.cuda.device_count()
    )


REFUSED_AXES = {
    "axis": ({"los": "focal"}, "unknown axis 'los'; did you mean 'loss'?"),
    "no axis": ({"epochs": "3"}, "unknown axis 'epochs'"),
    "loss": ({"loss": "poly"}, "only must name a loss of the experiment, got 'poly'; there are cross_entropy, focal"),
    "seed": ({"seed": "7"}, "only must name a seed of the experiment, got '7'; there are 0, 1"),
    "no run": ({"loss": "cross_entropy", "variant": "long"}, "only leaves none of the 10 runs"),
}


@pytest.mark.parametrize("case", REFUSED_AXES)
def test_only_what_is_not_there(tmp_path: Path, case: str) -> None:
    only, message = REFUSED_AXES[case]
    with pytest.raises((InvalidInputError, UnknownNameError), match=re.escape(message)) as refused:
        plan_of(tmp_path / "sweep", *MANY, only=only)
    assert len(str(refused.value).splitlines()) == 1


def log_of(folder: Path) -> list[tuple[str, str | None]]:
    outcomes, n_broken = ExperimentFolder(folder).read_log()
    assert n_broken == 0
    return [(outcome.run, outcome.failure) for outcome in outcomes]


def runs_in(folder: Path) -> list[str]:
    """In the order of the rows."""
    return read_rows(folder)["run"].unique().to_pylist()


# What is done


def test_a_sweep_leaves_its_file_its_log_and_its_rows(short: Path) -> None:
    copy = (short / "experiment.toml").read_text()
    assert copy.partition("\n")[2] == short.with_suffix(".toml").read_text()
    assert log_of(short) == [(name, None) for name in NAMES]
    assert runs_in(short) == list(NAMES)
    assert [path for path in short.rglob("*") if path.suffix == ".tmp" or path.name == "error.log"] == []


def test_runs_that_are_done_are_skipped(short: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(short, tmp_path / "sweep")
    before = contents(folder, *KEPT, "log.jsonl")
    _open_temporary(str(folder / "rows.parquet"))[1].close()  # what a killed sweep was writing
    assert list(folder.glob(".*.tmp"))
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


def test_a_sweep_resumes_with_what_is_missing(short: Path, tmp_path: Path) -> None:
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


def test_a_run_that_was_copied_in_is_measured_as_what_it_is_here(short: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    run = shutil.copytree(short / NAMES[1], folder / "digits-mlp-focal-copy-0")
    before = contents(run, "weights.safetensors")
    assert sweep(folder, {"loss": "focal", "variant": "copy"}, settings=SHORT).n_done == 1
    assert contents(run, "weights.safetensors") == before
    assert read_rows(folder)["variant"].unique().to_pylist() == ["copy"]


# What fails


def test_a_run_that_fails_stops_no_other(short: Path, tmp_path: Path) -> None:
    """The rows grow with each run that ends; one that failed adds none."""
    folder, grids = tmp_path / "sweep", ({"loss": "poly", "lr": 1e30}, TWO)
    seen: list[tuple[str, list[str]]] = []
    plan = plan_of(folder, *grids, settings=SHORT)
    result = run_plan(plan, tmp_path / "sweep.toml", on_run_end=lambda end: seen.append((end.run, runs_in(folder))))
    assert seen == [("digits-mlp-poly-0", []), (NAMES[0], [NAMES[0]]), (NAMES[1], list(NAMES))]
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
    """Where every validation row is correct there is no best temperature; the rows say that there is no value.

    The notes say so, and that the run, which hardly moves, is at chance.
    """
    fit = TemperatureScaling.fit

    def without_grid(*given: Any, **options: Any) -> Any:
        if not options:
            raise NotConvergedError("there is no best temperature")
        return fit(*given, **options)

    monkeypatch.setattr(TemperatureScaling, "fit", without_grid)
    outcomes = []
    plan = plan_of(tmp_path / "sweep", {"epochs": 1, "lr": 1e-9}, calibrators=["temperature", "temperature_grid"])
    result = run_plan(plan, tmp_path / "sweep.toml", on_run_end=outcomes.append)
    assert (result.n_done, result.failures) == (1, ())
    note = "temperature could not be fitted: there is no best temperature"
    for outcome in (*outcomes, ExperimentFolder(tmp_path / "sweep").read_log()[0][0]):
        chance, fit_note = outcome.notes
        assert (chance.split(" of ")[0], fit_note) == ("the validation accuracy", note)
    for row in read_rows(tmp_path / "sweep").to_pylist():
        assert (row["value"] is None) == (row["calibrator"] == "temperature"), row


# How it was run


@pytest.mark.slow
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


@pytest.mark.slow
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
def test_a_stop_between_two_runs_stops_the_sweep(tmp_path: Path, name: str) -> None:
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


def test_missing_weights_are_refused_before_any_run(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match=r"none.safetensors is not there: .* digits-mlp-focal-0 starts from"):
        sweep(tmp_path / "sweep", {"loss": ["focal", "poly"], "weights": str(tmp_path / "none.safetensors")})
    assert not (tmp_path / "sweep" / NAMES[0]).exists()


# Ensembles


@pytest.mark.slow
def test_an_ensemble_is_the_mean_of_its_members(tmp_path: Path) -> None:
    grid, asked = {"loss": ["focal", "poly"], "seed": [3, 5]}, {"ensembles": True, "settings": SHORT}
    folder, names = tmp_path / "sweep", ("digits-mlp-focal-3", "digits-mlp-focal-5")
    assert sweep(folder, grid, **asked).failures == ()
    rows = {(row["run"], row["split"], row["calibrator"], row["metric"]): row for row in read_rows(folder).to_pylist()}
    ensemble = "digits-mlp-focal-ensemble2-0"
    for name in ("test", "fog-3"):
        members = [Predictions.load(folder / member / "predictions" / f"{name}.parquet") for member in names]
        mean = Predictions.from_probs(sum(one.logits.double().softmax(1) for one in members) / 2, members[0].labels)
        assert rows[ensemble, name, "none", "nll"]["value"] == pytest.approx(score(mean).nll, rel=1e-5)
    assert rows[ensemble, "test", "temperature", "ece"]["value"] is not None
    assert {key.name for key in ExperimentFolder(folder).read_plan()} == {run for run, *_ in rows}
    # an ensemble is made again where a member was
    plan = plan_of(folder, grid, **asked)
    assert plan.remaining() == []
    shutil.rmtree(folder / names[1])
    left = [key.name for key in plan_of(folder, grid, **asked).remaining()]
    assert left == [names[1], ensemble]
    before = (folder / ensemble / "metrics.parquet").read_bytes()
    assert sweep(folder, grid, **asked).n_done == 6
    assert (folder / ensemble / "metrics.parquet").read_bytes() == before
    member = folder / names[0] / "metrics.parquet"  # of other rows, as after a training by other code
    metadata = pq.read_schema(member).metadata
    table = pq.read_table(member)
    write_table(member, table.slice(1).replace_schema_metadata(metadata))
    assert [key.name for key in plan_of(folder, grid, **asked).remaining()] == [ensemble]


def test_an_ensemble_waits_for_all_its_members(tmp_path: Path) -> None:
    grid, asked = {"loss": "focal", "seed": [0, 1]}, {"ensembles": True, "settings": SHORT}
    plan = plan_of(tmp_path / "sweep", grid, only={"seed": "0"}, **asked)
    assert [key.name for key in plan.chosen] == ["digits-mlp-focal-0"]
    result = run_plan(plan, write_sweep(tmp_path / "sweep.toml", grid, **asked))
    assert (result.n_done, result.missing) == (1, ("digits-mlp-focal-1", "digits-mlp-focal-ensemble2-0"))
    plan = plan_of(tmp_path / "sweep", grid, only={"variant": "ensemble2"}, **asked)
    assert run_plan(plan, tmp_path / "sweep.toml").n_done == 1  # a member is missing: it is not begun
