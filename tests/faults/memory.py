"""Peak memory of verbs that read files in bounded memory: the same for ten and for a hundred times the rows."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

import calibrant
from faults.trial import Trial

SLOW = True
SUITE = 0  # too large for the tests
SECONDS = 3600
ROWS, N_CLASSES = 1_000_000, 10  # of one file
GROWTH = 128  # MiB that may come with nine or 99 more files of 50 MB: the footer of the output grows
SCORE = "import sys, calibrant as cb; print(cb.score(cb.Predictions.scan(sys.argv[1])).ece)"
VERBS: dict[str, tuple[str, ...]] = {
    "audit": ("-m", "calibrant", "audit", "{}"),
    "audit --by": ("-m", "calibrant", "audit", "{}", "--by", "hospital", "--report", "a.html"),
    "audit --jobs 2": ("-m", "calibrant", "audit", "{}", "--jobs", "2"),
    "apply": ("-m", "calibrant", "apply", "t.json", "{}", "-o", "a.parquet"),
    "score of a scan": ("-c", SCORE, "{}"),
}
TRIALS = len(VERBS)  # the next as many compare a hundred files with one


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Each verb on ten million rows, and each verb on a hundred million."""
    for factor in (10, 100):
        for verb in list(VERBS)[: max(0, n - TRIALS * (factor == 100))]:
            yield _trial(verb, factor, seed)


def _trial(verb: str, factor: int, seed: int) -> Trial:
    def attempt(folder: Path) -> str | None:
        one, many = (_peak(verb, files(n, seed), folder) for n in (1, factor))
        return None if many - one < GROWTH else f"{one:.0f} MiB for {ROWS:,} rows, {many:.0f} MiB for {factor * ROWS:,}"

    return Trial("memory that stays flat", f"{verb}, {factor * ROWS:,} rows", attempt)


def _peak(verb: str, rows: Path, folder: Path) -> float:
    """The largest resident memory of a process and of those that it started, in MiB."""
    generator = torch.Generator().manual_seed(1)
    validation = calibrant.Predictions.from_logits(
        torch.randn(500, N_CLASSES, generator=generator), torch.randint(N_CLASSES, (500,), generator=generator)
    )
    calibrant.TemperatureScaling.fit(validation).save(folder / "t.json")
    command = [sys.executable, *(token.format(rows) for token in VERBS[verb])]
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError((folder / "output").read_text()[-300:])
    return usage.ru_maxrss / 1024


@cache
def files(n: int, seed: int) -> Path:
    """A folder with so many files of a million rows."""
    folder = Path(tempfile.mkdtemp(prefix="calibrant-rows-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for number in range(n):
        generator = torch.Generator().manual_seed(seed + number)
        logits = 3 * torch.randn(ROWS, N_CLASSES, generator=generator)
        labels = torch.randint(N_CLASSES, (ROWS,), generator=generator)
        hospital = torch.randint(5, (ROWS,), generator=generator)
        predictions = calibrant.Predictions.from_logits(logits, labels, columns={"hospital": hospital})
        predictions.save(folder / f"{number}.parquet")
    return folder
