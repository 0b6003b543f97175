"""Files that cannot be read: one line with the file, the column, the row and what to type."""

import gzip
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import calibrant as cb
from calibrant import Predictions
from calibrant.errors import CalibrantError
from calibrant.reading import numpy_files, tables
from made.predictions import assert_same, example

HEAD = "p_cat,p_dog,y\n"
JSON = '{"p_cat":1,"p_dog":0,"y":"cat"}\n'
BAD: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("a.csv", "", "a.csv is empty"),
    "an empty line": ("a.csv", "\n1,2\n", "empty first line"),
    "a header alone": ("a.csv", HEAD, "a.csv has no rows"),
    "names twice": ("a.csv", "p_0,p_0,y\n1,0,0\n", "more than one column 'p_0'"),
    "ragged": ("a.csv", HEAD + "1,0,cat\n1,0\n", "3 columns in every row, got 2 at row 1"),
    "a header without its end": ("a.csv", HEAD.strip(), "a.csv has no rows"),
    "a comment": ("a.csv", "# mine\n" + HEAD + "1,0,cat\n", "got 3 at row 0: its first line, '# mine', must hold"),
    "old ends of lines": ("a.csv", (HEAD + "1,0,cat\n").replace("\n", "\r"), r"its lines end with \\r alone"),
    "nothing packed": ("a.csv.gz", gzip.compress(b""), "a.csv.gz is empty"),
    "Latin-1": ("a.csv", (HEAD + "1,0,caf\xe9\n").encode("latin1"), "column 'y' is not UTF-8 at row 0: save it as"),
    "a quote that stays open": ("a.csv", HEAD + '1,0,"cat\n' + "1,0,cat\n" * 999, r"… \(7,996 characters\) at row 0"),
    "spaces in names": ("a.csv", "p_cat, p_dog\n1, 0\n", r"spaces in ' p_dog': write none beside commas"),
    "a beginning of names": ("a.csv", "s_cat,s_dog,n\n0.5,0.5,1\n", r"for example --probs 's_\*'$"),
    "an end of names": ("a.csv", "P(cat),P(dog),n\n0.5,0.5,1\n", r"for example --probs 'P\(\*\)'$"),
    "names that share nothing": ("a.csv", "alto,alpha,n\n0.5,0.5,1\n", "for example --probs alto alpha$"),
    "confidences beyond 1": ("a.csv", "confidence,correct\n1.0000001,1\n", r"got 1.0000001 at row 0$"),
    "Latin-1 beside": ("a.csv", b"p_0,p_1,t\n1,0,a\n1,0,\xe9\n", "column 't' is not UTF-8 at row 1: save it as"),
    "Latin-1 in JSON": (
        "a.jsonl",
        JSON.encode() + JSON.encode().replace(b'cat"}', b'\xe9"}'),
        "column 'y' is not UTF-8 at row 1",
    ),
    "Latin-1 in objects": ("a.jsonl", b'{"p_0":1,"p_1":0,"a":{"b":["\xe9"]}}', "column 'a' is not UTF-8: save it as"),
    "Latin-1 names": ("a.csv", b"p_caf\xe9,p_b\n1,0\n", "first line is not UTF-8"),
    "semicolons": ("a.csv", "p_0;p_1\n0,5;0,5\n", "R: write.csv, not write.csv2"),
    "tabs": ("a.csv", "p_0\tp_1\n1\t0\n", "name it .tsv"),
    "commas": ("a.tsv", "p_0,p_1\n1,0\n", "name it .csv"),
    "decimal commas": (
        "a.csv",
        HEAD + '"0,5","0,5",cat\n',
        "column 'p_cat' holds '0,5' at row 0, .*numbers have a point",
    ),
    "no names": ("a.csv", "0.5,0.5,1\n", r"numbers in its first line, .* savetxt\(.*comments=''"),
    "a gap": ("a.csv", HEAD + "1,0,cat\n,1,cat\n", "p_cat must not be null, got null at row 1"),
    "NaN": ("a.jsonl", JSON + JSON.replace("1,", "NaN,"), "p_cat must not be NaN, got nan at row 1"),
    "beyond 1": ("a.csv", HEAD + "1,0,cat\n1.5,-0.5,cat\n", r"p_cat must lie in \[0, 1\], got 1.5 at row 1"),
    "sums": ("a.csv", HEAD + "1,0,cat\n0.5,0.25,cat\n", "p_cat … p_dog must sum to 1, got 0.75 at row 1"),
    "a label": ("a.csv", HEAD + "1,0,cta\n", "y must be a class, got 'cta' at row 0; did you mean 'cat'"),
    "no columns": ("a.csv", "a,b\n1,2\n", "type --probs, .* its columns are a, b"),
    "not gzip": ("a.csv.gz", "p_0,p_1\n1,0\n", "a.csv.gz is damaged, or is not CSV"),
    "a torn gzip": ("a.csv.gz", gzip.compress(HEAD.encode() + b"0.123,0.877,cat\n" * 999)[:-20], "a.csv.gz"),
    "a JSON list of numbers": ("a.json", "[1,\n2]", "is JSON, but no list of objects: .* lines=True"),
    "a torn JSON list": ("a.json", "[" + JSON, "a.json is damaged, or is not JSON"),
    "ragged JSON": ("a.json", '{"columns":["p_0","p_1"],"data":[[1,0],[1]]}', "no list of objects"),
    "types in a JSON list": ("a.json", '[{"p_0":1,"n":1},\n{"p_0":1,"n":"x"}]', "column 'n' must have one type"),
    "torn JSON": ("a.jsonl", JSON + '{"p_cat":', "a.jsonl cannot be read.* row 1"),
    "short lists": ("a.jsonl", '{"probs":[1,0]}\n{"probs":[1]}\n', "2 numbers in every row, got 1 at row 1"),
    "text in numbers": ("a.jsonl", JSON + JSON.replace("1", '"x"'), "a.jsonl cannot be read: .*p_cat"),
    "no Parquet": ("a.parquet", "x", "a.parquet is not a Parquet file"),
    "no Arrow": ("a.arrow", "ARROW1xxxx", "a.arrow is damaged, or is not an Arrow file"),
    "Feather 1": ("a.feather", "FEA1xxxx", "version 1: write version 2"),
    "no array": ("probs.npy", "x", "probs.npy is damaged, or is not an array"),
    "no archive": ("a.npz", "x", "a.npz is damaged, or is not an .npz file"),
    "another ending": ("a.xlsx", "x", "is not a Parquet file, and does not end with one of .csv, .tsv"),
    "packed Parquet": ("a.parquet.gz", "x", "before .gz: unpack it"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, content, message = BAD[name]
    Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CalibrantError, match=message) as caught:
        cb.read(path)
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).count(path) == 1


def test_a_pattern_is_said_where_labels_are_what_stands_behind_the_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("s_cat,s_dog,y\n1,0,cat\n")
    with pytest.raises(CalibrantError, match=r"got 'cat' at row 0: type 's_\*' for the columns"):
        cb.read(tmp_path / "a.csv", probs=["s_cat", "s_dog"])
    assert cb.read(tmp_path / "a.csv", probs="s_*").labels.tolist() == [0]


@pytest.mark.parametrize("path", ["a.csv", "a.csv.gz", "a.jsonl", "a.parquet", "a.arrow", "a.npz", "a.npy"])
def test_no_file_and_a_folder(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CalibrantError, match=f"there is no file {path}"):
        cb.read(path)
    Path(path).mkdir()
    with pytest.raises(CalibrantError, match=path):
        cb.read(path)


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "probs.npy", np.array([[{}, 1]], object))
    np.savez(tmp_path / "a.npz", probs=np.ones((1, 2)) / 2, y=np.array(["cat", None]))
    for path in ("probs.npy", "a.npz"):
        with pytest.raises(CalibrantError, match=r"holds Python objects, which are never unpickled: .*dtype=str"):
            cb.read(tmp_path / path)


def test_arrays_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", probs=np.ones((2, 2)) / 2, y=np.zeros(3, int))
    with pytest.raises(CalibrantError, match="one number of rows, got 2 in probs, 3 in y"):
        cb.read("a.npz")
    np.savez("b.npz", probs=np.ones((2, 2, 2)))
    with pytest.raises(CalibrantError, match=r"got float64 of shape \(2, 2, 2\)"):
        cb.read("b.npz")
    np.save("probs.npy", np.ones((2, 2)) / 2)
    with pytest.raises(CalibrantError, match=r"--label must name the \.npy file of its labels, got y"):
        cb.read("probs.npy", label="y")
    with pytest.raises(CalibrantError, match="must have different names"):
        cb.read("probs.npy", label="probs.npy")


def test_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_files, "MIN_BOMB", 10**6)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("probs.npy", b"\0" * 10**7)
    with pytest.raises(CalibrantError, match="holds 10,000,000 bytes in"):
        cb.read(tmp_path / "a.npz")


def test_many_blocks_are_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = example(class_names=["a", "b", "c"]).to_frame().to_pandas()
    frame = pd.concat([frame] * 9, ignore_index=True).assign(note="")
    frame.loc[80, "label"] = None
    wanted = Predictions.from_frame(frame)
    assert wanted.labels[80] == -1
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.drop(columns="note").to_json(tmp_path / "a.jsonl", orient="records", lines=True, double_precision=15)
    monkeypatch.setattr(tables, "BLOCK_BYTES", 999)
    for name in ("a.csv", "a.jsonl"):
        scan = Predictions.scan(tmp_path / name, batch_rows=15)
        assert max(map(len, scan)) <= 15
        assert len(list(scan)) > 90 / 15
        assert scan.read().labels.tolist() == wanted.labels.tolist()
        np.testing.assert_allclose(scan.read().probs, wanted.probs, atol=1e-14)


def test_an_error_in_a_later_block_names_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BLOCK_BYTES", 100)
    path = tmp_path / "a.csv"
    path.write_text("p_0,p_1,id\n" + "1,0,7\n" * 60 + "1,0,x7\n")
    with pytest.raises(CalibrantError, match=r"column 'id' holds 'x7' at row 60, .* type --text id"):
        cb.read(path)
    assert cb.read(path, text="id").column("id").to_pylist()[-1] == "x7"


def test_a_column_that_is_empty_in_the_first_block_holds_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BLOCK_BYTES", 100)
    (tmp_path / "a.csv").write_text("p_0,p_1,note\n" + "1,0,\n" * 60 + "1,0,late\n")
    lines = ['{"p_0":1,"p_1":0,"note":null}'] * 60 + ['{"p_0":1,"p_1":0,"note":"late"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for name in ("a.csv", "a.jsonl"):
        assert cb.read(tmp_path / name).column("note").to_pylist()[-1] == "late"


def test_what_calibrant_wrote_is_read_as_it_is(tmp_path: Path) -> None:
    rows = example(features=np.eye(10), class_names=["a", "b", "c"], metadata={"model": "m"})
    rows.save(tmp_path / "a.parquet")
    found = cb.read(tmp_path / "a.parquet")
    assert_same(found, Predictions.load(tmp_path / "a.parquet"))
    assert found.metadata == {"model": "m"}


def frames() -> list[Any]:
    rows = example(class_names=["a", "b", "c"], features=np.eye(10))
    return [rows.to_frame(), rows.to_frame().to_pandas().drop(columns="features")]


def test_a_frame_and_back() -> None:
    rows = example(class_names=["a", "b", "c"])
    for frame in frames():
        found = Predictions.from_frame(frame)
        assert found.class_names == rows.class_names
        assert found.labels.tolist() == rows.labels.tolist()
        assert found.columns.to_pydict().items() >= {"severity": rows.columns.to_pydict()["severity"]}.items()
        np.testing.assert_allclose(found.probs, rows.logits.double().softmax(1), atol=1e-15)
    numbered = Predictions.from_frame(example(class_names=["2", "0", "1"]).to_frame())
    assert numbered.labels.tolist() == [[2, 0, 1][label] for label in rows.labels.tolist()]
    unlabelled = Predictions.from_logits(rows.logits).to_frame()
    assert unlabelled.column_names == ["prob_0", "prob_1", "prob_2"]


def test_frames_that_are_refused() -> None:
    with pytest.raises(CalibrantError, match="frame must be a data frame that exports Arrow, got dict"):
        Predictions.from_frame({"p_0": [1.0]})
    with pytest.raises(CalibrantError, match="frame has no rows"):
        Predictions.from_frame(pa.table({"probs": pa.array([], pa.list_(pa.float64()))}))
    clash = example(columns={"prob_0": list(range(10))})
    with pytest.raises(CalibrantError, match="must not have a column 'prob_0'"):
        clash.to_frame()


def test_class_names_that_are_numbers_are_read_back(tmp_path: Path) -> None:
    """In a file of calibrant a label is the number of a class, also where the classes are called 1, 2 and 3."""
    predictions = Predictions.from_probs(np.full((3, 3), 1 / 3), [0, 2, 1], class_names=["1", "2", "3"])
    predictions.save(tmp_path / "a.parquet")
    assert Predictions.load(tmp_path / "a.parquet").labels.tolist() == [0, 2, 1]


def test_fields_of_objects_are_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"out":{"p":{"a":0.25,"b":0.75}},"in":{"y":"b","id":7}}\n' * 2)
    found = cb.read(path, probs="out.p.*", label="in.y")
    assert found.class_names == ("a", "b")
    assert found.labels.tolist() == [1, 1]
    assert found.columns.to_pydict() == {"in.id": [7, 7]}
    frame = pd.DataFrame({"p_0": [1.0], "p_1": [0.0], "meta": [{"site": "A"}], "meta.site": ["B"]})
    frame.to_parquet(tmp_path / "b.parquet")  # a column has the name of a field: nothing is flattened
    assert cb.read(tmp_path / "b.parquet").column("meta.site").to_pylist() == ["B"]


def test_texts_with_newlines_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = [f'line\n0.5,0.5,"cat"\nof {row}' * (row % 7) for row in range(300)]
    frame = pd.DataFrame({"note": notes, "p_cat": 0.25, "p_dog": 0.75, "y": "dog"})
    frame.to_csv(tmp_path / "a.csv", index=False)
    monkeypatch.setattr(tables, "BLOCK_BYTES", 999)
    rows = cb.read(tmp_path / "a.csv")
    assert rows.columns["note"].to_pylist() == notes
    assert rows.labels.tolist() == [1] * 300
    frame.assign(note="x" * 2000).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(CalibrantError, match="has a row of more than 999 bytes: leave out long texts"):
        cb.read(tmp_path / "a.csv")


def test_numbers_that_would_not_give_back_their_text_are_texts(tmp_path: Path) -> None:
    ids = ["007", "010"], ["12345678901234567890", "2"], ["1234567890123456789", "0"], ["0.5", "0.25"]
    columns = dict(zip(("zeros", "beyond", "whole", "number"), ids, strict=True))
    pd.DataFrame({"p_0": [1, 0], "p_1": [0, 1], **columns}).to_csv(tmp_path / "a.csv", index=False)
    found = cb.read(tmp_path / "a.csv").columns.to_pydict()
    assert found == columns | {"whole": [1234567890123456789, 0], "number": [0.5, 0.25]}


def test_a_column_has_one_type_in_all_text_files(tmp_path: Path) -> None:
    for name, row in {"0.csv": "007,1,a", "1.csv": "107,1.5,2"}.items():
        (tmp_path / name).write_text(f"p_0,p_1,id,number,text\n1,0,{row}\n")
    found = cb.read([tmp_path / "1.csv", tmp_path / "0.csv"]).columns.to_pydict()
    assert found == {"id": ["107", "007"], "number": [1.5, 1.0], "text": ["2", "a"]}


def test_probabilities_that_rounding_takes_beyond_1(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("p_0,p_1\n0,1.0000000000000002\n")
    assert cb.read(tmp_path / "a.csv").probs.tolist() == [[0, 1]]


def test_decimals_of_databases_are_numbers() -> None:
    kind = pa.decimal128(5, 3)
    texts = pa.array(["0.25", "0.75"])
    wide = pa.table({"p_0": texts.take([0]).cast(kind), "p_1": texts.take([1]).cast(kind)})
    lists = pa.table({"probs": pa.array([["0.25", "0.75"]]).cast(pa.list_(kind))})
    wanted = Predictions.from_probs([[0.25, 0.75]]).probs.tolist()
    assert [Predictions.from_frame(table).probs.tolist() for table in (wide, lists)] == [wanted, wanted]
