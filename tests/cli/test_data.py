"""`calibrant data`: list, fetch, check and where, as text and as JSON."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from calibrant.data import DATASETS
from calibrant.data.sources import Download, ExpectedFile
from calibrant.data.table import all_infos
from made.cli import Ran, Run

CONTENT = b"bundle"


@pytest.fixture
def calibrant(calibrant: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return calibrant


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two files that lie ready and leave an archive's place empty: of one the MD5 is known, of the other the size."""
    (tmp_path / "data" / "sets").mkdir(parents=True)
    for name, known in (("mnist", {"md5": hashlib.md5(CONTENT).hexdigest()}), ("fmow", {"approximate_bytes": 6})):
        (tmp_path / "data" / "sets" / name).write_bytes(CONTENT)
        files = (ExpectedFile(f"sets/{name}", md5=known.get("md5")), ExpectedFile(f"sets/{name}.sha256"))  # type: ignore[arg-type]
        download = Download(f"http://127.0.0.1:9/{name}", f"sets/{name}", files, **known)  # type: ignore[arg-type]
        monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], downloads=(download,)))


def line_of(ran: Ran, name: str) -> list[str]:
    [line] = [line.split() for line in ran.out.splitlines() if line.split()[:1] == [name]]
    return line


def test_list_names_every_data_set(calibrant: Run, tmp_path: Path) -> None:
    ran = calibrant("data", "list")
    ran.done()
    for name in all_infos():
        assert line_of(ran, name)[-1] == ("yes" if name in ("digits", "fashion_mnist_mini") else "no")
    assert "train 45,000, val 5,000, test 10,000 19 x 5 corrupted" in " ".join(line_of(ran, "cifar10"))
    assert "val 34,904, test 85,054 CC0 2 96" in " ".join(line_of(ran, "camelyon17"))
    (tmp_path / "data" / "train").mkdir(parents=True)
    assert line_of(calibrant("data", "list"), "image_folder")[-1] == "yes"
    assert line_of(calibrant("data", "list", "--root", tmp_path), "image_folder")[-1] == "no"
    assert max(map(len, calibrant("data", "list", width=80).done().splitlines())) <= 80
    records = {record["name"]: record for record in calibrant("data", "list", "--json").record}
    assert set(records) == set(all_infos())
    assert records["cifar10"] == {
        "name": "cifar10",
        "n_classes": 10,
        "image_size": 32,
        "splits": {"train": 45_000, "val": 5_000, "test": 10_000},
        "shifts": {},
        "corrupted": True,
        "licence": "none stated",
        "urls": ["https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"],
        "here": False,
    }


def test_where_says_why(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calibrant("data", "where").done() == "data (default; it does not exist)\n"
    (tmp_path / "data").mkdir()
    assert calibrant("data", "where").done() == "data (default; it exists)\n"
    monkeypatch.setenv("CALIBRANT_DATA", "elsewhere")
    assert calibrant("data", "where").done() == "elsewhere (from CALIBRANT_DATA; it does not exist)\n"
    assert calibrant("data", "where", "--root", tmp_path).done() == f"{tmp_path} (from --root; it exists)\n"
    record = calibrant("data", "where", "--json").record
    assert record == {"root": "elsewhere", "from": "CALIBRANT_DATA", "exists": False}


@pytest.mark.usefixtures("offered")
def test_fetch_says_what_came_and_whether_it_is_verified(calibrant: Run, tmp_path: Path) -> None:
    place = tmp_path / "data" / "sets"
    assert calibrant("data", "fetch", "mnist").done().splitlines() == [
        "mnist: 6 bytes, MD5 as published",
        "mnist is now in data/sets; licence: CC BY-SA 3.0",
    ]
    (place / "mnist.sha256").touch()
    assert calibrant("data", "fetch", "mnist").done() == "mnist is already in data/sets; licence: CC BY-SA 3.0\n"
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    [line, _] = calibrant("data", "fetch", "fmow").done().splitlines()
    assert line == f"fmow: 6 bytes, NOT verified: no checksum was published; its SHA-256 is {sha256}"
    assert sha256 in (place / "fmow.sha256").read_text()
    assert calibrant("data", "fetch", "digits").done() == "digits comes with the package: there is nothing to fetch\n"
    (place / "mnist").unlink()
    calibrant("data", "fetch", "mnist").refused("http://127.0.0.1:9/mnist cannot be fetched")


@pytest.mark.usefixtures("offered")
def test_check_names_other_bytes_of_the_right_size(calibrant: Run, tmp_path: Path) -> None:
    place = tmp_path / "data" / "sets"
    (place / "mnist.sha256").touch()
    assert line_of(calibrant("data", "check", "mnist"), "sets/mnist") == ["sets/mnist", *2 * ["as", "published"], "yes"]
    assert line_of(calibrant("data", "check", "mnist"), "sets/mnist.sha256")[1:] == [
        "there,",
        "not",
        "verified",
        "–",
        "–",
    ]
    (place / "mnist").write_bytes(CONTENT[::-1])
    ran = calibrant("data", "check", "mnist")
    assert line_of(ran, "sets/mnist") == ["sets/mnist", "other", "bytes", "as", "published", "NO"]
    assert "not the published bytes: rows in another order make other splits" in ran.err


def test_check_shows_what_was_found_and_expected(calibrant: Run, tmp_path: Path) -> None:
    ran = calibrant("data", "check", "digits")
    ran.done()
    assert line_of(ran, "test") == ["test", "rows", "600", "600", "yes"]
    (tmp_path / "data" / "cifar-100-binary").mkdir(parents=True)
    (tmp_path / "data" / "cifar-100-binary" / "train.bin").write_bytes(b"short")
    for ran in (calibrant("data", "check", "cifar100"), calibrant("data", "check", "cifar100", "--json")):
        assert ran.code == 2
        expected = "153,700,000 bytes, MD5 6172c7755cfe09b2fe270c85cebc1b15"
        line = f"cifar-100-binary/train.bin: 5 bytes, expected {expected}"
        assert ran.err == f"calibrant: cifar100 is not as published: {line}\n"
    record = json.loads(ran.out)
    assert (record["name"], record["root"], record["ok"]) == ("cifar100", "data", False)
    assert record["findings"][1] == {
        "what": "cifar-100-binary/test.bin",
        "found": "missing",
        "expected": "30,740,000 bytes, MD5 4499cfba6c016c1be1438163640a0898",
        "ok": False,
        "first": "",
    }
