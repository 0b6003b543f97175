"""Three faults on files of calibrant and of peers: a flipped bit, a kill while a file is written, a full disk.

Run: python benchmarks/flipped_bits.py [--flips 200] [--kills 100] [--seed 0]. Every file is read and written in a
process of its own: a damaged pickle may do anything. Other numbers without an error count as silent.
"""

import argparse
import os
import random
import resource
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import joblib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file, save_file
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import calibrant as cb
from calibrant.calibrators import VectorScaling
from calibrant.models.weights import read_tensors, write_tensors

N_ROWS, N_CLASSES = 2000, 10
SECONDS, MEMORY = 10, 8 << 30
SAME, SILENT, REFUSED, DIED = "same numbers", "silent", "error", "hangs or dies"
CODES = {0: SAME, 1: SILENT, 2: REFUSED}


# What is written, in two versions, and read: as bytes, so that every bit of every number counts


def logits_of(version: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(version)
    return torch.randn(N_ROWS, N_CLASSES, generator=generator), torch.randint(N_CLASSES, (N_ROWS,), generator=generator)


def tensors_of(version: int) -> dict[str, Tensor]:
    return {"weight": logits_of(version)[0], "bias": logits_of(version)[0][0].clone()}


def as_bytes(tensors: dict[str, Tensor]) -> bytes:
    return b"".join(f"{k} {v.dtype} {v.shape}".encode() + v.numpy().tobytes() for k, v in sorted(tensors.items()))


@cache
def classifier(version: int) -> CalibratedClassifierCV:
    logits, labels = logits_of(version)
    return CalibratedClassifierCV(LogisticRegression(), cv=2).fit(logits.numpy(), labels.numpy())


def read_classifier(path: Path) -> bytes:
    return bytes(joblib.load(path).predict_proba(logits_of(2)[0].numpy()).tobytes())


def write_database(path: Path, version: int) -> None:
    logits, labels = logits_of(version)
    columns = ", ".join(f"logit_{k} REAL" for k in range(N_CLASSES))
    rows = [(int(label), *row) for label, row in zip(labels, logits.tolist(), strict=True)]
    with closing(sqlite3.connect(path)) as database, database:  # one transaction
        database.execute(f"CREATE TABLE IF NOT EXISTS predictions (label INTEGER, {columns})")
        database.execute("DELETE FROM predictions")
        database.executemany(f"INSERT INTO predictions VALUES ({', '.join('?' * (1 + N_CLASSES))})", rows)


def read_database(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as database:
        return repr(database.execute("SELECT * FROM predictions").fetchall()).encode()


def write_table(path: Path, version: int) -> None:
    logits, labels = logits_of(version)
    table = pa.table({"label": labels.numpy(), **{f"logit_{k}": logits[:, k].numpy() for k in range(N_CLASSES)}})
    pq.write_table(table, path)


def read_table(path: Path) -> bytes:
    table = pq.read_table(path)
    return b"".join(name.encode() + table[name].to_numpy().tobytes() for name in table.column_names)


def write_predictions(path: Path, version: int) -> None:
    logits, labels = logits_of(version)
    cb.Predictions.from_logits(logits, labels, columns={"group": np.arange(N_ROWS) % 7}).save(path)


def read_predictions(path: Path) -> bytes:
    found = cb.Predictions.load(path)
    columns = b"".join(found.columns[name].to_numpy().tobytes() for name in found.columns.column_names)
    return as_bytes({"logits": found.logits, "labels": found.labels}) + columns + repr(found.class_names).encode()


@cache
def calibrator(version: int) -> VectorScaling:
    return VectorScaling.fit(cb.Predictions.from_logits(*logits_of(version)))


def read_calibrator(path: Path) -> bytes:
    loaded = cb.load_calibrator(path)
    return as_bytes({"logits": loaded(cb.Predictions.from_logits(logits_of(2)[0])).logits})


@dataclass(frozen=True)
class Format:
    """How a program writes a version of a file, and the bytes of the numbers that it reads from one."""

    write: Callable[[Path, int], object]
    read: Callable[[Path], bytes]


FORMATS = {
    "safetensors: weights": Format(
        lambda path, v: save_file(tensors_of(v), path), lambda path: as_bytes(load_file(path))
    ),
    "scikit-learn: CalibratedClassifierCV by joblib": Format(
        lambda path, v: joblib.dump(classifier(v), path), read_classifier
    ),
    "SQLite: table": Format(write_database, read_database),
    "pyarrow: Parquet": Format(write_table, read_table),
    "calibrant: predictions": Format(write_predictions, read_predictions),
    "calibrant: weights": Format(
        lambda path, v: write_tensors(path, tensors_of(v), {}), lambda path: as_bytes(read_tensors(path)[0])
    ),
    "calibrant: calibrator": Format(lambda path, v: calibrator(v).save(path), read_calibrator),
}


# The faults


def in_child(action: Callable[[], bool], before: Callable[[], None] = lambda: None) -> str:
    """How an action ends in a process of its own: whether it is true, or an error."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            before()
            code = 0 if action() else 1
        finally:
            os._exit(code)
    return CODES.get(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), DIED)


def flip(format: Format, folder: Path, rng: random.Random, sound: list[bytes]) -> str:
    path = folder / "file"
    content = bytearray((folder / "sound").read_bytes())
    bit = rng.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return in_child(lambda: format.read(path) == sound[0])


def kill(format: Format, folder: Path, rng: random.Random, sound: list[bytes]) -> str:
    """A file is replaced by its second version again and again until the process is killed."""
    path = folder / "killed"
    path.write_bytes((folder / "sound").read_bytes())
    pid = os.fork()
    if pid == 0:
        try:
            while True:
                for version in (1, 0):
                    format.write(path, version)
        finally:
            os._exit(1)
    time.sleep(0.01 + 0.1 * rng.random())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return in_child(lambda: format.read(path) in sound)


def fill(format: Format, folder: Path, rng: random.Random, sound: list[bytes]) -> str:
    """A file is replaced where it may not grow to its whole size."""
    path = folder / "filled"
    path.write_bytes((folder / "sound").read_bytes())
    limit = rng.randrange(path.stat().st_size)

    def limit_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    in_child(lambda: bool(format.write(path, 1)), limit_files)
    return in_child(lambda: format.read(path) == sound[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--kills", type=int, default=100, help="kills, and as many full disks")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=120)
    for title, fault, n in (
        (f"{arguments.flips:,} flipped bits", flip, arguments.flips),
        (f"{arguments.kills:,} kills while the file is replaced", kill, arguments.kills),
        (f"{arguments.kills:,} full disks while the file is replaced", fill, arguments.kills),
    ):
        table = Table("file", "bytes", SAME, REFUSED, SILENT, DIED, title=title)
        for name, format in FORMATS.items():
            rng = random.Random(f"{arguments.seed} {title} {name}")
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                format.write(folder / "sound", 0)
                format.write(folder / "second", 1)
                sound = [format.read(folder / name) for name in ("sound", "second")]
                counts = Counter(fault(format, folder, rng, sound) for _ in range(n))
                n_bytes = (folder / "sound").stat().st_size
            table.add_row(name, f"{n_bytes:,}", *(str(counts[outcome]) for outcome in (SAME, REFUSED, SILENT, DIED)))
        console.print(table)


if __name__ == "__main__":
    main()
