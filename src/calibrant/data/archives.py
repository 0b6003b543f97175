"""Archives unpacked whole or not at all: of one that is damaged, or reaches out of its folder, nothing stays."""

import errno
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from calibrant._files import first_line, make_folder
from calibrant._progress import Advance
from calibrant.errors import CalibrantError, CorruptFileError, NoDataError

ZIP_HEADS = (b"PK\x03\x04", b"PK\x05\x06")
OF_THE_DISK = (errno.ENOENT, errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, OSError, ValueError, RuntimeError)


def unpack(path: str | os.PathLike[str], folder: str | os.PathLike[str], advance: Advance = lambda _done: None) -> None:
    """Unpack a zip file, or a tar file, compressed or not, into a folder, which may have files already.

    An archive of one folder is taken for its contents. All is written beside the folder first and then renamed, so that
    an interrupted work leaves nothing. One process at a time.

    Raises: CorruptFileError for a damaged archive, or one with a member that is neither file nor folder, is there
        twice or lies outside; NoDataError where the disk is too small.
    """
    path, folder = Path(path), Path(folder).resolve()
    make_folder(folder.parent)
    beside = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(beside, ignore_errors=True)  # of a process that was killed
    try:
        beside.mkdir()
        with path.open("rb") as file:
            is_zip = file.read(4) in ZIP_HEADS  # by its head: a tar file may well end with a zip file
        (_unzip if is_zip else _untar)(path, beside, advance)
        _place(path, beside, folder)
    except CalibrantError:
        raise
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno in OF_THE_DISK:
            raise NoDataError(f"{path} cannot be unpacked in {folder}: {error.strerror}") from None
        raise CorruptFileError(f"{path} cannot be unpacked: {first_line(error)}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _untar(path: Path, folder: Path, advance: Advance) -> None:
    with (
        path.open("rb") as file,
        tarfile.open(fileobj=_Watched(file, advance), mode="r|*") as archive,  # type: ignore[call-overload]
    ):
        while (member := archive.next()) is not None:
            target = _target(path, folder, member.name)
            if member.islnk():  # how tar writes a file that it has written already
                if not _target(path, folder, member.linkname).is_file():
                    raise CorruptFileError(f"{path} is refused: {member.name!r} is a link to {member.linkname!r}")
            elif not (member.isfile() or member.isdir()):
                kind = "a symbolic link" if member.issym() else "a device or a pipe"
                raise CorruptFileError(f"{path} is refused: {member.name!r} is {kind}")
            _check_new(path, target, member.name, member.isdir())
            _check_space(path, folder, member.size)
            archive.extract(member, folder, filter="data")
            archive.members.clear()  # half a million of them would take half a gigabyte


def _unzip(path: Path, folder: Path, advance: Advance) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            _target(path, folder, member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                what = "a symbolic link" if kind == stat.S_IFLNK else "a device or a pipe"
                raise CorruptFileError(f"{path} is refused: {member.filename!r} is {what}")
        _check_space(path, folder, sum(member.file_size for member in members))
        for member in members:
            target = _target(path, folder, member.filename)
            _check_new(path, target, member.filename, member.is_dir())
            (target if member.is_dir() else target.parent).mkdir(parents=True, exist_ok=True)
            if not member.is_dir():
                with archive.open(member) as source, target.open("xb") as file:
                    shutil.copyfileobj(source, file)
            advance(member.compress_size)


def _target(path: Path, folder: Path, name: str) -> Path:
    """Where a member goes, which must be below the folder; no link is ever made there that would lead elsewhere."""
    parts = PurePosixPath(name).parts
    if ".." in parts or name.startswith("/") or "\\" in name or name[1:2] == ":":
        raise CorruptFileError(f"{path} is refused: {name!r} lies outside of the folder it is unpacked in")
    return folder.joinpath(*parts)


def _check_new(path: Path, target: Path, name: str, is_folder: bool) -> None:
    if target.exists() and not (is_folder and target.is_dir()):
        raise CorruptFileError(f"{path} is refused: it has {name!r} twice")


def _check_space(path: Path, folder: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise NoDataError(f"{path} cannot be unpacked: {n_bytes:,} bytes do not fit in the {free:,} that are free")


def _place(path: Path, beside: Path, folder: Path) -> None:
    """Rename what was unpacked into place, once nothing else stands there."""
    top = list(beside.iterdir())
    if not top:
        raise CorruptFileError(f"{path} is refused: it is empty")
    source = top[0] if len(top) == 1 and top[0].is_dir() else beside
    _check_place(path, source, folder)
    _move(source, folder)


def _check_place(path: Path, source: Path, target: Path) -> None:
    if not os.path.lexists(target):
        return
    if target.is_symlink() or source.is_dir() != target.is_dir() or source.is_file() != target.is_file():
        kind = "folder" if source.is_dir() else "file"
        raise NoDataError(f"{path} cannot be unpacked: {target} is there already, and not a {kind}")
    if source.is_dir():
        for child in source.iterdir():
            _check_place(path, child, target / child.name)


def _move(source: Path, target: Path) -> None:
    if source.is_dir() and target.is_dir():
        for child in source.iterdir():
            _move(child, target / child.name)
    else:
        source.replace(target)


class _Watched:
    """A file that tells what is read of it."""

    def __init__(self, file: BinaryIO, advance: Advance) -> None:
        self.file, self.advance = file, advance

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.advance(len(data))
        return data
