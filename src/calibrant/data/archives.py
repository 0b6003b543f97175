"""Archives, unpacked completely or not at all; one that is damaged or has members outside of its folder is refused."""

import errno
import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from calibrant._files import make_folder
from calibrant._paths import first_line
from calibrant._progress import Advance
from calibrant.errors import CalibrantError, CorruptFileError, NoDataError, ResourceError

ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
MAX_RATIO, MIN_BOMB = 100, 2**30  # a larger archive of more than 100 times its size is no data set
MAX_HEADER = 2**20  # bytes of a long name or of extended headers, which tarfile holds in memory
HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
DISK_ERRORS = (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
ARCHIVE_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
)


def unpack(path: str | os.PathLike[str], folder: str | os.PathLike[str], advance: Advance = lambda _done: None) -> None:
    """Unpack a zip file or a tar file, compressed or not, into a folder, which may contain files already.

    An archive of a single folder is unpacked as the contents of that folder. Everything is written to a temporary
    folder and then renamed: an interrupt leaves nothing. Only one process may unpack into a folder at a time.

    Raises:
        NoDataError: there is no such archive.
        CorruptFileError: it is damaged, or has a member that is neither file nor folder, occurs twice or lies outside.
        ResourceError: the folder cannot be written.
    """
    path, folder = Path(path), Path(folder).resolve()
    if not path.is_file():
        raise NoDataError(f"{path} cannot be unpacked: there is no such file")
    make_folder(folder.parent)
    temporary = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
    try:
        temporary.mkdir()
        with path.open("rb") as file:
            is_zip = file.read(4) in ZIP_MAGIC  # zipfile.is_zipfile is true of a tar file that ends with a zip file
        (_unzip if is_zip else _untar)(path, temporary, advance)
        top = list(temporary.iterdir())
        if not top:
            raise CorruptFileError(f"{path} is refused: it is empty")
        source = top[0] if len(top) == 1 and top[0].is_dir() else temporary
        _check_target(path, source, folder)
        _move(source, folder)
    except CalibrantError:
        raise
    except ARCHIVE_ERRORS as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise ResourceError(f"{path} cannot be unpacked in {folder}: {error.strerror}") from None
        raise CorruptFileError(f"{path} cannot be unpacked: {first_line(error)}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class _Member(tarfile.TarInfo):
    """A member whose headers are small; others are refused before they are read."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in HEADERS and self.size > MAX_HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def _untar(path: Path, folder: Path, advance: Advance) -> None:
    n_read = n_bytes = 0
    with (
        path.open("rb") as file,
        _checked(file) as content,
        tarfile.open(fileobj=content, mode="r|*", tarinfo=_Member) as archive,
    ):
        while (member := archive.next()) is not None:
            target = _target(path, folder, member.name)
            if member.islnk():  # tar writes the second occurrence of a file as a link
                if not _target(path, folder, member.linkname).is_file():
                    raise CorruptFileError(f"{path} is refused: {member.name!r} is a link to {member.linkname!r}")
            elif not (member.isfile() or member.isdir()):
                kind = "a symbolic link" if member.issym() else "a device or a pipe"
                raise CorruptFileError(f"{path} is refused: {member.name!r} is {kind}")
            _check_new(path, target, member.name, member.isdir())
            n_bytes += member.size
            _check_space(path, folder, member.size, n_bytes)
            archive.extract(member, folder, filter="data")
            archive.members.clear()  # type: ignore[attr-defined]  # half a million would take half a gigabyte
            advance(file.tell() - n_read)
            n_read = file.tell()
        while len(rest := content.read(2**20)) == 2**20:  # the checksum is at the end
            n_bytes += len(rest)
            _check_space(path, folder, 0, n_bytes)
    advance(path.stat().st_size - n_read)


def _checked(file: BinaryIO) -> BinaryIO:
    """The file, unpacked if it is a gzip file: tarfile does not compare the checksum of one."""
    is_gzip = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if is_gzip else file


def _unzip(path: Path, folder: Path, advance: Advance) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            _target(path, folder, member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                what = "a symbolic link" if kind == stat.S_IFLNK else "a device or a pipe"
                raise CorruptFileError(f"{path} is refused: {member.filename!r} is {what}")
        n_bytes = sum(member.file_size for member in members)
        _check_space(path, folder, n_bytes, n_bytes)
        for member in members:
            target = _target(path, folder, member.filename)
            _check_new(path, target, member.filename, member.is_dir())
            (target if member.is_dir() else target.parent).mkdir(parents=True, exist_ok=True)
            if not member.is_dir():
                with archive.open(member) as source, target.open("xb") as file:
                    shutil.copyfileobj(source, file)
            advance(member.compress_size)


def _target(path: Path, folder: Path, name: str) -> Path:
    """The path of a member, which must be below the folder; links, which could lead elsewhere, are never made."""
    parts = PurePosixPath(name).parts
    if ".." in parts or name.startswith("/") or "\\" in name or name[1:2] == ":":
        raise CorruptFileError(f"{path} is refused: {name!r} lies outside of the folder it is unpacked in")
    return folder.joinpath(*parts)


def _check_new(path: Path, target: Path, name: str, is_folder: bool) -> None:
    if target.exists() and not (is_folder and target.is_dir()):
        raise CorruptFileError(f"{path} is refused: it has {name!r} twice")


def _check_space(path: Path, folder: Path, n_bytes: int, total: int) -> None:
    """Whether the next bytes fit, and whether all so far can be the content of this archive."""
    if total > max(MIN_BOMB, MAX_RATIO * path.stat().st_size):
        raise CorruptFileError(f"{path} is refused: {total:,} bytes are more than {MAX_RATIO} times its own size")
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise ResourceError(f"{path} cannot be unpacked: {n_bytes:,} bytes do not fit in the {free:,} that are free")


def _check_target(path: Path, source: Path, target: Path) -> None:
    if not os.path.lexists(target):
        return
    if target.is_symlink() or source.is_dir() != target.is_dir() or source.is_file() != target.is_file():
        kind = "folder" if source.is_dir() else "file"
        raise ResourceError(f"{path} cannot be unpacked: {target} exists and is not a {kind}")
    if source.is_dir():
        for child in source.iterdir():
            _check_target(path, child, target / child.name)


def _move(source: Path, target: Path) -> None:
    if source.is_dir() and target.is_dir():
        for child in source.iterdir():
            _move(child, target / child.name)
    else:
        source.replace(target)
