"""Work on many parts: in this process, in local processes or on a Ray cluster, with bit-for-bit the same results.

The results come in the order of the parts, and each worker uses one thread: more threads add in another order.
"""

import io
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, ClassVar, TypeAlias, TypeVar
from urllib.parse import urlsplit

import torch
from threadpoolctl import ThreadpoolController

from calibrant._checks import MAX_JOBS, check_integer
from calibrant._parquet import FilePart
from calibrant._paths import first_line
from calibrant._signals import STOP_SIGNALS, blocked_signals
from calibrant.errors import CalibrantError, InvalidInputError, MissingExtraError, ResourceError

R = TypeVar("R")
BytesDone: TypeAlias = Callable[[float], None]  # called with the bytes that were read since the last call
Work: TypeAlias = Callable[[FilePart, BytesDone], R]

CONNECT_SECONDS = 5.0  # to wait for an answer from the address of a cluster
# A client of HTTP/2, and so of gRPC, first says that it is one, and sends a frame of settings, here an empty one, which
# is answered by such a frame. A frame begins with its length in three bytes and its type.
HTTP2_HELLO, HTTP2_SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), 4

_work: Work[Any]  # of a worker process


def map_parts(
    work: Work[R],
    parts: Sequence[FilePart],
    *,
    jobs: int = 1,
    ray: str | None = None,
    progress: BytesDone = lambda n_bytes: None,
) -> Iterator[R]:
    """Map a function over parts of files.

    Args:
        work: A picklable function of a part and of `progress`.
        parts: Row groups of files, as `Scan.parts` lists them.
        jobs: Local processes; 1 works in this one.
        ray: The address of a Ray cluster: "auto" for the running one, "local" to start one, host:port or ray://….
        progress: Called with the number of bytes read since the last call.

    Returns:
        An iterator over the results, in the order of the parts.

    Raises:
        InvalidInputError: Both jobs and ray are given.
        MissingExtraError: Ray is not installed.
        ResourceError: There is no such cluster, or a worker has died.
    """
    check_integer("jobs", jobs, 1, MAX_JOBS)
    if ray is not None and jobs != 1:
        raise InvalidInputError("give either jobs or ray")
    if ray is not None:
        yield from _on_ray(work, parts, ray, progress)
    elif jobs > 1:
        yield from _in_processes(work, parts, min(jobs, max(1, len(parts))), progress)
    else:
        with one_thread():
            for part in parts:
                yield work(part, progress)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch, and the linear algebra of numpy and scipy, compute with one thread: more add in another order.

    These are settings of the process: the first of its threads that comes here saves them, the last restores them.
    """
    thread = threading.get_ident()
    _limit_threads(thread)
    try:
        yield
    finally:
        _restore_threads(thread)


class _Limits:
    lock = threading.RLock()  # a finalizer may close a generator, and so end a limit, at any time
    depths: ClassVar = Counter[int]()  # of each thread
    n_threads = 1  # of torch, outside
    before: ClassVar[dict[str, int]] = {}  # the threads of each library, outside


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> list[Any]:
    """The libraries to limit; to find them takes milliseconds, and another import may have loaded more."""
    found = ThreadpoolController().lib_controllers
    return [library for library in found if library.user_api == "blas" or "torch" in library.filepath]


def _limit_threads(thread: int) -> None:
    with _Limits.lock:
        n_threads = torch.get_num_threads()
        if not _Limits.depths:
            _Limits.n_threads, _Limits.before = n_threads, {}
        _Limits.depths[thread] += 1
        for library in _thread_pools(len(sys.modules)):
            _Limits.before.setdefault(library.filepath, library.num_threads)
            _set_threads(library, 1)
        torch.set_num_threads(1)


def _restore_threads(thread: int) -> None:
    with _Limits.lock:
        _Limits.depths[thread] -= 1
        _Limits.depths += Counter()  # without those at 0
        if thread in _Limits.depths:
            return
        for library in _thread_pools(len(sys.modules)):
            # Others may still compute: only what is set for each thread. torch's own function also sets MKL for all.
            if library.filepath in _Limits.before and (not _Limits.depths or library.internal_api in ("openmp", "mkl")):
                _set_threads(library, _Limits.before[library.filepath])
        if not _Limits.depths:
            torch.set_num_threads(_Limits.n_threads)


def _set_threads(library: Any, n_threads: int) -> None:
    library.set_num_threads(n_threads)
    # Of OpenBLAS, threadpoolctl lets only the thread that did so change the number again, until it releases it.
    getattr(library, "clear_controlling_thread", lambda: None)()


def _in_processes(work: Work[R], parts: Sequence[FilePart], jobs: int, progress: BytesDone) -> Iterator[R]:
    context = get_context("spawn")  # a fork of a process that has torch's threads can hang
    their_end, our_end = context.Pipe(duplex=False)
    with their_end, ProcessPoolExecutor(jobs, context, _start_worker, (work, their_end)) as pool, our_end:
        try:
            for part, future in zip(parts, _ahead(map(partial(_submit, pool), parts), 2 * jobs), strict=True):
                result: R = pickle.loads(future.result())
                progress(part.n_bytes)
                yield result
        except BrokenProcessPool:
            raise ResourceError("a worker process has died, perhaps for lack of memory: try fewer jobs") from None


def _submit(pool: ProcessPoolExecutor, part: FilePart) -> Future[bytes]:
    with blocked_signals():  # the pool starts its processes here; this one stops them
        return pool.submit(_work_locally, part)


def _start_worker(work: Work[Any], pipe: Connection) -> None:
    """Give a local process its work once, not with every part; it ends when the other end of the pipe is closed."""
    global _work
    call_at_end(pipe, partial(os._exit, 0))
    torch.set_num_threads(1)
    _work = work


def call_at_end(pipe: Connection | int, function: Callable[[], object]) -> None:
    """Call a function, in a thread, when the other end of a pipe is closed; the death of its process closes it."""

    def wait_and_call() -> None:
        wait([pipe])
        function()

    threading.Thread(target=wait_and_call, daemon=True).start()


def _work_locally(part: FilePart) -> bytes:
    return _pickle(_work(part, lambda n_bytes: None))


class _Pickler(pickle.Pickler):
    """Pickles tensors as arrays: faster, without an open file for each tensor, and of a slice only its numbers."""

    def reducer_override(self, value: object) -> Any:
        return (torch.from_numpy, (value.numpy(),)) if isinstance(value, torch.Tensor) else NotImplemented


def _pickle(result: object) -> bytes:
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(result)
    return file.getvalue()


def _on_ray(work: Work[R], parts: Sequence[FilePart], address: str, progress: BytesDone) -> Iterator[R]:
    with ray_session(address) as ray:
        shared, remote = ray.put(work), ray.remote(_work_remotely)
        window = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        submitted = (remote.remote(shared, part) for part in parts)
        for part, reference in zip(parts, _ahead(submitted, window), strict=True):
            try:
                result: R = pickle.loads(ray.get(reference))
            except ray.exceptions.RayTaskError as error:  # its cause instead of Ray's report of it
                raise error.cause if isinstance(error.cause, CalibrantError) else error from None
            except ray.exceptions.RayError as error:
                raise ResourceError(f"a Ray worker has died: {first_line(error)}") from None
            progress(part.n_bytes)
            yield result


def _work_remotely(work: Work[Any], part: FilePart) -> bytes:
    torch.set_num_threads(1)
    return _pickle(work(part, lambda n_bytes: None))


def _ahead(submitted: Iterator[R], window: int) -> Iterator[R]:
    """What was submitted, in order, with at most this many pending: results take memory."""
    pending: deque[R] = deque()
    for one in submitted:
        pending.append(one)
        if len(pending) >= window:
            yield pending.popleft()
    yield from pending


@contextmanager
def ray_session(address: str) -> Iterator[Any]:
    """The module ray, connected to a cluster; an existing connection is used and kept.

    Raises: MissingExtraError, ResourceError.
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
    # Ray reads it at import; by default it retries for a quarter of an hour
    with _environment_variables({} if address == "local" else {"RAY_NUM_REDIS_GET_RETRIES": "1"}):
        try:
            import ray
        except ImportError:
            raise MissingExtraError("running on Ray", "ray") from None
    return ray


def _check_listening(address: str) -> None:
    """Raise OSError or ValueError where no Ray listens at the address; Ray itself reports it late, and logs."""
    if address == "auto":
        with suppress(ImportError):  # no part of Ray's public interface
            from ray._private.services import canonicalize_bootstrap_address

            address = os.environ.get("RAY_ADDRESS") or canonicalize_bootstrap_address("auto") or address
    where = urlsplit("//" + address.removeprefix("ray://"))
    if where.hostname and where.port:
        with socket.create_connection((where.hostname, where.port), timeout=CONNECT_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "1":
                connection.settimeout(CONNECT_SECONDS)
                connection.sendall(HTTP2_HELLO)
                if connection.recv(4)[3:] != bytes([HTTP2_SETTINGS]):
                    raise ConnectionError("another program listens there")


def _connect(ray: Any, address: str) -> None:
    """Connect, or start a cluster, without output."""
    ours = {"include_dashboard": False} if address == "local" else {}
    with (
        _environment_variables({"RAY_USAGE_STATS_ENABLED": "0"} if ours else {}),
        _keep_signal_handlers(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # announcements of new defaults
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **ours)


@contextmanager
def _environment_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set these variables, where the user has not, and unset them at the end."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Restore the handlers of signals, which Ray replaces."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:  # it was not set from Python
                    signal.signal(number, handler)
