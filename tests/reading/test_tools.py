"""Files as the tools of users write them: the scorecard is that of the arrays in memory."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import calibrant as cb
from calibrant import Predictions
from made.cli import Run

NAMES = ["cat", "dog", "fish"]
N = 300
DOCS = Path(__file__).parents[2] / "docs" / "reading.md"


def arrays() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    features = random.normal(size=(N, 2))
    labels = (features @ [1.0, -1.0] + random.normal(size=N) > [[-0.5], [0.5]]).sum(0)
    return LogisticRegression().fit(features, labels).predict_proba(features), labels


PROBS, LABELS = arrays()
SINGLE = PROBS.astype(np.float32)
LOGITS = np.log(SINGLE)
WORDS = np.array(NAMES)[LABELS]
POSITIVE = PROBS[:, 2] / (PROBS[:, 2] + PROBS[:, 0])  # of two classes


def table(pattern: str = "p_{}", **others: Any) -> pd.DataFrame:
    columns = {pattern.format(name): PROBS[:, k] for k, name in enumerate(NAMES)}
    return pd.DataFrame({**columns, "y": WORDS, "site": ["A", "B"] * (N // 2), **others})


def lists() -> pl.DataFrame:
    return pl.DataFrame({"probs": PROBS.tolist(), "label": LABELS})


def lines(path: str, rows: Sequence[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def by_name(row: int) -> list[tuple[str, float]]:
    """The classes of a row with their probabilities, the most likely first."""
    return sorted(zip(NAMES, PROBS[row].tolist(), strict=True), key=lambda pair: -pair[1])


def savetxt(path: str) -> None:
    content = np.column_stack([PROBS, LABELS])
    np.savetxt(path, content, delimiter=",", header="prob_0,prob_1,prob_2,y", comments="")


def write_r(path: str, start: int = 1) -> None:
    """As write.csv of R: quoted row names and names, up to 15 digits."""
    rows = ['"","p.1","p.2","p.3","y"']
    for row, (p, y) in enumerate(zip(PROBS, LABELS, strict=True), 1):
        rows.append(",".join([f'"{row}"', *(f"{x:.15g}" for x in p), str(y + start)]))
    Path(path).write_text("\n".join(rows) + "\n")


def write_words(
    path: str, head: Sequence[str], *, quote: str = "", between: str = ",", row_names: bool = False
) -> None:
    """A file of text as the functions of R and of other tools write it: probabilities, and the class by name."""
    names = [f"{quote}{name}{quote}" for name in ([""] * row_names + [*head, "y"])]
    rows = [between.join(names)]
    for row, (p, y) in enumerate(zip(PROBS, WORDS, strict=True), 1):
        start = [f"{quote}{row}{quote}"] * row_names
        rows.append(between.join([*start, *map(repr, p.tolist()), f"{quote}{y}{quote}"]))
    Path(path).write_text("\n".join(rows) + "\n")


def tidymodels(path: str) -> None:
    """As write_csv of readr writes what augment of tidymodels returns."""
    predicted = np.array(NAMES)[PROBS.argmax(1)]
    frame = table(".pred_{}").drop(columns="site")
    frame.insert(0, ".pred_class", predicted)
    frame.to_csv(path, index=False)


def h2o(path: str) -> None:
    """As h2o.export_file writes the predictions with the response."""
    frame = pd.DataFrame({"predict": PROBS.argmax(1)} | {f"p{k}": PROBS[:, k] for k in range(3)} | {"response": LABELS})
    frame.to_csv(path, index=False)


def save(path: str, values: np.ndarray, labels: np.ndarray = LABELS[:, None]) -> None:
    np.save(path, values)
    np.save("y.npy", labels)


def duckdb_file(path: str) -> None:
    table().to_parquet("table.parquet")
    duckdb.sql(f"COPY (SELECT * FROM 'table.parquet') TO '{path}'")


def stream(path: str) -> None:
    content = pa.Table.from_pandas(table())
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, content.schema) as writer:
        writer.write_table(content, max_chunksize=70)


def spark_vectors(folder: str) -> None:
    """As DataFrame.write.parquet of what a model of Spark ML returns: vectors are objects."""
    vectors = [{"type": 1, "size": None, "indices": None, "values": each} for each in PROBS.tolist()]
    kind = pa.struct([("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32()))])
    kind = pa.struct([*kind, ("values", pa.list_(pa.float64()))])
    columns = {
        "label": LABELS.astype(float),
        "probability": pa.array(vectors, kind),
        "prediction": PROBS.argmax(1) * 1.0,
    }
    spark_folder(folder, pa.table(columns), lambda part, path: pq.write_table(part, f"{path}.snappy.parquet"))


def spark_folder(folder: str, content: pa.Table, write: Callable[[pa.Table, str], None]) -> None:
    Path(folder).mkdir()
    for number in range(2):
        write(content.slice(number * 200, 200), f"{folder}/part-{number:05}-1f2e-c000")
    Path(folder, "_SUCCESS").touch()
    Path(folder, f".part-{number:05}-1f2e-c000.crc").write_bytes(b"crc")


def spark_csv(folder: str) -> None:
    spark_folder(folder, pa.Table.from_pandas(table()), lambda part, path: pa_csv.write_csv(part, f"{path}.csv"))


def sample(row: int) -> dict[str, Any]:
    """A line of lm-evaluation-harness 0.4; tests/reading/test_language_models.py runs the package."""
    answers = [[str(value), "False"] for value in np.log(PROBS[row]).tolist()]
    contexts = {f"gen_args_{k}": {"arg_0": "Which animal?", "arg_1": f" {name}"} for k, name in enumerate(NAMES)}
    return {
        "doc_id": row,
        "doc": {"question": "Which animal?"},
        "target": str(LABELS[row]),
        "arguments": contexts,
        "resps": [[answer] for answer in answers],
        "filtered_resps": answers,
        "filter": "none",
        "acc": float(PROBS[row].argmax() == LABELS[row]),
    }


def split_table() -> dict[str, Any]:
    frame = table(target=WORDS).drop(columns="y")
    return {"columns": list(frame), "data": frame.to_numpy().tolist()}


class File(NamedTuple):
    """A file, how it is written, and what is said of its columns."""

    path: str
    write: Callable[[str], object]
    options: dict[str, Any] = {}  # noqa: RUF012
    wanted: Callable[[], Predictions] = lambda: Predictions.from_probs(PROBS, LABELS)

    @property
    def command(self) -> list[str]:
        flags = []
        for name, value in self.options.items():
            flags += [f"--{name.replace('_', '-')}", *([value] if isinstance(value, str) else value)]
        return [self.path, *flags]


def positive() -> Predictions:
    return Predictions.from_positive_probs(POSITIVE, LABELS > 1)


def positive32() -> Predictions:
    return Predictions.from_positive_probs(POSITIVE.astype(np.float32), LABELS > 1)


def single() -> Predictions:
    return Predictions.from_probs(SINGLE, LABELS)


def logits() -> Predictions:
    return Predictions.from_logits(LOGITS, LABELS)


def rows(make: Callable[[int], dict[str, Any]]) -> Callable[[str], None]:
    return lambda path: lines(path, [make(row) for row in range(N)])


FILES: dict[str, File] = {
    "pandas to_csv": File("p.csv", lambda path: table().to_csv(path, index=False)),
    "pandas to_csv with index": File("p.csv", lambda path: table().to_csv(path)),
    "pandas to_csv.gz": File("p.csv.gz", lambda path: table().to_csv(path)),
    "pandas to_csv, tabs": File("p.tsv", lambda path: table().to_csv(path, sep="\t")),
    "pandas to_csv, labels as floats": File("p.csv", lambda path: table(y=LABELS.astype(float)).to_csv(path)),
    "pandas to_json, lines": File(
        "p.jsonl", lambda path: table().to_json(path, orient="records", lines=True, double_precision=15)
    ),
    "pandas to_json": File("p.json", lambda path: table().to_json(path, double_precision=15)),
    "pandas to_json, records": File(
        "p.json", lambda path: table().to_json(path, orient="records", double_precision=15)
    ),
    "pandas to_json, split": File(
        "p.json", lambda path: table().to_json(path, orient="split", double_precision=15, indent=2)
    ),
    "pandas to_parquet": File("p.parquet", lambda path: table().to_parquet(path)),
    "pandas to_parquet, categories": File(
        "p.parquet", lambda path: table(y=table().y.astype("category")).to_parquet(path)
    ),
    "pandas to_parquet, nullable integers": File(
        "p.parquet", lambda path: table(y=pd.array(LABELS, "Int8")).to_parquet(path)
    ),
    "pandas to_parquet, floats": File("p.parquet", lambda path: table(y=LABELS.astype(float)).to_parquet(path)),
    "pandas to_feather": File("p.feather", lambda path: table().to_feather(path)),
    "polars write_csv": File("p.csv", lambda path: pl.DataFrame(table()).write_csv(path)),
    "polars write_ndjson": File("p.ndjson", lambda path: pl.DataFrame(table()).write_ndjson(path)),
    "polars write_ndjson, lists": File("p.ndjson", lambda path: lists().write_ndjson(path)),
    "polars write_json": File("p.json", lambda path: lists().write_json(path)),
    "polars write_parquet": File("p.parquet", lambda path: pl.DataFrame(table()).write_parquet(path)),
    "polars write_parquet, lists": File("p.parquet", lambda path: lists().write_parquet(path)),
    "polars write_ipc": File("p.arrow", lambda path: pl.DataFrame(table()).write_ipc(path)),
    "polars write_ipc, lists": File("p.arrow", lambda path: lists().write_ipc(path)),
    "DuckDB csv": File("p.csv", duckdb_file),
    "DuckDB parquet": File("p.parquet", duckdb_file),
    "DuckDB json": File("p.json", duckdb_file),
    "pyarrow csv": File("p.csv", lambda path: pa_csv.write_csv(pa.Table.from_pandas(table()), path)),
    "pyarrow parquet": File("p.parquet", lambda path: pq.write_table(pa.Table.from_pandas(table()), path, 70)),
    "pyarrow stream": File("p.arrow", stream),
    "R write.csv": File("p.csv", lambda p: write_words(p, [f"p.{x}" for x in NAMES], quote='"', row_names=True)),
    "R write.csv, labels from 1": File("p.csv", write_r, {"class_names": ["1", "2", "3"]}),
    "R write.csv, labels from 0": File("p.csv", lambda path: write_r(path, 0), {"class_names": ["0", "1", "2"]}),
    "R readr": File("p.tsv", lambda path: write_words(path, [f"p_{x}" for x in NAMES], between="\t")),
    "R predict of caret and ranger": File("p.csv", lambda p: write_words(p, NAMES, quote='"'), {"probs": NAMES}),
    "R tidymodels": File("p.csv", tidymodels),
    "R arrow": File("p.feather", lambda path: pa_feather.write_feather(pa.Table.from_pandas(table()), path, "lz4")),
    "scikit-learn classes": File("p.csv", lambda path: table("{}").to_csv(path), {"probs": NAMES}),
    "numpy savetxt": File("p.csv", savetxt),
    "numpy save": File("probs.npy", lambda path: save(path, PROBS), {"label": "y.npy"}),
    "numpy savez": File("p.npz", lambda path: np.savez(path, probs=PROBS, y=LABELS)),
    "numpy savez_compressed": File("p.npz", lambda path: np.savez_compressed(path, probs=PROBS, y=LABELS)),
    "XGBoost, LightGBM predict_proba": File("probs.npy", lambda path: save(path, SINGLE), {"label": "y.npy"}, single),
    "XGBoost binary:logistic": File(
        "p.npy",
        lambda path: save(path, POSITIVE.astype(np.float32), LABELS > 1),
        {"positive_probs": "p", "label": "y.npy"},
        positive32,
    ),
    "CatBoost calc": File(
        "p.tsv",
        lambda path: (
            table("Probability:Class={}").rename(columns={"y": "Label"}).to_csv(path, sep="\t", index_label="SampleId")
        ),
        {"probs": "Probability:Class=*"},
    ),
    "Keras softmax": File("probs.npy", lambda path: save(path, SINGLE), {"label": "y.npy"}, single),
    "Keras sigmoid": File(
        "p.npy",
        lambda path: save(path, POSITIVE.astype(np.float32)[:, None], (LABELS > 1).astype(np.float32)[:, None]),
        {"positive_probs": "p", "label": "y.npy"},
        positive32,
    ),
    "JAX": File("logits.npy", lambda path: save(path, LOGITS), {"label": "y.npy"}, logits),
    "PyTorch": File(
        "logits.npy", lambda path: save(path, torch.from_numpy(LOGITS).numpy()), {"label": "y.npy"}, logits
    ),
    "transformers Trainer": File("p.npz", lambda path: np.savez(path, logits=LOGITS, labels=LABELS), {}, logits),
    "transformers pipeline": File(
        "p.jsonl",
        rows(lambda k: {"scores": [{"label": n, "score": p} for n, p in by_name(k)], "label": WORDS[k]}),
        {"probs": "scores"},
    ),
    "lm-eval": File("samples_animals_2026-01-02T03-04-05.678901.jsonl", rows(sample)),
    "token log-probabilities": File(
        "p.jsonl",
        rows(lambda k: {"logprobs": {n: float(np.log(p)) - 1 for n, p in by_name(k)}, "answer": WORDS[k]}),
        {"label": "answer"},
    ),
    "MLflow": File("eval_results_table.json", lambda path: Path(path).write_text(json.dumps(split_table()))),
    "H2O": File("p.csv", h2o, {"label": "response"}),
    "H2O with names": File("p.csv", lambda path: table("{}", predict=WORDS).to_csv(path), {"probs": NAMES}),
    "Spark ML": File("predictions", spark_vectors),
    "Spark csv": File("predictions", spark_csv),
    "Vertex AI": File(
        "p.jsonl",
        rows(
            lambda k: {
                "instance": {"x": k, "y": WORDS[k]},
                "prediction": {"classes": NAMES, "scores": PROBS[k].tolist()},
            }
        ),
        {"probs": "prediction.scores", "label": "instance.y", "class_names": NAMES},
    ),
    "SageMaker": File(
        "p.jsonl",
        rows(lambda k: {"y": int(LABELS[k]), "SageMakerOutput": {"probabilities": PROBS[k].tolist()}}),
        {"probs": "SageMakerOutput.probabilities"},
    ),
    "BigQuery ML": File(
        "p.jsonl",
        rows(lambda k: {"predicted_y_probs": [{"label": n, "prob": p} for n, p in by_name(k)], "y": WORDS[k]}),
        {"probs": "predicted_y_probs"},
    ),
    "spaCy": File("p.jsonl", rows(lambda k: {"cats": dict(by_name(k)), "y": WORDS[k]}), {"probs": "cats"}),
    "fastText": File(
        "p.jsonl",
        rows(lambda k: {"probs": {f"__label__{n}": p for n, p in by_name(k)}, "y": f"__label__{WORDS[k]}"}),
    ),
    "AutoGluon": File("p.csv", lambda path: table("{}").to_csv(path), {"probs": NAMES}),
    "KNIME": File("p.csv", lambda path: table("P (y={})").to_csv(path, index=False), {"probs": "P (y=*)"}),
    "RapidMiner": File("p.csv", lambda p: table("confidence({})").to_csv(p, index=False), {"probs": "confidence(*)"}),
    "Azure ML": File(
        "p.csv", lambda p: table("Scored Probabilities_{}").to_csv(p, index=False), {"probs": "Scored Probabilities_*"}
    ),
    "SAS": File("p.csv", lambda path: table("P_y{}").to_csv(path, index=False), {"probs": "P_y*"}),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def assert_same_scores(found: Predictions, wanted: Predictions) -> None:
    a, b = cb.score(found).values(), cb.score(wanted).values()
    assert len(b) > 10
    assert a == pytest.approx(b, abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("tool", FILES)
def test_the_scorecard_is_that_of_the_arrays(tool: str, calibrant: Run) -> None:
    file = FILES[tool]
    file.write(file.path)
    found, wanted = cb.read(file.path, **file.options), file.wanted()
    assert_same_scores(found, wanted)
    calibrant("convert", *file.command, "-o", "converted.parquet").done()
    converted = Predictions.load("converted.parquet")
    assert torch.equal(converted.labels, wanted.labels)
    np.testing.assert_allclose(converted.probs, wanted.probs, atol=1e-6)


def test_the_documentation_has_these_commands() -> None:
    """Each row of the table of tools names a command; together they are those of the files above, which are tried."""
    section = DOCS.read_text().partition("\n## Tools\n")[2]
    documented = re.findall(r"^\| .* \| `calibrant audit (.*?)` \|$", section, re.MULTILINE)
    assert len(documented) >= 30
    assert {tuple(shlex.split(command)) for command in documented} == {tuple(file.command) for file in FILES.values()}


FEATURES = np.random.default_rng(1).normal(size=(N, 2))


@pytest.mark.parametrize("package", ["xgboost", "lightgbm"])
def test_boosted_trees(package: str) -> None:
    module = pytest.importorskip(package)
    kind = {"xgboost": "XGBClassifier", "lightgbm": "LGBMClassifier"}[package]
    probs = getattr(module, kind)(n_estimators=3, verbosity=0).fit(FEATURES, LABELS).predict_proba(FEATURES)
    save("probs.npy", probs)
    assert_same_scores(cb.read("probs.npy", label="y.npy"), Predictions.from_probs(probs, LABELS))
    binary = getattr(module, kind)(n_estimators=3, verbosity=0).fit(FEATURES, LABELS > 1).predict_proba(FEATURES)[:, 1]
    save("p.npy", binary, LABELS > 1)
    found = cb.read("p.npy", positive_probs="p", label="y.npy")
    assert_same_scores(found, Predictions.from_positive_probs(binary, LABELS > 1))


def test_xgboost_binary_logistic() -> None:
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(FEATURES, LABELS > 1)
    probs = xgboost.train({"objective": "binary:logistic"}, data, 3).predict(data)
    assert (probs.dtype, probs.shape) == (np.float32, (N,))
    save("p.npy", probs, LABELS > 1)
    found = cb.read("p.npy", positive_probs="p", label="y.npy")
    assert_same_scores(found, Predictions.from_positive_probs(probs, LABELS > 1))


def test_catboost() -> None:
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(iterations=3, verbose=False, allow_writing_files=False).fit(FEATURES, WORDS)
    probs = model.predict_proba(FEATURES)
    pd.DataFrame(probs, columns=model.classes_).assign(y=WORDS).to_csv("p.csv")
    assert_same_scores(cb.read("p.csv", probs=NAMES), Predictions.from_probs(probs, LABELS))


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    np.save("probs.npy", jax.nn.softmax(jax.numpy.asarray(LOGITS)))
    np.save("y.npy", jax.numpy.asarray(LABELS))
    probs = np.load("probs.npy")
    assert probs.dtype == np.float32
    assert_same_scores(cb.read("probs.npy", label="y.npy"), Predictions.from_probs(probs, LABELS))


def test_mlflow_table() -> None:
    """MLflow writes tables of evaluations, and those of `log_table`, as JSON with columns and data."""
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{Path.cwd()}/runs.db")
    with mlflow.start_run() as run:
        mlflow.log_table(table(), "eval_results_table.json")
    path = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="eval_results_table.json")
    content = json.loads(Path(path).read_text())
    probs = [row[:3] for row in content["data"]]
    np.testing.assert_allclose(probs, PROBS, atol=1e-10)  # the digits that pandas writes by default
    assert_same_scores(cb.read(path), Predictions.from_probs(probs, LABELS))


@pytest.mark.parametrize("path", ["p.csv", "p.parquet", "p.jsonl"])
def test_booleans_and_the_probability_of_class_1(path: str) -> None:
    content = pd.DataFrame({"positive_probs": POSITIVE, "y": LABELS > 1})
    write = {"p.csv": content.to_csv, "p.parquet": content.to_parquet, "p.jsonl": pl.DataFrame(content).write_ndjson}
    write[path](path)
    assert_same_scores(cb.read(path), positive())


@pytest.mark.parametrize(
    "make",
    [
        table,
        lambda: table(y=table().y.astype("category")),
        lambda: pl.DataFrame(table()),
        lambda: lists(),
        lambda: pa.Table.from_pandas(table()),
        lambda: duckdb.from_arrow(pa.Table.from_pandas(table())),
    ],
    ids=["pandas", "categories", "polars", "polars lists", "pyarrow", "duckdb"],
)
def test_data_frames(make: Callable[[], Any]) -> None:
    assert_same_scores(Predictions.from_frame(make()), Predictions.from_probs(PROBS, LABELS))
