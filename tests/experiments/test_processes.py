"""Sweeps whose processes are killed, whose disk is full, whose files are damaged: one line, and then the same rows."""

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from multiprocessing import active_children
from pathlib import Path

import pyarrow.compute as pc
import pytest
from filelock import FileLock
from PIL import Image

from calibrant.errors import CalibrantError, CorruptFileError, InterruptedRunError, ResourceError
from calibrant.experiments import processes, run_experiment
from calibrant.experiments.folder import RunOutcome
from calibrant.experiments.processes import ProcessBackend
from calibrant.experiments.run import ExperimentResult, run_plan
from calibrant.experiments.tasks import Backend, in_this_process
from made.sweeps import (
    LONG,
    NAMES,
    PATIENCE,
    SHIFTED,
    SHORT,
    TWO,
    ForkContext,
    Values,
    check_same,
    contents,
    cut,
    empty,
    plan_of,
    read_curves,
    read_rows,
    sweep,
    write_sweep,
)
from made.training import at_moment, in_child, kill, n_moments, some_moments, start

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

N_KILLS = 3


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    context = ForkContext()
    monkeypatch.setattr(processes, "get_context", lambda method: context)
    yield
    assert active_children() == []


def one_line(message: object) -> str:
    text = str(message)
    assert len(text.splitlines()) == 1
    return text


def in_two(
    folder: Path,
    progress: Callable[[str, float], None] = lambda run, share: None,
    on_run_end: Callable[[RunOutcome], None] = lambda outcome: None,
    grids: tuple[Values, ...] = (TWO,),
) -> ExperimentResult:
    plan = plan_of(folder, *grids, settings=LONG)
    return run_plan(
        plan,
        folder.with_suffix(".toml"),
        backend=ProcessBackend(2, threads=1),
        progress=progress,
        on_run_end=on_run_end,
    )


def kill_workers() -> None:
    for worker in active_children():
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()


# Processes that are killed


def test_a_driver_that_is_killed_again_and_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    file = write_sweep(tmp_path / "sweep.toml", TWO, settings=LONG)
    at_all = n_moments(lambda: run_experiment(file, output=tmp_path / "other"), tmp_path / "other")
    check_same(tmp_path / "other", whole)
    for moment in some_moments(N_KILLS, at_all // 3, seed=2):
        ended = in_child(at_moment(moment, kill, lambda: run_experiment(file, output=folder), folder))
        assert ended.code in (0, -signal.SIGKILL), ended
    run_experiment(file, output=folder)
    check_same(folder, whole)


@pytest.mark.usefixtures("forking")
def test_a_run_whose_process_is_killed_resumes(whole: Path, tmp_path: Path) -> None:
    kills: list[float] = []

    def progress(run: str, share: float) -> None:
        if share > 0.2 and not kills:
            kills.append(share)
            kill_workers()

    result = in_two(tmp_path / "sweep", progress)
    assert kills
    assert (result.n_done, result.failures, result.missing) == (2, (), ())
    check_same(tmp_path / "sweep", whole)


@pytest.mark.usefixtures("forking")
def test_a_run_whose_process_is_killed_twice_has_failed(whole: Path, tmp_path: Path) -> None:
    def progress(run: str, share: float) -> None:
        kill_workers()

    result = in_two(tmp_path / "sweep", progress)
    assert {outcome.run: outcome.failure for outcome in result.failures} == dict.fromkeys(
        NAMES, "its process died (signal 9)"
    )
    assert (result.n_done, set(result.missing)) == (0, set(NAMES))
    assert read_rows(tmp_path / "sweep").num_rows == 0
    assert in_two(tmp_path / "sweep").n_done == 2
    check_same(tmp_path / "sweep", whole)


@pytest.mark.usefixtures("forking")
def test_a_process_that_is_killed_while_it_waits(whole: Path, tmp_path: Path) -> None:
    """The first has nothing more to do when both are killed; the run of the second then needs a process."""
    names: list[str] = []

    def on_run_end(outcome: RunOutcome) -> None:
        names.append(outcome.run)
        if len(names) == 1:
            kill_workers()

    grids = ({"loss": "cross_entropy", "epochs": 1}, {"loss": "focal"})
    result = in_two(tmp_path / "sweep", on_run_end=on_run_end, grids=grids)
    assert (result.n_done, result.failures, names) == (2, (), list(NAMES))
    rows, wanted = (
        read_rows(folder).filter(pc.field("loss") == "focal").combine_chunks() for folder in (tmp_path / "sweep", whole)
    )
    assert rows.equals(wanted)


@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_workers_end_with_their_driver(whole: Path, tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "sweep"

    def progress(run: str, share: float) -> None:
        if share > 0.2:
            os.kill(os.getpid(), number)

    def action() -> None:
        try:
            in_two(folder, progress)
        except InterruptedRunError as error:
            print(one_line(error))
            raise SystemExit(130) from None

    ended = start(action).wait()
    assert ended.code == (-number if number == signal.SIGKILL else 130), ended
    for name in NAMES:
        with FileLock(folder / name / ".lock", timeout=PATIENCE):  # which a run holds while it is trained
            pass
    assert not all((folder / name / "DONE").exists() for name in NAMES)
    assert any((folder / name / "checkpoint" / "last.safetensors").is_file() for name in NAMES)
    assert not list(folder.glob("*/error.log"))  # to be stopped is no failure
    assert number == signal.SIGKILL or "the same command resumes" in ended.out
    sweep(folder, TWO, settings=LONG)
    check_same(folder, whole)


@pytest.mark.usefixtures("forking")
def test_a_process_that_is_asked_to_stop_takes_no_other_with_it(whole: Path, tmp_path: Path) -> None:
    asked: list[int] = []

    def progress(run: str, share: float) -> None:
        if share > 0.2 and not asked:
            worker = active_children()[0]
            assert worker.pid is not None
            asked.append(worker.pid)
            os.kill(worker.pid, signal.SIGTERM)

    result = in_two(tmp_path / "sweep", progress)
    assert asked
    assert (result.n_done, result.failures) == (2, ())
    check_same(tmp_path / "sweep", whole)


@pytest.mark.usefixtures("forking")
def test_image_files_are_decoded_by_processes_of_processes(tmp_path: Path) -> None:
    """By processes of theirs, which a daemon could not have."""
    for part, n in (("train", 20), ("test", 4)):
        for colour, name in ((40, "dark"), (200, "light")):
            for i in range(n):
                path = tmp_path / "images" / part / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (16, 16), (colour + i, colour, colour)).save(path)
    settings = {"data": "image_folder", "root": str(tmp_path / "images"), "image_size": 16, "batch_size": 8}
    settings |= {"epochs": 1, "shifts": ["fog-3"], "workers": 1}
    plan = plan_of(tmp_path / "sweep", TWO, settings=settings, calibrators=[])
    result = run_plan(plan, (tmp_path / "sweep.toml"), backend=ProcessBackend(2, threads=1))
    assert (result.n_done, result.failures) == (2, ())


# Folders that are in use


def test_a_second_sweep_in_a_folder_is_refused(short: Path) -> None:
    before = contents(short, "*.parquet", "*/*.parquet", "*.toml")
    with (
        FileLock(short / ".lock"),
        pytest.raises(ResourceError, match="another process runs an experiment in") as refused,
    ):
        sweep(short, TWO, settings=SHORT)
    assert str(short) in one_line(refused.value)
    assert contents(short, "*.parquet", "*/*.parquet", "*.toml") == before


@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize("backend", [in_this_process, ProcessBackend(2, threads=1)], ids=["here", "processes"])
def test_a_folder_that_is_a_file_fails_its_run_alone(tmp_path: Path, backend: Backend) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / NAMES[0]).write_text("not a folder")
    file = write_sweep(tmp_path / "sweep.toml", TWO, settings=SHORT)
    result = run_experiment(file, output=folder, backend=backend)
    (failed,) = result.failures
    assert failed.run == NAMES[0]
    assert "cannot be made" in one_line(failed.failure)
    assert result.n_done == 1


# A disk that is full


def full_for(*names: str) -> Callable[[int], None]:
    """A disk without room for files of these names, in the folder of the first run or of the sweep."""
    fsync = os.fsync

    def full(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if any(path.name.startswith(f".{name}.") for name in names) and NAMES[1] not in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    return full


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="names of open files are read from /proc")
@pytest.mark.parametrize("name", ["last.safetensors", "metrics.parquet"])
def test_a_full_disk_fails_a_run_and_not_the_others(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "sweep"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_for(name))
        result = sweep(folder, TWO, settings=SHORT)
    (failed,) = result.failures
    assert failed.run == NAMES[0]
    path = next(iter((short / NAMES[0]).rglob(name)))
    assert one_line(failed.failure) == (
        f"{folder / path.relative_to(short)} cannot be written: No space left on device"
    )
    assert result.n_done == 1
    assert list(folder.rglob("*.tmp")) == []
    assert sweep(folder, TWO, settings=SHORT).failures == ()
    check_same(folder, short)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="names of open files are read from /proc")
@pytest.mark.parametrize("name", ["experiment.toml", "rows.parquet", "curves.parquet"])
def test_a_full_disk_leaves_what_was_there(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "sweep"
    shutil.copytree(short, folder)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_for(name))
        with pytest.raises(ResourceError, match="cannot be written: No space left on device") as refused:
            sweep(folder, TWO, settings=SHORT)
    assert str(folder / name) in one_line(refused.value)
    assert list(folder.rglob("*.tmp")) == []
    check_same(folder, short)


def test_a_full_disk_under_the_log(short: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "log.jsonl").symlink_to("/dev/full")
    with pytest.raises(CalibrantError, match=r"log\.jsonl cannot be written: No space left") as refused:
        sweep(folder, TWO, settings=SHORT)
    one_line(refused.value)
    (folder / "log.jsonl").unlink()
    sweep(folder, TWO, settings=SHORT)
    check_same(folder, short)


# Files that are damaged


def again(folder: Path, *, redo: bool = False, **top: object) -> ExperimentResult:
    file = write_sweep(folder.with_suffix(".toml"), TWO, **{**SHIFTED, **top})
    return run_experiment(file, output=folder, redo=redo)


@pytest.fixture
def copy(shifted: Path, tmp_path: Path) -> Path:
    return shutil.copytree(shifted, tmp_path / "sweep")


TRAINED = ("*/weights.safetensors", "*/log.jsonl")


@pytest.mark.parametrize(
    ("name", "damage"),
    [("spatter-2", empty), ("val+fog-4", cut)],
    ids=["test", "validation"],
)
def test_damaged_predictions_are_named_and_made_again(
    shifted: Path, copy: Path, name: str, damage: Callable[[Path], None]
) -> None:
    path = copy / NAMES[0] / "predictions" / f"{name}.parquet"
    damage(path)
    result = again(copy, metrics=["accuracy", "ece"])  # other measures: the files are read again
    (failed,) = result.failures
    assert failed.run == NAMES[0]
    assert str(path) in one_line(failed.failure)
    assert "--redo" in str(failed.failure)
    assert result.n_done == 1
    before = contents(copy, *TRAINED, f"{NAMES[1]}/predictions/*.parquet")
    result = again(copy, redo=True)
    assert (result.n_done, result.failures) == (2, ())
    assert contents(copy, *TRAINED, f"{NAMES[1]}/predictions/*.parquet") == before
    assert path.read_bytes() == (shifted / path.relative_to(copy)).read_bytes()
    check_same(copy, shifted)


def test_lost_predictions_are_made_again(shifted: Path, copy: Path) -> None:
    path = copy / NAMES[0] / "predictions" / "spatter-2.parquet"
    path.unlink()
    again(copy, metrics=["accuracy", "ece"])
    before = contents(copy, *TRAINED)
    result = again(copy, redo=True)
    assert (result.n_done, result.failures) == (2, ())
    assert contents(copy, *TRAINED) == before
    assert path.read_bytes() == (shifted / path.relative_to(copy)).read_bytes()
    check_same(copy, shifted)


def test_damaged_weights_and_checkpoints_reach_no_row(shifted: Path, copy: Path) -> None:
    """One line where they are needed; redo makes them again, bit-for-bit."""
    run = copy / NAMES[0]
    (run / "predictions" / "spatter-2.parquet").unlink()
    for name in ("weights.safetensors", "checkpoint/last.safetensors"):
        content = bytearray((run / name).read_bytes())
        content[-1000] ^= 64
        (run / name).write_bytes(content)
    (failed,) = again(copy).failures
    assert "weights.safetensors is damaged" in one_line(failed.failure)
    assert "--redo" in str(failed.failure)
    result = again(copy, redo=True)
    assert (result.n_done, result.failures) == (2, ())
    assert (run / "weights.safetensors").read_bytes() == (shifted / NAMES[0] / "weights.safetensors").read_bytes()
    check_same(copy, shifted)


def test_damaged_predictions_of_a_finished_run_are_named(shifted: Path, copy: Path) -> None:
    """Though no byte more or less is there, and no number of them is needed."""
    path = copy / NAMES[0] / "predictions" / "test.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"test\.parquet is damaged: .*; remove it, and .* --redo\)") as refused:
        again(copy)
    one_line(refused.value)
    assert again(copy, redo=True).failures == ()
    check_same(copy, shifted)


def damaged_inside(path: Path) -> None:
    """The end of the file, which tells of the rest, is whole."""
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, damaged_inside], ids=["cut", "inside"])
@pytest.mark.parametrize("name", ["metrics.parquet", "curves.parquet"])
def test_damaged_measurements_are_made_again(
    shifted: Path, copy: Path, name: str, damage: Callable[[Path], None]
) -> None:
    """What they were made of stays."""
    path = copy / NAMES[1] / name
    damage(path)
    before = contents(copy, *TRAINED, "*/predictions/*.parquet", "*/DONE")
    result = again(copy)
    assert (result.n_done, result.failures) == (2, ())
    assert contents(copy, *TRAINED, "*/predictions/*.parquet", "*/DONE") == before
    check_same(copy, shifted)


@pytest.mark.parametrize("name", ["rows.parquet", "curves.parquet"])
def test_damaged_rows_are_named_and_gathered_again(shifted: Path, copy: Path, name: str) -> None:
    cut(copy / name)
    with pytest.raises(CorruptFileError, match="is not a Parquet file") as refused:
        (read_rows if name == "rows.parquet" else read_curves)(copy)
    assert str(copy / name) in one_line(refused.value)
    before = contents(copy, "*/*.parquet", "*/predictions/*")
    again(copy)
    assert contents(copy, "*/*.parquet", "*/predictions/*") == before
    check_same(copy, shifted)


def test_redo_leaves_what_is_whole(shifted: Path, copy: Path) -> None:
    before, measured = contents(copy, *TRAINED, "*/predictions/*", "*/DONE"), contents(copy, "*/*.parquet")
    result = again(copy, redo=True)
    assert (result.n_done, result.failures) == (2, ())
    assert contents(copy, *TRAINED, "*/predictions/*", "*/DONE") == before
    for name, (_, content) in measured.items():  # it is measured again
        assert (copy / name).read_bytes() == content
    check_same(copy, shifted)


def test_a_damaged_configuration_is_named(copy: Path) -> None:
    path = copy / NAMES[0] / "config.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(CorruptFileError, match="is not JSON") as refused:
        again(copy)
    assert str(path) in one_line(refused.value)
