"""Archives, images and strings of an attacker: each is refused in one line or read, and has no other effect."""

import random
import resource
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, count, islice, zip_longest
from pathlib import Path
from unittest.mock import patch

from calibrant.corruptions.folders import decode_image
from calibrant.data import read_image
from calibrant.data.archives import unpack
from calibrant.errors import CalibrantError
from faults.trial import Trial
from made.hostile import N_SCRIPTS, PAYLOADS, WRITERS, script_problem
from made.hostile_archives import ARCHIVES
from made.hostile_images import IMAGES, PLACES, encoded, write_image
from made.page import Page

MAX_SECONDS, MAX_KILOBYTES, MAX_DISK = 10, 2**20, 2**30
FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "JPEG2000")


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Every archive, image and payload in an order of the seed, then images with random bytes in their headers."""
    order = random.Random(seed)
    archives = [Trial("hostile archive", name, partial(try_archive, name)) for name in ARCHIVES]
    images = [Trial("hostile image", name, partial(try_image, name)) for name in (*IMAGES, *PLACES)]
    pages = [
        Trial("script payload", f"{payload!r} in {writer}", partial(try_payload, writer, payload))
        for payload in PAYLOADS
        for writer in WRITERS
    ]
    for kind in (archives, images, pages):
        order.shuffle(kind)
    known = (trial for group in zip_longest(archives, images, pages) for trial in group if trial is not None)
    mutated = (Trial("hostile image", f"mutation {k}", partial(try_mutation, k)) for k in count(seed * 10**6))
    return islice(chain(known, mutated), n)


def try_archive(name: str, folder: Path) -> str | None:
    path, home = folder / "archive", folder / "home"
    path.write_bytes(ARCHIVES[name]())
    (folder / "kept").write_bytes(b"kept")
    problem = in_bounds(lambda: unpack(path, home / "here"))
    outside = {entry.name for entry in folder.iterdir()} - {"archive", "home", "kept"}
    beside = {entry.name for entry in home.iterdir()} - {"here"} if home.is_dir() else set()
    if outside or beside or (folder / "kept").read_bytes() != b"kept":
        return f"files outside of its folder: {sorted(outside | beside)}"
    below = [entry for entry in home.rglob("*") if not entry.is_dir()]
    if any(entry.is_symlink() or not entry.is_file() for entry in below):
        return "a link, device or pipe was made"
    if sum(entry.stat().st_size for entry in below) > MAX_DISK:
        return "more than a gigabyte on the disk"
    return problem


def try_image(name: str, folder: Path) -> str | None:
    path = folder / "image.png"
    write_image(path, name)
    return read(path)


def try_mutation(seed: int, folder: Path) -> str | None:
    path, order = folder / "image.png", random.Random(seed)
    format = order.choice(FORMATS)
    content = bytearray(encoded(format, "P" if format == "GIF" else "RGB"))
    for _ in range(order.choice([1, 2, 4, 16])):
        content[order.randrange(min(len(content), 200))] = order.choice([0, 127, 128, 255, order.randrange(256)])
    path.write_bytes(content)
    return read(path)


def read(path: Path) -> str | None:
    return in_bounds(lambda: read_image(path, 32)) or in_bounds(lambda: decode_image(path))


def try_payload(writer: str, payload: str, folder: Path) -> str | None:
    for path in WRITERS[writer](folder, payload):
        try:
            problem = script_problem(Page(path.read_text(encoding="utf-8")), N_SCRIPTS[writer])
        except AssertionError:
            problem = "its elements are not nested"
        if problem is not None:
            return f"{path.name}: {problem}"
    return None


def in_bounds(call: Callable[[], object]) -> str | None:
    """What did not hold of a call: an error of ours in one line or none, no program, ten seconds, a gigabyte."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with (
            patch.object(subprocess, "Popen", side_effect=RuntimeError("a program is started")),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # Pillow's, of what it ignores
            call()
    except CalibrantError as error:
        if not str(error).isprintable() or "a program is started" in str(error):
            return f"not one line: {str(error)!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if used > MAX_KILOBYTES:
        return f"{used / 2**20:.1f} GB of memory"
    taken = time.monotonic() - start
    return f"{taken:.0f} seconds" if taken > MAX_SECONDS else None
