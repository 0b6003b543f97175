"""Work on parts: in this process, in local processes and on Ray, in order, bounded, with errors of one line."""

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from calibrant._parquet import FilePart
from calibrant.audits.statistics import collect_statistics
from calibrant.errors import CorruptFileError, InvalidInputError, MissingExtraError, ResourceError
from calibrant.parallel import BytesDone, _ahead, _pickle, map_parts, one_thread
from calibrant.predictions import Predictions
from made.audits import make_rows

MAX_SECONDS = 300  # which only a cluster that never starts needs
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

# Ray leaves its pipes and log files to the garbage collector, and announces changes of its own defaults.
quiet_ray = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*RAY_.*:FutureWarning"),
]


@pytest.fixture
def ray() -> Iterator[ModuleType]:
    """Ray, with nothing of it running before and after."""
    module: ModuleType = pytest.importorskip("ray", reason="Ray comes with the extra ray")
    assert not module.is_initialized()
    module.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # its workers do not find this file
    try:
        yield module
    finally:
        module.shutdown()


def with_marks(test: Any) -> Any:
    for mark in quiet_ray:
        test = mark(test)
    return test


@with_marks
def test_ray_on_this_machine_gives_the_same_and_is_stopped(ray: ModuleType) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    assert_results(list(map_parts(partial(work, 20, None), PARTS, ray="local")), 20)
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGTERM) is handler


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


@pytest.fixture(scope="class")
def cluster() -> Iterator[ModuleType]:
    """Ray, connected to a cluster of two nodes on this machine, each with its own raylet and object store."""
    module: ModuleType = pytest.importorskip("ray", reason="Ray comes with the extra ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster()
    try:
        try:
            with time_limit(MAX_SECONDS):
                nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False)
                nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        except (TimeoutError, RuntimeError, OSError) as error:
            pytest.skip(f"no Ray cluster of two nodes starts here: {error}")
        module.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        module.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        yield module
    finally:
        module.shutdown()
        nodes.shutdown()


@with_marks
class TestTwoNodesOfARayCluster:
    """A real cluster, which starts once for all of these."""

    def test_the_same_results_and_a_session_that_was_there_before_stays(self, cluster: ModuleType) -> None:
        assert len([node for node in cluster.nodes() if node["Alive"]]) == 2
        assert_results(list(map_parts(partial(work, 20, None), PARTS, ray="auto")), 20)
        assert cluster.is_initialized()

    @pytest.mark.usefixtures("cluster")
    def test_an_error_is_its_own(self) -> None:
        with pytest.raises(CorruptFileError, match=r"^part 4 is damaged$"):
            list(map_parts(partial(work, 2, 4), PARTS, ray="auto"))

    @pytest.mark.usefixtures("cluster")
    def test_paths_are_relative_to_the_folder_of_the_caller(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_rows().save(tmp_path / "x.parquet")
        monkeypatch.chdir(tmp_path)
        found = collect_statistics(Predictions.scan("x.parquet"), ray="auto")
        assert found.fingerprint == make_rows().fingerprint


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs must be an integer of at least 1, got 0"),
        ({"jobs": 1.5}, r"jobs must be an integer of at least 1, got 1\.5"),
        ({"jobs": 2, "ray": "auto"}, "give either jobs or ray"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        list(map_parts(partial(work, 2, None), PARTS, **options))


def test_ray_that_is_not_there_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nStart one.")

    exceptions = SimpleNamespace(RayError=OSError, RayTaskError=OSError)
    fake = SimpleNamespace(is_initialized=lambda: False, init=init, exceptions=exceptions)
    for module, address, message in (
        (None, "local", r"^running on Ray needs the extra ray: pip install 'calibrant\[ray\]'$"),
        (fake, "auto", r"^there is no Ray cluster at auto: Could not find any running Ray instance\.$"),
        (fake, "127.0.0.1:1", r"^there is no Ray cluster at 127\.0\.0\.1:1: .*refused"),
    ):
        monkeypatch.setitem(sys.modules, "ray", module)
        with pytest.raises((MissingExtraError, ResourceError), match=message):
            list(map_parts(partial(work, 2, None), PARTS, ray=address))
