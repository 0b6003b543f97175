"""Files of confidence and correctness: which columns are found, what is refused, and what comes out."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.made.cli import Run

from calibrant import Predictions, read
from calibrant.errors import CalibrantError

CONFIDENCE = [0.9, 0.25, 1.0, 0.5]
CORRECT = [True, False, True, None]
UNCLEAR = (  # the header, and what its file is refused with
    ("confidence,label", "--prediction with its column, or --positive-probs confidence"),
    ("confidence,conf,correct", "type --confidence confidence or --confidence conf"),
    ("confidence,correct,is_correct", "type --correct correct or --correct is_correct"),
    ("confidence,pred,predicted,label", "type --prediction pred or --prediction predicted"),
    ("score,correct", "--positive-logits or --confidence with one; its columns are score, correct"),
)


def _rows(predictions: Predictions) -> tuple[list[float], list[int]]:
    return np.round(predictions.probs[:, 1].numpy(), 12).tolist(), predictions.labels.tolist()


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_forms(tmp_path: Path) -> None:
    """The same rows from every form of the file, with the line that says so."""
    truth = CONFIDENCE, [1, 0, 1, -1]
    line = "confidence of the predicted class from"
    forms = {
        "a.csv": ("confidence,correct\n0.9,True\n0.25,false\n1.0,1\n0.5,\n", "confidence; correct from correct"),
        "b.csv": ("conf,is_correct,label\n0.9,1.0,7\n0.25,0,7\n1,1,7\n0.5,NA,7\n", "conf; correct from is_correct"),
        "c.tsv": (
            "Confidence\tpred\tlabel\n0.9\t3\t3.0\n0.25\t2\t3.0\n1\tno\tno\n0.5\tno\t\n",
            "correct where pred is",
        ),
        "d.jsonl": (
            '{"confidence": 0.9, "prediction": "B", "target": "B", "n": 1}\n'
            '{"confidence": 0.25, "prediction": "A", "target": "B", "n": 2}\n'
            '{"confidence": 1.0, "prediction": "A", "target": "A", "n": 3}\n'
            '{"confidence": 0.5, "prediction": "A", "target": null, "n": 4}\n',
            "confidence; correct where prediction is target",
        ),
    }
    for name, (text, said) in forms.items():
        lines: list[str] = []
        found = read(_write(tmp_path / name, text), say=lines.append)
        assert _rows(found) == truth, name
        assert found.top_label
        assert lines[0].startswith(f"{tmp_path / name}: {line}"), lines
        assert said in lines[0], lines
    table = pa.table({"confidence": CONFIDENCE, "predicted": [1, 2, 3, 4], "y": pa.array([1.0, 3.0, 3.0, None])})
    pq.write_table(table, tmp_path / "e.parquet")
    assert _rows(read(tmp_path / "e.parquet")) == truth
    assert _rows(Predictions.from_frame(table)) == truth
    assert _rows(Predictions.from_frame(table, prediction="predicted", label="y")) == truth
    np.savez(tmp_path / "f.npz", confidence=np.array(CONFIDENCE), correct=np.array([1, 0, 1, 0]))
    assert _rows(read(tmp_path / "f.npz")) == (CONFIDENCE, [1, 0, 1, 0])


def test_options(tmp_path: Path) -> None:
    """Other names are said by options, which may stand in a file."""
    path = _write(tmp_path / "a.csv", "sure,ok,gold,said\n0.9,1,a,a\n0.4,0,b,a\n")
    assert _rows(read(path, confidence="sure", correct="ok")) == ([0.9, 0.4], [1, 0])
    assert _rows(read(path, confidence="sure", prediction="said", label="gold")) == ([0.9, 0.4], [1, 0])
    assert _rows(read(path, confidence="sure")) == ([0.9, 0.4], [-1, -1])
    toml = _write(tmp_path / "c.toml", '[columns]\nconfidence = "sure"\ncorrect = "ok"\n')
    assert _rows(read(path, columns=toml)) == ([0.9, 0.4], [1, 0])
    found = read(path, confidence="sure", prediction="said", label="gold")
    assert found.columns.column_names == ["ok", "said"]
    codes = _write(tmp_path / "b.csv", "confidence,pred,label\n0.9,007,7\n")
    assert read(codes).labels.tolist() == [1]
    assert read(codes, text=["pred", "label"]).labels.tolist() == [0]
    later = _write(tmp_path / "d.csv", "confidence,pred,label\n0.9,a,NaN\n")
    assert read(later, nan_is_unknown=True).labels.tolist() == [-1]


def test_probabilities_come_first(tmp_path: Path) -> None:
    """A file with probabilities of all classes stays what it is; its confidence is a column."""
    path = _write(tmp_path / "a.csv", "p_0,p_1,p_2,confidence,correct,label\n0.2,0.3,0.5,0.5,1,2\n")
    found = read(path)
    assert (found.top_label, found.n_classes, found.labels.tolist()) == (False, 3, [2])
    assert found.columns.column_names == ["confidence", "correct"]
    found.save(tmp_path / "a.parquet")
    assert not Predictions.load(tmp_path / "a.parquet").top_label
    assert read(path, confidence="confidence").top_label


@pytest.mark.parametrize(("header", "message"), UNCLEAR)
def test_unclear(tmp_path: Path, header: str, message: str) -> None:
    path = _write(tmp_path / "a.csv", f"{header}\n{','.join(['0.5'] * (header.count(',') + 1))}\n")
    with pytest.raises(CalibrantError) as error:
        read(path)
    assert message in str(error.value)


def test_refusals(tmp_path: Path) -> None:
    """Each in one line with the row and what to type."""
    cases: tuple[tuple[str, dict[str, str], str], ...] = (
        ("confidence,correct\n0.5,1\n87,1\n", {}, "got 87 at row 1: divide percentages by 100"),
        ("confidence,correct\n0.5,1\n-0.1,1\n", {}, "confidence must lie in .0, 1., got -0.1 at row 1"),
        ("confidence,correct\n0.5,yes\n", {}, "got 'yes' at row 0: it must be true or false, or 1 or 0"),
        ("confidence,correct\n0.5,2\n", {}, "got 2 at row 0: it must be true or false"),
        ("confidence,correct\n0.5,NaN\n", {}, "got NaN at row 0: type --nan-is-unknown"),
        ("confidence,correct\n,1\n", {}, "confidence must not be null, got null at row 0"),
        ("confidence,pred,label\n0.5,,a\n", {}, "pred must be a class, got none at row 0, whose label is known"),
        ("confidence,pred,label\n0.5,a,NaN\n", {}, "got none at row 0: type --nan-is-unknown"),
        ("p_0,p_1,correct\n0.5,0.5,1\n", {"correct": "correct"}, "--correct goes with --confidence"),
        ("confidence,a,b\n0.5,1,1\n", {"correct": "a", "prediction": "b"}, "give --correct, or --prediction"),
        ("confidence,a\n0.5,1\n", {"prediction": "a"}, "type --label"),
        ("confidence,a\n0.5,1\n", {"correct": "confidence"}, "must not name the confidence"),
        ("confidence,a\n0.5,1\n", {"correct": "b"}, "no column 'b', which --correct names"),
        ("a,b\n0.5,1\n", {"confidence": "a", "positive_probs": "b"}, "give one of --positive-probs and --confidence"),
    )
    for text, options, message in cases:
        path = _write(tmp_path / "a.csv", text)
        with pytest.raises(CalibrantError, match=message) as error:
            read(path, **options)  # type: ignore[arg-type]
        assert len(str(error.value).splitlines()) == 1
    with pytest.raises(CalibrantError, match="has no class names"):
        read(_write(tmp_path / "a.csv", "confidence,correct\n0.5,1\n"), class_names=["a", "b"])


def test_kinds_do_not_mix(tmp_path: Path) -> None:
    _write(tmp_path / "a.csv", "confidence,correct\n0.5,1\n")
    _write(tmp_path / "b.csv", "p_0,p_1,label\n0.5,0.5,1\n")
    with pytest.raises(CalibrantError, match=r"a\.csv has only the confidence .* the probabilities of all classes"):
        read([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")])


def test_own_files(tmp_path: Path) -> None:
    """The rows survive a file, also one that another library has written again; and a data frame."""
    n = 500
    random = np.random.default_rng(0)
    made = Predictions.from_confidence(random.random(n), random.random(n) < 0.5, columns={"k": np.arange(n)})
    made.save(tmp_path / "a.parquet")
    loaded = Predictions.load(tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["correct", "confidence", "k"]
    again = read(_written(tmp_path / "b.parquet", table.replace_schema_metadata(None)))
    for found in (
        loaded,
        again,
        Predictions.from_frame(made.to_frame()),
        Predictions.scan(tmp_path / "a.parquet").read(),
    ):
        assert found.top_label
        assert found.labels.tolist() == made.labels.tolist()
        assert float((found.probs - made.probs).abs().max()) < 1e-15
        assert found.columns.column_names == ["k"]
    assert loaded.fingerprint == made.fingerprint
    Predictions.from_confidence([0.5]).save(tmp_path / "c.parquet")
    assert pq.read_schema(tmp_path / "c.parquet").names == ["confidence"]
    assert Predictions.load(tmp_path / "c.parquet").labels.tolist() == [-1]


def _written(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


def test_command_line(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert with the flags, and labels that come later: whether the prediction was correct."""
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "a.csv", "id,sure,ok\n1,0.9,1\n2,0.4,0\n")
    out = calibrant("convert", "a.csv", "--confidence", "sure", "--correct", "ok", "-o", "a.parquet").done()
    assert "confidence of the predicted class from sure; correct from ok" in out
    assert _rows(Predictions.load("a.parquet")) == ([0.9, 0.4], [1, 0])
    calibrant("convert", "a.csv", "--confidence", "sure", "-o", "b.parquet").done()
    _write(tmp_path / "l.csv", "id,correct\n1,true\n2,false\n")
    calibrant("label", "b.parquet", "l.csv", "--id", "id", "-o", "c.parquet").done()
    assert _rows(Predictions.load("c.parquet")) == ([0.9, 0.4], [1, 0])
    _write(tmp_path / "m.csv", "id,label\n1,0\n2,1\n")
    calibrant("label", "b.parquet", "m.csv", "--id", "id", "-o", "d.parquet").refused("must have a column correct")
    record = json.loads(pq.read_schema("c.parquet").metadata[b"calibrant"])
    assert record["class_names"] is None
