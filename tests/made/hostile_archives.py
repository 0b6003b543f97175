"""Sixty archives that are damaged, lie about their sizes, or would write outside of their folder."""

import gzip
import io
import stat
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

from made.archives import FILES, NOISE, member, tar_of, tar_with, zip_link, zip_of

OK = member("set/good", b"good")
HUGE = 2**60


def tar(name: str = "set/bad", content: bytes = b"x", *, mode: str = "w:gz", **fields: Any) -> bytes:
    return tar_with(OK, member(name, content, **fields), mode=mode)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> bytes:
    return tar(name, b"", type=kind, linkname=target)


def through_link() -> bytes:
    """A link to the folder above, and a file below the link."""
    return tar_with(member("set/up", type=tarfile.SYMTYPE, linkname="../.."), member("set/up/evil", b"x"))


def pax(headers: dict[str, str]) -> bytes:
    return tar("set/bad", pax_headers=headers)


def big_header(kind: bytes, mode: str = "w:gz") -> bytes:
    """A tar whose header of names takes 64 MB."""
    return tar_with(OK, member("x", bytes(64 << 20), type=kind), member("y", b"y"), mode=mode)


def says(size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A tar whose member says that it is this long, and is not."""
    info = tarfile.TarInfo("set/bad")
    info.size, info.type = size, kind
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(10 << 10))


def sparse() -> bytes:
    """A sparse file of 2^40 bytes with no data."""
    headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0", "GNU.sparse.size": str(2**40)}
    return tar("set/bad", b"", pax_headers=headers)


def patched(content: bytes, *changes: tuple[bytes, int, bytes]) -> bytes:
    """The bytes with others at this distance from the last occurrence of a marker."""
    changed = bytearray(content)
    for marker, at, value in changes:
        start = content.rindex(marker) + at
        changed[start : start + len(value)] = value
    return bytes(changed)


def one_zip(content: bytes = b"x" * 1000, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("set/good", content)
    return file.getvalue()


CENTRAL, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"


def overlapping(n_members: int) -> bytes:
    """Members that all are the same ten megabytes of zeros."""
    content = one_zip(bytes(10 << 20))
    start, end = content.index(CENTRAL), content.rindex(END)
    entry = content[start:end]
    entries = b"".join(entry.replace(b"good", b"%04d" % number) for number in range(n_members))
    tail = patched(content[end:], (END, 8, struct.pack("<HHII", n_members, n_members, len(entries), start)))
    return content[:start] + entries + tail


def zip_entry(name: str, mode: int) -> bytes:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return zip_of(("set/good", b"x"), (info, b"x"))


def zip_twice() -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return zip_of(("set/a", b"x"), ("set/a", b"y"))


def zip64_lie() -> bytes:
    """The sizes of a zip64 extra field of 2^60 bytes."""
    content = one_zip()
    start, end = content.index(CENTRAL), content.rindex(END)
    extra = struct.pack("<HHQQ", 1, 16, HUGE, HUGE)
    entry = (
        patched(content[start:end], (CENTRAL, 20, b"\xff" * 8), (CENTRAL, 30, struct.pack("<H", len(extra)))) + extra
    )
    return content[:start] + entry + patched(content[end:], (END, 12, struct.pack("<I", len(entry))))


NESTED = tar_of({f"{'d/' * 300}x": b"x"})
ARCHIVES: dict[str, Callable[[], bytes]] = {
    # tar: where members lie
    "tar above": lambda: tar("../evil"),
    "tar above, inside": lambda: tar("set/../../evil"),
    "tar absolute": lambda: tar("/tmp/evil"),
    "tar absolute twice": lambda: tar("//tmp/evil"),
    "tar drive": lambda: tar("c:/evil"),
    "tar backslashes": lambda: tar("..\\..\\evil"),
    "tar dots only": lambda: tar(".."),
    "tar pax path above": lambda: pax({"path": "../../evil"}),
    "tar pax path with NUL": lambda: pax({"path": "set/a\0b"}),
    "tar pax link above": lambda: tar("set/l", b"", type=tarfile.LNKTYPE, pax_headers={"linkpath": "../../kept"}),
    "tar of a name with escapes": lambda: tar("set/\x1b[31m\nevil\u202e/../../x"),
    "tar of a name not UTF-8": lambda: tar("set/\udcff\udcfe"),
    "tar of a name of 5000 characters": lambda: tar("set/" + "x" * 5000),
    "tar of a path of 300 folders": lambda: NESTED,
    "tar of a path of 3000 folders": lambda: tar("d/" * 3000 + "x"),
    "tar of an empty name": lambda: tar(""),
    # tar: what members are
    "tar symbolic link out": lambda: link("set/link", "../../evil"),
    "tar symbolic link in": lambda: link("set/link", "good"),
    "tar through a link": through_link,
    "tar hard link out": lambda: link("set/link", "../kept", tarfile.LNKTYPE),
    "tar hard link absolute": lambda: link("set/link", "/etc/passwd", tarfile.LNKTYPE),
    "tar hard link to itself": lambda: link("set/link", "set/link", tarfile.LNKTYPE),
    "tar hard link to a folder": lambda: link("set/link", "set", tarfile.LNKTYPE),
    "tar pipe": lambda: tar("set/pipe", b"", type=tarfile.FIFOTYPE),
    "tar character device": lambda: tar("set/zero", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    "tar block device": lambda: tar("set/disk", b"", type=tarfile.BLKTYPE, devmajor=8),
    "tar of an unknown type": lambda: tar("set/odd", b"x", type=b"Z"),
    "tar setuid of another user": lambda: tar("set/c", b"x", mode="w:gz", uid=0, uname="root"),
    "tar twice": lambda: tar("set/good", b"better"),
    "tar file as folder": lambda: tar("set/good/x"),
    "tar folder as file": lambda: tar_with(member("set", type=tarfile.DIRTYPE), member("set", b"x")),
    "tar in two cases": lambda: tar("set/GOOD"),
    # tar: sizes
    "tar of 2^40 bytes": lambda: says(2**40),
    "tar of a negative size": lambda: says(-1),
    "tar of two gigabytes": lambda: says(2 << 30),
    "tar sparse": sparse,
    "tar with a bomb of a long name": lambda: big_header(tarfile.GNUTYPE_LONGNAME),
    "tar with a bomb of pax headers": lambda: big_header(tarfile.XHDTYPE),
    "tar with a bomb of global headers, xz": lambda: big_header(tarfile.XGLTYPE, "w:xz"),
    "tar cut": lambda: tar_of(FILES, "w:")[:100_000],
    "tar.gz cut": lambda: tar_of(FILES)[:-2000],
    "tar.gz with a flipped byte": lambda: patched(tar_of(FILES), (NOISE[100_000:100_008], 0, b"\0")),
    "tar of headers that are wrong": lambda: b"x" * 512 + tar_of(FILES, "w:")[512:],
    "gzip of no tar": lambda: gzip.compress(NOISE),
    # zip: where members lie, and what they are
    "zip above": lambda: zip_of(("set/good", b"x"), ("../evil", b"x")),
    "zip absolute": lambda: zip_of(("set/good", b"x"), ("/tmp/evil", b"x")),
    "zip backslashes": lambda: patched(zip_of(("set/xxevil", b"x")), (b"set/xxevil", 0, b"..\\..\\evil")),
    "zip symbolic link": lambda: zip_of(("set/good", b"x"), zip_link("set/link", "../../evil")),
    "zip pipe": lambda: zip_entry("set/pipe", stat.S_IFIFO | 0o644),
    "zip device": lambda: zip_entry("set/zero", stat.S_IFCHR | 0o644),
    "zip name with NUL": lambda: patched(one_zip(), (b"set/good", 4, b"\0")),
    "zip twice": zip_twice,
    "zip file as folder": lambda: zip_of(("set/good", b"x"), ("set/good/x", b"x")),
    "zip of a name of 5000 characters": lambda: zip_of(("set/" + "x" * 5000, b"x")),
    # zip: sizes and content
    "zip of overlapping members": lambda: overlapping(300),
    "zip of 2^60 bytes, zip64": zip64_lie,
    "zip that says less": lambda: patched(one_zip(), (CENTRAL, 24, struct.pack("<I", 10))),
    "zip that says more": lambda: patched(one_zip(), (CENTRAL, 24, struct.pack("<I", 10**6))),
    "zip with another name inside": lambda: one_zip().replace(b"set/good", b"set/evil", 1),
    "zip with a wrong sum": lambda: patched(one_zip(), (CENTRAL, 16, b"\0\0\0\0")),
    "zip encrypted": lambda: patched(one_zip(), (CENTRAL, 8, b"\x01\0")),
    "zip of an unknown method": lambda: patched(one_zip(), (CENTRAL, 10, b"\x63\0")),
    "zip that begins beyond its end": lambda: patched(one_zip(), (CENTRAL, 42, struct.pack("<I", 2**31))),
    "zip cut": lambda: zip_of(*FILES.items())[:-2000],
    "zip of no members": zip_of,
    "zip of a zip of a zip": lambda: zip_of(("set/a.zip", zip_of(("b.zip", one_zip())))),
    "HTML": lambda: b"<html>not found</html>" * 99,
    "nothing": bytes,
}  # fmt: skip
