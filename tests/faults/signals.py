"""Signals at random moments of every command that takes time: one line, nothing left behind, the same results again.

Each trial runs a command twice, in processes of their own: it takes 5 to 15 s on an idle core.
"""

import atexit
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from hashlib import blake2b
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice
from pathlib import Path
from uuid import uuid4

import numpy as np
from PIL import Image

from calibrant import Predictions, TemperatureScaling
from faults.trial import Trial
from made.archives import md5, tar_of
from made.predictions import rows_of
from made.sweeps import TWO, write_sweep

SLOW = True  # trials start processes
TRIALS, SECONDS, SUITE = 120, 400, 2

MAX_SECONDS = 120  # for a command to end
ORPHAN_SECONDS = 60  # for the processes of a command to end after it
MARK = "CALIBRANT_FAULT"  # a variable of the environment that all processes of a trial share
KINDS: dict[str, tuple[signal.Signals, bool]] = {  # the signal, and whether it is sent to the process group
    "SIGINT": (signal.SIGINT, False),
    "SIGTERM": (signal.SIGTERM, False),
    "SIGHUP": (signal.SIGHUP, False),
    "SIGTERM to the process group": (signal.SIGTERM, True),
}
IMAGE = "train --data image_folder --root {made}/images --image-size 16 --model mlp --epochs 2 --shifts none"
VERBS = {
    "fit": "fit {made}/val.parquet -o out.json",
    "apply": "apply {made}/t.json {made}/test.parquet -o out.parquet",
    "audit": "audit {made}/test.parquet --json --report out.html",
    "audit --jobs 2": "audit {made}/parts --json --jobs 2",
    "compare-calibrators": "compare-calibrators {made}/val.parquet {made}/test.parquet",
    "corrupt": "corrupt {made}/images/train fog 3 -o out --jobs 2",
    "train": "train --data digits --model mlp --epochs 4 --shifts fog-3 -o out",
    "train --workers 2": f"{IMAGE} --workers 2 -o out",
    "predict": "predict {run} test fog-3 snow-2 -o out",
    "run": "run {made}/sweep.toml -o out --jobs 1",
    "run --jobs 2": "run {made}/sweep.toml -o out --jobs 2",
    "report": "report {sweep}",
    "table": "table {sweep} -o out.csv",
    "data fetch": "data fetch mnist --root out",
}
# Files that have times in them
UNLIKE = re.compile(r".*\.(html|jsonl|log|lock)|.*/(checkpoint/.*|DONE|environment\.json)")
TEMPORARY = re.compile(r".*\.(tmp|unpacking)(/.*)?")
ENTRY = "from calibrant.__main__ import main; main()"
FETCH = """
from dataclasses import replace
from calibrant.data import DATASETS
from calibrant.data.sources import Download, ExpectedFile
files = (ExpectedFile("set/a.bin"),)
download = Download("{url}", "archives/set.tar.gz", files, folder="set", md5="{md5}")
DATASETS["mnist"] = replace(DATASETS["mnist"], downloads=(download,))
"""


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Every verb under every signal, in another order for each seed, and again at other moments."""
    yield from islice(all_trials(seed, KINDS), n)


def all_trials(seed: int, kinds: dict[str, tuple[signal.Signals, bool]]) -> Iterator[Trial]:
    draw = random.Random(seed)
    for _ in count():
        pairs = [(kind, verb) for kind in kinds for verb in VERBS]
        draw.shuffle(pairs)
        for kind, verb in pairs:
            moment = draw.random()
            yield Trial(kind, f"{verb} at {moment:.3f} of its time", partial(_attempt, verb, *kinds[kind], moment))


def _attempt(verb: str, number: signal.Signals, to_group: bool, moment: float, folder: Path) -> str | None:
    seconds, expected = _undisturbed(verb)
    with Command(verb, folder) as command:
        command.wait_for_handlers()
        time.sleep(moment * seconds)
        if command.process.poll() is None:
            (os.killpg if to_group else os.kill)(command.process.pid, number)
        try:
            code = command.process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it does not end within {MAX_SECONDS} s"
        if orphans := command.orphans():
            return f"orphans: {orphans}"
        lines = [line for line in command.err.read_text().splitlines() if not line.startswith("open ")]  # the page
        unlike = _unlike(expected, _results(folder, command.out)) if code == 0 else []
    killed = number == signal.SIGKILL
    if code not in (0, -number if killed else 128 + number):
        return f"exit code {code}: {lines[-3:]}"
    if unlike:
        return f"exit code 0, but it has not finished: other {unlike}"
    if not killed and (len(lines) != (code != 0) or "Traceback" in " ".join(lines)):
        return f"exit code {code} with {len(lines)} lines: {lines[:2]} … {lines[-1:]}"
    if not killed and (left := _temporaries(folder)):
        return f"left {left}"
    with Command(verb, folder) as command:
        code = command.process.wait(MAX_SECONDS)
        if code != 0:
            return f"the same command again: exit code {code}: {command.err.read_text()[-300:]!r}"
        if left := _temporaries(folder):
            return f"the same command again left {left}"
        found = _results(folder, command.out)
    if unlike := _unlike(expected, found):
        return f"the same command again: other {unlike}"
    return None


def _unlike(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    return sorted(name for name in {*expected, *found} if found.get(name) != expected.get(name))[:5]


class Command:
    """A command in a session of its own, in a folder; what it leaves running is killed at the end."""

    def __init__(self, verb: str, folder: Path) -> None:
        self.mark = uuid4().hex
        self.out, self.err = (folder.with_name(f"{folder.name} {self.mark[:8]} {name}") for name in ("out", "err"))
        sweep = folder / "out"
        if "{sweep}" in VERBS[verb] and not sweep.exists():
            shutil.copytree(_undisturbed_folder("run") / "out", sweep)
        paths = {"made": _made(), "sweep": sweep}
        if "{run}" in VERBS[verb]:
            paths["run"] = _undisturbed_folder("train") / "out"
        tokens = [token.format(**paths) for token in VERBS[verb].split()]
        program = (FETCH.format(url=_archive_url(), md5=md5(ARCHIVE)) if verb == "data fetch" else "") + ENTRY
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, *tokens],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env=os.environ | {MARK: self.mark, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_PROXY": "*"},
            )

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._running():
            os.kill(process, signal.SIGKILL)
        self.process.wait()
        for file in (self.out, self.err):
            file.unlink()

    def wait_for_handlers(self) -> None:
        """Before, Python itself is starting, and nothing of calibrant has begun."""
        caught = re.compile(r"SigCgt:\s*([0-9a-f]+)")
        while self.process.poll() is None:
            found = caught.search(Path(f"/proc/{self.process.pid}/status").read_text())
            if found and int(found[1], 16) >> (signal.SIGTERM - 1) & 1:
                return
            time.sleep(0.002)

    def orphans(self) -> list[str]:
        """The processes that have not ended some time after the command."""
        deadline = time.monotonic() + ORPHAN_SECONDS
        while (left := self._running()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return [Path(f"/proc/{one}/cmdline").read_text().replace("\0", " ")[:100] for one in left]

    def _running(self) -> list[int]:
        return [int(file.parent.name) for file in Path("/proc").glob("[0-9]*/environ") if self._is_ours(file)]

    def _is_ours(self, file: Path) -> bool:
        try:
            return self.mark.encode() in file.read_bytes()
        except OSError:  # it has just ended, or belongs to another user
            return False


@cache
def _undisturbed(verb: str) -> tuple[float, dict[str, str]]:
    """The seconds that a command takes from its first import to its end, and its results."""
    folder = _made() / "undisturbed" / verb
    folder.mkdir(parents=True)
    with Command(verb, folder) as command:
        command.wait_for_handlers()
        began = time.monotonic()
        assert command.process.wait() == 0, command.err.read_text()
        return time.monotonic() - began, _results(folder, command.out)


def _undisturbed_folder(verb: str) -> Path:
    _undisturbed(verb)
    return _made() / "undisturbed" / verb


def _results(folder: Path, out: Path) -> dict[str, str]:
    """A digest of each file that depends on the command alone, and of what an audit prints."""
    files = {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*")) if file.is_file()}
    found = {name: file.read_bytes() for name, file in files.items() if not UNLIKE.fullmatch(name)}
    if not files or "out.html" in files:
        found["standard output"] = out.read_bytes()
    return {name: blake2b(content, digest_size=8).hexdigest() for name, content in found.items()}


def _temporaries(folder: Path) -> list[str]:
    names = [str(file.relative_to(folder)) for file in folder.rglob("*")]
    return [name for name in names if TEMPORARY.fullmatch(name)]


# What the commands read


ARCHIVE = tar_of({"set/a.bin": np.random.default_rng(0).bytes(2**22)})


@cache
def _made() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="calibrant-signals-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    logits, labels = rows_of(20_000, 10)
    logits[range(len(labels)), labels] += 2
    for name, rows in {"val": slice(0, 4000), "test": slice(4000, None)}.items():
        Predictions.from_logits(logits[rows], labels[rows]).save(folder / f"{name}.parquet")
    (folder / "parts").mkdir()
    for number in range(8):
        shutil.copy(folder / "test.parquet", folder / "parts" / f"{number}.parquet")
    TemperatureScaling.fit(Predictions.load(folder / "val.parquet")).save(folder / "t.json")
    draw = np.random.default_rng(0)
    for split, n in (("train", 150), ("test", 40)):
        for name in ("a", "b"):
            (folder / "images" / split / name).mkdir(parents=True)
            for number, image in enumerate(draw.integers(256, size=(n, 16, 16, 3), dtype=np.uint8)):
                Image.fromarray(image).save(folder / "images" / split / name / f"{number}.png")
    write_sweep(folder / "sweep.toml", TWO, settings={"epochs": 2})
    return folder


@cache
def _archive_url() -> str:
    (_made() / "served").mkdir()
    (_made() / "served" / "set.tar.gz").write_bytes(ARCHIVE)
    handler: Callable[..., _QuietHandler] = partial(_QuietHandler, directory=str(_made() / "served"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/set.tar.gz"


class _QuietHandler(SimpleHTTPRequestHandler):
    """Serves the archive in two halves, with a moment between them."""

    def copyfile(self, source: object, outputfile: object) -> None:
        for part in (ARCHIVE[: len(ARCHIVE) // 2], ARCHIVE[len(ARCHIVE) // 2 :]):
            self.wfile.write(part)
            time.sleep(0.1)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the command has ended
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass
