"""Scorecards of files: the same bits in this process, in local processes and on Ray, and errors that name the file."""

import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from threading import Event
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from calibrant.metrics.workers import FileScores, score_files
from torch import Tensor

import calibrant
from calibrant._parquet import Part
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, UnknownNameError
from calibrant.metrics import workers
from calibrant.predictions import Predictions
from calibrant.scan import Scan

BY = ("site", "severity")
OPTIONS: dict[str, Any] = {"by": BY, "weights": "weight"}
ROW_GROUP = 40
SECONDS_TO_START = 600


def write(path: Path, n: int, seed: int, *, row_group: int = ROW_GROUP, n_classes: int = 3) -> Path:
    """Rows in small row groups, of which the second has no weight; some have no site, and sites differ by file."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(n_classes, (n,), generator=draw)
    logits = 2 * torch.randn(n, n_classes, generator=draw) + torch.nn.functional.one_hot(labels, n_classes)
    weight = torch.rand(n, generator=draw, dtype=torch.float64)
    weight[row_group : 2 * row_group] = 0
    sites = ["A", None, f"only {seed}", "B"]
    columns = {
        "label": pa.array(labels.numpy(), pa.int32()),
        "logits": pa.FixedSizeListArray.from_arrays(pa.array(logits.numpy().reshape(-1)), n_classes),
        "site": pa.array([sites[i % 4] for i in range(n)]),
        "severity": pa.array([i * i % 5 for i in range(n)], pa.int8()),
        "weight": pa.array(weight.numpy()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=row_group)
    return path


@pytest.fixture
def scan(tmp_path: Path) -> Scan:
    """Three files of several row groups; the first part is the largest by far, and so the slowest."""
    found = Predictions.scan(
        [
            write(tmp_path / "a.parquet", 4000, 0, row_group=3900),
            write(tmp_path / "b.parquet", 150, 1),
            write(tmp_path / "c.parquet", 90, 2),
        ]
    )
    assert len(found.parts) == 2 + 4 + 3
    return found


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Everything that scores are made of, by its path."""
    if is_dataclass(value):
        for field in fields(value):
            yield from leaves(getattr(value, field.name), f"{name}.{field.name}")
    elif isinstance(value, dict):
        yield f"{name}.keys", list(value)
        for key, item in value.items():
            yield from leaves(item, f"{name}[{key!r}]")
    else:
        yield name, value


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.int64)


def assert_same_bits(found: FileScores, expected: FileScores) -> None:
    """Equality of every count, sum, key and name, to the last bit."""
    pairs = list(zip(leaves(found), leaves(expected), strict=True))
    assert sum(isinstance(value, Tensor) for _, (_, value) in pairs) > 100
    for (name, value), (wanted_name, wanted) in pairs:
        assert name == wanted_name
        if isinstance(wanted, Tensor):
            assert value.dtype == wanted.dtype
            assert value.dtype in (torch.int64, torch.float64)
            assert torch.equal(bits(value), bits(wanted)), name
        else:
            assert value == wanted, name


# In this process


def test_the_scores_are_those_of_the_rows(scan: Scan) -> None:
    rows = scan.read()
    found = score_files(scan, **OPTIONS)
    assert found.overall.values() == pytest.approx(calibrant.score(rows, weights="weight").values(), abs=1e-7)
    assert list(found.groups) == list(BY)
    for by in BY:
        expected = calibrant.score(rows, by=by, weights="weight")
        assert list(found.groups[by]) == list(expected)
        assert (
            found.groups[by].overall.n_rows
            == found.overall.n_rows
            == int((rows.columns["weight"].to_numpy() > 0).sum())
        )
        for group, card in expected.items():
            assert found.groups[by][group].n_rows == card.n_rows
            assert found.groups[by][group].values() == pytest.approx(card.values(), abs=1e-7)
    assert None in found.groups["site"]


def test_a_file_is_scored_as_the_library_scores_its_scan(tmp_path: Path) -> None:
    scan = Predictions.scan(write(tmp_path / "x.parquet", 130, 3))
    found = score_files(scan, by=["severity"], metrics=["ece", "nll"], n_bins=7)
    expected = calibrant.score(scan, by="severity", metrics=["ece", "nll"], n_bins=7)
    for (name, value), (_, wanted) in zip(leaves(found.groups["severity"]), leaves(expected), strict=True):
        assert torch.equal(value, wanted) if isinstance(wanted, Tensor) else value == wanted, name


def test_another_order_of_files_has_the_same_counts_and_other_last_bits(scan: Scan) -> None:
    """So that equality to the last bit is no accident: the sums do depend on the order in which they are added."""
    found, turned = score_files(scan, **OPTIONS), score_files(Predictions.scan(scan.files[::-1]), **OPTIONS)
    differ = False
    for (name, value), (_, wanted) in zip(leaves(found.overall), leaves(turned.overall), strict=True):
        if isinstance(wanted, Tensor) and not wanted.is_floating_point():
            assert torch.equal(value, wanted), name
        elif isinstance(wanted, Tensor):
            torch.testing.assert_close(value, wanted, rtol=1e-12, atol=1e-12)
            differ |= not torch.equal(value, wanted)
    assert differ


def test_bytes_are_reported_part_by_part(scan: Scan) -> None:
    done: list[int] = []
    score_files(scan, metrics=["accuracy"], report=done.append)
    assert done == [part.n_bytes for part in scan.parts]
    assert sum(done) == scan.n_bytes


def test_the_threads_of_torch_do_not_change_a_bit(tmp_path: Path) -> None:
    """The workers have one thread each, this process may have more."""
    scan = Predictions.scan(write(tmp_path / "x.parquet", 150_000, 0, row_group=150_000))
    one = score_files(scan, metrics=["nll", "ece", "cece"], weights="weight")
    torch.set_num_threads(4)
    try:
        several = score_files(scan, metrics=["nll", "ece", "cece"], weights="weight")
    finally:
        torch.set_num_threads(1)
    for (name, value), (_, wanted) in zip(leaves(several), leaves(one), strict=True):
        assert torch.equal(value, wanted) if isinstance(wanted, Tensor) else value == wanted, name


def test_nan_is_one_group_over_all_parts(tmp_path: Path) -> None:
    table = pa.table(
        {"label": [0, 1, 0, 1], "logits": [[0.0, 1.0]] * 4, "dose": [math.nan, 1.0, math.nan, 1.0]},
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    groups = score_files(Predictions.scan(tmp_path / "x.parquet"), by=["dose"]).groups["dose"]
    assert sorted(card.n_rows for card in groups.values()) == [2, 2]


# In local processes


def test_local_processes_give_the_same_bits(scan: Scan) -> None:
    assert_same_bits(score_files(scan, jobs=2, **OPTIONS), score_files(scan, **OPTIONS))


def damaged(tmp_path: Path) -> list[Path]:
    """Two files, of which the second has a NaN behind its first row group."""
    good, bad = write(tmp_path / "good.parquet", 100, 0), tmp_path / "bad.parquet"
    logits = [[0.0, 1.0, 2.0]] * 9 + [[0.0, math.nan, 0.0]]
    table = pa.table({"label": [0] * 10, "logits": pa.array(logits, pa.list_(pa.float32(), 3))})
    pq.write_table(table, bad, row_group_size=4)
    return [good, bad]


def assert_one_line(error: BaseException, path: Path) -> None:
    assert str(error) == f"{path}: logits must not be NaN, got nan at row 9, class 1"


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_in_a_worker_names_the_file(tmp_path: Path, jobs: int) -> None:
    good, bad = damaged(tmp_path)
    with pytest.raises(CorruptFileError, match="row 9, class 1") as caught:
        score_files(Predictions.scan([good, bad]), jobs=jobs)
    assert_one_line(caught.value, bad)


def test_results_come_in_the_order_of_the_parts_whichever_is_slow() -> None:
    """The first part ends only after the last one has."""
    parts = [Part("x", "x", number, 0, 1, 1) for number in range(4)]
    last_is_done, finished = Event(), list[int]()

    def work(part: Part) -> list[Any]:
        if part.row_group == 0:
            assert last_is_done.wait(600)
        finished.append(part.row_group)
        if part.row_group == 3:
            last_is_done.set()
        return [part.row_group]

    with ThreadPoolExecutor(2) as pool:
        submit: Callable[[Part], Future[list[Any]]] = lambda part: pool.submit(work, part)  # noqa: E731
        found = list(workers._in_order(parts, submit, lambda future: future.result(), 4))
    assert finished[-1] == 0
    assert found == [[0], [1], [2], [3]]


@pytest.mark.parametrize("window", [1, 3, 100])
def test_no_more_parts_than_the_window_are_under_way(window: int) -> None:
    parts = [Part("x", "x", number, 0, 1, 1) for number in range(10)]
    under_way, most = set[int](), 0

    def submit(part: Part) -> int:
        nonlocal most
        under_way.add(part.row_group)
        most = max(most, len(under_way))
        return part.row_group

    def wait(number: int) -> list[int]:
        under_way.remove(number)
        return [number]

    assert list(workers._in_order(parts, submit, wait, window)) == [[number] for number in range(10)]
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
    try:
        yield module
    finally:
        module.shutdown()


def with_marks(test: Any) -> Any:
    for mark in quiet_ray:
        test = mark(test)
    return test


@with_marks
def test_ray_on_this_machine_gives_the_same_bits_and_is_stopped(scan: Scan, ray: ModuleType) -> None:
    found = score_files(scan, ray="local", **OPTIONS)
    assert not ray.is_initialized()
    assert_same_bits(found, score_files(scan, **OPTIONS))


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
            with time_limit(SECONDS_TO_START):
                nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False)
                nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        except (TimeoutError, RuntimeError, OSError) as error:
            pytest.skip(f"no Ray cluster of two nodes starts here: {error}")
        module.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        yield module
    finally:
        module.shutdown()
        nodes.shutdown()


@with_marks
class TestTwoNodesOfARayCluster:
    """A real cluster, which starts once for all of these."""

    def test_the_same_bits_and_a_session_that_was_there_before_stays(self, scan: Scan, cluster: ModuleType) -> None:
        assert len([node for node in cluster.nodes() if node["Alive"]]) == 2
        found = score_files(scan, ray="auto", **OPTIONS)
        assert cluster.is_initialized()
        assert_same_bits(found, score_files(scan, **OPTIONS))

    @pytest.mark.usefixtures("cluster")
    def test_an_error_names_the_file_in_one_line(self, tmp_path: Path) -> None:
        good, bad = damaged(tmp_path)
        with pytest.raises(CorruptFileError) as caught:
            score_files(Predictions.scan([good, bad]), ray="auto")
        assert_one_line(caught.value, bad)

    @pytest.mark.usefixtures("cluster")
    def test_paths_are_relative_to_the_folder_of_the_caller(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "x.parquet", 150, 0)
        monkeypatch.chdir(tmp_path)
        assert score_files(Predictions.scan("x.parquet"), ray="auto").overall.n_rows == 150


def test_ray_that_is_not_installed_is_said_in_one_line(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NoDataError, match=r"^--ray needs Ray: pip install 'calibrant\[ray\]'$"):
        score_files(scan, ray="local")


def test_a_cluster_that_is_not_there_is_said_in_one_line(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nStart one.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    expected = r"^there is no Ray cluster at auto: Could not find any running Ray instance\.$"
    with pytest.raises(NoDataError, match=expected):
        score_files(scan, ray="auto")


# Refusals


def test_unknown_columns_are_refused_before_anything_is_read(scan: Scan) -> None:
    with pytest.raises(UnknownNameError, match="unknown column 'sites'; did you mean 'site'"):
        score_files(scan, by=["site", "sites"])
    with pytest.raises(UnknownNameError, match="unknown column 'weights'; did you mean 'weight'"):
        score_files(scan, weights="weights")


def test_a_column_that_one_file_lacks_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown column 'site'"):
        score_files(Predictions.scan(damaged(tmp_path)), by=["site"])


@pytest.mark.parametrize("jobs", [0, -1, 1.5])
def test_a_number_of_jobs_that_is_none_is_refused(scan: Scan, jobs: int) -> None:
    with pytest.raises(InvalidInputError, match=f"jobs must be an integer of at least 1, got {jobs}"):
        score_files(scan, jobs=jobs)


def test_rows_without_weight_are_no_rows(tmp_path: Path) -> None:
    scan = Predictions.scan(write(tmp_path / "x.parquet", 80, 0))
    table = pq.read_table(scan.files[0]).slice(ROW_GROUP)
    pq.write_table(table, tmp_path / "none.parquet")
    with pytest.raises(InvalidInputError, match="at least one row that counts"):
        score_files(Predictions.scan(tmp_path / "none.parquet"), weights="weight")
    assert score_files(scan, weights="weight").overall.n_rows == ROW_GROUP


@pytest.mark.parametrize("n_classes", [2, 4])
def test_files_of_other_numbers_of_classes_are_corrupt(tmp_path: Path, n_classes: int) -> None:
    """Lists of any length do not say in the footer how many classes there are."""
    for name, size in (("a", 3), ("b", n_classes)):
        table = pa.table({"label": [0, 1], "logits": pa.array([[0.0] * size] * 2, pa.list_(pa.float32()))})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(CorruptFileError, match=rf"b\.parquet.* {n_classes} .*3"):
        score_files(Predictions.scan(tmp_path))


def test_a_file_that_shrinks_after_its_footer_was_read_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", 100, 0)
    scan = Predictions.scan(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CorruptFileError, match=r"x\.parquet"):
        score_files(scan)
    os.unlink(path)
    with pytest.raises(NoDataError, match=r"there is no file .*x\.parquet"):
        score_files(scan)
