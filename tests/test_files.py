"""Files: replaced whole or left as they were, locks that a process holds alone, and places that cannot be used."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest

from calibrant._files import (
    atomic_write,
    data_folder,
    filesystem_of,
    first_line,
    hold_lock,
    make_folder,
    without_secrets,
)
from calibrant.errors import InvalidInputError, ResourceError


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
        assert [(name, memory.cat(name)) for name in memory.find("/made")] == [("/made/x.json", b"new")]
    finally:
        memory.rm("/made", recursive=True)


REFUSALS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (lambda folder: write(folder / "no" / "x", b""), r"no/x cannot be written: No such file"),
    "a folder": (lambda folder: write(folder / "kept", b""), r"kept cannot be written: Is a directory$"),
    "a long name": (lambda folder: write(folder / ("x" * 300), b""), r"x cannot be written: File name too long"),
    "a file above": (lambda folder: make_folder(folder / "file" / "x"), r"^the folder .*x cannot be made: Not a dir"),
    "a scheme": (lambda _: filesystem_of("s4://bucket/x"), r"^s4://bucket/x cannot be opened: Protocol not known"),
    "a lock": (lambda folder: hold_lock(folder / "file" / "x", "busy").__enter__(), r"file/x cannot be written: "),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/a", "s3://…@bucket/a"),
        ("s3://KEY:ab/cd@bucket/a", "s3://…@bucket/a"),
        ("s3://KEY:a?b#c@bucket/a", "s3://…@bucket/a"),
        ("https://token@x.org/a", "https://…@x.org/a"),
        ("--compare=s3://key:secret@bucket/a", "--compare=s3://…@bucket/a"),
        ("simplecache::s3://key:secret@bucket/a", "simplecache::s3://…@bucket/a"),
        ("zip://a.parquet::https://u:p@x.org/a.zip?sig=1", "zip://a.parquet::https://…@x.org/a.zip?…"),
        ("https://x.org/a?X-Amz-Signature=a'b&b=1", "https://x.org/a?…"),
        ("https://x.org/a#access_token=1", "https://x.org/a#…"),
        ("hf://datasets/me/rows@main/a.parquet", "hf://datasets/me/rows@main/a.parquet"),
        ("data/year=202?/month=01/*.parquet", "data/year=202?/month=01/*.parquet"),
        ("me@home.org/file?", "me@home.org/file?"),
    ],
)
def test_secrets_of_urls_are_not_shown(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
