"""Files as the tools of users write them: the scorecard is that of the arrays in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import calibrant as cb
from calibrant import Predictions

NAMES = ["cat", "dog", "fish"]
N = 300


def arrays(dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    features = random.normal(size=(N, 2))
    labels = (features @ [1.0, -1.0] + random.normal(size=N) > [[-0.5], [0.5]]).sum(0)
    return LogisticRegression().fit(features, labels).predict_proba(features).astype(dtype), labels


PROBS, LABELS = arrays()


def frame(**others: Any) -> pd.DataFrame:
    columns = {f"p_{name}": PROBS[:, k] for k, name in enumerate(NAMES)}
    return pd.DataFrame({**columns, "y": np.array(NAMES)[LABELS], "site": ["A", "B"] * (N // 2), **others})


def lists() -> pl.DataFrame:
    return pl.DataFrame({"probs": PROBS.tolist(), "label": LABELS})


def savetxt(path: str) -> None:
    table = np.column_stack([PROBS, LABELS])
    np.savetxt(path, table, delimiter=",", header="prob_0,prob_1,prob_2,y", comments="")


def write_r(path: str, start: int = 1) -> None:
    """As write.csv of R: quoted row names and names, up to 15 digits."""
    lines = ['"","p.1","p.2","p.3","y"']
    for row, (p, y) in enumerate(zip(PROBS, LABELS, strict=True), 1):
        lines.append(",".join([f'"{row}"', *(f"{x:.15g}" for x in p), str(y + start)]))
    Path(path).write_text("\n".join(lines) + "\n")


def pair(path: str, kind: Any = np.float64) -> None:
    np.save(path, PROBS.astype(kind))
    np.save("y.npy", LABELS[:, None])


def duckdb_file(path: str) -> None:
    frame().to_parquet("table.parquet")
    duckdb.sql(f"COPY (SELECT * FROM 'table.parquet') TO '{path}'")


def stream(path: str) -> None:
    table = pa.Table.from_pandas(frame())
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)


def booleans() -> tuple[pd.DataFrame, Predictions]:
    positive = PROBS[:, 2] / (PROBS[:, 2] + PROBS[:, 0])
    table = pd.DataFrame({"positive_probs": positive, "y": LABELS > 1})
    return table, Predictions.from_positive_probs(positive, LABELS > 1)


FILES: dict[str, tuple[str, Callable[[str], object], dict[str, Any]]] = {
    "pandas csv": ("p.csv", lambda path: frame().to_csv(path, index=False), {}),
    "pandas csv with index": ("p.csv", lambda path: frame().to_csv(path), {}),
    "pandas csv.gz": ("p.csv.gz", lambda path: frame().to_csv(path), {}),
    "pandas tsv": ("p.tsv", lambda path: frame().to_csv(path, sep="\t"), {}),
    "pandas csv of numbers": ("p.csv", lambda path: frame(y=LABELS.astype(float)).to_csv(path), {}),
    "pandas parquet": ("p.parquet", lambda path: frame().to_parquet(path), {}),
    "pandas categories": ("p.parquet", lambda path: frame(y=frame().y.astype("category")).to_parquet(path), {}),
    "pandas nullable": ("p.parquet", lambda path: frame(y=pd.array(LABELS, "Int8")).to_parquet(path), {}),
    "pandas floats": ("p.parquet", lambda path: frame(y=LABELS.astype(float)).to_parquet(path), {}),
    "pandas feather": ("p.feather", lambda path: frame().to_feather(path), {}),
    "polars csv": ("p.csv", lambda path: pl.DataFrame(frame()).write_csv(path), {}),
    "polars ndjson": ("p.ndjson", lambda path: lists().write_ndjson(path), {}),
    "polars ndjson wide": ("p.jsonl", lambda path: pl.DataFrame(frame()).write_ndjson(path), {}),
    "polars parquet": ("p.parquet", lambda path: pl.DataFrame(frame()).write_parquet(path), {}),
    "polars lists": ("p.parquet", lambda path: lists().write_parquet(path), {}),
    "polars ipc": ("p.arrow", lambda path: pl.DataFrame(frame()).write_ipc(path), {}),
    "polars lists ipc": ("p.arrow", lambda path: lists().write_ipc(path), {}),
    "duckdb csv": ("p.csv", duckdb_file, {}),
    "duckdb parquet": ("p.parquet", duckdb_file, {}),
    "duckdb json": ("p.json", duckdb_file, {}),
    "pyarrow csv": ("p.csv", lambda path: pa_csv.write_csv(pa.Table.from_pandas(frame()), path), {}),
    "pyarrow parquet": ("p.parquet", lambda path: pq.write_table(pa.Table.from_pandas(frame()), path, 70), {}),
    "pyarrow stream": ("p.arrow", stream, {}),
    "R, labels from 1": ("p.csv", write_r, {"class_names": ["1", "2", "3"]}),
    "R, labels from 0": ("p.csv", lambda path: write_r(path, 0), {"class_names": ["0", "1", "2"]}),
    "numpy.savetxt": ("p.csv", savetxt, {}),
    "numpy.save": ("probs.npy", pair, {"label": "y.npy"}),
    "numpy.save by flags": ("scores.npy", pair, {"probs": "scores", "label": "y.npy"}),
    "numpy.savez": ("p.npz", lambda path: np.savez(path, probs=PROBS, y=LABELS), {}),
    "numpy.savez_compressed": ("p.npz", lambda path: np.savez_compressed(path, probs=PROBS, y=LABELS), {}),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def assert_same_scores(found: Predictions, wanted: Predictions) -> None:
    a, b = cb.score(found).values(), cb.score(wanted).values()
    assert len(b) > 10
    assert a == pytest.approx(b, abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("tool", FILES)
def test_the_scorecard_is_that_of_the_arrays(tool: str) -> None:
    path, write, options = FILES[tool]
    write(path)
    assert_same_scores(cb.read(path, **options), Predictions.from_probs(PROBS, LABELS))


def test_fifteen_digits_of_pandas_json() -> None:
    frame().to_json("p.jsonl", orient="records", lines=True, double_precision=15)
    probs = pd.read_json("p.jsonl", lines=True, precise_float=True)[[f"p_{name}" for name in NAMES]].to_numpy()
    assert np.abs(probs - PROBS).max() < 1e-14
    assert_same_scores(cb.read("p.jsonl"), Predictions.from_probs(probs, LABELS))


def test_float32_of_keras_jax_and_torch() -> None:
    pair("probs.npy", np.float32)
    wanted = Predictions.from_probs(PROBS.astype(np.float32), LABELS)
    assert_same_scores(cb.read("probs.npy", label="y.npy"), wanted)
    logits = torch.from_numpy(PROBS).log()
    np.save("logits.npy", logits.numpy())
    assert_same_scores(cb.read("logits.npy", label="y.npy"), Predictions.from_logits(logits, LABELS))


@pytest.mark.parametrize("path", ["p.csv", "p.parquet", "p.jsonl"])
def test_booleans_and_the_probability_of_class_1(path: str) -> None:
    table, wanted = booleans()
    write = {"p.csv": table.to_csv, "p.parquet": table.to_parquet, "p.jsonl": pl.DataFrame(table).write_ndjson}
    write[path](path)
    assert_same_scores(cb.read(path), wanted)


@pytest.mark.parametrize(
    "make",
    [
        frame,
        lambda: frame(y=frame().y.astype("category")),
        lambda: pl.DataFrame(frame()),
        lambda: lists(),
        lambda: pa.Table.from_pandas(frame()),
        lambda: duckdb.from_arrow(pa.Table.from_pandas(frame())),
    ],
    ids=["pandas", "categories", "polars", "polars lists", "pyarrow", "duckdb"],
)
def test_data_frames(make: Callable[[], Any]) -> None:
    assert_same_scores(Predictions.from_frame(make()), Predictions.from_probs(PROBS, LABELS))
