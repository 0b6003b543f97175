"""Work on parts: in this process, in local processes and on Ray, in order, bounded, with errors of one line."""

import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from calibrant._parquet import FilePart
from calibrant._signals import STOP_SIGNALS
from calibrant.errors import CorruptFileError, InvalidInputError, MissingExtraError, ResourceError
from calibrant.parallel import BytesDone, _ahead, _pickle, _thread_pools, map_parts, one_thread
from calibrant.predictions import Predictions
from made.cli import MAX_SECONDS
from made.predictions import example
from made.ray_cluster import import_ray, quiet_ray, ray_cluster

PARTS = [FilePart("x", "x", number, 0, 1, 100 + number) for number in range(9)]


def work(n_tensors: int, bad: int | None, part: FilePart, progress: BytesDone) -> list[Any]:
    """The number of the part, the threads, and many tensors."""
    if part.row_group == bad:
        raise CorruptFileError(f"part {bad} is damaged")
    progress(part.n_bytes)
    draw = torch.Generator().manual_seed(part.row_group)
    return [part.row_group, torch.get_num_threads(), *torch.rand(n_tensors, 2, generator=draw)]


def assert_results(found: list[list[Any]], n_tensors: int) -> None:
    """In the order of the parts, with one thread each, and of the same bits."""
    assert [result[:2] for result in found] == [[number, 1] for number in range(9)]
    for result, part in zip(found, PARTS, strict=True):
        assert torch.equal(torch.stack(result[2:]), torch.stack(work(n_tensors, None, part, lambda _: None)[2:]))


def test_in_this_process_results_come_in_order_with_one_thread() -> None:
    done: list[float] = []
    torch.set_num_threads(3)
    try:
        assert_results(list(map_parts(partial(work, 2, None), PARTS, progress=done.append)), 2)
        with pytest.raises(CorruptFileError, match="part 4 is damaged"):
            list(map_parts(partial(work, 2, 4), PARTS))
        assert torch.get_num_threads() == 3
        with one_thread():
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)
    assert done == [part.n_bytes for part in PARTS]


def test_threads_that_compute_at_once_leave_the_process_as_it_was() -> None:
    """The first one that comes is also the first one that leaves; to look for the libraries takes milliseconds."""

    def numbers() -> tuple[int, ...]:
        return (
            torch.get_num_threads(),
            *(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"),
        )

    def second() -> tuple[int, ...]:
        with one_thread():
            entered.set()
            assert left.wait(20)
            with one_thread():
                pass
            inside = numbers()
        assert set(inside) == {1}
        return numbers()

    entered, left = Event(), Event()
    with threadpool_limits(3), ThreadPoolExecutor(1) as pool:
        torch.set_num_threads(3)
        try:
            with one_thread():
                found = pool.submit(second)
                assert entered.wait(20)
                looked = _thread_pools.cache_info().misses
            assert torch.get_num_threads() == 3
            left.set()
            assert set(found.result()) == {3}
            assert set(numbers()) == {3}
            with one_thread():
                assert set(numbers()) == {1}
            assert _thread_pools.cache_info().misses == looked
        finally:
            torch.set_num_threads(1)


@pytest.mark.slow
def test_local_processes_give_the_same_with_few_open_files() -> None:
    """Thousands of tensors, none of which is a file that stays open; then an error, which comes as it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    done: list[float] = []
    bad = FilePart("x", "x", 9, 0, 1, 1)
    found = []
    try:
        with pytest.raises(CorruptFileError, match=r"^part 9 is damaged$"):
            found.extend(map_parts(partial(work, 2000, 9), [*PARTS, bad], jobs=2, progress=done.append))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert_results(found, 2000)
    assert done == [part.n_bytes for part in PARTS]


def test_a_slice_does_not_take_the_whole_along() -> None:
    assert len(_pickle(list(torch.zeros(1000, 20)))) < 300_000


@pytest.mark.parametrize("window", [1, 3, 100])
def test_no_more_parts_than_the_window_are_under_way(window: int) -> None:
    under_way, most = set[int](), 0

    def submitted() -> Iterator[int]:
        nonlocal most
        for number in range(10):
            under_way.add(number)
            most = max(most, len(under_way))
            yield number

    found = []
    for number in _ahead(submitted(), window):
        under_way.remove(number)
        found.append(number)
    assert found == list(range(10))
    assert most == min(window, 10)


# On Ray


@pytest.mark.slow
@quiet_ray
def test_two_nodes_of_a_ray_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real cluster on this machine, each node with its own raylet and object store."""
    ray = import_ray(__name__)
    with ray_cluster(2) as nodes:
        handler = signal.getsignal(signal.SIGTERM)
        assert_results(list(map_parts(partial(work, 20, None), PARTS, ray=nodes.address)), 20)
        assert not ray.is_initialized()  # the connection was for this call
        assert signal.getsignal(signal.SIGTERM) is handler
        ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        assert len([node for node in ray.nodes() if node["Alive"]]) == 2
        with pytest.raises(CorruptFileError, match=r"^part 4 is damaged$"):
            list(map_parts(partial(work, 2, 4), PARTS, ray="auto"))
        check_relative_paths(tmp_path, monkeypatch)
        assert ray.is_initialized()  # a connection that was there before stays


def check_relative_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are relative to the folder of the caller, in the workers too."""
    from calibrant.audits.statistics import collect_statistics

    example().save(folder / "x.parquet")
    monkeypatch.chdir(folder)
    assert collect_statistics(Predictions.scan("x.parquet"), ray="auto").fingerprint == example().fingerprint


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs must be an integer from 1 to 1024, got 0"),
        ({"jobs": 2000}, "jobs must be an integer from 1 to 1024, got 2000"),
        ({"jobs": 1.5}, r"jobs must be an integer from 1 to 1024, got 1\.5"),
        ({"jobs": 2, "ray": "auto"}, "give either jobs or ray"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        list(map_parts(partial(work, 2, None), PARTS, **options))


def listening(answer: bytes) -> int:
    """The port of a program that is not Ray."""
    server = socket.create_server(("127.0.0.1", 0))

    def talk() -> None:
        connection, _ = server.accept()
        with server, connection, suppress(OSError):
            connection.sendall(answer)
            while connection.recv(100):
                pass

    Thread(target=talk, daemon=True).start()
    return int(server.getsockname()[1])


class LostWorkerError(Exception):
    """As Ray raises it."""


def test_no_cluster_and_dead_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nStart one.")

    def lose(_: object) -> bytes:
        raise LostWorkerError("the node died\nat noon")

    exceptions = SimpleNamespace(RayError=LostWorkerError, RayTaskError=ZeroDivisionError)
    ray = SimpleNamespace(is_initialized=lambda: False, init=init, exceptions=exceptions)
    remote = SimpleNamespace(remote=lambda *_: None)
    lost = SimpleNamespace(
        is_initialized=lambda: True, exceptions=exceptions, put=id, get=lose, remote=lambda _: remote
    )
    lost.cluster_resources = dict
    silent, rude = (f"127.0.0.1:{listening(answer)}" for answer in (b"", b"HTTP/1.1 400 Bad Request"))
    for module, address, error, message in (
        (None, "local", MissingExtraError, r"^running on Ray needs the extra ray: pip install 'calibrant\[ray\]'$"),
        (ray, "auto", ResourceError, r"^there is no Ray cluster at auto: Could not find any running Ray instance\."),
        (ray, "127.0.0.1:1", ResourceError, r"^there is no Ray cluster at 127\.0\.0\.1:1: .*refused"),
        (ray, "ray://127.0.0.1:1", ResourceError, r"^there is no Ray cluster at ray://127\.0\.0\.1:1: .*refused"),
        (ray, "head:abc", ResourceError, r"^there is no Ray cluster at head:abc: .*abc"),
        (ray, silent, ResourceError, rf"^there is no Ray cluster at {silent}: timed out$"),
        (ray, rude, ResourceError, rf"^there is no Ray cluster at {rude}: another program listens there$"),
        (lost, "auto", ResourceError, r"^a Ray worker has died: the node died$"),
    ):
        monkeypatch.setitem(sys.modules, "ray", module)
        monkeypatch.setattr("calibrant.parallel.CONNECT_SECONDS", 0.2)
        with pytest.raises(error, match=message):
            list(map_parts(partial(work, 2, None), PARTS, ray=address))


def kill_worker(part: FilePart, progress: BytesDone) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait_in_worker(part: FilePart, progress: BytesDone) -> None:
    print(*sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), flush=True)
    Event().wait()


DRIVER = """
from test_parallel import PARTS, map_parts, wait_in_worker
list(map_parts(wait_in_worker, PARTS, jobs=2))
"""


@pytest.mark.slow
def test_local_processes_that_are_killed_and_that_outlive_nobody() -> None:
    """No signal to all processes ends them before their parent; the death of that ends them, and their tracker."""
    with pytest.raises(ResourceError, match=r"^a worker process has died, perhaps for lack of memory: try fewer jobs$"):
        list(map_parts(kill_worker, PARTS, jobs=2))
    with Popen([sys.executable, "-c", DRIVER], cwd=Path(__file__).parent, stdout=PIPE, text=True) as driver:
        assert driver.stdout is not None
        for _ in range(2):
            assert set(map(int, driver.stdout.readline().split())) >= set(STOP_SIGNALS)
        driver.kill()
        assert driver.communicate(timeout=MAX_SECONDS)[0] == ""  # which ends with the last process that has the pipe


def test_a_local_worker_that_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise BrokenProcessPool("a process was terminated")

    threads = lambda jobs, _context, start, arguments: ThreadPoolExecutor(jobs, "", start, arguments)  # noqa: E731
    monkeypatch.setattr("calibrant.parallel.ProcessPoolExecutor", threads)
    monkeypatch.setattr("calibrant.parallel._start_worker", lambda work, pipe: None)  # which would end with its parent
    monkeypatch.setattr("calibrant.parallel._work", die, raising=False)
    with pytest.raises(ResourceError, match=r"^a worker process has died, perhaps for lack of memory: try fewer jobs$"):
        list(map_parts(die, PARTS, jobs=2))
