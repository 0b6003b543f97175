"""Damaged Parquet files: every reader gives what was written, or refuses the file in one line."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from calibrant import Predictions
from calibrant._parquet import read_table, write_table
from calibrant.audits.statistics import collect_statistics
from calibrant.errors import CalibrantError
from faults.trial import Trial

N_PARTS, N_ROWS, N_FEATURES = 3, 150, 96
BLOCK = 512  # bytes of what is zeroed or swapped
ROWS = pa.table({"metric": ["ece", "nll"] * 50, "value": [i / 7 for i in range(100)]})


def write_predictions(path: Path) -> None:
    """Several row groups with everything that predictions may have, larger than a block of checksums."""
    generator = torch.Generator().manual_seed(0)
    parts = [
        Predictions.from_logits(
            torch.randn(N_ROWS, 3, generator=generator),
            torch.randint(3, (N_ROWS,), generator=generator),
            columns={
                "id": [f"image {part} {row // 2}" for row in range(N_ROWS)],
                "site": [f"site {row % 4}" for row in range(N_ROWS)],
                "severity": [row % 5 for row in range(N_ROWS)],
            },
            features=torch.randn(N_ROWS, N_FEATURES, generator=generator),
            class_names=["cat", "dog", "eel"],
            metadata={"model": "small"},
        )
        for part in range(N_PARTS)
    ]
    Predictions.save_all(path, parts)


def content(rows: Predictions) -> Any:
    features = None if rows.features is None else rows.features.view(torch.int16).tolist()
    columns, metadata = rows.columns.to_pydict(), dict(rows.metadata)
    return rows.logits.tolist(), rows.labels.tolist(), columns, features, rows.class_names, metadata


def audited(path: Path, **options: Any) -> Any:
    """What an audit reads, without the draws that follow."""
    found = collect_statistics(Predictions.scan(path), **options)
    groups = [(group, card.values()) for groups in found.groups for group, card in groups.items()]
    errors = [replace(row, file="") for row in found.errors]
    return found.fingerprint, found.card.values(), groups, errors, found.class_name(0)


READERS: dict[str, dict[str, Callable[[Path], Any]]] = {
    "predictions": {
        "load": lambda path: content(Predictions.load(path)),
        "scan": lambda path: [content(batch) for batch in Predictions.scan(path, batch_rows=40).batches(["severity"])],
        "audit": audited,
        "audit --by": lambda path: audited(path, by=("site",), cluster="id"),
    },
    "rows": {"read_table": lambda path: read_table(path, ROWS.schema).to_pydict()},
}
WRITERS: dict[str, Callable[[Path], None]] = {
    "predictions": write_predictions,
    "rows": lambda path: write_table(path, ROWS),
}


@cache
def written(kind: str) -> tuple[bytes, list[int], dict[str, Any]]:
    """A good file, the places in it that are not contents of pages, and what each reader makes of it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        WRITERS[kind](path)
        good, metadata = path.read_bytes(), pq.read_metadata(path)
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        chunks = [group.column(column) for group in groups for column in range(group.num_columns)]
        starts = [offset for c in chunks for offset in (c.dictionary_page_offset, c.data_page_offset) if offset]
        places = [at for start in starts for at in range(start, start + 60)]
        end = max(start + c.total_compressed_size for start, c in zip(starts[-1:], chunks[-1:], strict=True))
        places += range(min(end, len(good) - 1), len(good))
        return good, places, {name: reader(path) for name, reader in READERS[kind].items()}


def flip(at: int, bit: int, good: bytes) -> bytes:
    return good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :]


def cut(at: int, good: bytes) -> bytes:
    return good[:at]


def zero(at: int, good: bytes) -> bytes:
    return good[:at] + bytes(len(good[at : at + BLOCK])) + good[at + BLOCK :]


def swap(a: int, b: int, good: bytes) -> bytes:
    """Two blocks that do not overlap."""
    a, b = sorted((a, b))
    b = max(b, a + BLOCK)
    return good[:a] + good[b : b + BLOCK] + good[a + BLOCK : b] + good[a : a + BLOCK] + good[b + BLOCK :]


def attempt(kind: str, damage: Callable[[bytes], bytes], folder: Path) -> str | None:
    good, _, wanted = written(kind)
    path = folder / "x.parquet"
    path.write_bytes(damage(good))
    for name, reader in READERS[kind].items():
        try:
            found = reader(path)
        except CalibrantError as error:
            if "\n" in str(error) or "x.parquet" not in str(error):
                return f"{name}: {error}"
            continue
        except Exception as error:
            return f"{name}: {type(error).__name__}: {error}"
        if found != wanted[name]:
            return f"{name} gives something else without a word"
    return None


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Of ten, seven flipped bits, half of them in headers, footer and checksums; the other three are larger."""
    draw = random.Random(seed)
    for number in range(n):
        kind = "rows" if number % 4 == 3 else "predictions"
        good, places, _ = written(kind)
        a, b = draw.randrange(len(good)), draw.randrange(len(good) - BLOCK)
        match number % 10:
            case 7:
                what, name, damage = "cut", f"at byte {a}", partial(cut, a)
            case 8:
                what, name, damage = "zeroed block", f"at byte {a}", partial(zero, a)
            case 9:
                what, name, damage = "swapped blocks", f"bytes {min(a, b)} and {b}", partial(swap, min(a, b), b)
            case place:
                at, bit = draw.choice(places) if place % 2 else a, draw.randrange(8)
                what, name, damage = "flipped bit", f"byte {at}, bit {bit}", partial(flip, at, bit)
        yield Trial(f"{what}, {kind}", name, partial(attempt, kind, damage))
