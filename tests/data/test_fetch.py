"""Fetching from a server on this machine: whole, resumed, refused; nothing half stays under the final name."""

import fcntl
import gzip
import hashlib
import re
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from calibrant._paths import find_files
from calibrant.data import DATASETS
from calibrant.data.fetch import fetch
from calibrant.data.sources import ARCHIVES, Download, ExpectedFile
from calibrant.errors import (
    CorruptFileError,
    InvalidInputError,
    MissingExtraError,
    NoDataError,
    ResourceError,
    UnknownNameError,
)
from made.archives import FILES, NOISE, below, md5, tar_of, zip_of


class Shelf(ThreadingHTTPServer):
    """Serves bodies by path; remembers the range of every request and counts the bytes of the answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.bodies: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.sent = 0
        self.knows_ranges = True
        self.lies = False  # about where a range begins
        self.cuts: list[int] = []  # after how many bytes the next answers break off

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Answer(BaseHTTPRequestHandler):
    server: Shelf

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.ranges.append(wanted)
        body = self.server.bodies.get(self.path[1:])
        if body is None:
            self.send_error(404)
            return
        start = int(wanted[6:-1]) if wanted and self.server.knows_ranges else 0
        if start >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            said = start - 5 if self.server.lies else start
            self.send_header("Content-Range", f"bytes {said}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        kept = body[start:][: self.server.cuts.pop(0)] if self.server.cuts else body[start:]
        self.server.sent += len(kept)  # before the client, which may end at the last byte, can read them
        self.wfile.write(kept)

    def log_message(self, *_: object) -> None:
        pass


List = Callable[..., bytes]


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    server = Shelf()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def listed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> List:
    """Makes the entry cifar10 an archive on the shelf, of two files."""

    def make(content: bytes | None = None, name: str = "set.tar.gz", **known: object) -> bytes:
        content = tar_of(FILES) if content is None else content
        shelf.bodies[name] = content
        options = {"url": shelf.url(name), "md5": md5(content)} | known
        files = (ExpectedFile("set/a.bin", len(NOISE)), ExpectedFile("set/deep"))
        download = Download(path=f"{ARCHIVES}/{name}", files=files, folder="set", **options)  # type: ignore[arg-type]
        offer(monkeypatch, download)
        return content

    return make


def offer(monkeypatch: pytest.MonkeyPatch, *downloads: Download) -> None:
    monkeypatch.setitem(DATASETS, "cifar10", replace(DATASETS["cifar10"], downloads=downloads))


def put_part(root: Path, content: bytes) -> None:
    (root / ARCHIVES).mkdir(parents=True)
    (root / ARCHIVES / "set.tar.gz.part").write_bytes(content)


# What comes


def test_an_archive_is_fetched_and_unpacked(shelf: Shelf, listed: List, tmp_path: Path) -> None:
    content = listed()
    put_part(tmp_path, content[:5000])
    seen: dict[str, list[float]] = {}

    @contextmanager
    def bar(task: str, total: int) -> Iterator[Callable[[float], None]]:
        seen[task] = [total]
        yield seen[task].append

    [arrival] = fetch("cifar10", tmp_path, bar=bar)
    assert (arrival.path.name, arrival.n_bytes, arrival.sha256) == ("set.tar.gz", len(content), None)
    assert below(tmp_path) == FILES
    assert fetch("cifar10", tmp_path) == []
    assert shelf.ranges == ["bytes=5000-"]
    assert list(seen) == ["set.tar.gz", "unpacking set.tar.gz"]
    for total, *parts in seen.values():
        assert total == sum(parts) == len(content)


def test_the_root_and_the_archives_that_are_kept(listed: List, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = listed(zip_of(*FILES.items()), "set.zip")
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path / "new" / "root"))
    fetch("cifar10", keep=True)
    assert below(tmp_path / "new" / "root") == {"archives/set.zip": content} | FILES


def test_files_that_are_no_archives_stay_as_they_are(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = shelf.bodies["x.gz"] = gzip.compress(b"idx")
    wanted = ExpectedFile("mnist/x.gz", md5=md5(content))
    offer(monkeypatch, Download(shelf.url("x.gz"), wanted.path, (wanted,), md5=wanted.md5))
    fetch("cifar10", tmp_path)
    assert below(tmp_path) == {"mnist/x.gz": content}
    (tmp_path / "mnist" / "x.gz").rename(tmp_path / "mnist" / "x")
    assert fetch("cifar10", tmp_path) == []


def test_only_what_is_missing_is_fetched(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two archives for one folder, as Tiny-ImageNet-C has."""
    entries = []
    for name, file in (("one.tar", "a"), ("two.tar", "b")):
        shelf.bodies[name] = tar_of({f"other-{name}/{file}/x": name.encode()}, "w:")
        known = md5(shelf.bodies[name])
        entries.append(Download(shelf.url(name), f"{ARCHIVES}/{name}", (ExpectedFile(f"set/{file}"),), "set", known))
    offer(monkeypatch, *entries)
    assert len(fetch("cifar10", tmp_path)) == 2
    shutil.rmtree(tmp_path / "set" / "b")
    assert [arrival.path.name for arrival in fetch("cifar10", tmp_path)] == ["two.tar"]
    assert below(tmp_path) == {"set/a/x": b"one.tar", "set/b/x": b"two.tar"}


def test_a_file_put_by_hand_needs_no_server(shelf: Shelf, listed: List, tmp_path: Path) -> None:
    content = listed()
    (tmp_path / ARCHIVES).mkdir()
    by_hand = tmp_path / ARCHIVES / "set.tar.gz"
    by_hand.write_bytes(content[:-1])
    with pytest.raises(CorruptFileError, match=f"{md5(content[:-1])}, the published file {md5(content)}: remove it"):
        fetch("cifar10", tmp_path)
    assert by_hand.read_bytes() == content[:-1]
    by_hand.write_bytes(content)
    fetch("cifar10", tmp_path)
    assert below(tmp_path) == FILES
    assert shelf.ranges == []


def test_without_a_published_sum_the_sum_is_noted(listed: List, tmp_path: Path) -> None:
    content = tar_of(FILES)
    listed(content, md5=None, approximate_bytes=len(content) + 4000)
    [arrival] = fetch("cifar10", tmp_path)
    assert arrival.sha256 == hashlib.sha256(content).hexdigest()
    note = f"{arrival.sha256}  set.tar.gz\n".encode()
    assert below(tmp_path) == {"archives/set.tar.gz.sha256": note} | FILES
    shutil.rmtree(tmp_path / "set")
    (tmp_path / ARCHIVES / "set.tar.gz.sha256").write_text("0123  set.tar.gz\n")
    with pytest.raises(CorruptFileError, match=f"has SHA-256 {arrival.sha256}, .*set.tar.gz.sha256 says 0123"):
        fetch("cifar10", tmp_path)
    assert not (tmp_path / "set").exists()


# What is resumed


PARTS = {  # what is there: the state of the server, and the ranges that are asked for
    "some": (slice(200_000), {}, ["bytes=200000-"]),
    "no ranges": (slice(1000), {"knows_ranges": False}, ["bytes=1000-"]),
    "wrong ranges": (slice(1000), {"lies": True}, ["bytes=1000-", None]),
    "all": (slice(None), {}, ["bytes=end-"]),
    "too long": (slice(None), {}, ["bytes=over-", None]),
    "breaks": (slice(0), {"cuts": [100_000, 50_000]}, [None, "bytes=100000-", "bytes=150000-"]),
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_partial_file_resumes(shelf: Shelf, listed: List, tmp_path: Path, kind: str) -> None:
    there, state, ranges = PARTS[kind]
    content = listed()
    put_part(tmp_path, content[there] + (b"more" if kind == "too long" else b""))
    for name, value in state.items():
        setattr(shelf, name, value)
    fetch("cifar10", tmp_path)
    ends = {"bytes=end-": f"bytes={len(content)}-", "bytes=over-": f"bytes={len(content) + 4}-"}
    assert shelf.ranges == [ends.get(str(one), one) for one in ranges]
    if kind in ("some", "all", "breaks"):
        assert shelf.sent == len(content) - (len(content[there]) if kind != "breaks" else 0)
    assert below(tmp_path) == FILES


def test_what_came_before_a_break_is_kept(shelf: Shelf, listed: List, tmp_path: Path) -> None:
    content = listed()
    shelf.cuts = [100_000, 0]
    with pytest.raises(NoDataError, match=r"set\.tar\.gz cannot be fetched .*: run the same again to resume"):
        fetch("cifar10", tmp_path)
    assert below(tmp_path) == {"archives/set.tar.gz.part": content[:100_000]}
    shelf.knows_ranges, shelf.cuts = False, [100_000] * 10
    with pytest.raises(NoDataError, match="cannot be fetched"):
        fetch("cifar10", tmp_path)
    assert len(shelf.ranges) == 3  # the third brought no more than was there


def test_two_processes_do_not_fetch_the_same(listed: List, tmp_path: Path) -> None:
    listed()
    (tmp_path / ARCHIVES).mkdir()
    with (tmp_path / ARCHIVES / ".cifar10.lock").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ResourceError, match="another process"):
            fetch("cifar10", tmp_path)
    fetch("cifar10", tmp_path)
    assert below(tmp_path) == FILES


def test_a_stop_while_the_sum_is_checked_costs_nothing(
    shelf: Shelf, listed: List, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> str:
        raise KeyboardInterrupt

    content = listed()
    with monkeypatch.context() as patched:
        patched.setattr("calibrant.data.fetch.file_digest", stop)
        with pytest.raises(KeyboardInterrupt):
            fetch("cifar10", tmp_path)
    assert below(tmp_path) == {"archives/set.tar.gz.part": content}
    fetch("cifar10", tmp_path)
    assert shelf.sent == len(content)
    assert below(tmp_path) == FILES


# What is refused


def test_other_bytes_of_the_right_size_are_not_already_there(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ExpectedFile("x.bin", 3, md5(b"abc"))
    offer(monkeypatch, Download(shelf.url("x.bin"), file.path, (file,), md5=file.md5))
    (tmp_path / "x.bin").write_bytes(b"abd")
    with pytest.raises(CorruptFileError, match=r"^cifar10 is not as published: x\.bin: 3 bytes, MD5 4911e516"):
        fetch("cifar10", tmp_path)


def test_a_silent_server_is_not_waited_for(listed: List, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("calibrant._paths", "calibrant.data.fetch"):
        monkeypatch.setattr(f"{module}.READ_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        listed(url=url)
        with pytest.raises(NoDataError, match=r"cannot be fetched \(the server was silent for 0\.2 s\): run the same"):
            fetch("cifar10", tmp_path)
        with pytest.raises(ResourceError, match=rf"^{url} cannot be read: the server was silent for 0\.2 s$"):
            find_files(url)


REFUSED = {
    "another file": ({"md5": "0" * 32}, CorruptFileError, r"has MD5 {md5}, the published file 0{32}; it was removed"),
    "another length": ({"md5": None, "approximate_bytes": 2_000_000}, CorruptFileError, r"bytes, .* 2,000,000; it was"),
    "not found": ({}, NoDataError, r"/none cannot be fetched \(HTTP 404\): .*{place}"),
    "no server": ({"url": "http://127.0.0.1:9/x"}, NoDataError, r"127\.0\.0\.1:9/x .*Connection refused.*{place}"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_leaves_nothing(shelf: Shelf, listed: List, tmp_path: Path, kind: str) -> None:
    known, error, message = REFUSED[kind]
    content = listed(**({"url": shelf.url("none")} if kind == "not found" else known))
    place = re.escape(f"put the file by hand as {tmp_path / ARCHIVES / 'set.tar.gz'}")
    with pytest.raises(error, match=message.replace("{md5}", md5(content)).replace("{place}", place)) as caught:
        fetch("cifar10", tmp_path)
    assert "\n" not in str(caught.value)
    assert below(tmp_path) == {}


def test_a_disk_that_is_full_and_a_root_that_is_none(
    listed: List, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed()
    (tmp_path / "file").write_text("kept")
    with pytest.raises(ResourceError, match="file"):
        fetch("cifar10", tmp_path / "file")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    full = r"set\.tar\.gz\.part cannot be written: .* do not fit in the 10 that are free"
    with pytest.raises(ResourceError, match=full):
        fetch("cifar10", tmp_path)
    assert below(tmp_path) == {"file": b"kept"}


def test_an_archive_without_the_data_and_a_missing_extra(
    listed: List, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(tar_of({"set/a.bin": NOISE}))
    with pytest.raises(CorruptFileError, match=r"was unpacked, but .*set/deep is missing"):
        fetch("cifar10", tmp_path)
    shutil.rmtree(tmp_path / ARCHIVES)
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(MissingExtraError, match=r"fetching http.*set.tar.gz as .* needs the extra train: pip install"):
        fetch("cifar10", tmp_path)


def test_names_without_downloads() -> None:
    assert fetch("digits") == []
    with pytest.raises(InvalidInputError, match="image_folder is a folder of your own"):
        fetch("image_folder")
    with pytest.raises(UnknownNameError, match="unknown data 'cifra10'; did you mean 'cifar10'"):
        fetch("cifra10")
