"""Work on many parts: in this process, in local processes or on a Ray cluster, with the same results to the last bit.

The results come in the order of the parts, wherever they were made, and each worker computes with one thread: another
number of threads adds in another order.
"""

import io
import logging
import os
import pickle
import signal
import socket
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import torch

from calibrant._checks import check_integer
from calibrant._files import first_line
from calibrant._parquet import FilePart
from calibrant.errors import CalibrantError, InvalidInputError, MissingExtraError, ResourceError

R = TypeVar("R")
BytesDone: TypeAlias = Callable[[float], None]  # called with the bytes that were read since the last call
Work: TypeAlias = Callable[[FilePart, BytesDone], R]

CONNECT_SECONDS = 10.0  # in which something must listen at the address of a cluster

_work: Work[Any]  # of a local process that was started for it


def map_parts(
    work: Work[R],
    parts: Sequence[FilePart],
    *,
    jobs: int = 1,
    ray: str | None = None,
    progress: BytesDone = lambda n_bytes: None,
) -> Iterator[R]:
    """The results of ``work(part, progress)`` for all parts, in their order.

    Args:
        work: A picklable function of a part. It may call the second argument as it reads.
        parts: Row groups of files, as `Scan.parts` lists them.
        jobs: Local processes; 1 works in this one.
        ray: The address of a Ray cluster: "auto" for the running one, "local" to start one, host:port or ray://….
        progress: Called with bytes as they are done.

    Raises:
        InvalidInputError: Where both jobs and ray are given.
        MissingExtraError: Ray is not installed.
        ResourceError: There is no such cluster, or a worker has died.
    """
    check_integer("jobs", jobs, 1)
    if ray is not None and jobs != 1:
        raise InvalidInputError("give either jobs or ray")
    if ray is not None:
        yield from _on_ray(work, parts, ray, progress)
    elif jobs > 1:
        yield from _in_processes(work, parts, jobs, progress)
    else:
        with one_thread():
            for part in parts:
                yield work(part, progress)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes with one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _in_processes(work: Work[R], parts: Sequence[FilePart], jobs: int, progress: BytesDone) -> Iterator[R]:
    # Started afresh: a fork of a process that has torch's threads can hang.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _start, (work,)) as pool:
        submitted = (pool.submit(_do, part) for part in parts)
        for part, future in zip(parts, _ahead(submitted, 2 * jobs), strict=True):
            result: R = pickle.loads(future.result())
            progress(part.n_bytes)
            yield result


def _start(work: Work[Any]) -> None:
    """Give a local process its work once, not with every part."""
    global _work
    torch.set_num_threads(1)
    _work = work


def _do(part: FilePart) -> bytes:
    return _packed(_work(part, lambda n_bytes: None))


def _packed(result: object) -> bytes:
    """The result as bytes.

    Left to the pool, each of its tensors would take an open file, of which there are few; as arrays they are packed
    several times as fast as torch packs them, and a slice does not take the whole along.
    """
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(result)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        return (torch.from_numpy, (value.numpy(),)) if isinstance(value, torch.Tensor) else NotImplemented


def _on_ray(work: Work[R], parts: Sequence[FilePart], address: str, progress: BytesDone) -> Iterator[R]:
    with ray_session(address) as ray:
        shared, remote = ray.put(work), ray.remote(_do_remotely)
        window = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        submitted = (remote.remote(shared, part) for part in parts)
        for part, reference in zip(parts, _ahead(submitted, window), strict=True):
            try:
                result: R = pickle.loads(ray.get(reference))
            except ray.exceptions.RayTaskError as error:  # its own error instead of Ray's report of it
                raise error.cause if isinstance(error.cause, CalibrantError) else error from None
            progress(part.n_bytes)
            yield result


def _do_remotely(work: Work[Any], part: FilePart) -> bytes:
    torch.set_num_threads(1)
    return _packed(work(part, lambda n_bytes: None))


def _ahead(submitted: Iterator[R], window: int) -> Iterator[R]:
    """What was submitted, in order, with no more than this many under way: finished ones take memory."""
    under_way: deque[R] = deque()
    for one in submitted:
        under_way.append(one)
        if len(under_way) >= window:
            yield under_way.popleft()
    yield from under_way


@contextmanager
def ray_session(address: str) -> Iterator[Any]:
    """The module ray, connected to a cluster, and disconnected at the end.

    A session that this process has already is used, whatever the address, and stays.

    Raises:
        MissingExtraError: Ray is not installed.
        ResourceError: There is no such cluster, or a worker has died.
    """
    ray = _import_ray(address)
    if ray.is_initialized():
        yield ray
        return
    try:
        _check_listening(address)
        _connect(ray, address)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise ResourceError(f"there is no Ray cluster at {address}: {first_line(error)}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _import_ray(address: str) -> Any:
    # Ray reads it when it is imported, and with its default tries for a quarter of an hour where nothing answers
    with _environment({} if address == "local" else {"RAY_NUM_REDIS_GET_RETRIES": "1"}):
        try:
            import ray
        except ImportError:
            raise MissingExtraError("running on Ray", "ray") from None
    return ray


def _check_listening(address: str) -> None:
    """Raises: OSError or ValueError where the address names a port at which nothing listens, which Ray says late."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    where = urlsplit("//" + address.removeprefix("ray://"))
    if where.hostname and where.port:
        socket.create_connection((where.hostname, where.port), timeout=CONNECT_SECONDS).close()


def _connect(ray: Any, address: str) -> None:
    """Connect, or start a cluster, without a word."""
    ours = {"include_dashboard": False} if address == "local" else {}
    with _environment({"RAY_USAGE_STATS_ENABLED": "0"} if ours else {}), _signals_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # changes of its defaults that it announces
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **ours)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """These variables, where the user has not set them, for a while."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself: give it back to whom it belonged."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:  # it was not set from Python
                    signal.signal(number, handler)
