"""Files: replaced whole or left as they were, locks that a process holds alone, and places that cannot be used."""

import errno
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest

from calibrant._files import (
    KINDS,
    _open_temporary,
    atomic_write,
    check_folder,
    check_output,
    data_folder,
    hold_lock,
    make_folder,
    mark_png,
)
from calibrant._paths import filesystem_of, first_line
from calibrant.calibrators import load_calibrator
from calibrant.errors import CorruptFileError, InvalidInputError, ResourceError
from calibrant.maxent import read_prior
from calibrant.training import read_settings


def write(path: str | Path, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)


def stop(path: str | Path) -> None:
    with atomic_write(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refuse(*_: object, **__: object) -> None:
    raise OSError("no rename today")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "run [1]*?.json"
    for content in (b"old", b"new and longer", b""):
        write(path, content)
        assert path.read_bytes() == content
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such permissions")
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path, link = tmp_path / "x.json", tmp_path / "link"
    write(path, b"old")
    path.chmod(0o600)
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o600}  # the temporary one, too
    link.symlink_to(path)
    write(link, b"newer")
    assert (path.read_bytes(), link.read_bytes()) == (b"new", b"newer")
    for each in (path, link):
        assert each.stat().st_mode & 0o777 == 0o600
    if os.getuid() == 0:
        os.chown(path, 12345, 54321)
        write(path, b"")
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


def test_a_file_is_replaced_by_one_of_its_kind(tmp_path: Path) -> None:
    """Where kinds are told by their first bytes, none may pass for another; an empty file has nothing to lose."""
    begins = {
        "a Parquet file": b"PAR1",
        "a calibrator": b'{\n "calibrant_calibrator": 1',
        "an HTML page of calibrant": b'<!DOCTYPE html>\n<meta name="generator" content="calibrant">',
        "an SVG image": b"<svg ",
        "a PNG image of calibrant": mark_png(b"\x89PNG\r\n\x1a\n" + bytes(range(25))),
        "a PDF file": b"%PDF-1.7",
        "a Vega-Lite specification": b'{\n "$schema": "https://vega.github.io',
        "an estimator": b'{"calibrant_estimator": 1',
        "a threshold": b'{"calibrant_threshold": 1',
        "a conformal predictor": b'{"calibrant_conformal_predictor": 1',
        "a monitor": b'{"calibrant_monitor": 1',
        "a metrics file": b"# HELP calibrant_rows ",
        "an ONNX file of calibrant": b"\x08\n\x12\tcalibrant\x1a",
        "a JSON schema": b'{\n  "$defs": {',
        "a table": b"Table 1: ",
    }
    others = [
        b"title = 1",
        b"{}",
        b'{"data": 1}',
        b"# README",
        b"\x80\x04",
        b"\xff\xd8",
        b"\0\0\0x",
        b"\x08\n\x12\x07pytorch\x1a",
        b"<!DOCTYPE html>",
        b"\x89PNG\r\n\x1a\n",
    ]
    assert set(begins) == set(KINDS)
    path = tmp_path / "x"
    for kind, start in begins.items():
        for content in (b"", b"\0" * 200, start):
            path.write_bytes(content)
            check_output(path, kind)
        for content in (*others, *(begins[other] for other in begins if other != kind)):
            path.write_bytes(content)
            with pytest.raises(InvalidInputError, match=rf"x exists and is not {kind}: choose another name"):
                check_output(path, kind)
            assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_that_of_a_run_by_what_its_settings_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    check_folder(tmp_path, "an experiment")
    (tmp_path / "config.json").write_text('{"test_sample": null}')
    with pytest.raises(InvalidInputError, match=r"is the folder of a run, as its config\.json says"):
        check_folder(tmp_path, "an experiment")


def test_an_input_is_no_output(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1")
    (tmp_path / "soft").symlink_to(path)
    (tmp_path / "hard").hardlink_to(path)
    for name in (
        path,
        f"{tmp_path}/../{tmp_path.name}/x.parquet",
        f"file://{path}",
        tmp_path / "soft",
        tmp_path / "hard",
    ):
        with pytest.raises(InvalidInputError, match="must not be written: it is an input"):
            check_output(name, "a Parquet file", [str(tmp_path / "other.parquet"), str(path)])
    check_output("memory://x.parquet", "a Parquet file", ["memory://y.parquet", str(path)])
    with pytest.raises(InvalidInputError, match="it is an input"):
        check_output("memory://x.parquet", "a Parquet file", ["memory:///x.parquet"])


@pytest.mark.parametrize("existed", [True, False])
@pytest.mark.parametrize("fault", ["interrupt", "rename", "empty disk", "full disk"])
def test_a_failure_leaves_what_there_was(
    fault: str, existed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    if existed:
        write(path, b"old")
    with monkeypatch.context() as patched:
        if fault == "interrupt":
            with pytest.raises(KeyboardInterrupt):
                stop(path)
        elif fault == "rename":
            patched.setattr(os, "replace", refuse)
            with pytest.raises(OSError, match="no rename today"):
                write(path, b"new")
        else:
            limit = 0 if fault == "empty disk" else 1000
            with full_disk(limit), pytest.raises(ResourceError, match=r"x\.json cannot be written: File too large$"):
                write(path, b"x" * 10**6)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([b"old"] if existed else [])


def test_no_space_is_said_with_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match=r"x\.json cannot be written: No space left on device$"):
        write(tmp_path / "x.json", b"new")
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_is_removed_for_the_same_file_only(tmp_path: Path) -> None:
    path, other, outside = tmp_path / "x.json", tmp_path / "x.json.json", tmp_path / "outside"
    abandoned = {_open_temporary(str(one)) for one in (path, path, other)}
    for _, file in abandoned:
        file.close()  # as the kernel does when a process dies
    assert len(list(tmp_path.iterdir())) == 3
    alive, file = _open_temporary(str(path))
    outside.write_bytes(b"kept")
    with file:
        file.write(b"half")
        file.flush()
        write(path, b"new")
        assert Path(alive).read_bytes() == b"half"
        left = {alive, str(path), str(outside), *(name for name, _ in abandoned if "x.json.json" in name)}
        assert set(map(str, tmp_path.iterdir())) == left
    write(path, b"newer")
    assert set(map(str, tmp_path.iterdir())) == left - {alive}


@pytest.mark.parametrize("call", ["os.chown", "os.chmod", "fcntl.flock"])
def test_file_systems_without_owners_permissions_or_locks(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(call, refuse)
    for content in (b"old", b"new"):
        write(tmp_path / "x", content)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": content}


def test_what_a_killed_process_left_for_a_read_only_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write(path, b"old")
    path.chmod(0o444)
    with atomic_write(path):
        (temporary,) = tmp_path.glob(".*.tmp")
        assert temporary.stat().st_mode & 0o777 == 0o644  # another process can lock it
    assert path.stat().st_mode & 0o777 == 0o444


def test_an_interrupt_when_the_temporary_file_has_just_been_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(temporary: str) -> None:
        open(temporary, "xb").close()
        raise KeyboardInterrupt

    monkeypatch.setattr("calibrant._files._open_locked", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "x", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_planted_link_has_no_victim(tmp_path: Path) -> None:
    temporary, file = _open_temporary(str(tmp_path / "x"))
    file.close()
    Path(temporary).unlink()
    (tmp_path / "victim").write_bytes(b"kept")
    Path(temporary).symlink_to(tmp_path / "victim")
    write(tmp_path / "x", b"new")
    assert [(tmp_path / name).read_bytes() for name in ("victim", "x")] == [b"kept", b"new"]


def test_a_folder_that_vanishes_is_said_with_the_name(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "x.json"
    path.parent.mkdir()

    def vanish() -> None:
        with atomic_write(path):
            shutil.rmtree(path.parent)

    with pytest.raises(ResourceError, match=r"x\.json cannot be written: No such file"):
        vanish()


def test_files_behind_urls_are_replaced_whole() -> None:
    memory = fsspec.filesystem("memory")
    try:
        for content in (b"old", b"new"):
            write("memory://made/x.json", content)
            assert memory.cat("/made/x.json") == content
        with pytest.raises(KeyboardInterrupt):
            stop("memory://made/x.json")
        with pytest.raises(InvalidInputError, match=r"cannot be written: \*, \? and \[ stand for"):
            write("memory://made/x?.json", b"")
        assert [(name, memory.cat(name)) for name in memory.find("/made")] == [("/made/x.json", b"new")]
    finally:
        memory.rm("/made", recursive=True)


REFUSALS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (lambda folder: write(folder / "no" / "x", b""), r"no/x cannot be written: No such file"),
    "a folder": (lambda folder: write(folder / "kept", b""), r"kept cannot be written: Is a directory$"),
    "a device": (lambda _: write("/dev/null", b""), r"^/dev/null cannot be written: Not a regular file$"),
    "nothing": (lambda _: write("", b""), r"^path must be a path, got ''$"),
    "a NUL": (lambda folder: write(folder / "a\0b", b""), r"^path must be a path, got "),
    "a long name": (
        lambda folder: write(folder / ("x" * 300), b""),
        r"^path must be .* names of at most 255 bytes, got /",
    ),
    "a file above": (lambda folder: make_folder(folder / "file" / "x"), r"^the folder .*x cannot be made: Not a dir"),
    "a scheme": (lambda _: filesystem_of("s4://bucket/x"), r"^s4://bucket/x cannot be opened: Protocol not known"),
    "a folder of others": (
        lambda folder: check_folder(folder / "kept", "a run"),
        r"is the folder of an experiment, as ",
    ),
    "a lock": (lambda folder: hold_lock(folder / "file" / "x", "busy").__enter__(), r"file/x cannot be written: "),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "experiment.toml").touch()
    (tmp_path / "file").touch()
    call, message = REFUSALS[case]
    with pytest.raises((ResourceError, InvalidInputError), match=message) as caught:
        call(tmp_path)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "kept"]


def test_a_lock_is_held_alone(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        hold_lock(lock, "x is busy"),
        pytest.raises(ResourceError, match=r"^x is busy$"),
        hold_lock(lock, "x is busy"),
    ):
        raise AssertionError("two hold it")
    with hold_lock(lock, "x is busy"):
        pass


def test_where_data_sets_are_and_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    assert data_folder() == Path("data")
    monkeypatch.setenv("CALIBRANT_DATA", "elsewhere")
    assert data_folder() == Path("elsewhere")
    assert data_folder("here") == Path("here")
    assert first_line(ValueError("\n one\ntwo")) == "one"
    assert first_line(KeyError()) == "KeyError"


# Reading


def test_no_reading_without_end(tmp_path: Path) -> None:
    """A device may be endless; a pipe that nobody writes to would be waited for."""
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(ResourceError, match="cannot be read: it is not a regular file"):
            load_calibrator(path)
    for read in (read_prior, read_settings):
        with pytest.raises(InvalidInputError, match="/dev/zero must have at most"):
            read("/dev/zero")
    with pytest.raises(CorruptFileError, match="pipe is not a JSON file"):
        read_prior(tmp_path / "pipe")
