"""Fetching from a server on this machine, unpacking archives good and bad, and holding data sets against the facts."""

import dataclasses
import fcntl
import gzip
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pooch
import pytest
import torch
from PIL import Image

from calibrant.corruptions import CORRUPTIONS
from calibrant.data import DATASETS, Pictures, Split, fetch, open_dataset, verify
from calibrant.data.archives import unpack
from calibrant.data.sources import ARCHIVES, CIFAR10_C_MD5, CIFAR100_C_MD5, SOURCES, Download, Source, Wanted
from calibrant.data.verify import check_data, is_here
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, UnknownNameError

NOISE = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()  # which does not compress


# A server


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
        self.wfile.write(kept)
        self.server.sent += len(kept)

    def log_message(self, *_: object) -> None:
        pass


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


# Archives


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    return tar_with(*(member(name, content) for name, content in files.items()), mode=mode)


Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, content: bytes = b"", **fields: object) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def tar_with(*members: Member, mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def zip_of(*files: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return file.getvalue()


def zip_link(name: str, target: str) -> tuple[zipfile.ZipInfo, bytes]:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info, target.encode()


def below(folder: Path) -> dict[str, bytes]:
    """The contents of all files but locks, which stay where they are: removing one could free a second holder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


FILES = {"set/a.bin": NOISE, "set/deep/b.txt": b"two"}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def listed(
    monkeypatch: pytest.MonkeyPatch,
    shelf: Shelf,
    content: bytes | None = None,
    name: str = "set.tar.gz",
    **known: object,
) -> bytes:
    """The entry cifar10 now is an archive on the shelf, of two files."""
    content = tar_of(FILES) if content is None else content
    shelf.bodies[name] = content
    known = {"md5": md5(content)} | known
    leaves = (Wanted("set/a.bin", len(NOISE)), Wanted("set/deep"))
    entry = Download(shelf.url(name), f"{ARCHIVES}/{name}", leaves, "set", **known)  # type: ignore[arg-type]
    monkeypatch.setitem(SOURCES, "cifar10", Source("none", 10, 32, (entry,)))
    return content


def put_part(root: Path, content: bytes) -> Path:
    part = root / ARCHIVES / "set.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    return part


# Fetching


def test_an_archive_is_fetched_and_unpacked(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = listed(monkeypatch, shelf)
    [arrival] = fetch.fetch("cifar10", tmp_path)
    assert (arrival.file.name, arrival.n_bytes, arrival.sha256) == ("set.tar.gz", len(content), None)
    assert below(tmp_path) == FILES
    assert fetch.fetch("cifar10", tmp_path) == []
    assert shelf.ranges == [None]


def test_nothing_is_logged(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    logger = pooch.get_logger()
    monkeypatch.setattr(logger, "handlers", [SimpleNamespace(level=0, handle=said.append)])
    logger.setLevel("INFO")
    listed(monkeypatch, shelf)
    fetch.fetch("cifar10", tmp_path)
    assert not said


def test_archives_are_kept_on_request(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = listed(monkeypatch, shelf, zip_of(*FILES.items()), "set.zip")
    fetch.fetch("cifar10", tmp_path, keep=True)
    assert below(tmp_path) == {"archives/set.zip": content} | FILES


def test_files_that_are_no_archives_stay_as_they_are(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gzip.compress(b"idx")
    shelf.bodies["x.gz"] = content
    entry = Download(shelf.url("x.gz"), "mnist/x.gz", (Wanted("mnist/x.gz", md5=md5(content)),), md5=md5(content))
    monkeypatch.setitem(SOURCES, "mnist", Source("none", 10, 28, (entry,)))
    fetch.fetch("mnist", tmp_path)
    assert below(tmp_path) == {"mnist/x.gz": content}
    (tmp_path / "mnist" / "x.gz").rename(tmp_path / "mnist" / "x")
    assert fetch.fetch("mnist", tmp_path) == []


def test_the_root_is_that_of_the_environment(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, shelf)
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path / "new" / "root"))
    fetch.fetch("cifar10")
    assert below(tmp_path / "new" / "root") == FILES


def test_a_partial_file_goes_on(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = listed(monkeypatch, shelf)
    put_part(tmp_path, content[:200_000])
    fetch.fetch("cifar10", tmp_path)
    assert shelf.ranges == ["bytes=200000-"]
    assert shelf.sent == len(content) - 200_000
    assert below(tmp_path) == FILES


@pytest.mark.parametrize("fault", ["knows_ranges", "lies"])
def test_a_server_without_ranges_begins_anew(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    content = listed(monkeypatch, shelf)
    setattr(shelf, fault, fault == "lies")
    put_part(tmp_path, content[:1000])
    fetch.fetch("cifar10", tmp_path)
    assert shelf.ranges == (["bytes=1000-"] if fault == "knows_ranges" else ["bytes=1000-", None])
    assert below(tmp_path) == FILES


def test_a_partial_file_that_is_whole_is_not_fetched(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = listed(monkeypatch, shelf)
    put_part(tmp_path, content)
    fetch.fetch("cifar10", tmp_path)
    assert (shelf.ranges, shelf.sent) == ([f"bytes={len(content)}-"], 0)
    assert below(tmp_path) == FILES


def test_a_partial_file_that_is_too_long_is_thrown_away(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = listed(monkeypatch, shelf)
    put_part(tmp_path, content + b"more")
    fetch.fetch("cifar10", tmp_path)
    assert shelf.ranges == [f"bytes={len(content) + 4}-", None]
    assert below(tmp_path) == FILES


def test_a_connection_that_breaks_off_is_taken_up(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = listed(monkeypatch, shelf)
    shelf.cuts = [100_000, 50_000]
    fetch.fetch("cifar10", tmp_path)
    assert shelf.ranges == [None, "bytes=100000-", "bytes=150000-"]
    assert shelf.sent == len(content)
    assert below(tmp_path) == FILES


def test_what_came_before_a_break_is_kept(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = listed(monkeypatch, shelf)
    shelf.cuts = [100_000, 0]
    with pytest.raises(NoDataError, match=r"set\.tar\.gz cannot be fetched .*: run the same again to go on"):
        fetch.fetch("cifar10", tmp_path)
    assert below(tmp_path) == {"archives/set.tar.gz.part": content[:100_000]}
    shelf.knows_ranges, shelf.cuts = False, [100_000] * 10
    with pytest.raises(NoDataError, match="cannot be fetched"):
        fetch.fetch("cifar10", tmp_path)
    assert len(shelf.ranges) == 3  # the third brought no more than was there


def test_another_file_is_refused_and_removed(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = listed(monkeypatch, shelf)
    shelf.bodies["set.tar.gz"] = content[:-1] + b"?"
    found = md5(shelf.bodies["set.tar.gz"])
    with pytest.raises(CorruptFileError, match=f"has MD5 {found}, the published file {md5(content)}; it was removed"):
        fetch.fetch("cifar10", tmp_path)
    assert below(tmp_path) == {}


def test_no_server_and_no_file_say_what_to_put_where(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(monkeypatch, shelf)
    place = re.escape(f"put the file by hand as {tmp_path / ARCHIVES / 'set.tar.gz'}")
    shelf.bodies.clear()
    with pytest.raises(NoDataError, match=rf"{shelf.url('set.tar.gz')} cannot be fetched \(HTTP 404\): .*{place}"):
        fetch.fetch("cifar10", tmp_path)
    [entry] = SOURCES["cifar10"].downloads
    nobody = dataclasses.replace(entry, url="http://127.0.0.1:9/set.tar.gz")
    monkeypatch.setitem(SOURCES, "cifar10", Source("none", 10, 32, (nobody,)))
    with pytest.raises(NoDataError, match=rf"127\.0\.0\.1:9/set\.tar\.gz .*Connection refused.*{place}") as caught:
        fetch.fetch("cifar10", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_put_by_hand_needs_no_server(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = listed(monkeypatch, shelf)
    (tmp_path / ARCHIVES).mkdir()
    by_hand = tmp_path / ARCHIVES / "set.tar.gz"
    by_hand.write_bytes(content[:-1])
    with pytest.raises(CorruptFileError, match=f"{md5(content[:-1])}, the published file {md5(content)}: remove it"):
        fetch.fetch("cifar10", tmp_path)
    assert by_hand.read_bytes() == content[:-1]
    by_hand.write_bytes(content)
    fetch.fetch("cifar10", tmp_path)
    assert below(tmp_path) == FILES
    assert shelf.ranges == []


def test_without_a_published_sum_the_sum_is_noted(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tar_of(FILES)
    listed(monkeypatch, shelf, content, md5=None, about_bytes=len(content) + 4000)
    [arrival] = fetch.fetch("cifar10", tmp_path)
    assert arrival.sha256 == hashlib.sha256(content).hexdigest()
    note = f"{arrival.sha256}  set.tar.gz\n".encode()
    assert below(tmp_path) == {"archives/set.tar.gz.sha256": note} | FILES
    shutil.rmtree(tmp_path / "set")
    (tmp_path / ARCHIVES / "set.tar.gz.sha256").write_text("0123  set.tar.gz\n")
    with pytest.raises(CorruptFileError, match=f"has SHA-256 {arrival.sha256}, .*set.tar.gz.sha256 says 0123"):
        fetch.fetch("cifar10", tmp_path)
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("known", ["n_bytes", "about_bytes"])
def test_a_file_of_another_length_is_refused(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    content = listed(monkeypatch, shelf, md5=None, **{known: 2_000_000})
    with pytest.raises(CorruptFileError, match=rf"{len(content):,} bytes, .* 2,000,000; it was removed"):
        fetch.fetch("cifar10", tmp_path)
    assert below(tmp_path) == {}


def test_an_archive_without_the_data_is_refused(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, shelf, tar_of({"set/a.bin": NOISE}))
    with pytest.raises(CorruptFileError, match=r"did not leave .*set/deep"):
        fetch.fetch("cifar10", tmp_path)


def test_only_what_is_missing_is_fetched(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two archives for one folder, as Tiny-ImageNet-C has."""
    entries = []
    for name, file in (("one.tar", "a"), ("two.tar", "b")):
        shelf.bodies[name] = tar_of({f"other-{name}/{file}/x": name.encode()}, "w:")
        known = md5(shelf.bodies[name])
        entries.append(Download(shelf.url(name), f"{ARCHIVES}/{name}", (Wanted(f"set/{file}"),), "set", known))
    monkeypatch.setitem(SOURCES, "cifar10", Source("none", 10, 32, tuple(entries)))
    assert len(fetch.fetch("cifar10", tmp_path)) == 2
    assert below(tmp_path) == {"set/a/x": b"one.tar", "set/b/x": b"two.tar"}
    shutil.rmtree(tmp_path / "set" / "b")
    assert [arrival.file.name for arrival in fetch.fetch("cifar10", tmp_path)] == ["two.tar"]
    assert below(tmp_path) == {"set/a/x": b"one.tar", "set/b/x": b"two.tar"}


def test_two_processes_do_not_fetch_the_same(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, shelf)
    (tmp_path / ARCHIVES).mkdir()
    lock = tmp_path / ARCHIVES / ".cifar10.lock"
    with lock.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InvalidInputError, match="another process"):
            fetch.fetch("cifar10", tmp_path)
    fetch.fetch("cifar10", tmp_path)
    assert below(tmp_path) == FILES


def test_every_byte_is_reported(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = listed(monkeypatch, shelf)
    put_part(tmp_path, content[:5000])
    seen: dict[str, list[float]] = {}

    @contextmanager
    def watch(task: str, total: int) -> Iterator[Callable[[float], None]]:
        seen[task] = [total]
        yield seen[task].append

    fetch.fetch("cifar10", tmp_path, watch=watch)
    assert list(seen) == ["set.tar.gz", "unpacking set.tar.gz"]
    for total, *parts in seen.values():
        assert total == sum(parts) == len(content)


def test_a_full_disk_is_seen_before(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, shelf)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(
        NoDataError, match=r"set\.tar\.gz\.part cannot be written: .* do not fit in the 10 that are free"
    ):
        fetch.fetch("cifar10", tmp_path)
    assert below(tmp_path) == {}


def test_a_root_that_is_a_file_is_refused(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, shelf)
    (tmp_path / "file").write_text("kept")
    with pytest.raises(NoDataError, match="file"):
        fetch.fetch("cifar10", tmp_path / "file")


def test_names_without_downloads() -> None:
    assert fetch.fetch("digits") == []
    with pytest.raises(InvalidInputError, match="image_folder is a folder of your own"):
        fetch.fetch("image_folder")
    with pytest.raises(UnknownNameError, match="unknown data 'cifra10'; did you mean 'cifar10'"):
        fetch.fetch("cifra10")


# Unpacking


def write(folder: Path, content: bytes) -> Path:
    path = folder / "archive"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(tar_of(FILES, "w:"), id="tar"),
        pytest.param(tar_of(FILES, "w:gz"), id="tar.gz"),
        pytest.param(tar_of(FILES, "w:xz"), id="tar.xz"),
        pytest.param(tar_of({"./" + name: content for name, content in FILES.items()}), id="dot"),
        pytest.param(tar_of({name[4:]: content for name, content in FILES.items()}), id="no-top"),
        pytest.param(zip_of(*FILES.items()), id="zip"),
        pytest.param(zip_of(("set/", b""), ("set/deep/", b""), *FILES.items()), id="zip-folders"),
        pytest.param(
            tar_with(member("set", type=tarfile.DIRTYPE), *(member(*file) for file in FILES.items())), id="tar-folders"
        ),
    ],
)
def test_archives_are_unpacked(tmp_path: Path, content: bytes) -> None:
    unpack(write(tmp_path, content), tmp_path / "new" / "here")
    assert below(tmp_path / "new") == {f"here{name[3:]}": content for name, content in FILES.items()}


def test_a_file_that_is_there_twice_in_a_tar(tmp_path: Path) -> None:
    """Of which the second is written as a link to the first."""
    again = member("set/b", type=tarfile.LNKTYPE, linkname="set/a")
    unpack(write(tmp_path, tar_with(member("set/a", b"one"), again)), tmp_path / "here")
    assert below(tmp_path / "here") == {"a": b"one", "b": b"one"}


def test_modes_and_owners_of_an_archive_do_not_count(tmp_path: Path) -> None:
    content = tar_with(member("set/a", b"one", mode=0o4777, uid=12345, uname="nobody"))
    unpack(write(tmp_path, content), tmp_path / "here")
    found = (tmp_path / "here" / "a").stat()
    assert not found.st_mode & (stat.S_ISUID | stat.S_IWOTH)
    assert found.st_uid == os.getuid()


GOOD = member("set/good", b"good")
BAD_TARS = {
    "above": (member("../evil", b"x"), "'../evil' lies outside"),
    "above-inside": (member("set/../../evil", b"x"), "lies outside"),
    "absolute": (member("/tmp/evil", b"x"), "'/tmp/evil' lies outside"),
    "drive": (member("c:/evil", b"x"), "lies outside"),
    "symlink-out": (member("set/link", type=tarfile.SYMTYPE, linkname="../../evil"), "'set/link' is a symbolic link"),
    "symlink-in": (member("set/link", type=tarfile.SYMTYPE, linkname="good"), "'set/link' is a symbolic link"),
    "hard-link-out": (member("set/link", type=tarfile.LNKTYPE, linkname="../kept"), "'../kept' lies outside"),
    "hard-link-absolute": (member("set/link", type=tarfile.LNKTYPE, linkname="/etc/hosts"), "lies outside"),
    "hard-link-to-nothing": (member("set/link", type=tarfile.LNKTYPE, linkname="set/no"), "is a link to 'set/no'"),
    "pipe": (member("set/pipe", type=tarfile.FIFOTYPE), "'set/pipe' is a device or a pipe"),
    "device": (member("set/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), "is a device or a pipe"),
    "twice": (member("set/good", b"better"), "it has 'set/good' twice"),
    "file-as-folder": (member("set/good/x", b"x"), "cannot be unpacked"),
}
BAD_ZIPS = {
    "above": (("../evil", b"x"), "'../evil' lies outside"),
    "absolute": (("/tmp/evil", b"x"), "'/tmp/evil' lies outside"),
    "symlink": (zip_link("set/link", "../../evil"), "'set/link' is a symbolic link"),
    "file-as-folder": (("set/good/x", b"x"), "cannot be unpacked"),
}
BAD = [
    *(pytest.param(tar_with(GOOD, bad), rule, id=f"tar-{name}") for name, (bad, rule) in BAD_TARS.items()),
    *(pytest.param(zip_of(("set/good", b"x"), bad), rule, id=f"zip-{name}") for name, (bad, rule) in BAD_ZIPS.items()),
    pytest.param(tar_of(FILES)[:-2000], "cannot be unpacked", id="tar.gz-cut"),
    pytest.param(tar_of(FILES, "w:")[:100_000], "cannot be unpacked", id="tar-cut"),
    pytest.param(zip_of(*FILES.items())[:-2000], "cannot be unpacked", id="zip-cut"),
    pytest.param(zip_of(*FILES.items()).replace(NOISE[:99], NOISE[1:100]), "cannot be unpacked", id="zip-changed"),
    pytest.param(b"<html>not found</html>" * 99, "cannot be unpacked", id="html"),
    pytest.param(b"", "cannot be unpacked", id="nothing"),
    pytest.param(tar_of({}), "it is empty", id="tar-empty"),
    pytest.param(zip_of(), "it is empty", id="zip-empty"),
]


@pytest.mark.parametrize(("content", "rule"), BAD)
def test_bad_archives_leave_nothing(tmp_path: Path, content: bytes, rule: str) -> None:
    (tmp_path / "kept").write_bytes(b"kept")
    path = write(tmp_path, content)
    with pytest.raises(CorruptFileError, match=re.escape(rule)) as caught:
        unpack(path, tmp_path / "here")
    assert str(path) in str(caught.value)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["archive", "kept"]


def test_a_zip_with_a_file_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = zip_of(("set/a", b"x"), ("set/a", b"y"))
    with pytest.raises(CorruptFileError, match="it has 'set/a' twice"):
        unpack(write(tmp_path, content), tmp_path / "here")


@pytest.mark.parametrize("content", [tar_of(FILES), zip_of(*FILES.items())], ids=["tar", "zip"])
def test_an_interrupt_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    def stop(_: float) -> None:
        if any(path.is_file() for path in (tmp_path / ".here.unpacking").rglob("*")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(write(tmp_path, content), tmp_path / "here", stop)
    assert [entry.name for entry in tmp_path.iterdir()] == ["archive"]


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".here.unpacking" / "half").mkdir(parents=True)
    unpack(write(tmp_path, tar_of(FILES)), tmp_path / "here")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["archive", "here"]
    assert len(below(tmp_path / "here")) == 2


@pytest.mark.parametrize("content", [tar_of(FILES), zip_of(*FILES.items())], ids=["tar", "zip"])
def test_more_than_the_disk_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    path = write(tmp_path, content)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(NoDataError, match=r"archive cannot be unpacked: 300,00\d bytes do not fit in the 1,000"):
        unpack(path, tmp_path / "here")
    assert [entry.name for entry in tmp_path.iterdir()] == ["archive"]


def test_what_is_there_is_joined(tmp_path: Path) -> None:
    (tmp_path / "here" / "deep").mkdir(parents=True)
    (tmp_path / "here" / "deep" / "b.txt").write_bytes(b"old")
    (tmp_path / "here" / "deep" / "mine").write_bytes(b"mine")
    unpack(write(tmp_path, tar_of(FILES)), tmp_path / "here")
    assert below(tmp_path / "here") == {"a.bin": NOISE, "deep/b.txt": b"two", "deep/mine": b"mine"}


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_something_else_in_the_way_is_refused(tmp_path: Path, kind: str) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "elsewhere").mkdir()
    if kind == "file":
        (here / "deep").write_bytes(b"mine")
    elif kind == "folder":
        (here / "a.bin").mkdir()
    else:
        (here / "deep").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NoDataError, match=r"here/(deep|a\.bin) is there already, and not a f"):
        unpack(write(tmp_path, tar_of(FILES)), here)
    assert below(here) == ({"deep": b"mine"} if kind == "file" else {})
    assert not list((tmp_path / "elsewhere").iterdir())


def test_no_archive_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match=r"none cannot be unpacked .*No such file"):
        unpack(tmp_path / "none", tmp_path / "here")


# The facts


def test_sums_and_addresses_are_whole() -> None:
    for source in SOURCES.values():
        for download in source.downloads:
            assert re.match(r"https?://[\w.-]+/", download.url)
            assert (download.md5 is None) != (download.about_bytes is None)
            assert re.fullmatch(r"[0-9a-f]{32}", download.md5 or "0" * 32)
            assert download.leaves
        for wanted in source.leaves:
            assert re.fullmatch(r"[0-9a-f]{32}", wanted.md5 or "0" * 32)
    files = [download.file for source in SOURCES.values() for download in source.downloads]
    assert len(set(files)) == len(files)
    assert set(CIFAR10_C_MD5) == set(CIFAR100_C_MD5) == set(CORRUPTIONS)
    assert len(set(CIFAR10_C_MD5.values()) | set(CIFAR100_C_MD5.values())) == 38
    assert len(SOURCES["cifar10_c"].leaves) == len(SOURCES["cifar100_c"].leaves) == 20
    assert len(SOURCES["tiny_imagenet_c"].leaves) == 19


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if source.splits])
def test_the_facts_are_those_of_the_readers(name: str, tmp_path: Path) -> None:
    data = open_dataset(name, tmp_path)
    source = SOURCES[name]
    assert data.image_size == source.image_size
    assert data.splits == tuple(source.splits)
    assert len(data.shifts) == (95 if source.corrupted else 2)
    assert source.corrupted or data.shifts == tuple(source.shifts)
    if name not in ("iwildcam", "tiny_imagenet"):  # which have their classes in files
        assert data.n_classes == source.n_classes


def test_every_reader_has_a_source() -> None:
    assert set(DATASETS) == {name for name, source in SOURCES.items() if source.reads}


# Checking


def write_idx(folder: Path, n_train: int = 60_000) -> None:
    """MNIST with images of one pixel."""
    folder.mkdir()
    for part, n in (("train", n_train), ("t10k", 10_000)):
        labels = (np.arange(n) % 10).astype(np.uint8).tobytes()
        heads = {"images-idx3": b"\0\0\x08\x03" + n.to_bytes(4, "big") + b"\0\0\0\1" * 2}
        heads["labels-idx1"] = b"\0\0\x08\x01" + n.to_bytes(4, "big")
        for kind, head in heads.items():
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + labels, mtime=0))


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that are MNIST's by their sums."""
    write_idx(tmp_path / "mnist")
    known = [
        dataclasses.replace(download, leaves=(Wanted(download.file, md5=md5((tmp_path / download.file).read_bytes())),))
        for download in SOURCES["mnist"].downloads
    ]
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], downloads=tuple(known)))
    return tmp_path


def test_a_good_data_set_passes(mnist: Path) -> None:
    findings = check_data("mnist", mnist)
    assert all(finding.ok for finding in findings)
    assert len(findings) == 4 + 3
    assert [finding.found for finding in findings[4:]] == [55_000, 5_000, 10_000]
    assert is_here("mnist", mnist)


def test_a_changed_file_is_found(mnist: Path) -> None:
    path = mnist / "mnist" / "t10k-labels-idx1-ubyte.gz"
    before = md5(path.read_bytes())
    path.write_bytes(path.read_bytes() + b"\0")
    [bad] = [finding for finding in check_data("mnist", mnist) if not finding.ok]
    assert bad.what == "mnist/t10k-labels-idx1-ubyte.gz"
    assert (bad.found, bad.expected) == (f"MD5 {md5(path.read_bytes())}", f"MD5 {before}")
    path.unlink()
    assert [finding.found for finding in check_data("mnist", mnist) if not finding.ok] == ["missing"]
    assert not is_here("mnist", mnist)


def test_other_rows_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist", n_train=50_000)
    files = [dataclasses.replace(one, leaves=(Wanted(one.file),)) for one in SOURCES["mnist"].downloads]
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], downloads=tuple(files)))
    bad = [finding for finding in check_data("mnist", tmp_path) if not finding.ok]
    assert [(finding.what, finding.found, finding.expected) for finding in bad] == [("train rows", 45_000, 55_000)]
    for file in (tmp_path / "mnist").iterdir():
        file.write_bytes(b"no idx")
    assert [finding.what for finding in check_data("mnist", tmp_path) if not finding.ok] == [
        "train rows",
        "val rows",
        "test rows",
    ]


def test_a_file_of_another_length_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    for wanted in SOURCES["cifar10_c"].leaves:
        (tmp_path / wanted.path).write_bytes(b"short")
    findings = check_data("cifar10_c", tmp_path)
    assert len(findings) == 20
    assert {finding.found for finding in findings} == {"5 bytes"}
    assert not is_here("cifar10_c", tmp_path)


@pytest.mark.parametrize("name", ["digits", "fashion_mnist_mini"])
def test_what_comes_with_the_package_passes(name: str, tmp_path: Path) -> None:
    assert [finding.ok for finding in check_data(name, tmp_path)] == [True] * 3


def save_pictures(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / name)


def test_every_picture_that_is_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a.png", "b.png", "c.png"]
    save_pictures(tmp_path, names)
    split = Split(Pictures.of(tmp_path, names, 8), torch.zeros(3, dtype=torch.int64))
    data = SimpleNamespace(split=lambda _: split)
    monkeypatch.setitem(SOURCES, "digits", Source("none", 2, 8, splits={"train": 3}))
    monkeypatch.setattr(verify, "open_dataset", lambda *_: data)
    assert [(one.what, one.found, one.ok) for one in check_data("digits", tmp_path, deep=True)] == [
        ("train rows", 3, True),
        ("train pictures", 3, True),
    ]
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes()[:40])
    assert all(one.ok for one in check_data("digits", tmp_path))
    [bad] = [one for one in check_data("digits", tmp_path, deep=True) if not one.ok]
    assert (bad.found, bad.expected) == (2, 3)
    assert "b.png cannot be read as a picture" in bad.first
    (tmp_path / "c.png").unlink()
    [bad] = [one for one in check_data("digits", tmp_path) if not one.ok]
    assert (bad.found, bad.first) == (2, f"{tmp_path / 'c.png'} is not there")


def test_the_cells_of_tiny_imagenet_c_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [f"{name}/{severity}" for name in CORRUPTIONS for severity in range(1, 6)]
    place = tmp_path / "Tiny-ImageNet-C"
    save_pictures(place, [f"{cell}/n0{i}/{i}.png" for cell in cells for i in range(2)])
    small = dataclasses.replace(SOURCES["tiny_imagenet_c"], n_classes=2, per_cell=2)
    monkeypatch.setitem(SOURCES, "tiny_imagenet_c", small)
    findings = check_data("tiny_imagenet_c", tmp_path)
    assert [one.ok for one in findings] == [True] * (19 + 19)
    assert findings[-1].found == "10 pictures in 10 folders"
    (place / "frost" / "2" / "n00" / "0.png").write_bytes(b"no picture")
    [bad] = [one for one in check_data("tiny_imagenet_c", tmp_path, deep=True) if not one.ok]
    assert bad.what == "Tiny-ImageNet-C/frost"
    assert "n00/0.png cannot be read" in bad.first
    (place / "frost" / "2" / "n02").mkdir()
    [bad] = [one for one in check_data("tiny_imagenet_c", tmp_path) if not one.ok]
    assert (bad.found, bad.expected) == ("10 pictures in 11 folders", "10 pictures in 10 folders")


def test_a_folder_of_ones_own_is_counted(tmp_path: Path) -> None:
    save_pictures(
        tmp_path, [f"{part}/{kind}/{i}.png" for part in ("train", "test") for kind in "ab" for i in range(10)]
    )
    save_pictures(tmp_path, ["elsewhere/a/0.png"])
    findings = check_data("image_folder", tmp_path, deep=True)
    assert all(one.ok for one in findings)
    assert {one.what: one.found for one in findings if one.what.endswith("rows")} == {
        "train rows": 18,
        "val rows": 2,
        "test rows": 20,
        "elsewhere rows": 1,
    }
    assert is_here("image_folder", tmp_path)
    shutil.rmtree(tmp_path / "train")
    assert not is_here("image_folder", tmp_path)
    assert not all(one.ok for one in check_data("image_folder", tmp_path))
