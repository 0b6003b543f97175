"""Runs on Ray: the same rows as in this process though a node is lost, and a stop that ends every run."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from filelock import FileLock

from calibrant.errors import InterruptedRunError, InvalidInputError, ResourceError, UndefinedMetricError
from calibrant.experiments import cluster
from calibrant.experiments.cluster import RayBackend
from calibrant.experiments.evaluate import EvaluationConfig
from calibrant.experiments.folder import RunOutcome
from calibrant.experiments.run import run_experiment
from calibrant.experiments.tasks import RunProgress, RunTask, run_task
from calibrant.runs import RunFolder, RunKey
from calibrant.training import Settings
from made.ray_cluster import NODE, SECONDS_TO_START, import_ray, quiet_ray, ray_cluster
from made.sweeps import wait_for, write_sweep

pytestmark = pytest.mark.slow

CONFIG = EvaluationConfig(("temperature",), (), ("accuracy", "ece"), ())


def new_task(tmp_path: Path, loss: str, **settings: Any) -> RunTask:
    """A task by the name of a loss, which need not exist."""
    key = RunKey("digits", "mlp", loss)
    return RunTask(key, Settings(data="digits", model="mlp", **settings), RunFolder(tmp_path / key.name), CONFIG)


def no_progress(run: str, fraction: float) -> None:
    pass


# What the nodes do in these tests: each attempt at a run leaves a line in a file next to its folder


def note(task: RunTask, line: str) -> int:
    """How many lines there are now."""
    path = Path(f"{task.folder.path}.notes")
    with path.open("a") as file:
        file.write(f"{line}\n")
    return len(path.read_text().splitlines())


def notes(task: RunTask) -> list[str]:
    path = Path(f"{task.folder.path}.notes")
    return path.read_text().splitlines() if path.exists() else []


def at_once(task: RunTask) -> RunOutcome:
    note(task, f"{os.getpid()} {torch.get_num_threads()} {task.settings.root}")
    return RunOutcome(task.name, None, 1.5)


def as_named(task: RunTask) -> RunOutcome:
    """Ends as the name of the run says."""
    attempt = note(task, "started")
    loss = task.key.loss
    if loss == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if loss == "is interrupted once" and attempt == 1:
        raise InterruptedRunError("stopped")
    if loss == "is mistaken":
        raise KeyError("a\nb")
    if loss == "is refused":
        raise UndefinedMetricError("there is no error\x20in 3 rows")
    return RunOutcome(task.name, None, 1.0)


def trained(task: RunTask) -> RunOutcome:
    """Training that has started when there is a note, and tells how it was stopped."""
    started = False

    def report(run: str, share: float) -> None:
        nonlocal started
        if not started:
            started = bool(note(task, "started"))

    try:
        return run_task(task, report)
    except InterruptedRunError as stop:
        note(task, str(stop))
        raise


def stubborn(task: RunTask) -> RunOutcome:
    """Hears that it is asked to stop, from the moment that it has started, and does not."""
    signal.signal(signal.SIGINT, lambda number, frame: note(task, "asked"))
    note(task, "started")
    while True:
        Event().wait(0.1)


def first_quick(task: RunTask) -> RunOutcome:
    return at_once(task) if task.key.loss == "quick" else stubborn(task)


def held_up(doomed: str, task: RunTask) -> RunOutcome:
    """Halts half-way on one of the nodes; on the others, a second run begins when that has happened."""
    import ray

    folder, here = task.folder.path.parent, ray.get_runtime_context().get_node_id()
    is_first = True

    def report(run: str, share: float) -> None:
        nonlocal is_first
        if is_first:
            note(task, f"{here} {share}")
            is_first = False
        if here == doomed and share > 0.4:
            (folder / "halted").touch()
            Event().wait()

    if here != doomed and any(folder.glob("*/metrics.parquet")):
        wait_for((folder / "halted").exists, "run that halts")
    return run_task(task, report)


@quiet_ray
def test_this_machine(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is started and stopped silently; signals and environment stay as they were."""
    ray = import_ray(__name__)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    task, progress = new_task(tmp_path, "a"), list[tuple[str, float]]()
    signals = (signal.SIGINT, signal.SIGTERM)
    handlers, environment = [signal.getsignal(number) for number in signals], set(os.environ)
    outcomes = RayBackend("local", run_task=at_once)([task], lambda *done: progress.append(done))
    found = [next(outcomes)]
    assert ray.is_initialized()
    assert [signal.getsignal(number) for number in signals] == handlers
    assert not [name for name in set(os.environ) - environment if "USAGE" in name or "REDIS" in name]
    assert [*found, *outcomes] == [RunOutcome("digits-mlp-a-0", None, 1.5)]
    assert not ray.is_initialized()
    assert progress == [("digits-mlp-a-0", 1.0)]
    process, n_threads, root = notes(task)[0].split(" ", 2)
    assert int(process) != os.getpid()
    assert (n_threads, root) == ("1", str(tmp_path / "data"))
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of one node, for all tests of this file."""
    ray = import_ray(__name__)
    import_ray("made.sweeps")
    with ray_cluster(1) as cluster:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster


@quiet_ray
@pytest.mark.usefixtures("nodes")
class TestCluster:
    """Each worker that is killed makes the next test wait until another one has loaded torch."""

    def test_a_sweep_that_is_stopped_leaves_checkpoints(self, tmp_path: Path) -> None:
        quick = new_task(tmp_path, "quick", epochs=1, shifts=("none",))
        runs, waits = (new_task(tmp_path, name, epochs=10**6, shifts=("none",)) for name in ("runs", "waits"))
        outcomes = RayBackend("auto", run_task=trained)([quick, runs, waits], no_progress)
        first = next(outcomes)
        assert (first.run, first.failure) == (quick.name, None)
        wait_for(lambda: bool(notes(runs)), "run that starts")
        outcomes.close()
        _, stopped = notes(runs)
        assert stopped.startswith("stopped in epoch ")
        assert runs.folder.last.is_file()
        assert notes(waits) == []
        assert not waits.folder.path.exists()

    def test_what_fails_and_what_is_tried_again(self, tmp_path: Path) -> None:
        names = ("is interrupted once", "is mistaken", "is refused", "is well", "dies")
        tasks = {name: new_task(tmp_path, name) for name in names}
        *others, dies = tasks.values()
        outcomes = [*RayBackend("auto", retries=1, run_task=as_named)(others, no_progress)]
        outcomes += RayBackend("auto", retries=0, run_task=as_named)([dies], no_progress)
        found = {outcome.run: outcome for outcome in outcomes}
        failures = {name: found[tasks[name].name].failure for name in names}
        assert str(failures.pop("dies")).startswith("Ray gave it up: WorkerCrashedError: ")
        assert failures == {
            "is interrupted once": None,
            "is mistaken": r"KeyError: 'a\nb'",
            "is refused": "there is no error in 3 rows",
            "is well": None,
        }
        assert [len(notes(tasks[name])) for name in names] == [2, 1, 1, 1, 1]
        assert all("\n" not in str(outcome.failure) and outcome.seconds > 0 for outcome in found.values())

    def test_what_does_not_stop_is_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        task, quick = new_task(tmp_path, "never"), new_task(tmp_path, "quick")
        unfinished = cluster._unfinished

        def once_it_was_asked(ray: Any, pending: list[Any]) -> list[Any]:
            wait_for(lambda: len(notes(task)) > 1, "note that it was asked")
            return unfinished(ray, pending)

        monkeypatch.setattr(cluster, "STOP_SECONDS", 0.5)
        monkeypatch.setattr(cluster, "_unfinished", once_it_was_asked)
        outcomes = RayBackend("auto", run_task=first_quick)([quick, task], no_progress)
        next(outcomes)
        wait_for(lambda: bool(notes(task)), "run that starts")
        outcomes.close()
        assert notes(task) == ["started", "asked"]
        with FileLock(task.folder.path / ".node.lock", timeout=SECONDS_TO_START):
            pass  # which it held

    def test_a_node_that_is_lost(self, tmp_path: Path, nodes: Any) -> None:
        """With its processes, in mid-run: that run resumes elsewhere from its checkpoint, to the same rows."""
        file = write_sweep(
            tmp_path / "sweep.toml",
            {"loss": ["cross_entropy", "focal", "poly"]},
            settings={"epochs": 3, "batch_size": 128, "checkpoint_minutes": 0.0},
        )
        doomed = nodes.add_node(**NODE)
        folder = tmp_path / "ray"

        def losing_a_node(tasks: Sequence[RunTask], progress: RunProgress) -> Iterator[RunOutcome]:
            outcomes = RayBackend("auto", run_task=partial(held_up, doomed.node_id))(tasks, progress)
            yield next(outcomes)
            wait_for((folder / "halted").exists, "run that halts")
            nodes.remove_node(doomed, allow_graceful=False)
            yield from outcomes

        result = run_experiment(file, output=folder, backend=losing_a_node)
        assert (result.n_done, result.failures, result.missing) == (3, (), ())
        attempts = [path.read_text().split() for path in sorted(folder.glob("*.notes"))]
        assert sorted(map(len, attempts)) == [2, 2, 4]
        first_node, first_fraction, _, second_fraction = max(attempts, key=len)
        assert first_node == doomed.node_id
        assert float(first_fraction) < 0.2
        assert float(second_fraction) > 0.3  # it had come to 0.4
        run_experiment(file, output=tmp_path / "here")
        for name in ("rows.parquet", "curves.parquet"):
            assert (folder / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


# What a node does, without one


def test_a_run_computes_with_its_processors(tmp_path: Path) -> None:
    try:
        cluster._run_on_node(at_once, new_task(tmp_path, "a", root="x"), 2)
    finally:
        torch.set_num_threads(1)
    assert notes(new_task(tmp_path, "a"))[0].split()[1] == "2"


def test_a_folder_that_another_node_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = new_task(tmp_path, "a", root="x")
    task.folder.path.mkdir()
    monkeypatch.setattr(cluster, "LOCK_SECONDS", 0.2)

    def held(task: RunTask) -> RunOutcome:
        with pytest.raises(ResourceError, match=r"digits-mlp-a-0 is still in use by another process after 0\.2 s$"):
            cluster._run_on_node(at_once, task, 1)
        return RunOutcome(task.name)

    assert cluster._run_on_node(held, task, 1) == RunOutcome(task.name)
    assert notes(task) == []


# Refusals


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"cpus": 0}, "cpus must be .* got 0"),
        ({"gpus": -1}, "gpus must be .* got -1"),
        ({"gpus": 1.5}, r"gpus must be a fraction of one, or an integer, got 1\.5"),
        ({"retries": -1}, "retries must be an integer of at least 0, got -1"),
        # Ray would wait for these
        ({"cpus": 3}, r"cpus must be .* \[0, 2\], got 3"),
        ({"gpus": 1}, r"gpus must be .* \[0, 0\], got 1"),
    ],
    ids=["cpus", "negative gpus", "shared gpus", "retries", "too many cpus", "too many gpus"],
)
def test_options_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], rule: str
) -> None:
    ray = SimpleNamespace(is_initialized=lambda: True, cluster_resources=lambda: {"CPU": 2.0})
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(InvalidInputError, match=rule):
        list(RayBackend("local", run_task=at_once, **options)([new_task(tmp_path, "a")], no_progress))


@pytest.mark.parametrize(("available", "gpus"), [({"GPU": 4.0}, 1), ({}, 0)], ids=["some", "none"])
def test_a_gpu_where_there_are_any(available: dict[str, float], gpus: int) -> None:
    asked: list[dict[str, Any]] = []
    ray = SimpleNamespace(
        cluster_resources=lambda: available,
        remote=lambda **options: asked.append(options) or (lambda function: function),
    )
    RayBackend("auto", cpus=2)._remote(ray)
    RayBackend("auto", cpus=2, gpus=0.5)._remote(ray)
    assert [(options["num_cpus"], options["num_gpus"]) for options in asked] == [(2, gpus), (2, 0.5)]
