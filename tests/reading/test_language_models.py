"""Logs of language models: the options of questions as classes."""

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrant as cb
from calibrant import Predictions
from calibrant.errors import CalibrantError
from made.cli import Run

DATE = "2026-01-02T03-04-05.678901"


def sample(row: int, values: list[float], target: object, *, texts: list[str] | None = None, **more: Any) -> Any:
    """A line as version 0.4 writes it: numbers and targets as texts, arguments by name."""
    texts = texts or [f" option {option}" for option in range(len(values))]
    contexts = more.pop("contexts", ["Question"] * len(values))
    answers = [[str(value), "False"] for value in values]
    return {
        "doc_id": row,
        "doc": {"question": "?"},
        "target": str(target),
        "arguments": {
            f"gen_args_{number}": {"arg_0": context, "arg_1": text}
            for number, (context, text) in enumerate(zip(contexts, texts, strict=True))
        },
        "resps": [[answer] for answer in answers],
        "filtered_resps": answers,
        "filter": "none",
        "metrics": ["acc"],
        **more,
    }


def write(path: str | Path, rows: list[Any]) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def log(task: str, sizes: list[int], seed: int = 0) -> tuple[str, list[list[float]], list[int]]:
    """A log of questions with so many options, and what it holds."""
    random = np.random.default_rng(seed)
    values = [(-random.gamma(2, 2, size)).tolist() for size in sizes]
    labels = [int(random.integers(size)) for size in sizes]
    rows = [
        sample(row, each, label, acc=float(np.argmax(each) == label), acc_norm=0.0)
        for row, (each, label) in enumerate(zip(values, labels, strict=True))
    ]
    path = f"samples_{task}_{DATE}.jsonl"
    write(path, rows)
    return path, values, labels


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def oracle(values: list[list[float]], labels: list[int], width: int) -> Predictions:
    probs = np.zeros((len(values), width))
    for row, each in enumerate(values):
        total = sum(map(math.exp, each))
        probs[row, : len(each)] = [math.exp(value) / total for value in each]
    return Predictions.from_probs(probs, labels)


def test_tasks_with_different_numbers_of_options() -> None:
    first, second = log("arc_easy", [4, 5, 3, 4] * 20), log("boolq", [2] * 50, seed=1)
    said: list[str] = []
    found = cb.read([first[0], second[0]], say=said.append)
    wanted = oracle(first[1] + second[1], first[2] + second[2], 5)
    np.testing.assert_allclose(found.probs, wanted.probs, atol=1e-14)
    assert found.labels.tolist() == wanted.labels.tolist()
    assert cb.score(found).values() == pytest.approx(cb.score(wanted).values(), abs=1e-12)
    assert found.column("task").to_pylist() == ["arc_easy"] * 80 + ["boolq"] * 50
    assert found.column("doc_id").to_pylist()[79:81] == ["arc_easy/79", "boolq/0"]
    assert found.column("n_options").to_pylist()[:4] == [4, 5, 3, 4]
    assert said == [
        f"{first[0]}: log-likelihoods of 3 to 5 options as logits; labels from target; task from the name of the file",
        f"{second[0]}: log-likelihoods of 2 options as logits; labels from target; task from the name of the file",
    ]
    assert cb.read(second[0]).n_classes == 2
    assert cb.read(second[0], class_names=["no", "yes"]).class_names == ("no", "yes")


def test_convert_and_audit_by_task(calibrant: Run) -> None:
    log("arc_easy", [4, 5, 3, 4] * 20)
    log("boolq", [2] * 60, seed=1)
    assert "140 rows" in calibrant("convert", "samples_*.jsonl", "-o", "p.parquet").done()
    text = calibrant("audit", "p.parquet", "--by", "task").done()
    assert "boolq" in text
    assert "may not be independent" not in text
    assert Predictions.load("p.parquet").probs.min() == 0


def test_older_logs_have_numbers_and_lists() -> None:
    values = [-1.0, -0.5]
    row = sample(7, values, 1) | {"target": 1, "filtered_resps": [[value, False] for value in values]}
    row["arguments"] = [["Question", " no"], ["Question", " yes"]]
    write("model_boolq.jsonl", [row])
    found = cb.read("model_boolq.jsonl")
    assert found.labels.tolist() == [1]
    assert found.logits.tolist() == [values]
    assert found.column("doc_id").to_pylist() == ["model_boolq/7"]


def test_targets() -> None:
    options = [" yes", " no "]
    rows = [
        sample(0, [-1, -2], "no", texts=options, acc=0.0),
        sample(1, [-1, -2], "was tired", texts=[" was tired"] * 2, acc=0.0),  # contexts differ, as in WinoGrande
        sample(2, [-1, -2], "was tired", texts=[" was tired"] * 2, acc=1.0),
        sample(3, [-1, -2, -0.1, -0.2], 1, contexts=["Q", "Q", "", ""], acc=0.0, acc_mutual_info=1.0),
    ]
    write("samples_x.jsonl", rows)
    found = cb.read("samples_x.jsonl")
    assert found.labels.tolist() == [1, 1, 0, 1]
    assert found.logits.tolist() == [[-1.0, -2.0]] * 4
    assert set(found.column("task").to_pylist()) == {"x"}


GOOD = sample(0, [-1, -2], 0, acc=1.0)
BAD: dict[str, tuple[Any, str]] = {
    "generated text": ({**GOOD, "filtered_resps": ["four"]}, "only tasks of multiple choice have"),
    "a generated number": ({**GOOD, "filtered_resps": ["42"]}, "only tasks of multiple choice have"),
    "one option": (sample(1, [-1], 0), "≤ 0 of at least two options, got -1 at row 1"),
    "a perplexity": ({**GOOD, "filtered_resps": [-3.0]}, "only tasks of multiple choice have"),
    "a probability": (sample(1, [0.5, -1], 0), "≤ 0 .* got 0.5, -1 at row 1"),
    "NaN": (sample(1, [math.nan, -1], 0), "≤ 0 .* got nan, -1 at row 1"),
    "several targets": (sample(1, [-1, -2], [0, 1]), r"one of 2 options as target, got '\[0, 1\]' at row 1"),
    "beyond": (sample(1, [-1, -2], 2), "got '2' at row 1"),
    "several correct options": (sample(1, [-1, -2], 0, acc=0.7), "row 1 acc is 0.7, .* more than one option"),
    "another accuracy": (
        sample(1, [-1, -2], 1, acc=1.0),
        "acc is 1, and the most likely option is 0 where target is 1",
    ),
    "filters": ({**GOOD, "filter": "strict"}, r"once for each filter \(none, strict\)"),
    "another line": ({"doc_id": 3}, "must have doc_id, target, .* at row 1"),
    "no object": ([1], r"must hold a JSON object in each line, got b'\[1\].* at row 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_logs_that_cannot_be_read(name: str) -> None:
    row, message = BAD[name]
    write("samples_x.jsonl", [GOOD, row])
    with pytest.raises(CalibrantError, match=message) as caught:
        cb.read("samples_x.jsonl")
    assert len(str(caught.value).splitlines()) == 1


def test_flags_for_a_log_are_refused() -> None:
    write("samples_x.jsonl", [GOOD])
    with pytest.raises(CalibrantError, match="says itself what it holds"):
        cb.read("samples_x.jsonl", label="target")


def read_rows(*rows: Any, **options: Any) -> Predictions:
    write("rows.jsonl", list(rows))
    return cb.read("rows.jsonl", **options)


def test_options_by_name() -> None:
    said: list[str] = []
    first = {"id": "x", "logprobs": {"B": -0.1, "A": -2.3}, "label": "A", "top": [1]}
    second = {"id": "y", "logprobs": {"A": -1.0, "C": -1.0}, "label": None}
    found = read_rows(first, second, say=said.append)
    a = math.exp(-2.3) / (math.exp(-2.3) + math.exp(-0.1))
    np.testing.assert_allclose(found.probs, [[a, 1 - a, 0], [0.5, 0, 0.5]], atol=1e-15)
    assert found.class_names == ("A", "B", "C")
    assert found.labels.tolist() == [0, -1]
    assert found.columns.to_pydict() == {"id": ["x", "y"]}
    assert said == [
        "rows.jsonl: log-probabilities of 2 options from logprobs as logits (those of the options need not sum to 1); "
        "labels from label"
    ]
    named = read_rows({"scores": {"10": 1, "9": 2}, "gold": 10}, logits="scores", label="gold")
    assert (named.class_names, named.labels.tolist()) == (("9", "10"), [1])
    assert read_rows(first, class_names=["B", "A", "Z"]).class_names == ("B", "A", "Z")
    write("other.jsonl", [{"logprobs": {"D": -1.0, "A": -2.0}, "label": "D", "id": "z"}])
    both = cb.read(["rows.jsonl", "other.jsonl"])
    assert both.class_names == ("A", "B", "D")
    assert both.labels.tolist() == [0, 2]


def test_probabilities_by_name() -> None:
    """As the categories of spaCy, and the labels with scores of pipelines of Hugging Face, the most likely first."""
    wanted = [[0.25, 0.75], [0.5, 0.5]]
    cats = read_rows({"cats": {"b": 0.75, "a": 0.25}, "y": "b"}, {"cats": {"a": 0.5, "b": 0.5}, "y": "a"}, probs="cats")
    scores = [[{"label": "b", "score": 0.75}, {"label": "a", "score": 0.25}]]
    scores += [[{"label": "a", "score": 0.5}, {"label": "b", "score": 0.5}]]
    pipeline = read_rows({"probs": scores[0], "y": "b"}, {"probs": scores[1], "y": "a"})
    for found in (cats, pipeline):
        np.testing.assert_allclose(found.probs, wanted, atol=1e-15)
        assert found.labels.tolist() == [1, 0]


def test_options_in_order() -> None:
    found = read_rows({"logprobs": [-1, -2.0], "label": 1.0}, {"logprobs": [-1.0, -2, -3], "label": 2})
    assert found.logits.tolist() == [[-1.0, -2.0, -math.inf], [-1.0, -2.0, -3.0]]
    assert found.labels.tolist() == [1, 2]
    texts = {"scores": [-1, -2], "choices": ["Rome", "Bonn"], "answer": "Bonn"}
    assert read_rows(texts, logits="scores", label="answer").labels.tolist() == [1]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"logprobs": {"A": -1, "B": -2}, "label": "C"}], {}, "label must be a class, got 'C' at row 0"),
        (
            [{"logprobs": {"A": -1, "B": -2}, "label": "C"}, {"logprobs": {"C": -1}, "label": "C"}],
            {},
            "label must be one of the options of its row with a probability, got option 2 .* at row 0",
        ),
        ([{"logprobs": [-1, -2], "label": 2}], {}, "label must be one of 2 options, got 2 at row 0"),
        (
            [{"logprobs": {"A": 0.5}}],
            {},
            "logprobs must hold log-probabilities ≤ 0 of options, got {'A': 0.5} at row 0",
        ),
        ([{"logprobs": {"A": -1}}, {"logprobs": {"A": None}}], {}, "got {'A': None} at row 1"),
        ([{"logprobs": {"A": -1}}, {"logprobs": {}}], {}, "got {} at row 1"),
        ([{"logprobs": {"A": -1}}, {"logprobs": [-1]}], {}, "by name in every row or in none, row 1 differs"),
        ([{"logprobs": {"A": -1, "B": -1}}], {"class_names": ["A"]}, "has an option 'B', and class_names are A"),
        ([{"logprobs": [-1, -1]}], {"class_names": ["A"]}, "class_names must name 2 options, got A"),
        ([{"logprobs": {"A": -1}}], {"label": "lable"}, "no field 'lable'"),
        ([{"logprobs": {"A": -1}, "y": 0, "label": 0}], {}, "type --label y or --label label"),
        ([{"logprobs": {"A": -1}, "probs": {"A": 1}}], {}, "type --log-probs logprobs or --probs probs"),
        ([{"probs": {"A": 0.5, "B": 0.1}}], {"probs": "probs"}, "probs must sum to 1, got 0.6 at row 0"),
        ([{"logprobs": {"A": -1}, "n": 1}, {"logprobs": {"A": -1}, "n": "x"}], {}, "column 'n' must have one type"),
    ],
)
def test_rows_that_cannot_be_read(rows: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(CalibrantError, match=message) as caught:
        read_rows(*rows, **options)
    assert len(str(caught.value).splitlines()) == 1


def test_files_with_and_without_names_are_read_apart() -> None:
    write("in_order.jsonl", [{"logprobs": [-1, -2]}])
    write("named.jsonl", [{"logprobs": {"A": -1}}])
    with pytest.raises(CalibrantError, match=r"named.jsonl has options by name, in_order.jsonl in order"):
        cb.read(["in_order.jsonl", "named.jsonl"])


TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: questions.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}\\nAnswer:"
doc_to_target: {target}
doc_to_choice: options
metric_list: [{{metric: acc}}, {{metric: acc_norm}}{more}]
"""


@pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-evaluation-harness is not installed")
def test_logs_of_the_real_harness() -> None:
    questions = [
        {"q": "2 + 2?", "options": ["four", "five", "six"], "gold": 0},
        {"q": "Sky?", "options": ["red", "green", "blue", "pink"], "gold": 2},
        {"q": "Yes?", "options": ["no", "yes"], "gold": 1},
    ]
    write("questions.jsonl", questions)
    Path("tasks").mkdir()
    tasks = {
        "plain": ("gold", ""),
        "mutual": ("gold", ", {metric: acc_mutual_info}"),
        "text": ("'{{options[gold]}}'", ""),
    }
    for name, (target, more) in tasks.items():
        Path(f"tasks/{name}.yaml").write_text(TASK.format(name=f"my_{name}", target=target, more=more))
    names = ",".join(f"my_{name}" for name in tasks)
    command = ["-m", "lm_eval", "--model", "dummy", "--include_path", "tasks", "--tasks", names]
    offline = {"HF_HOME": "hf", "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [sys.executable, *command, "--log_samples", "--output_path", "out"], check=True, env=os.environ | offline
    )
    for path in Path("out").rglob("samples_*.jsonl"):
        found = cb.read(path)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert found.labels.tolist() == [0, 2, 1]
        assert found.column("n_options").to_pylist() == [3, 4, 2]
        right = (found.logits.argmax(1) == found.labels).double().tolist()
        assert right == [row["acc"] for row in rows]
    assert len(cb.read("out/*/samples_*.jsonl")) == 9
