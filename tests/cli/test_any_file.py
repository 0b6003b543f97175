"""Every command reads any file with the same flags, says what it found, and says of a bad file what to type instead."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import calibrant as cb
from calibrant.cli import app
from calibrant.cli.options import ColumnFlags
from made.cli import Run

VERBS = [
    "apply",
    "audit",
    "average",
    "certify",
    "compare-calibrators",
    "convert",
    "detect",
    "estimate",
    "fit",
    "label",
    "monitor",
]
N = 240


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """val.csv, test.csv with names that say nothing, bare.csv without labels, part.csv with some, and own.parquet."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("val", "test")):
        random = np.random.default_rng(number)
        probs = random.dirichlet(np.ones(3), N)
        labels = pa.array([["cat", "dog", "fish"][random.choice(3, p=row)] for row in probs])
        columns = {each: probs[:, k] for k, each in enumerate(["cat", "dog", "fish"])}
        table = pa.table({**columns, "truth": labels, "ref": [f"{number}{i:04}" for i in range(N)]})
        pa_csv.write_csv(table, f"{name}.csv")
    pa_csv.write_csv(table.drop_columns("truth"), "bare.csv")
    pa_csv.write_csv(table.select(["ref", "truth"]), "late.csv")
    some = pa.array([label if i < 200 else None for i, label in enumerate(labels.to_pylist())])
    pa_csv.write_csv(table.set_column(3, "truth", some), "part.csv")
    pa_csv.write_csv(table[:200], "cut.csv")
    Path("c.toml").write_text('[columns]\nlabel = "truth"\nprobs = ["cat", "dog", "fish"]\n')
    cb.read("val.csv", columns="c.toml").save("own.parquet")


FLAGS = ("--columns", "c.toml")


def test_every_verb_has_the_flags_once() -> None:
    names = set(ColumnFlags.__dataclass_fields__)
    for verb in [*VERBS, "sets fit", "sets apply", "sets check"]:
        command = app
        for word in verb.split():
            command = command[word]
        given = [
            name.removeprefix("--").replace("-", "_")
            for each in command.assemble_argument_collection()
            for name in each.names
        ]
        assert {name: given.count(name) for name in names} == dict.fromkeys(names, 1), verb


@pytest.mark.slow
def test_every_verb_reads_csv(calibrant: Run) -> None:
    found = {
        "val.csv": "val.csv: probabilities of 3 classes (cat, dog, fish) from cat, dog, fish; labels from truth",
        "bare.csv": "bare.csv: probabilities of 3 classes (cat, dog, fish) from cat, dog, fish; no labels",
    }
    both = f"{found['val.csv'].replace('val.csv', 'val.csv and 1 more')}"
    for command, lines in (
        ("audit val.csv", [found["val.csv"]]),
        ("audit val.csv --compare val.csv --metrics nll", [found["val.csv"]]),
        ("fit val.csv -o t.json", [found["val.csv"]]),
        ("fit val.csv --calibrator label_shift --target bare.csv -o l.json", list(found.values())),
        ("apply t.json bare.csv -o calibrated.parquet", None),
        ("compare-calibrators val.csv test.csv --calibrators temperature", [both]),
        ("estimate bare.csv --reference val.csv", list(found.values())),
        ("estimate bare.csv --reference own.parquet", None),
        ("detect val.csv bare.csv", list(found.values())),
        ("average test.csv bare.csv --id ref -o mean.parquet", None),
        ("certify val.csv --max-error 0.6 -o c.json", [found["val.csv"]]),
        ("certify --apply c.json bare.csv -o decided.parquet", None),
        ("certify --check c.json test.csv --reference val.csv", None),
        ("sets fit val.csv --target bare.csv -o s.json", list(found.values())),
        ("sets apply s.json test.csv -o sets.parquet", None),
        ("monitor bare.csv --reference val.csv --every 100", list(found.values())),
        ("convert test.csv -o test.parquet", []),
    ):
        ran = calibrant(*command.split(), *FLAGS)
        ran.done()
        assert lines is None or ran.found == lines, command
    assert cb.Predictions.load("mean.parquet").labels.tolist() == cb.read("test.csv", columns="c.toml").labels.tolist()


def test_labels_that_come_later_keep_their_zeros(calibrant: Run) -> None:
    flags = ("--id", "ref", "--label", "truth", "--probs", "cat", "dog", "fish")
    calibrant("label", "bare.csv", "late.csv", *flags, "-o", "l.parquet").done()
    labelled, wanted = cb.Predictions.load("l.parquet"), cb.read("test.csv", columns="c.toml")
    assert labelled.labels.tolist() == wanted.labels.tolist()
    assert labelled.column("ref").to_pylist()[0] == "10000"
    Path("late2.csv").write_text(Path("late.csv").read_text().replace('"10000"', '"010000"'))
    out = calibrant("label", "bare.csv", "late2.csv", *flags, "-o", "l.parquet").done()
    assert "1 labels have an id that no row has" in out
    command = (
        "monitor",
        "bare.csv",
        "--reference",
        "own.parquet",
        "--every",
        "100",
        "--labels",
        "late.csv",
        *flags,
        "--json",
    )
    assert sum(window["n_labelled"] for window in calibrant(*command).record["windows"]) == N


@pytest.mark.slow
def test_json_stays_clean_and_the_numbers_are_those_of_the_parquet_file(calibrant: Run) -> None:
    ran = calibrant("audit", "val.csv", *FLAGS, "--json")
    own = calibrant("audit", "own.parquet", "--json")
    assert (len(ran.found), own.found) == (1, [])
    assert ran.record["metrics"]["accuracy"] == own.record["metrics"]["accuracy"]
    assert ran.record["metrics"]["nll"]["value"] == pytest.approx(own.record["metrics"]["nll"]["value"], abs=1e-6)


def test_flags_are_for_files_of_others(calibrant: Run) -> None:
    calibrant("audit", "test.csv", "own.parquet", *FLAGS).done()
    calibrant("audit", "own.parquet", "--label", "truth").refused(
        "own.parquet has no column 'truth', which --label names"
    )
    calibrant("audit", "test.csv", "own.parquet", "--probs", "cat", "dog", "fish", "--label", "no").refused("'no'")
    calibrant("audit", "test.csv", "--label", "").refused("must not be empty")
    calibrant("audit", "test.csv").refused("for example --probs cat dog fish")
    Path("columns.toml").write_text(Path("c.toml").read_text())  # not read unless it is named
    calibrant("audit", "test.csv").refused("type --columns columns.toml")


@pytest.mark.slow
def test_rows_without_a_label_are_left_out_and_counted(calibrant: Run) -> None:
    part, cut = (calibrant("audit", name, *FLAGS, "--json").record for name in ("part.csv", "cut.csv"))
    assert (part.pop("n_unlabelled"), cut.pop("n_unlabelled")) == (40, 0)
    (sentence,) = [each for each in part["words"]["summary"] if each not in cut["words"]["summary"]]
    assert sentence == "40 rows of 240 have no label and are left out."
    part["words"]["summary"].remove(sentence)
    assert part.pop("fingerprint") != cut.pop("fingerprint")
    assert json.dumps(part).replace("part.csv", "cut.csv") == json.dumps(cut)
    assert sentence in calibrant("audit", "part.csv", *FLAGS, "--report", "p.html").done()
    assert sentence in Path("p.html").read_text()
    for jobs in ("1", "2"):
        found = calibrant("audit", "cut.csv", "bare.csv", *FLAGS, "--jobs", jobs, "--json").record
        assert (found["n_rows"], found["n_unlabelled"], found["metrics"]["ece"]) == (200, N, cut["metrics"]["ece"])
    calibrant("compare-calibrators", "val.csv", "part.csv", *FLAGS, "--calibrators", "temperature").done()


def test_without_any_label(calibrant: Run) -> None:
    probs = ("--probs", "cat", "dog", "fish")
    wanted = cb.score(cb.read("test.csv", columns="c.toml"), metrics=["confidence", "entropy"])
    metrics = ("--metrics", "confidence", "entropy")
    out = calibrant("audit", "bare.csv", *probs, *metrics, "--by", "ref").done()
    assert out.startswith("bare.csv: 240 rows without a label, 3 classes")
    assert f"{wanted.confidence:.4f}" in out
    ran = calibrant("audit", "bare.csv", *probs, *metrics, "--json", "--fail-if", "entropy > 0.1")
    assert (ran.code, ran.record["metrics"]["entropy"]["value"]) == (3, wanted.entropy)
    assert ran.errors == [f"failed: entropy > 0.1 (entropy = {wanted.entropy:.6g})"]
    for more in ((), ("--metrics", "ece"), (*metrics, "--fail-if", "ece > 0"), (*metrics, "--report", "x.html")):
        calibrant("audit", "bare.csv", *probs, *more).refused(
            "calibrant estimate, and the metrics confidence and entropy"
        )
    calibrant("audit", "bare.csv", *probs).refused("(its other columns are ref)")
    calibrant("fit", "bare.csv", *probs, "-o", "x.json").refused("bare.csv has no column label: type --label")


HEAD, ROWS = "p_cat,p_dog,y,site\n", "0.9,0.1,cat,A\n0.2,0.8,dog,B\n"
# ruff: noqa: E501
BAD: dict[str, tuple[str | bytes, str]] = {
    "semicolons": ((HEAD + ROWS).replace(",", ";"), "a.csv has ';' between its columns 'p_cat;p_dog;y;site': write commas"),
    "decimal comma": (HEAD + '"0,9","0,1",cat,A\n', "column 'p_cat' holds '0,9' at row 0, which is no number (numbers have"),
    "no header": (ROWS, "its columns are 0.9, 0.1, cat, A (the first line must hold names)"),
    "ragged row": (HEAD + ROWS + "0.5,0.5\n", "a.csv must have 4 columns in every row, got 2 at row 2"),
    "NaN": (HEAD + ROWS + "NaN,0.5,cat,A\n", "a.csv: p_cat must not be null, got null at row 2"),
    "text": (HEAD + ROWS + "high,0.5,cat,A\n", "column 'p_cat' holds 'high' at row 2, which is no number"),
    "percent": (HEAD + "90,10,cat,A\n", "p_cat must lie in [0, 1], got 90 at row 0: divide percentages by 100"),
    "percent signs": (HEAD + "90%,10%,cat,A\n", "holds '90%' at row 0, which is no number (write 0.9, not 90%)"),
    "logits": (HEAD + "2.5,-1,cat,A\n", "p_cat must lie in [0, 1], got 2.5 at row 0: type --logits p_cat p_dog if these"),
    "sums": (HEAD + "0.9,0.3,cat,A\n", "must sum to 1, got 1.2 at row 0 (more than rounding to 1 digits explains): name"),
    "label beyond": ("p_0,p_1,y\n0.9,0.1,1\n0.1,0.9,2\n", "y must lie in [0, 1], got 2 at row 1: type --class-names 1 2 if"),
    "other case": (HEAD + "0.9,0.1,Cat,A\n", "y must be a class, got 'Cat' at row 0; did you mean 'cat'?"),
    "no label": ("p_cat,p_dog,ill\n0.9,0.1,cat\n", "a.csv has no column label: type --label with that of its labels (its other"),
    "one class": ("p_cat,y\n0.9,cat\n", "its columns are p_cat, y; for example --positive-probs p_cat"),
    "empty": ("", "a.csv is empty"),
    "header only": (HEAD, "a.csv: predictions must have at least one row that counts"),
    "twice": ("p_cat,p_dog,p_cat,y\n", "a.csv has more than one column 'p_cat': rename one of them"),
    "UTF-16": ((HEAD + ROWS).encode("utf-16"), "a.csv: its first line is not UTF-8: save it as UTF-8 (pandas: encoding"),
    "Latin-1": (HEAD.encode() + "0.9,0.1,Zürich,A\n".encode("latin-1"), "column 'y' is not UTF-8 at row 0"),
    "Excel": (b"PK\x03\x04", "a.csv is no text, but a zip archive, as Excel writes: save it as CSV"),
    "gzip": (b"\x1f\x8b\x08", "name it .csv.gz"),
}  # fmt: skip


def test_bad_files(calibrant: Run) -> None:
    for name, (content, message) in BAD.items():
        Path("a.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
        try:
            calibrant("audit", "a.csv").refused(message)
        except AssertionError as error:
            raise AssertionError(name) from error
    Path("a.csv").write_bytes(
        HEAD.encode() + "0.9,0.1,cat,Zürich\n".encode("latin-1")
    )  # in a column that audit does not read
    calibrant("audit", "a.csv").done()
    Path("a.csv").write_bytes(b"\xef\xbb\xbf" + (HEAD + ROWS).encode())  # a byte order mark is no error
    calibrant("audit", "a.csv").done()
