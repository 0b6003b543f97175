"""Archives good and bad: unpacked whole or not at all, and never outside of their folder."""

import errno
import os
import re
import shutil
import stat
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from calibrant.data.archives import unpack
from calibrant.errors import CorruptFileError, NoDataError, ResourceError
from made.archives import FILES, NOISE, below, member, tar_of, tar_with, zip_link, zip_of
from made.hostile_archives import ARCHIVES

BOTH = pytest.mark.parametrize("content", [tar_of(FILES), zip_of(*FILES.items())], ids=["tar", "zip"])


def write(folder: Path, content: bytes) -> Path:
    path = folder / "archive"
    path.write_bytes(content)
    return path


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


GOOD = {
    "tar": tar_of(FILES, "w:"),
    "tar.gz": tar_of(FILES, "w:gz"),
    "tar.xz": tar_of(FILES, "w:xz"),
    "dot": tar_of({"./" + name: content for name, content in FILES.items()}),
    "no-top": tar_of({name[4:]: content for name, content in FILES.items()}),
    "zip": zip_of(*FILES.items()),
    "zip-folders": zip_of(("set/", b""), ("set/deep/", b""), *FILES.items()),
    "tar-folders": tar_with(member("set", type=tarfile.DIRTYPE), *(member(*file) for file in FILES.items())),
}


@pytest.mark.parametrize("kind", GOOD)
def test_archives_are_unpacked(tmp_path: Path, kind: str) -> None:
    (tmp_path / "new" / ".here.unpacking" / "half").mkdir(parents=True)  # of a process that was killed
    unpack(write(tmp_path, GOOD[kind]), tmp_path / "new" / "here")
    assert below(tmp_path / "new") == {f"here{name[3:]}": content for name, content in FILES.items()}
    assert names(tmp_path / "new") == ["here"]


def test_what_a_tar_says_of_its_members(tmp_path: Path) -> None:
    """A file that is there twice is written as a link to the first; modes and owners do not count."""
    again = member("set/b", type=tarfile.LNKTYPE, linkname="set/a")
    owned = member("set/c", b"two", mode=0o4777, uid=12345, uname="nobody")
    unpack(write(tmp_path, tar_with(member("set/a", b"one"), again, owned)), tmp_path / "here")
    assert below(tmp_path / "here") == {"a": b"one", "b": b"one", "c": b"two"}
    found = (tmp_path / "here" / "c").stat()
    assert not found.st_mode & (stat.S_ISUID | stat.S_IWOTH)
    assert found.st_uid == os.getuid()


def test_what_is_there_is_joined(tmp_path: Path) -> None:
    (tmp_path / "here" / "deep").mkdir(parents=True)
    (tmp_path / "here" / "deep" / "b.txt").write_bytes(b"old")
    (tmp_path / "here" / "deep" / "mine").write_bytes(b"mine")
    unpack(write(tmp_path, tar_of(FILES)), tmp_path / "here")
    assert below(tmp_path / "here") == {"a.bin": NOISE, "deep/b.txt": b"two", "deep/mine": b"mine"}


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
BAD = {
    **{f"tar-{kind}": (tar_with(member("set/good", b"good"), bad), rule) for kind, (bad, rule) in BAD_TARS.items()},
    **{f"zip-{kind}": (zip_of(("set/good", b"x"), bad), rule) for kind, (bad, rule) in BAD_ZIPS.items()},
    "tar.gz-cut": (tar_of(FILES)[:-2000], "cannot be unpacked"),
    "tar-cut": (tar_of(FILES, "w:")[:100_000], "cannot be unpacked"),
    "zip-cut": (zip_of(*FILES.items())[:-2000], "cannot be unpacked"),
    "zip-changed": (zip_of(*FILES.items()).replace(NOISE[:99], NOISE[1:100]), "cannot be unpacked"),
    "html": (b"<html>not found</html>" * 99, "cannot be unpacked"),
    "nothing": (b"", "cannot be unpacked"),
    "tar-empty": (tar_of({}), "it is empty"),
    "zip-empty": (zip_of(), "it is empty"),
}


@pytest.mark.parametrize("kind", [*BAD, "zip-twice"])
def test_bad_archives_leave_nothing(tmp_path: Path, kind: str) -> None:
    if kind == "zip-twice":
        with pytest.warns(UserWarning, match="Duplicate name"):
            content, rule = zip_of(("set/a", b"x"), ("set/a", b"y")), "it has 'set/a' twice"
    else:
        content, rule = BAD[kind]
    (tmp_path / "kept").write_bytes(b"kept")
    path = write(tmp_path, content)
    with pytest.raises(CorruptFileError, match=re.escape(rule)) as caught:
        unpack(path, tmp_path / "here")
    assert str(path) in str(caught.value)
    assert names(tmp_path) == ["archive", "kept"]


READ_SAFELY = {
    "tar of a name not UTF-8",
    "tar of a path of 300 folders",
    "tar setuid of another user",
    "tar in two cases",
    "zip name with NUL",
    "zip that says more",
    "zip of a zip of a zip",
}


@pytest.mark.slow
def test_hostile_archives_are_refused_or_unpacked_in_their_folder(tmp_path: Path) -> None:
    for number, (kind, build) in enumerate(ARCHIVES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = write(folder, build())
        if kind in READ_SAFELY:
            unpack(path, folder / "here")
            assert names(folder) == ["archive", "here"], kind
        else:
            with pytest.raises((CorruptFileError, ResourceError), match=rf"^{re.escape(str(path))}[^\n]*$"):
                unpack(path, folder / "here")
            assert names(folder) == ["archive"], kind
    assert len(names(tmp_path)) == len(ARCHIVES)


@BOTH
def test_an_interrupt_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    def stop(_: float) -> None:
        if any(path.is_file() for path in (tmp_path / ".here.unpacking").rglob("*")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(write(tmp_path, content), tmp_path / "here", stop)
    assert names(tmp_path) == ["archive"]


@BOTH
def test_more_than_the_disk_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    path = write(tmp_path, content)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ResourceError, match=r"archive cannot be unpacked: 300,00\d bytes do not fit in the 1,000"):
        unpack(path, tmp_path / "here")
    assert names(tmp_path) == ["archive"]
    with pytest.raises(NoDataError, match="none cannot be unpacked: there is no such file"):
        unpack(tmp_path / "none", tmp_path / "here")


@BOTH
@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC])
def test_a_disk_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    path = write(tmp_path, content)
    for module in (shutil, tarfile):  # which write the members of a zip file and of a tar file
        monkeypatch.setattr(module, "copyfileobj", fail)
    with pytest.raises(ResourceError) as caught:
        unpack(path, tmp_path / "here")
    assert str(caught.value) == f"{path} cannot be unpacked in {tmp_path / 'here'}: {os.strerror(number)}"
    assert names(tmp_path) == ["archive"]


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
    with pytest.raises(ResourceError, match=r"here/(deep|a\.bin) exists and is not a f"):
        unpack(write(tmp_path, tar_of(FILES)), here)
    assert below(here) == ({"deep": b"mine"} if kind == "file" else {})
    assert not list((tmp_path / "elsewhere").iterdir())
