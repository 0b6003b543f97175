"""Archives made in memory, and what files stand below a folder."""

import hashlib
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import numpy as np

NOISE = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()  # which does not compress
FILES = {"set/a.bin": NOISE, "set/deep/b.txt": b"two"}
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


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    return tar_with(*(member(name, content) for name, content in files.items()), mode=mode)


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


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()
