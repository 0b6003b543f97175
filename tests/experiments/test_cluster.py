"""Runs on Ray: the same rows as in this process though a node is lost, and nothing that goes on after a stop."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from filelock import FileLock

from calibrant.errors import (
    InterruptedRunError,
    InvalidInputError,
    MissingExtraError,
    ResourceError,
    UndefinedMetricError,
)
from calibrant.experiments import cluster
from calibrant.experiments.cluster import RayBackend
from calibrant.experiments.evaluate import EvaluationConfig
from calibrant.experiments.folder import RunOutcome
from calibrant.experiments.run import run_experiment
from calibrant.experiments.tasks import RunProgress, RunTask, run_task
from calibrant.runs import RunFolder, RunKey
from calibrant.training import Settings

SECONDS_TO_START = 300  # after which something hangs
MEMORY = 80 * 2**20
MEASURES = EvaluationConfig(("temperature",), (), ("accuracy", "ece"), ())
SWEEP = """
metrics = ["accuracy", "ece", "nll"]
intervals = ["ece"]

[settings]
data = "digits"
model = "mlp"
epochs = 3
batch_size = 128
shifts = ["fog-3", "snow-2"]
checkpoint_minutes = 0.0

[[grid]]
loss = ["cross_entropy", "focal"]
seed = [0, 1]
"""


def a_task(tmp_path: Path, loss: str, **settings: Any) -> RunTask:
    """A task by the name of a loss, which need not exist."""
    key = RunKey("digits", "mlp", loss)
    return RunTask(key, Settings(data="digits", model="mlp", **settings), RunFolder(tmp_path / key.name), MEASURES)


def unheard(run: str, share: float) -> None:
    pass


def import_ray() -> ModuleType:
    """Ray, which sends the functions of this file whole: nodes cannot import it."""
    ray: ModuleType = pytest.importorskip("ray", reason="Ray comes with the extra ray")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return ray


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while not is_so():
        assert time.monotonic() < deadline, f"no {what} within {SECONDS_TO_START} s"
        Event().wait(0.05)


# What the nodes do in these tests: each attempt at a run leaves a line beside its folder


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
    attempt = note(task, "begun")
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
    """Training that has begun when there is a note, and tells how it was stopped."""
    begun = False

    def report(run: str, share: float) -> None:
        nonlocal begun
        if not begun:
            begun = bool(note(task, "begun"))

    try:
        return run_task(task, report)
    except InterruptedRunError as stop:
        note(task, str(stop))
        raise


def stubborn(task: RunTask) -> RunOutcome:
    """Hears that it is asked to stop, from the moment that it has begun, and does not."""
    signal.signal(signal.SIGINT, lambda number, frame: note(task, "asked"))
    note(task, "begun")
    while True:
        Event().wait(0.1)


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


# Ray leaves its pipes and log files to the garbage collector, and announces changes of its own defaults.
quiet_ray = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*RAY_.*:FutureWarning"),
]


def with_marks(test: Any) -> Any:
    for mark in quiet_ray:
        test = mark(test)
    return test


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# A session of its own


@with_marks
def test_this_machine(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is started and stopped without a word; signals and environment stay whose they were."""
    ray = import_ray()
    assert not ray.is_initialized()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    task = a_task(tmp_path, "a")
    heard: list[tuple[str, float]] = []
    environment = dict(os.environ)
    mine = signal.signal(signal.SIGTERM, lambda number, frame: None)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        outcomes = RayBackend("local", run_task=at_once)([task], lambda *said: heard.append(said))
        found = [next(outcomes)]
        assert ray.is_initialized()
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        assert {name for name in os.environ.keys() - environment.keys() if "USAGE" in name or "REDIS" in name} == set()
        found += outcomes
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, mine)
    assert found == [RunOutcome("digits-mlp-a-0", None, 1.5)]
    assert heard == [("digits-mlp-a-0", 1.0)]
    process, n_threads, root = notes(task)[0].split(" ", 2)
    assert int(process) != os.getpid()
    assert (n_threads, root) == ("1", str(tmp_path / "data"))
    assert capfd.readouterr() == ("", "")


# On a cluster


@pytest.fixture(scope="class")
def nodes() -> Iterator[Any]:
    """A cluster whose head has one processor, and this process connected to it."""
    ray = import_ray()
    from ray.cluster_utils import Cluster

    found = Cluster()
    fast = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 4}
    try:
        try:
            with time_limit(SECONDS_TO_START):
                found.add_node(num_cpus=1, object_store_memory=MEMORY, include_dashboard=False, _system_config=fast)
        except (TimeoutError, RuntimeError, OSError) as error:
            pytest.skip(f"no Ray cluster starts here: {error}")
        ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
        yield found
    finally:
        ray.shutdown()
        found.shutdown()


@with_marks
class TestCluster:
    """A real one, which starts once for all of these."""

    @pytest.mark.usefixtures("nodes")
    def test_what_fails_and_what_is_tried_again(self, tmp_path: Path) -> None:
        names = ("dies", "is interrupted once", "is mistaken", "is refused", "is well")
        tasks = {name: a_task(tmp_path, name) for name in names}
        dies, *others = tasks.values()  # each of its attempts takes a process with it, and Ray starts another one
        outcomes = [*RayBackend("auto", retries=0, run_task=as_named)([dies], unheard)]
        outcomes += RayBackend("auto", retries=1, run_task=as_named)(others, unheard)
        found = {outcome.run: outcome for outcome in outcomes}
        failures = {name: found[tasks[name].name].failure for name in names}
        assert str(failures.pop("dies")).startswith("Ray gave it up: WorkerCrashedError: ")
        assert failures == {
            "is interrupted once": None,
            "is mistaken": r"KeyError: 'a\nb'",
            "is refused": "there is no error in 3 rows",
            "is well": None,
        }
        assert [len(notes(tasks[name])) for name in names] == [1, 2, 1, 1, 1]
        assert all("\n" not in str(outcome.failure) and outcome.seconds > 0 for outcome in found.values())

    @pytest.mark.usefixtures("nodes")
    def test_a_sweep_that_is_stopped_leaves_checkpoints(self, tmp_path: Path) -> None:
        quick = a_task(tmp_path, "quick", epochs=1, shifts=("none",))
        runs, waits = (a_task(tmp_path, name, epochs=10**6, shifts=("none",)) for name in ("runs", "waits"))
        outcomes = RayBackend("auto", run_task=trained)([quick, runs, waits], unheard)
        first = next(outcomes)
        assert (first.run, first.failure) == (quick.name, None)
        wait_for(lambda: bool(notes(runs)), "run that begins")
        outcomes.close()  # type: ignore[attr-defined]
        _, stopped = notes(runs)
        assert stopped.startswith("stopped in epoch ")
        assert runs.folder.last.is_file()
        assert notes(waits) == []
        assert not waits.folder.path.exists()

    @pytest.mark.usefixtures("nodes")
    def test_what_does_not_stop_is_ended(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        task, quick = a_task(tmp_path, "never"), a_task(tmp_path, "quick")
        unfinished = cluster._unfinished

        def once_it_was_asked(ray: Any, pending: list[Any]) -> list[Any]:
            wait_for(lambda: len(notes(task)) > 1, "note that it was asked")
            return unfinished(ray, pending)

        monkeypatch.setattr(cluster, "STOP_SECONDS", 0.5)
        monkeypatch.setattr(cluster, "_unfinished", once_it_was_asked)
        outcomes = RayBackend("auto", run_task=first_quick)([quick, task], unheard)
        next(outcomes)
        wait_for(lambda: bool(notes(task)), "run that begins")
        outcomes.close()  # type: ignore[attr-defined]
        assert notes(task) == ["begun", "asked"]
        with FileLock(task.folder.path / ".node.lock", timeout=SECONDS_TO_START):
            pass  # which it held

    def test_a_node_that_is_lost(self, tmp_path: Path, nodes: Any) -> None:
        """With its processes, in mid-run: that run goes on elsewhere from its checkpoint, to the same rows."""
        (tmp_path / "sweep.toml").write_text(SWEEP)
        doomed = nodes.add_node(num_cpus=1, object_store_memory=MEMORY)
        folder = tmp_path / "ray"

        def losing_a_node(tasks: Sequence[RunTask], progress: RunProgress) -> Iterator[RunOutcome]:
            outcomes = RayBackend("auto", run_task=partial(held_up, doomed.node_id))(tasks, progress)
            yield next(outcomes)
            wait_for((folder / "halted").exists, "run that halts")
            nodes.remove_node(doomed, allow_graceful=False)
            yield from outcomes

        result = run_experiment(tmp_path / "sweep.toml", output=folder, backend=losing_a_node)
        assert (result.n_done, result.failures, result.missing) == (4, (), ())
        attempts = [path.read_text().split() for path in sorted(folder.glob("*.notes"))]
        assert sorted(map(len, attempts)) == [2, 2, 2, 4]
        first_node, first_share, _, second_share = max(attempts, key=len)
        assert first_node == doomed.node_id
        assert float(first_share) < 0.2
        assert float(second_share) > 0.3  # it had come to 0.4
        run_experiment(tmp_path / "sweep.toml", output=tmp_path / "here")
        for name in ("rows.parquet", "curves.parquet"):
            assert (folder / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def first_quick(task: RunTask) -> RunOutcome:
    return at_once(task) if task.key.loss == "quick" else stubborn(task)


# What a node does, without one


def test_a_run_computes_with_its_processors(tmp_path: Path) -> None:
    try:
        outcome = cluster._run_on_node(at_once, a_task(tmp_path, "a", root="x"), 2)
    finally:
        torch.set_num_threads(1)
    assert outcome == RunOutcome("digits-mlp-a-0", None, 1.5)
    assert notes(a_task(tmp_path, "a"))[0].split()[1] == "2"


def test_a_folder_that_another_node_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_task(tmp_path, "a", root="x")
    task.folder.path.mkdir()
    monkeypatch.setattr(cluster, "LOCK_SECONDS", 0.2)
    with (
        FileLock(task.folder.path / ".node.lock", is_singleton=False),
        pytest.raises(InvalidInputError, match=r"digits-mlp-a-0 is still in use by another process after 0\.2 s$"),
    ):
        cluster._run_on_node(at_once, task, 1)
    assert notes(task) == []

    def held(task: RunTask) -> RunOutcome:
        with pytest.raises(InvalidInputError, match="still in use"):
            cluster._run_on_node(at_once, task, 1)
        return RunOutcome(task.name)

    assert cluster._run_on_node(held, task, 1) == RunOutcome(task.name)


# Refusals


def outcomes_at(address: str, tmp_path: Path, **options: Any) -> list[RunOutcome]:
    return list(RayBackend(address, run_task=at_once, **options)([a_task(tmp_path, "a")], unheard))


def test_ray_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        MissingExtraError, match=r"^running on Ray needs the extra ray: pip install 'calibrant\[ray\]'$"
    ):
        outcomes_at("local", tmp_path)


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        return int(port.getsockname()[1])


@with_marks
@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "auto", "head:abc"])
def test_an_address_without_a_cluster(
    tmp_path: Path, closed_port: int, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    pytest.importorskip("ray", reason="Ray comes with the extra ray")
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port}")  # which is what auto means
    address = address.format(port=closed_port)
    reason = "abc" if address == "head:abc" else "refused$"
    with (
        time_limit(SECONDS_TO_START),
        pytest.raises(ResourceError, match=rf"^there is no Ray cluster at {address}: .*{reason}"),
    ):
        outcomes_at(address, tmp_path)


@pytest.mark.parametrize(
    ("options", "rule"),
    [({"cpus": 3}, r"cpus must be .* \[0, 2\], got 3"), ({"gpus": 1}, r"gpus must be .* \[0, 0\], got 1")],
    ids=["cpus", "gpus"],
)
def test_more_than_this_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], rule: str
) -> None:
    """Which Ray would wait for."""
    ray = SimpleNamespace(is_initialized=lambda: True, cluster_resources=lambda: {"CPU": 2.0})
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(InvalidInputError, match=rule):
        outcomes_at("local", tmp_path, **options)


@pytest.mark.parametrize(("there", "gpus"), [({"GPU": 4.0}, 1), ({}, 0)], ids=["some", "none"])
def test_a_gpu_where_there_are_any(there: dict[str, float], gpus: int) -> None:
    asked: list[dict[str, Any]] = []
    ray = SimpleNamespace(
        cluster_resources=lambda: there, remote=lambda **options: asked.append(options) or (lambda function: function)
    )
    RayBackend("auto", cpus=2)._remote(ray)
    RayBackend("auto", cpus=2, gpus=0.5)._remote(ray)
    assert [(options["num_cpus"], options["num_gpus"]) for options in asked] == [(2, gpus), (2, 0.5)]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"cpus": 0}, "cpus must be .* got 0"),
        ({"gpus": -1}, "gpus must be .* got -1"),
        ({"gpus": 1.5}, r"gpus must be a fraction of one, or an integer, got 1\.5"),
        ({"retries": -1}, "retries must be an integer of at least 0, got -1"),
    ],
    ids=["cpus", "negative gpus", "shared gpus", "retries"],
)
def test_options_that_are_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidInputError, match=rule):
        RayBackend("auto", **options)
