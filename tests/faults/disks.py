"""Disks that are full, read-only or out of inodes, limits on files, and folders that vanish under a verb."""

import ctypes
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from faults.trial import Trial
from faults.verbs import OUT, PLAIN, REPLACE, Undisturbed, begin, call, prepare, refusal, undisturbed
from made.cli import Ran
from made.training import in_child

SLOW = True
TRIALS = 100
NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000  # of unshare(2)
PAGE = 4096
ROOM = "size=256m,nr_inodes=100000"
VERBS = (*PLAIN, *PLAIN, "report", "run")  # the last two take long
MOUNTED = ("full disk", "no inodes", "read-only disk")


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Every kind of disk in turn, each with a random verb at a random moment."""
    kinds = (*(MOUNTED if can_mount() else ()), "limit of a file's size", "folder that vanishes")
    for number in range(n):
        yield _trial(kinds[number % len(kinds)], random.Random(f"{seed} {number}"))


def _trial(kind: str, rng: random.Random) -> Trial:
    verb, moment, old = rng.choice(VERBS), rng.random(), rng.random() < 0.5
    name = f"{verb}, {moment:.2f} of the way{', over an old output' if old and verb in REPLACE else ''}"

    def attempt(folder: Path) -> str | None:
        usual = undisturbed(verb)

        def tried() -> str | None:
            out = folder / OUT
            out.mkdir()
            if kind in MOUNTED:
                mount("tmpfs", out, ROOM)
            prepare(verb, out)
            if old and verb in REPLACE:
                shutil.copytree(usual.out, out, dirs_exist_ok=True)
            return FAULTS[kind](verb, folder, moment, usual)

        return in_own_mounts(tried) if kind in MOUNTED else tried()

    return Trial(kind, name, attempt)


# The kinds: each disturbs the verb, then lets it run again


def full(verb: str, folder: Path, moment: float, usual: Undisturbed) -> str | None:
    out = folder / OUT
    needed = sum(path.stat().st_size // PAGE + 1 for path in usual.out.rglob("*"))
    used = os.statvfs(out).f_blocks - os.statvfs(out).f_bfree
    mount("tmpfs", out, f"remount,size={PAGE * (used + int(1.2 * moment * needed))}")
    return again(verb, folder, call(verb, folder), usual, lambda: mount("tmpfs", out, f"remount,{ROOM}"))


def no_inodes(verb: str, folder: Path, moment: float, usual: Undisturbed) -> str | None:
    out = folder / OUT
    needed = len(list(usual.out.rglob("*")))
    used = os.statvfs(out).f_files - os.statvfs(out).f_ffree
    mount("tmpfs", out, f"remount,nr_inodes={used + int(1.2 * moment * needed)}")
    return again(verb, folder, call(verb, folder), usual, lambda: mount("tmpfs", out, f"remount,{ROOM}"))


def read_only(verb: str, folder: Path, moment: float, usual: Undisturbed) -> str | None:
    """From the beginning, or from a moment on."""
    out = folder / OUT
    if moment < 0.3:
        mount("tmpfs", out, "remount,ro")
        ran = call(verb, folder)
    else:
        ran = disturbed(verb, folder, moment * usual.seconds, lambda: make_read_only(out))
    return again(verb, folder, ran, usual, lambda: mount("tmpfs", out, "remount,rw"))


def small_files(verb: str, folder: Path, moment: float, usual: Undisturbed) -> str | None:
    """As `ulimit -f` and file systems with a largest file do: EFBIG, not ENOSPC."""
    sizes = sorted(path.stat().st_size for path in usual.out.rglob("*") if path.is_file())
    limit = max(2 * PAGE, int(sizes[-1] * moment))  # for standard output is a file here, too

    def before() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return again(verb, folder, call(verb, folder, before), usual, lambda: None)


def vanishes(verb: str, folder: Path, moment: float, usual: Undisturbed) -> str | None:
    out, gone = folder / OUT, folder / "gone"
    ran = disturbed(verb, folder, moment * usual.seconds, lambda: os.rename(out, gone))
    shutil.rmtree(gone, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)  # a verb may make its folder again
    return refusal(ran) or again(verb, folder, None, usual, lambda: prepare(verb, out))


def make_read_only(out: Path) -> None:
    """The kernel refuses while a file is open for writing; a little later it may not."""
    for _ in range(100):
        with suppress(subprocess.CalledProcessError):
            mount("tmpfs", out, "remount,ro")
            return
        time.sleep(0.01)


FAULTS: dict[str, Callable[[str, Path, float, Undisturbed], str | None]] = {
    "full disk": full,
    "no inodes": no_inodes,
    "read-only disk": read_only,
    "limit of a file's size": small_files,
    "folder that vanishes": vanishes,
}


def disturbed(verb: str, folder: Path, seconds: float, act: Callable[[], object]) -> Ran:
    """The verb, and something that happens to it after so many seconds."""
    child = begin(verb, folder)
    timer = threading.Timer(seconds, act)
    timer.start()
    ran = Ran(*child.wait())
    timer.join()
    return ran


def again(verb: str, folder: Path, ran: Ran | None, usual: Undisturbed, mend: Callable[[], object]) -> str | None:
    """What is wrong after the fault, and after the same command when the fault is gone."""
    out = folder / OUT
    wrong = None
    if ran is not None:
        wrong = refusal(ran) or usual.wrong(out, whole=ran.code == 0)
    mend()
    if wrong:
        return f"{wrong} (exit code {ran.code if ran else 0})"
    rerun = call(verb, folder)
    if rerun.code != 0:
        return f"the same command again: exit code {rerun.code}: {rerun.err[-300:]}"
    wrong = usual.wrong(out, whole=True)
    return wrong and f"the same command again {wrong}"


# Mounts that only the trial sees, and that end with it; root is not needed where the kernel allows user namespaces


def in_own_mounts(action: Callable[[], str | None]) -> str | None:
    """What an action returns in a process with mounts of its own."""

    def alone() -> None:
        unshare()
        print(action() or "", end="")

    ended = in_child(alone)
    return ended.out or (None if ended.code == 0 else ended.err[-300:])


def unshare() -> None:
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNTS | NEW_USER):
        raise OSError(ctypes.get_errno(), "no namespace of its own")
    for name, text in {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}.items():
        Path(f"/proc/self/{name}").write_text(text)


def mount(kind: str, folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, "none", folder], check=True, capture_output=True)


@cache
def can_mount() -> bool:
    def attempt() -> None:
        unshare()
        mount("tmpfs", Path("/mnt"), ROOM)

    return in_child(attempt).code == 0
