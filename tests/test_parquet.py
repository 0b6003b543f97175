"""Parquet files: which ones paths name, their parts and batches, tables there and back, and files that are damaged."""

import os
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path, PurePath
from threading import get_ident
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant._block_sums import BLOCK, BlockReader
from calibrant._parquet import read_footer, read_part, read_table, write, write_table
from calibrant._paths import find_files
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError
from calibrant.predictions import Predictions
from faults.flips_parquet import attempt, flip, trials, written

TABLE = pa.table({"label": pa.array(range(10), pa.int32()), "name": list("abcdefghij")})


def names(paths: Any) -> list[str]:
    return [PurePath(file).name for file in find_files(paths)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.parquet", "a.parquet", "day [1]/c.parquet", "run [1].parquet", "_SUCCESS", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def test_paths_globs_and_folders_name_files_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = ["a.parquet", "b.parquet", "c.parquet", "run [1].parquet"]
    odd = folder / "run [1].parquet"
    assert names(folder) == names(str(folder)) == names(f"{folder}/") == every
    assert names(f"{folder}/[ab].parquet") == ["a.parquet", "b.parquet"]
    assert names(f"{folder}/**/c.parquet") == names(folder / "day [1]") == ["c.parquet"]
    assert names(odd) == names(str(odd)) == [odd.name]  # a file wins over the glob that it looks like
    assert names([folder / "b.parquet", folder, f"{folder}/*.parquet"]) == ["b.parquet", "a.parquet", *every[2:]]
    if sys.platform != "win32":
        os.symlink(folder / "a.parquet", folder / "link.parquet")
        assert names([folder / "a.parquet", folder / "link.parquet"]) == ["a.parquet"]
    monkeypatch.chdir(folder)
    assert find_files(["a.parquet", str(folder / "a.parquet"), (folder / "a.parquet").as_uri()]) == ["a.parquet"]


def test_urls_name_files(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    try:
        for name in ("b", "a", "deep/c"):
            memory.pipe(f"/runs/{name}.parquet", b"")
        assert names("memory://runs") == ["a.parquet", "b.parquet", "c.parquet"]
        assert find_files("memory://runs/[b].parquet") == ["memory:///runs/b.parquet"]
        assert find_files(["memory://runs/b.parquet", "memory://runs/b.parquet"]) == ["memory://runs/b.parquet"]
    finally:
        memory.rm("/runs", recursive=True)


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    messages = {"no.parquet": r"no\.parquet", "no*.parquet": r"no\*.parquet", "empty": "no .parquet file in .*empty"}
    for missing, message in messages.items():
        for paths in (str(tmp_path / missing), [tmp_path / missing]):
            with pytest.raises(NoDataError, match=f"^there is .*{message}") as caught:
                find_files(paths)
            assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="paths must name at least one file"):
        find_files([])


@pytest.mark.parametrize("batch_rows", [1, 3, 4, 100])
def test_parts_are_the_row_groups(batch_rows: int, tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    pq.write_table(TABLE, path, row_group_size=4)
    parts = read_footer(path).parts
    assert [(part.first_row, part.n_rows) for part in parts] == [(0, 4), (4, 4), (8, 2)]
    assert sum(part.n_bytes for part in parts) < os.path.getsize(path)
    batches = [batch for part in parts for batch in read_part(part, None, batch_rows)]
    assert [first_row for first_row, _ in batches] == [batch["label"][0].as_py() for _, batch in batches]
    assert max(batch.num_rows for _, batch in batches) <= batch_rows
    assert pa.Table.from_batches([batch for _, batch in batches]).equals(TABLE)
    assert next(read_part(parts[0], ["name"], batch_rows))[1].schema.names == ["name"]


def test_tables_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_table(path, TABLE)
    assert read_table(path, TABLE.schema).equals(TABLE)
    write(path, TABLE.to_batches(max_chunksize=4), TABLE.schema)
    assert read_table(path, TABLE.schema).equals(TABLE)
    assert pq.ParquetFile(path).num_row_groups == 3
    with pytest.raises(CorruptFileError, match=r"x\.parquet has other columns than label$"):
        read_table(path, TABLE.select(["label"]).schema)
    with pytest.raises(NoDataError, match=r"^there is no file .*no\.parquet$"):
        read_table(tmp_path / "no.parquet", TABLE.schema)


def rotten(content: bytes) -> bytes:
    """The pages destroyed, the footer good."""
    return content[:4] + b"\xff" * 2996 + content[3000:]


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    **{f"the first {n}": lambda content, n=n: content[:n] for n in (0, 1, 4, 8)},
    **{f"all but {n}": lambda content, n=n: content[:-n] for n in (1, 4, 8, 9)},
    **{f"{part:.0%}": lambda content, part=part: content[: int(part * len(content))] for part in (0.25, 0.5, 0.9)},
    "csv": lambda _: b"label,logits\n0,1\n",
    "garbage": lambda _: b"PAR1" + b"\xff" * 40 + b"PAR1",
    "magic only": lambda _: b"PAR1" * 20,
    "text": lambda _: "größe\n".encode() * 100,
    "rotten": rotten,
}


@pytest.mark.parametrize("damage", SPOILED)
def test_damaged_files_are_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "spoiled.parquet"
    table = pa.table({"x": pa.array([i * 0.1 for i in range(1000)])})
    write_table(path, table)
    path.write_bytes(SPOILED[damage](path.read_bytes()))
    readers: list[Callable[[], object]] = [
        lambda: [list(read_part(part, None, 7)) for part in read_footer(str(path)).parts],
        lambda: read_table(path, table.schema),
    ]
    for reader in readers:
        with pytest.raises(CorruptFileError, match=r"spoiled\.parquet is (not a Parquet file|damaged)") as caught:
            reader()
        assert "\n" not in str(caught.value)


def test_no_damage_is_read_in_silence(tmp_path: Path) -> None:
    """Damage anywhere, every bit of what tells where the footer is, and the footer."""
    for trial in trials(80, seed=0):
        assert trial.attempt(tmp_path) is None, (trial.kind, trial.name)
    content = written("rows")[0]
    for at, bit in product(range(len(content) - 8, len(content)), range(8)):
        assert attempt("rows", partial(flip, at, bit), tmp_path) is None, (at, bit)
    path = tmp_path / "x.parquet"
    for at in range(len(content) - 200, len(content) - 8, 10):
        path.write_bytes(flip(at, 0, content))
        with pytest.raises(CorruptFileError, match=r"x\.parquet is damaged: its footer does not have the checksum"):
            read_footer(str(path))


@pytest.mark.parametrize("n_bytes", [0, 1000, BLOCK, 3 * BLOCK + 5])
def test_checksums_of_files_of_any_size_and_behind_urls(n_bytes: int, tmp_path: Path) -> None:
    table, memory = pa.table({"x": pa.array(range(n_bytes // 8), pa.float64())}), fsspec.filesystem("memory")
    for url in (str(tmp_path / "x.parquet"), "memory://runs/x.parquet"):
        try:
            write_table(url, table)
            assert read_table(url, table.schema).equals(table)
            with fsspec.open(url, "rb") as file:
                content = file.read()
            if n_bytes:
                with fsspec.open(url, "wb") as file:
                    file.write(flip(n_bytes // 2, 0, content))
                with pytest.raises(CorruptFileError, match=r"x\.parquet is damaged: .* do not have the checksum"):
                    read_table(url, table.schema)
        finally:
            if memory.exists("/runs"):
                memory.rm("/runs", recursive=True)


def test_files_of_other_programs(tmp_path: Path) -> None:
    """They have no checksums, or those of Parquet, which ours have too; a copy keeps only our metadata."""
    ours, copy = tmp_path / "ours.parquet", tmp_path / "copy.parquet"
    table = pa.table({"x": [i * 0.1 for i in range(1000)]}, metadata={"calibrant": "{}"})
    write_table(ours, table)
    copy.write_bytes(flip(3000, 0, ours.read_bytes()))
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        pq.read_table(copy, page_checksum_verification=True)
    for checksums in (False, True):
        pq.write_table(pq.read_table(ours)[::-1], copy, use_dictionary=False, write_page_checksum=checksums)
        assert read_table(copy, table.schema).equals(table[::-1])
        copy.write_bytes(flip(3000, 0, copy.read_bytes()))
        if checksums:
            with pytest.raises(CorruptFileError, match=r"copy\.parquet is damaged: .*CRC"):
                read_table(copy, table.schema)
        else:
            assert not read_table(copy, table.schema).equals(table[::-1])


def test_this_thread_alone_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that is still there when a short program ends would abort it."""
    read, threads = BlockReader.read, set()

    def noted(self: BlockReader, size: int = -1) -> memoryview:
        threads.add(get_ident())
        return read(self, size)

    monkeypatch.setattr(BlockReader, "read", noted)
    Predictions.from_probs([[0.1, 0.9]], [1]).save(tmp_path / "p.parquet")
    assert len(Predictions.load(tmp_path / "p.parquet")) == 1
    assert threads == {get_ident()}
