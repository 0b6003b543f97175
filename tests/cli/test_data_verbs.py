"""`calibrant data`: list, fetch, check and where, as text and as JSON."""

import dataclasses
import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.data.sources import SOURCES, Download, Source, Wanted
from made.cli import Ran, Run, in_this_process


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.chdir(tmp_path)
    return in_this_process(monkeypatch, capsys)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a server of the folder shelf."""
    (tmp_path / "shelf").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "shelf")))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def line_of(ran: Ran, name: str) -> list[str]:
    [line] = [line.split() for line in ran.out.splitlines() if line.split()[:1] == [name]]
    return line


def idx(values: np.ndarray) -> bytes:
    shape = b"".join(n.to_bytes(4, "big") for n in values.shape)
    return gzip.compress(b"\0\0\x08" + bytes([values.ndim]) + shape + values.tobytes(), mtime=0)


def put_on_the_shelf(tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch, **known: object) -> None:
    """MNIST, all sizes official, with images of one pixel; its first file may be known otherwise."""
    entries = []
    for part, n in (("train", 60_000), ("t10k", 10_000)):
        labels = (np.arange(n) % 10).astype(np.uint8)
        for kind, values in (("images-idx3", labels[:, None, None]), ("labels-idx1", labels)):
            name = f"{part}-{kind}-ubyte.gz"
            (tmp_path / "shelf" / name).write_bytes(idx(values))
            md5 = hashlib.md5(idx(values)).hexdigest()
            entries.append(Download(f"{served}/{name}", f"mnist/{name}", (Wanted(f"mnist/{name}", md5=md5),), md5=md5))
    entries[0] = dataclasses.replace(entries[0], **known)  # type: ignore[arg-type]
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], downloads=tuple(entries)))


def test_list_names_every_data_set(calibrant: Run, tmp_path: Path) -> None:
    ran = calibrant("data", "list")
    ran.done()
    for name in SOURCES:
        assert line_of(ran, name)[-1] == ("yes" if name in ("digits", "fashion_mnist_mini") else "no")
    assert "train 45,000, val 5,000, test 10,000" in " ".join(line_of(ran, "cifar10"))
    assert "val 34,904, test 85,054 CC0 2 96" in " ".join(line_of(ran, "camelyon17"))
    (tmp_path / "data" / "train").mkdir(parents=True)
    assert line_of(calibrant("data", "list"), "image_folder")[-1] == "yes"
    assert line_of(calibrant("data", "list", "--root", tmp_path), "image_folder")[-1] == "no"


def test_list_on_a_narrow_terminal_cuts_nothing(calibrant: Run) -> None:
    out = calibrant("data", "list", width=80).done()
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_list_as_json(calibrant: Run) -> None:
    records = {record["name"]: record for record in calibrant("data", "list", "--json").record}
    assert set(records) == set(SOURCES)
    cifar = records["cifar10"]
    assert cifar["splits"] == {"train": 45_000, "val": 5_000, "test": 10_000}
    assert (cifar["n_classes"], cifar["image_size"], cifar["corrupted"], cifar["here"]) == (10, 32, True, False)
    assert cifar["urls"] == ["https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"]
    assert records["fmow"]["shifts"] == {"val": 19_915, "test": 22_108}


def test_where_says_why(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calibrant("data", "where").done() == "data (default; it does not exist)\n"
    (tmp_path / "data").mkdir()
    assert calibrant("data", "where").done() == "data (default; it exists)\n"
    monkeypatch.setenv("CALIBRANT_DATA", "elsewhere")
    assert calibrant("data", "where").done() == "elsewhere (from CALIBRANT_DATA; it does not exist)\n"
    assert calibrant("data", "where", "--root", tmp_path).done() == f"{tmp_path} (from --root; it exists)\n"
    assert calibrant("data", "where", "--json").record == {
        "root": "elsewhere",
        "from": "CALIBRANT_DATA",
        "exists": False,
    }


def test_fetch_then_check(calibrant: Run, tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_the_shelf(tmp_path, served, monkeypatch)
    lines = calibrant("data", "fetch", "mnist").done().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("train-images-idx3-ubyte.gz: ")
    assert lines[0].endswith(" bytes, MD5 as published")
    assert lines[-1] == "mnist is now in data/mnist; licence: CC BY-SA 3.0"
    assert calibrant("data", "fetch", "mnist").done() == "mnist is already in data/mnist; licence: CC BY-SA 3.0\n"
    assert line_of(calibrant("data", "list"), "mnist")[-1] == "yes"
    ran = calibrant("data", "check", "mnist")
    ran.done()
    assert line_of(ran, "train") == ["train", "rows", "55,000", "55,000", "yes"]
    record = calibrant("data", "check", "mnist", "--json").record
    assert (record["name"], record["root"], record["ok"], len(record["findings"])) == ("mnist", "data", True, 7)
    assert record["findings"][5] == {"what": "val rows", "found": 5000, "expected": 5000, "ok": True, "first": ""}


def test_check_of_a_changed_file(calibrant: Run, tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_the_shelf(tmp_path, served, monkeypatch)
    calibrant("data", "fetch", "mnist").done()
    path = tmp_path / "data" / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    found = hashlib.md5(path.read_bytes()).hexdigest()
    for ran in (calibrant("data", "check", "mnist"), calibrant("data", "check", "mnist", "--json")):
        assert ran.code == 2
        assert f"mnist/t10k-images-idx3-ubyte.gz: MD5 {found}, expected MD5 " in ran.err
        assert len(ran.err.strip().splitlines()) == 1
    record = json.loads(ran.out)
    assert record["ok"] is False
    assert [finding["ok"] for finding in record["findings"]] == [True, True, False, True]


def test_check_of_what_is_not_there(calibrant: Run) -> None:
    ran = calibrant("data", "check", "cifar100")
    assert ran.code == 2
    assert line_of(ran, "cifar-100-binary/train.bin")[1:] == ["missing", "153,700,000", "bytes", "NO"]
    assert "cifar-100-binary/train.bin is missing; calibrant data fetch cifar100 brings it" in ran.err


def test_check_of_what_needs_nothing(calibrant: Run) -> None:
    ran = calibrant("data", "check", "digits")
    ran.done()
    assert line_of(ran, "test") == ["test", "rows", "600", "600", "yes"]
    assert calibrant("data", "fetch", "digits").done() == "digits comes with the package: there is nothing to fetch\n"


def test_deep_decodes_every_picture(calibrant: Run, tmp_path: Path) -> None:
    for kind in "ab":
        (tmp_path / "mine" / "train" / kind).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (16, 16)).save(tmp_path / "mine" / "train" / kind / f"{i}.png")
    nothing = calibrant("data", "check", "image_folder")
    assert nothing.code == 2
    assert nothing.err.endswith("put pictures in train/<class>/ there\n")
    bad = tmp_path / "mine" / "train" / "a" / "3.png"
    bad.write_bytes(bad.read_bytes()[:50])
    calibrant("data", "check", "image_folder", "--root", "mine").done()
    ran = calibrant("data", "check", "image_folder", "--root", "mine", "--deep")
    assert ran.code == 2
    assert "pictures: 17, expected 18; mine/train/a/3.png cannot be read as a picture" in ran.err


def test_what_could_not_be_verified_is_said(
    calibrant: Run, tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shelf" / "x").write_bytes(b"bundle")
    entry = Download(f"{served}/x", "fmow_v1.1/x", (Wanted("fmow_v1.1/x"),), about_bytes=6)
    monkeypatch.setitem(SOURCES, "fmow", Source("theirs", 62, 224, (entry,)))
    out = calibrant("data", "fetch", "fmow").done()
    assert "x: 6 bytes, NOT verified: no sum was published for it" in out
    assert hashlib.sha256(b"bundle").hexdigest() in out
    assert hashlib.sha256(b"bundle").hexdigest() in (tmp_path / "data" / "fmow_v1.1" / "x.sha256").read_text()


def test_failures_are_one_line(calibrant: Run, tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_the_shelf(tmp_path, served, monkeypatch, md5="0" * 32)
    calibrant("data", "fetch", "mnist").refused(f"the published file {'0' * 32}")
    put_on_the_shelf(tmp_path, served, monkeypatch, url="http://127.0.0.1:9/x.gz")
    calibrant("data", "fetch", "mnist").refused("http://127.0.0.1:9/x.gz cannot be fetched")
    calibrant("data", "fetch", "mnist").refused("put the file by hand as data/mnist/train-images-idx3-ubyte.gz")
    calibrant("data", "fetch", "image_folder").refused("a folder of your own")
    calibrant("data", "fetch", "cifar-10").refused("unknown data 'cifar-10'; did you mean 'cifar10'?")
    calibrant("data", "check", "cifar-10").refused("did you mean 'cifar10'?")
    calibrant("data", "fetch").refused("NAME")


def test_help_names_the_verbs(calibrant: Run) -> None:
    out = calibrant("data", "--help").done()
    for verb in ("list", "fetch", "check", "where"):
        assert verb in out
    assert "--keep" in calibrant("data", "fetch", "--help").done()
