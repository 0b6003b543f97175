"""Data sets held against the facts: the table of what was published, files, rows and images."""

import gzip
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from calibrant.corruptions.severities import PARAMETERS
from calibrant.data import DATASETS, ImageFiles, Split, open_dataset
from calibrant.data.sources import MD5SUMS, ExpectedFile, published_md5
from calibrant.data.table import CORRUPTED_TESTS, all_infos
from calibrant.data.verify import Finding, check_data, is_here, is_published
from calibrant.errors import CorruptFileError, NoDataError
from calibrant.shifts import SEVERITIES
from made.archives import md5
from made.datasets import idx_bytes
from made.image_files import paint

# The facts


def test_sums_and_addresses_are_whole() -> None:
    infos = all_infos()
    downloads = [download for info in infos.values() for download in info.downloads]
    for download in downloads:
        assert re.match(r"https?://[\w.-]+/", download.url)
        assert (download.md5 is None) != (download.approximate_bytes is None)
        assert download.files
    assert len({download.path for download in downloads}) == len(downloads)
    assert all(re.fullmatch(r"[0-9a-f]{32}  [\w./-]+", line) for line in MD5SUMS.read_text().splitlines())
    files = {one.path.removesuffix(".gz"): one for info in infos.values() for one in info.files}
    assert set(published_md5()) <= {download.path for download in downloads} | set(files)
    assert len(set(published_md5().values())) == len(published_md5()) == 8 + 8 + 7 + 3 + 1 + 2 * 21 + 2
    assert all(one.md5 == published_md5().get(path) for path, one in files.items())
    for name in ("cifar10_c", "cifar100_c"):
        files = CORRUPTED_TESTS[name].files
        assert {Path(one.path).stem for one in files} == {*PARAMETERS, "labels"}
        assert all(one.md5 and one.n_bytes == (50_128 if "labels" in one.path else 153_600_128) for one in files)
    assert {Path(one.path).name for one in CORRUPTED_TESTS["tiny_imagenet_c"].files} == set(PARAMETERS)
    sizes = {one.path.split("/")[1]: one.n_bytes for name in ("cifar10", "cifar100") for one in DATASETS[name].files}
    assert (sizes.pop("train.bin"), sizes.pop("test.bin")) == (153_700_000, 30_740_000)
    assert (len(sizes), set(sizes.values())) == (6, {30_730_000})


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if info.splits])
def test_the_facts_are_those_of_the_readers(name: str, tmp_path: Path) -> None:
    data, info = open_dataset(name, tmp_path), DATASETS[name]
    assert data.name == name
    assert data.image_size == info.image_size
    assert data.splits == tuple(info.splits)
    assert len(data.shifts) == (95 if info.corrupted else 2)
    assert info.corrupted or data.shifts == tuple(info.shifts)
    if name not in ("iwildcam", "tiny_imagenet"):  # which have their classes in files
        assert data.n_classes == info.n_classes


# Files and rows


def write_idx(folder: Path, n_train: int = 60_000) -> None:
    """MNIST with images of one pixel."""
    folder.mkdir()
    for part, n in (("train", n_train), ("t10k", 10_000)):
        labels = np.arange(n) % 10
        for kind, values in (("images-idx3", labels.reshape(n, 1, 1)), ("labels-idx1", labels)):
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx_bytes(values), 1, mtime=0))


def content_md5(path: Path) -> str:
    return md5(gzip.decompress(path.read_bytes()))


def offer_mnist(monkeypatch: pytest.MonkeyPatch, root: Path, *, with_md5: bool) -> None:
    """Makes the files below the root the published ones."""
    downloads = tuple(
        replace(one, files=(ExpectedFile(one.path, md5=content_md5(root / one.path) if with_md5 else None),))
        for one in DATASETS["mnist"].downloads
    )
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], downloads=downloads))


def test_files_and_rows_of_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist")
    offer_mnist(monkeypatch, tmp_path, with_md5=True)
    findings = check_data("mnist", tmp_path)
    assert [finding.ok for finding in findings] == [True] * (4 + 3)
    assert [finding.found for finding in findings[4:]] == [55_000, 5_000, 10_000]
    assert is_here("mnist", tmp_path)
    assert is_published("mnist", tmp_path)
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    before, content = content_md5(path), gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content, 9))  # other bytes of the same content
    assert all(finding.ok for finding in check_data("mnist", tmp_path))
    path.unlink()
    path.with_suffix("").write_bytes(content)
    assert [finding.what for finding in check_data("mnist", tmp_path)][3] == "mnist/t10k-labels-idx1-ubyte"
    assert is_published("mnist", tmp_path)
    path.with_suffix("").write_bytes(content[:8] + content[:7:-1])  # the rows in another order
    [bad] = [finding for finding in check_data("mnist", tmp_path) if not finding.ok]
    assert bad.what == "mnist/t10k-labels-idx1-ubyte"
    assert (bad.found, bad.expected) == (f"MD5 {md5(content[:8] + content[:7:-1])}", f"MD5 {before}")
    assert "not the published bytes: rows in another order make other splits" in str(bad.error("mnist"))
    assert is_published("mnist", tmp_path) is False
    path.write_bytes(gzip.compress(content)[:-9])
    [bad] = [finding for finding in check_data("mnist", tmp_path) if not finding.ok]
    assert str(bad.found).startswith("cannot be read: ")
    path.unlink()
    path.with_suffix("").unlink()
    assert [finding.found for finding in check_data("mnist", tmp_path) if not finding.ok] == ["missing"]
    assert not is_here("mnist", tmp_path)
    assert is_published("mnist", tmp_path) is None
    assert is_published("digits", tmp_path)  # which comes with the package
    assert is_published("image_folder", tmp_path) is None


def test_other_rows_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist", n_train=50_000)
    offer_mnist(monkeypatch, tmp_path, with_md5=False)
    [bad] = [finding for finding in check_data("mnist", tmp_path) if not finding.ok]
    assert (bad.what, bad.found, bad.expected) == ("train rows", 45_000, 55_000)
    for file in (tmp_path / "mnist").iterdir():
        file.write_bytes(b"no idx")
    bad = [finding.what for finding in check_data("mnist", tmp_path) if not finding.ok]
    assert bad == ["train rows", "val rows", "test rows"]


def test_files_of_another_length_and_none_at_all(tmp_path: Path) -> None:
    (tmp_path / "CIFAR-10-C").mkdir()
    for wanted in CORRUPTED_TESTS["cifar10_c"].files:
        (tmp_path / wanted.path).write_bytes(b"short")
    findings = check_data("cifar10_c", tmp_path)
    assert len(findings) == 20
    assert {finding.found for finding in findings} == {"5 bytes"}
    assert not is_here("cifar10_c", tmp_path)
    for name in ("digits", "fashion_mnist_mini"):  # which come with the package
        assert [finding.ok for finding in check_data(name, tmp_path)] == [True] * 3


def test_a_finding_says_what_is_wrong_in_one_line() -> None:
    missing = Finding("a.bin", "missing", "5 bytes", False).error("mnist")
    assert isinstance(missing, NoDataError)
    assert str(missing) == "mnist is not complete: a.bin is missing; run calibrant data fetch mnist"
    wrong = Finding("train rows", 45_000, 55_000, False, "x.png is not there").error("mnist")
    assert isinstance(wrong, CorruptFileError)
    assert str(wrong) == "mnist is not as published: train rows: 45,000, expected 55,000; x.png is not there"
    assert str(Finding("splits", "no folder", None, False).error("mnist")).endswith("splits: no folder")


# ImageFiles


def test_every_image_that_is_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a.png", "b.png", "c.png"]
    for name in names:
        paint(tmp_path / name, (0, 0, 0), side=8)
    split = Split(ImageFiles.of(tmp_path, names, 8), torch.zeros(3, dtype=torch.int64))
    opened = SimpleNamespace(split=lambda _: split)
    info = replace(DATASETS["digits"], opens=lambda *_, **__: opened, splits={"train": 3})  # type: ignore[arg-type]
    monkeypatch.setitem(DATASETS, "digits", info)
    assert [(one.what, one.found, one.ok) for one in check_data("digits", tmp_path, deep=True)] == [
        ("train rows", 3, True),
        ("train images", 3, True),
    ]
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes()[:40])
    assert all(one.ok for one in check_data("digits", tmp_path))
    [bad] = [one for one in check_data("digits", tmp_path, deep=True) if not one.ok]
    assert (bad.found, bad.expected) == (2, 3)
    assert "b.png cannot be read as an image" in bad.first
    (tmp_path / "c.png").unlink()
    [bad] = [one for one in check_data("digits", tmp_path) if not one.ok]
    assert (bad.found, bad.first) == (2, f"{tmp_path / 'c.png'} is not there")


def test_the_cells_of_tiny_imagenet_c_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "Tiny-ImageNet-C"
    for cell in [f"{name}/{severity}" for name in PARAMETERS for severity in SEVERITIES]:
        for i in range(2):
            paint(place / f"{cell}/n0{i}/{i}.png", (0, 0, 0), side=8)
    small = replace(CORRUPTED_TESTS["tiny_imagenet_c"], n_classes=2, n_per_shift=2)
    monkeypatch.setitem(CORRUPTED_TESTS, "tiny_imagenet_c", small)
    findings = check_data("tiny_imagenet_c", tmp_path)
    assert [one.ok for one in findings] == [True] * (19 + 19)
    assert findings[-1].found == "10 images in 10 folders"
    (place / "frost" / "2" / "n00" / "9.png").write_bytes(b"no image")  # beside as many good ones as there should be
    [bad] = [one for one in check_data("tiny_imagenet_c", tmp_path, deep=True) if not one.ok]
    assert bad.what == "Tiny-ImageNet-C/frost"
    assert "n00/9.png cannot be read" in bad.first
    (place / "frost" / "2" / "n02").mkdir()
    [bad] = [one for one in check_data("tiny_imagenet_c", tmp_path) if not one.ok]
    assert (bad.found, bad.expected) == ("11 images in 11 folders", "10 images in 10 folders")


def test_a_folder_of_ones_own_is_counted(tmp_path: Path) -> None:
    for name in [f"{part}/{kind}/{i}" for part in ("train", "test") for kind in "ab" for i in range(10)]:
        paint(tmp_path / f"{name}.png", (0, 0, 0), side=8)
    paint(tmp_path / "elsewhere/a/0.png", (0, 0, 0), side=8)
    findings = check_data("image_folder", tmp_path, deep=True)
    assert all(one.ok for one in findings)
    rows = {one.what.removesuffix(" rows"): one.found for one in findings if one.what.endswith("rows")}
    assert rows == {"train": 18, "val": 2, "test": 20, "elsewhere": 1}
    assert is_here("image_folder", tmp_path)
    shutil.rmtree(tmp_path / "train")
    assert not is_here("image_folder", tmp_path)
    assert not all(one.ok for one in check_data("image_folder", tmp_path))
