"""Every verb that writes, on small inputs: how it is called, and the files that an undisturbed call leaves."""

import atexit
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import altair  # noqa: F401 - a verb would import these, which takes a forked child seconds
import numpy as np
import vl_convert  # noqa: F401
from PIL import Image

import calibrant.audits
import calibrant.calibrators.apply
import calibrant.corruptions.folders
import calibrant.experiments.run
import calibrant.report.experiment
from made.cli import Ran
from made.predictions import rows_of
from made.sweeps import TWO, write_sweep
from made.training import Child, command, flags, in_child, quick, start

OUT = "out"  # the folder that a verb writes to, in its working folder
PLAIN = ("fit", "apply", "audit", "corrupt", "corrupt arrays", "predict", "train", "table", "figure")
REPLACE = ("fit", "apply", "audit", "predict", "table", "figure", "report")  # verbs that write again what is there
# Files with times or progress in them; they need only be there
UNLIKE = ("log.jsonl", "output.log", "audit.html", "report.html", "last.safetensors", "DONE", ".lock")
UNFINISHED = re.compile(r"sweep/(rows\.parquet|curves\.parquet|figures/.*|.*/error\.log)")  # of the runs done so far


@cache
def made() -> Path:
    """The inputs of all verbs, made once; nothing is written there later."""
    folder = Path(tempfile.mkdtemp(prefix="calibrant-made-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ended = in_child(lambda: _make(folder))
    assert ended.code == 0, ended.err
    return folder


def _make(folder: Path) -> None:
    os.chdir(folder)
    logits, labels = rows_of(4000, 10)
    for name, rows in {"val": slice(0, 1500), "test": slice(1500, None)}.items():
        predictions = calibrant.Predictions.from_logits(3 * logits[rows], labels[rows])
        predictions.save(folder / f"{name}.parquet")
    calibrant.TemperatureScaling.fit(calibrant.Predictions.load(folder / "val.parquet")).save(folder / "t.json")
    images = np.random.default_rng(0).integers(256, size=(6, 32, 32, 3), dtype=np.uint8)
    np.save(folder / "images.npy", images)
    (folder / "images").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / "images" / f"{number}.png")
    write_sweep(folder / "sweep.toml", TWO, settings={"epochs": 1})


def tokens_of(verb: str) -> list[str]:
    """The arguments of a verb that writes in the folder `OUT`."""
    given = made()
    tokens: dict[str, Callable[[], tuple[object, ...]]] = {
        "fit": lambda: ("fit", given / "val.parquet", "-o", f"{OUT}/t.json"),
        "apply": lambda: ("apply", given / "t.json", given / "test.parquet", "-o", f"{OUT}/calibrated.parquet"),
        "audit": lambda: ("audit", given / "test.parquet", "--report", f"{OUT}/audit.html"),
        "corrupt": lambda: ("corrupt", given / "images", "fog", "3", "-o", f"{OUT}/fog", "--jobs", "2"),
        "corrupt arrays": lambda: (
            *("corrupt", given / "images.npy", "fog", "--layout", "cifar-c"),
            *("-o", f"{OUT}/arrays", "--jobs", "1"),
        ),
        "predict": lambda: ("predict", undisturbed("train").out / "run", "test", "fog-3", "-o", f"{OUT}/predictions"),
        "train": lambda: ("train", *flags(quick()), "-o", f"{OUT}/run"),
        "table": lambda: ("table", undisturbed("run").out / "sweep", "-o", f"{OUT}/table.tex"),
        "figure": lambda: ("figure", "severity", undisturbed("run").out / "sweep", "-o", f"{OUT}/severity.svg"),
        "run": lambda: ("run", given / "sweep.toml", "-o", f"{OUT}/sweep", "--jobs", "1"),
        "report": lambda: ("report", f"{OUT}/sweep"),
    }
    return list(map(str, tokens[verb]()))


def prepare(verb: str, out: Path) -> None:
    """What must be there before the verb."""
    out.mkdir(exist_ok=True)
    if verb == "report":
        shutil.copytree(
            undisturbed("run").out / "sweep", out / "sweep", ignore=shutil.ignore_patterns("figures", "report.html")
        )


def begin(verb: str, folder: Path, before: Callable[[], Any] = lambda: None) -> Child:
    """Start the verb in a fork of this process, in this working folder."""
    run = command(*tokens_of(verb))

    def action() -> None:
        os.chdir(folder)
        before()
        run()

    return start(action, COLUMNS=200, OMP_NUM_THREADS=1)


def call(verb: str, folder: Path, before: Callable[[], Any] = lambda: None) -> Ran:
    return Ran(*begin(verb, folder, before).wait())


@dataclass(frozen=True)
class Undisturbed:
    """What a verb leaves where nothing disturbs it."""

    out: Path
    seconds: float
    files: dict[str, str]

    def wrong(self, out: Path, *, whole: bool) -> str | None:
        """Which files are not those, in one line; a part of them will do unless it must be the whole."""
        found = {name: bits for name, bits in files_in(out).items() if whole or not UNFINISHED.fullmatch(name)}
        if more := sorted(found.keys() - self.files.keys()):
            return f"left {', '.join(more)}"
        if other := sorted(name for name in found if found[name] != self.files[name]):
            return f"other bytes in {', '.join(other)}"
        if whole and (less := sorted(self.files.keys() - found.keys())):
            return f"did not write {', '.join(less)}"
        return None


@cache
def undisturbed(verb: str) -> Undisturbed:
    folder = made() / f"undisturbed {verb}"
    folder.mkdir()
    prepare(verb, folder / OUT)
    tokens_of(verb)  # which may call another verb first
    began = time.monotonic()
    ran = call(verb, folder)
    assert ran.code == 0, ran
    return Undisturbed(folder / OUT, time.monotonic() - began, files_in(folder / OUT))


def files_in(out: Path) -> dict[str, str]:
    """The digest of every file, or its name where its bytes may differ from call to call."""
    files = {str(path.relative_to(out)): path for path in out.rglob("*") if not path.is_dir()}
    return {
        name: path.name if path.name in UNLIKE else blake2b(path.read_bytes()).hexdigest()
        for name, path in files.items()
    }


def refusal(ran: Ran) -> str | None:
    """What is wrong with the end of a command that could not do its work; one line with exit code 2 is right."""
    if "Traceback" in ran.err or ran.code not in (0, 1, 2):
        return f"exit code {ran.code}: {ran.err[-700:]}"
    if ran.code == 2 and len(ran.err.strip().splitlines()) != 1:
        return f"not one line: {ran.err}"
    if ran.code == 1 and not ran.err.startswith("calibrant: "):
        return f"exit code 1: {ran.err}"
    return None
