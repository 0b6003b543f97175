"""Damaged files of other programs: a result, or one line. They have no checksums, so other numbers are not a fault."""

import atexit
import gzip
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import calibrant
import calibrant.audits
import calibrant.calibrators.apply
import calibrant.corruptions.folders
import calibrant.experiments.run
from calibrant.data import open_dataset
from calibrant.errors import CalibrantError
from faults.trial import Trial
from faults.verbs import refusal
from made.cli import Ran
from made.datasets import WRITERS, idx_bytes, write_tiny_imagenet
from made.predictions import rows_of
from made.sweeps import TWO, write_sweep
from made.training import command, start

N_ROWS = 300
SECONDS_EACH = 10
MEMORY = 8 << 30  # address space: of a header that promises more, not one byte may be read
WORDS = (b"nan", b"-1", b"1e999", b"[[[[" * 400, b'"' * 3, b"\0", b"\xff\xfe", b"9" * 400, b"\n\n", b"{}", b"=", b",")


# Files, and who reads them; every path is that of the folder of inputs


def _audit(given: Path) -> None:
    command("audit", given / "probs.parquet", "--by", "group", "--json")()


def _features(name: str) -> Callable[[Path], None]:
    def fit(given: Path) -> None:
        tokens = ("--calibrator", "density_aware", "--k", 5, "--features", given / name, "-o", given / "d.json")
        command("fit", given / "own.parquet", *tokens)()

    return fit


def _apply(given: Path) -> None:
    command("apply", given / "t.json", given / "own.parquet", "-o", given / "a.parquet", "--allow-same-rows")()


def _arrays(name: str) -> Callable[[Path], None]:
    return lambda given: command("corrupt", given / name, "fog", "--layout", "cifar-c", "-o", given / "c")()


def _images(given: Path) -> None:
    command("corrupt", given / "photos", "contrast", 1, "-o", given / "photos-c", "--jobs", 1)()


def _plan(given: Path) -> None:
    command("run", given / "sweep.toml", "--dry-run", "-o", given / "sweep")()


def _data(name: str) -> Callable[[Path], None]:
    def read(given: Path) -> None:
        data = open_dataset(name, given)
        for split in data.clean:
            _ = data.split(split).digest

    return read


READERS: dict[str, Callable[[Path], None]] = {
    "probs.parquet": _audit,
    "features.npy": _features("features.npy"),
    "features.parquet": _features("features.parquet"),
    "t.json": _apply,
    "images.npy": _arrays("images.npy"),
    "images.npz": _arrays("images.npz"),
    "photos/a.png": _images,
    "photos/b.jpg": _images,
    "sweep.toml": _plan,
    "MNIST/raw/train-images-idx3-ubyte": _data("mnist"),
    "MNIST/raw/t10k-labels-idx1-ubyte.gz": _data("mnist"),
    "camelyon17_v1.0/metadata.csv": _data("camelyon17"),
    "iwildcam_v2.0/metadata.csv": _data("iwildcam"),
    "iwildcam_v2.0/categories.csv": _data("iwildcam"),
    "fmow_v1.1/rgb_metadata.csv": _data("fmow"),
    "fmow_v1.1/country_code_mapping.csv": _data("fmow"),
    "tiny-imagenet-200/wnids.txt": _data("tiny_imagenet"),
    "tiny-imagenet-200/val/val_annotations.txt": _data("tiny_imagenet"),
}


@cache
def inputs() -> Path:
    """Sound files, made once; a trial takes a copy."""
    given = Path(tempfile.mkdtemp(prefix="calibrant-inputs-"))
    atexit.register(shutil.rmtree, given, ignore_errors=True)
    ended = start(lambda: _make(given)).wait()
    assert ended.code == 0, ended.err
    return given


def _make(given: Path) -> None:
    rng = np.random.default_rng(0)
    logits, labels = rows_of(N_ROWS, 3)
    groups = [f"g{row % 4}" for row in range(N_ROWS)]
    table = pa.table({"label": labels.numpy(), "probs": logits.softmax(1).tolist(), "group": groups})
    pq.write_table(table, given / "probs.parquet", row_group_size=100)
    own = calibrant.Predictions.from_logits(logits, labels)
    own.save(given / "own.parquet")
    calibrant.TemperatureScaling.fit(own).save(given / "t.json")
    saved = json.loads((given / "t.json").read_text())
    saved.pop("digest", None)  # as if written by hand
    (given / "t.json").write_text(json.dumps(saved, indent=1))
    features = rng.normal(size=(N_ROWS, 4)).astype(np.float32)
    np.save(given / "features.npy", features)
    pq.write_table(pa.table({"features": features.tolist()}), given / "features.parquet")
    images = rng.integers(256, size=(4, 32, 32, 3), dtype=np.uint8)
    np.save(given / "images.npy", images)
    np.savez(given / "images.npz", images=images, labels=np.arange(4))
    (given / "photos").mkdir()
    Image.fromarray(images[0]).save(given / "photos" / "a.png")
    Image.fromarray(images[1]).save(given / "photos" / "b.jpg")
    write_sweep(given / "sweep.toml", TWO)
    raw = given / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in {"train": 6000, "t10k": 20}.items():
        pixels = rng.integers(256, size=(n, 4, 4), dtype=np.uint8)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(pixels))
        digits = gzip.compress(idx_bytes(np.arange(n) % 10), mtime=0)
        (raw / f"{part}-labels-idx1-ubyte.gz").write_bytes(digits)
    for write in WRITERS.values():
        write(given)
    write_tiny_imagenet(given)


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Every file in turn, damaged in a random way."""
    for number in range(n):
        yield _trial(list(READERS)[number % len(READERS)], random.Random(f"{seed} {number}"))


def _trial(name: str, rng: random.Random) -> Trial:
    how, draw = rng.choice(list(DAMAGE)), rng.getrandbits(64)

    def attempt(folder: Path) -> str | None:
        given = folder / "given"
        shutil.copytree(inputs(), given)
        sound = (given / name).read_bytes()
        (given / name).write_bytes(DAMAGE[how](sound, random.Random(draw)))

        def action() -> None:
            os.chdir(folder)
            signal.alarm(SECONDS_EACH)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            try:
                READERS[name](given)
            except CalibrantError as error:  # of a function of Python, as the command line prints it
                print(f"calibrant: {error}", file=sys.stderr)
                sys.exit(2)

        ran = Ran(*start(action, COLUMNS=200).wait())
        lines = [line for line in ran.err.splitlines(keepends=True) if not line.startswith("skipped ")]
        return refusal(ran._replace(err="".join(lines)))  # `corrupt` names the images that it skips

    return Trial(f"damaged {Path(name).suffix or 'IDX'}", f"{name}, {how} ({draw})", attempt)


# Ways to damage bytes


def _place(content: bytes, rng: random.Random) -> int:
    """A random place, half of the time near one of the ends, where the structure of many formats is."""
    near = rng.choice((len(content), min(200, len(content))))
    return rng.choice((rng.randrange(near), len(content) - 1 - rng.randrange(near)))


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed, place = bytearray(content), _place(content, rng)
    changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _bytes(content: bytes, rng: random.Random) -> bytes:
    place = _place(content, rng)
    return content[:place] + rng.randbytes(rng.randint(1, 8)) + content[place + rng.randint(1, 8) :]


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def _zeros(content: bytes, rng: random.Random) -> bytes:
    place, length = _place(content, rng), rng.choice((4, 64, 512))
    return content[:place] + bytes(length) + content[place + length :]


def _twice(content: bytes, rng: random.Random) -> bytes:
    first, last = sorted((_place(content, rng), _place(content, rng)))
    return content[:last] + content[first:]


def _word(content: bytes, rng: random.Random) -> bytes:
    place = _place(content, rng)
    return content[:place] + rng.choice(WORDS) + content[place + rng.choice((0, 3)) :]


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "one bit": _flip,
    "some bytes": _bytes,
    "cut": _cut,
    "zeros": _zeros,
    "a part twice": _twice,
    "a word": _word,
}
