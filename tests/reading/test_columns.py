"""What the columns are: found by names, said by flags or a TOML file, and refused with what to type."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.reading.columns import Layout, Request, find_layout

LISTS = pa.list_(pa.float64())


def layout(names: str, **options: Any) -> Layout:
    """Of columns of numbers, and of lists where a name begins with a bracket."""
    fields = [(name.lstrip("["), LISTS if name.startswith("[") else pa.float64()) for name in names.split()]
    return find_layout("p.csv", pa.schema(fields), Request.of(options), is_text=True)


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ("p_cat p_dog y", "probabilities of 2 classes (cat, dog) from p_cat, p_dog; labels from y"),
        ("y prob_1 prob_0 prob_2", "probabilities of 3 classes from prob_0, prob_1, prob_2; labels from y"),
        ("p10 p9 p8 p7 p6 p5 p4 p3 p2 p1 p0", "of 11 classes from p0, p1, p2, p3, p4, p5, …, p10; no labels"),
        ("Proba.a Proba.b Target", "probabilities of 2 classes (a, b) from Proba.a, Proba.b; labels from Target"),
        ("logit_0 logit_1 logit_norm label", "logits of 2 classes from logit_0, logit_1; labels from label"),
        ("log_prob_a log_prob_b", "log-probabilities of 2 classes (a, b)"),
        ("[probs labels", "probabilities from probs; labels from labels"),
        ("[logits site", "logits from logits; no labels"),
        ("positive_probs y_true", "probabilities of class 1 from positive_probs; labels from y_true"),
        ("Positive_Logit y", "log-odds of class 1 from Positive_Logit; labels from y"),
        ("p_a p_b label_probs", "probabilities of 2 classes (a, b) from p_a, p_b; no labels"),
        ("p_a p_b p_value", "probabilities of 2 classes (a, b) from p_a, p_b; no labels"),
        ("p_a p_b probs", "from p_a, p_b; no labels; left out: probs"),
    ],
)
def test_what_names_say(names: str, line: str) -> None:
    assert line in str(layout(names))


def test_what_flags_say() -> None:
    assert layout("a b c", probs=["c", "a"]).class_names == ("c", "a")
    assert layout("p_a p_b", probs=["p_b", "p_a"]).class_names == ("b", "a")
    assert layout("score_a_x score_b_x y", probs="score_*_x").class_names == ("a", "b")
    assert layout("p[1] p[0] y", probs="p[*]").columns == ("p[0]", "p[1]")
    assert layout("s1 s0", logits="s*").columns == ("s0", "s1")
    assert layout("p_a p_b logit_a logit_b", logits="logit_*").kind == "logits"
    assert layout("p_a p_b", class_names=["b", "a"]).columns == ("p_b", "p_a")
    assert layout("p_0 p_1", class_names=["no", "yes"]).class_names == ("no", "yes")
    from_one = layout("p.1 p.2", class_names=["1", "2"])
    assert (from_one.columns, from_one.class_names, from_one.numbered) == (("p.1", "p.2"), ("1", "2"), False)
    assert layout("p_a p_b label target", label="target").left_out == ("label",)
    assert layout("x [p", probs="p").lists


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("a b", {}, "no columns whose names say .* type --probs, .* its columns are a, b"),
        ("probs y", {}, "no lists of numbers in its column probs: write a column for each class"),
        ("p_1 p_10 p_100 y", {"probs": "p_1*"}, "p_10, p_100 are not numbered from 0"),
        ("p_a y", {}, "no columns whose names say"),
        ("p_a p_b prob_a prob_b", {}, "type --probs p_a p_b or --probs prob_a prob_b"),
        ("p_a p_b logit_a logit_b", {}, "type --logits logit_a logit_b or --probs p_a p_b"),
        ("p_a p_b y label", {}, "labels in y and label: type --label y or --label label"),
        ("p_1 p_2 y", {}, "type --class-names 1 2 if the labels are these .*, or --class-names 0 1 if"),
        ("p_0 p_2 y", {}, "type --class-names 0 2"),
        ("p_a p_a", {}, "more than one column 'p_a'"),
        ("a b", {"probs": "a"}, "a column for each class, or one of lists, got a; .* type --positive-probs a"),
        ("[a [b", {"probs": ["a", "b"]}, "--probs must name one column of lists, got a, b"),
        ("a b", {"logits": "a"}, "a column for each class, or one of lists, got a; .* type --positive-logits a"),
        ("a b", {"log_probs": "a"}, "a column for each class, or one of lists, got a$"),
        ("[a b", {"positive_probs": "a"}, "--positive-probs must name one column of numbers, got a"),
        ("a b", {"positive_logits": ["a", "b"]}, "--positive-logits must name one column of numbers, got a, b"),
        ("logit y", {}, "no columns whose names say .* --positive-logits or --confidence with one"),
        ("a b", {"probs": ["a", "b"], "logits": "b"}, "give one of --logits and --probs"),
        ("p_a p_b", {"class_names": ["a", "c"]}, "those of the columns in any order, a, b, got a, c"),
        ("p_0 p_1", {"class_names": ["a"]}, "one name for each of 2 classes, got 1"),
        ("p_a p_b", {"label": "p_a"}, "--label must not name a column of predictions"),
        ("p_a p_b", {"probs": ["p_a", "p_a"]}, "name each class once, got 'a' twice"),
        ("p_a p_b", {"class_names": 3}, "class_names must be"),
        ("p_a p_b", {"label": 3}, "label must be str, got int"),
        ("p_a p_b", {"nan_is_unknown": "no"}, "nan_is_unknown must be True or False, got 'no'"),
    ],
)
def test_refusals_say_what_to_type(names: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        layout(names, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "z"}, "no column 'z', which --label names; known: p_a, p_b, yes"),
        ({"label": "yess"}, "did you mean 'yes'"),
        ({"probs": "q_*"}, r"no column q_\*; its columns are p_a, p_b, yes"),
        ({"probs": ["p_a", "p_c"]}, "no column 'p_c', which --probs names; did you mean"),
        ({"text": "ids"}, "no column 'ids', which --text names"),
    ],
)
def test_names_that_are_not_there(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        layout("p_a p_b yes", **options)


def test_the_table_in_a_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "columns.toml"
    file.write_text('[columns]\nlabel = "t"\nprobs = "s*"\nclass_names = ["a", "b"]\nnan_is_unknown = true\n')
    found = Request.of({"columns": file, "label": "u", "probs": None})
    assert found == Request("u", ("s*",), class_names=("a", "b"), nan_is_unknown=True)
    file.write_text("[columns]\nlables = 1\n")
    with pytest.raises(UnknownNameError, match="did you mean 'label'"):
        Request.of({"columns": file})
    file.write_text("label = 1\n")
    with pytest.raises(InvalidInputError, match=r"must have a table \[columns\]"):
        Request.of({"columns": file})


def test_types_of_their_own_need_no_text() -> None:
    with pytest.raises(InvalidInputError, match="--text is for"):
        find_layout("p.parquet", pa.schema([("probs", LISTS), ("id", pa.int64())]), Request(text=("id",)))
