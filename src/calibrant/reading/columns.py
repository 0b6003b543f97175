"""What the columns of a table are: said by the user, or found by their names; never by their values."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypedDict

import pyarrow as pa

from calibrant._checks import check_class_names, check_column_names, check_flag, check_instance, in_order, repeated_name
from calibrant._files import read_toml
from calibrant._names import check_choice, common_start, suggestion
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.predictions import LABEL_PROBS, POSITIVE_COLUMNS, PREDICTION_COLUMNS, RESERVED

WORDS = {
    "logits": "logits",
    "log_probs": "log-probabilities",
    "probs": "probabilities",
    "positive_probs": "probabilities of class 1",
    "positive_logits": "log-odds of class 1",
    "confidence": "confidence of the predicted class",
}
KINDS = (*PREDICTION_COLUMNS, "confidence")
OF_ONE_COLUMN = (*POSITIVE_COLUMNS, "confidence")  # of numbers

LABELS = ("label", "labels", "target", "y", "y_true", "y_test", "true_label", "ground_truth", "actual")
# Names, in any case, of one column: lists, or of class 1 numbers.
SINGLE = {
    "logits": ("logits",),
    "log_probs": ("log_probs", "logprobs"),
    "probs": ("probs", "probas", "probabilities", "probability", "probability.values"),  # the last two of Spark
    "positive_probs": ("positive_probs", "positive_prob"),
    "positive_logits": ("positive_logits", "positive_logit"),
}
# Names, in any case, where no column is one of probabilities: of the confidence, and of what says whether it is right.
CONFIDENCE = ("confidence", "conf")
CORRECT = ("correct", "is_correct")
PREDICTION = ("prediction", "predicted", "pred", "y_pred")
# Beginnings of the names of one column for each class.
STEMS = {
    "logits": ("logit", "logits"),
    "log_probs": ("log_prob", "log_probs", "logprob"),
    "probs": ("p", "prob", "probs", "proba", "probability", ".pred"),  # the last of tidymodels in R
}
SPARK_VECTOR = tuple(f"probability.{field}" for field in ("type", "size", "indices", "values"))
NO_CLASS = ("logit_norm", "p_value", ".pred_class", *SPARK_VECTOR)  # columns that only look like those of a class
NO_LABEL = ""  # of a file without the column of labels that another one has
MAX_SHOWN = 8  # names in a message


class ColumnOptions(TypedDict, total=False):
    """What the user says of the columns; see `calibrant.read`."""

    label: str | None
    probs: str | Sequence[str] | None
    logits: str | Sequence[str] | None
    log_probs: str | Sequence[str] | None
    positive_probs: str | None
    positive_logits: str | None
    confidence: str | None
    correct: str | None
    prediction: str | None
    class_names: Sequence[str] | None
    nan_is_unknown: bool
    text: str | Sequence[str] | None
    columns: str | os.PathLike[str] | None


@dataclass(frozen=True)
class Request:
    """What the user says of the columns, checked."""

    label: str | None = None
    probs: tuple[str, ...] = ()
    logits: tuple[str, ...] = ()
    log_probs: tuple[str, ...] = ()
    positive_probs: tuple[str, ...] = ()
    positive_logits: tuple[str, ...] = ()
    confidence: tuple[str, ...] = ()
    correct: str | None = None
    prediction: str | None = None
    class_names: tuple[str, ...] | None = None
    nan_is_unknown: bool = False
    text: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Of keyword arguments; those that are not given may stand in the table [columns] of a TOML file."""
        file = options.get("columns")
        given = {
            name: value
            for name, value in options.items()
            if name != "columns" and not (value is None or value is False)
        }
        return cls(**{name: _checked(name, value) for name, value in {**_table(file), **given}.items()})

    @property
    def predictions(self) -> tuple[str, tuple[str, ...]] | None:
        """The kind of the predictions and the patterns of their columns."""
        given = [(kind, patterns) for kind in KINDS if (patterns := getattr(self, kind))]
        if len(given) > 1:
            raise InvalidInputError(f"give one of {' and '.join(_flag(kind) for kind, _ in given)}")
        return given[0] if given else None


def _table(file: str | os.PathLike[str] | None) -> dict[str, Any]:
    if file is None:
        return {}
    table = read_toml(file).get("columns")
    if not isinstance(table, dict):
        raise InvalidInputError(f"{os.fspath(file)} must have a table [columns]")
    known = [each.name for each in fields(Request)]
    return {check_choice(f"key of [columns] in {os.fspath(file)}", name, known): table[name] for name in table}


def _checked(name: str, value: Any) -> Any:
    if name == "nan_is_unknown":
        return check_flag(name, value)
    if name == "class_names":
        names = tuple(in_order(name, "strings", value))
        return check_class_names(names, len(names))
    if name in ("label", "correct", "prediction"):
        check_instance(name, value, str)
        return value
    return check_column_names(name, value)


@dataclass(frozen=True)
class Layout:
    """What the columns of one table are."""

    kind: str  # one of KINDS
    columns: tuple[str, ...]  # of the predictions: one for each class in order, or one of lists
    lists: bool
    class_names: tuple[str, ...] | None
    numbered: bool  # whether a label that is a whole number is the number of a class, counted from 0
    label: str | None
    others: tuple[str, ...]  # columns that are kept
    left_out: tuple[str, ...]
    request: Request
    prediction: str | None = None  # of a confidence, which the label is compared with; then the label is no truth
    soft_labels: str | None = None  # the column of distributions of labels, in place of labels

    @property
    def top_label(self) -> bool:
        """Whether only the confidence of the predicted class is known."""
        return self.kind == "confidence"

    @property
    def _label_text(self) -> str:
        if self.soft_labels is not None:
            return f"soft labels from {self.soft_labels}"
        if self.label is None:
            return "not whether it is correct" if self.top_label else "no labels"
        if self.prediction is not None:
            return f"correct where {self.prediction} is {self.label}"
        return f"{'correct' if self.top_label else 'labels'} from {self.label}"

    def __str__(self) -> str:
        """The line that a user reads before anything is computed."""
        names = f" ({shown(self.class_names)})" if self.class_names else ""
        if self.lists or self.kind in OF_ONE_COLUMN:
            text = f"{WORDS[self.kind]}{names} from {self.columns[0]}"
        else:
            text = f"{WORDS[self.kind]} of {len(self.columns)} classes{names} from {shown(self.columns)}"
        text += f"; {self._label_text}"
        return text + (
            f"; left out: {shown([name or 'one without a name' for name in self.left_out])}" * bool(self.left_out)
        )


def shown(names: Sequence[str]) -> str:
    """Names in a message; of many, the first and the last."""
    if len(names) <= MAX_SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: MAX_SHOWN - 2])}, …, {names[-1]}"


def find_layout(
    source: str, schema: pa.Schema, request: Request, *, is_text: bool = False, is_own: bool = False
) -> Layout:
    """What the columns of a table are, of which every value may be a text, or which calibrant wrote.

    Raises: InvalidInputError where nothing or several things are found, with what to type; UnknownNameError.
    """
    if (twice := repeated_name(schema.names)) is not None:
        raise InvalidInputError(f"{source} has more than one column {twice!r}: rename one of them")
    if is_own:  # its columns are known, whatever others are called
        known: dict[str, Any] = {name: (name,) for name in PREDICTION_COLUMNS} | {"label": "label"}
        if not any(name in schema.names for name in PREDICTION_COLUMNS):
            known = {"confidence": ("confidence",), "correct": "correct"}
        said = {"label", "correct"} if request.label or request.correct or request.prediction else set()
        said |= set(KINDS) if request.predictions else set()
        request = replace(request, **{name: known[name] for name in schema.names if name in known.keys() - said})
        if request.label is None and request.correct is None and request.prediction is None:
            request = replace(request, label=NO_LABEL)
    kind, found = _find_predictions(source, schema, request)
    lists = is_list(schema, found[0][0])
    names, numbered = (request.class_names, True) if lists or kind in OF_ONE_COLUMN else (None, True)
    if not lists and kind not in OF_ONE_COLUMN:
        found, names, numbered = _in_class_order(source, kind, found, request.class_names)
    if kind in POSITIVE_COLUMNS:
        check_class_names(names, 2)
    columns = tuple(name for name, _ in found)
    label, prediction = _find_outcome(source, schema.names, columns, request, kind)
    rest = [name for name in schema.names if name not in (*columns, label)]
    if request.text and not is_text:
        raise InvalidInputError(f"{source} has types of its own: --text is for .csv and .tsv files")
    for name in request.text:
        _check_column(source, "--text", name, schema.names)
    left_out = tuple(name for name in rest if (name in RESERVED and name != "features") or not name)
    kept = tuple(name for name in rest if name not in left_out)
    soft = None
    if kind != "confidence" and label is not None and is_list(schema, label):
        soft, label = label, None
        if LABEL_PROBS in kept:
            raise InvalidInputError(f"{source} has soft labels in {soft} and {LABEL_PROBS}: rename one of them")
    elif label is None and LABEL_PROBS in kept and is_list(schema, LABEL_PROBS):
        soft = LABEL_PROBS
    return Layout(kind, columns, lists, names, numbered, label, kept, left_out, request, prediction, soft)


def is_list(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _flag(kind: str) -> str:
    return f"--{kind.replace('_', '-')}"


Found = list[tuple[str, str]]  # columns, each with what names its class


def _find_predictions(source: str, schema: pa.Schema, request: Request) -> tuple[str, Found]:
    if (asked := request.predictions) is not None:
        kind, patterns = asked
        found = [pair for pattern in patterns for pair in _expand(source, kind, pattern, schema.names)]
        _check_shape(source, schema, kind, found)
        return kind, found
    candidates = _candidates(schema)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates and (found := _find_confidence(source, schema, request)):
        return "confidence", found
    if not candidates:
        flat = [name for name in schema.names if any(name.lower() in SINGLE[kind] for kind in STEMS)]
        if flat:
            advice = "write a column for each class, such as prob_0, prob_1 (in CSV there are no lists)"
            raise InvalidInputError(f"{source} has no lists of numbers in its column {flat[0]}: {advice}")
        raise InvalidInputError(
            f"{source} has no columns whose names say that they are predictions: type --probs, --logits or --log-probs "
            "with those of all classes, or --positive-probs, --positive-logits or --confidence with one; its columns "
            f"are {shown(schema.names) or 'none'}{_example(source, schema)}"
        )
    texts = [f"{WORDS[kind]} ({shown([name for name, _ in found])})" for kind, found in candidates]
    choices = [f"{_flag(kind)} {' '.join(_quoted(name) for name, _ in found)}" for kind, found in candidates]
    raise InvalidInputError(f"{source} has {' and '.join(texts)}: type {' or '.join(choices)}")


def _example(source: str, schema: pa.Schema) -> str:
    """What one might type, with the names of columns of fractions, or of a file of options that lies there."""
    if any(re.fullmatch(r"[+-]?[0-9]*\.[0-9]+(e[+-]?[0-9]+)?", name, re.IGNORECASE) for name in schema.names):
        return " (the first line must hold names)"
    if (spaced := next((name for name in schema.names if name != name.strip()), None)) is not None:
        return f" (there are spaces in {spaced!r}: write none beside commas)"
    beside = os.path.join(os.path.dirname(source), "columns.toml")
    other = f"; or type --columns {beside}" if os.path.isfile(beside) else ""
    names = [c.name for c in schema if pa.types.is_floating(c.type) and c.name.lower() not in LABELS]
    if not names:
        return other
    flag = "--probs" if len(names) > 1 else "--positive-probs"
    listed = f"{' '.join(map(_quoted, names[:MAX_SHOWN]))}{' …' * (len(names) > MAX_SHOWN)}"
    return f"; for example {flag} {_pattern(names, schema.names) or listed}{other}"


def _pattern(names: Sequence[str], every: Sequence[str]) -> str:
    """The pattern of several names and no other: what they share, up to the sign before and behind the class."""
    start = re.sub(r"[^\W_]*$", "", common_start(names))
    rest = [name.removeprefix(start) for name in names]
    end = re.sub(r"^[^\W_]*", "", common_start([name[::-1] for name in rest])[::-1])
    fits = [name for name in every if name.startswith(start) and name.removeprefix(start).endswith(end)]
    return f"'{start}*{end}'" if start + end and len(names) > 1 and fits == list(names) else ""


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else f"'{name}'"


def _candidates(schema: pa.Schema) -> list[tuple[str, Found]]:
    """Everything that the names say to be predictions."""
    found: list[tuple[str, Found]] = []
    for kind, singles in SINGLE.items():
        for name in schema.names:
            if name.lower() in singles and is_list(schema, name) == (kind not in POSITIVE_COLUMNS):
                found.append((kind, [(name, name)]))
    for kind, stems in STEMS.items():
        for stem in stems:
            family = [(name, end) for name in schema.names if (end := _class_of(name, stem)) and name not in NO_CLASS]
            found += [(kind, family)] if len(family) > 1 else []
    return found


def _class_of(name: str, stem: str) -> str | None:
    """What follows the beginning of a column's name: after _ or a point, or a number at once."""
    match = re.fullmatch(rf"{re.escape(stem)}(?:[_.](.+)|([0-9]+))", name, re.IGNORECASE)
    return match and (match[1] or match[2])


def _expand(source: str, kind: str, pattern: str, names: Sequence[str]) -> Found:
    """The columns of a pattern, each with what its star stands for; a name without a star names its class itself.

    One star, for at least one character; ? and [ are those of names such as p[0].
    """
    if pattern in names or "*" not in pattern:
        _check_column(source, _flag(kind), pattern, names)
        ends = [end for stem in STEMS.get(kind, ()) if (end := _class_of(pattern, stem))]
        return [(pattern, ends[0] if ends else pattern)]
    start, _, end = pattern.partition("*")
    least = len(start) + len(end)
    fits = [name for name in names if name.startswith(start) and name.endswith(end) and len(name) > least]
    found = [(name, name[len(start) : len(name) - len(end)]) for name in fits]
    if not found:
        raise UnknownNameError(f"{source} has no column {pattern}; its columns are {shown(names)}")
    return found


def _check_column(source: str, flag: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise UnknownNameError(f"{source} has no column {name!r}, which {flag} names; {suggestion(name, names)}")


def _check_shape(source: str, schema: pa.Schema, kind: str, found: Found) -> None:
    lists = [name for name, _ in found if is_list(schema, name)]
    if kind in OF_ONE_COLUMN:
        if len(found) > 1 or lists:
            got = shown([name for name, _ in found])
            raise InvalidInputError(f"{source}: {_flag(kind)} must name one column of numbers, got {got}")
    elif len(found) == 1 and not lists:
        name = found[0][0]
        one = {"probs": "P(class 1)", "logits": "the log-odds of class 1"}
        more = f"; for {one[kind]} of two classes type --positive-{kind} {_quoted(name)}" if kind in one else ""
        raise InvalidInputError(
            f"{source}: {_flag(kind)} must name a column for each class, or one of lists, got {name}{more}"
        )
    elif lists and len(found) > 1:
        raise InvalidInputError(
            f"{source}: {_flag(kind)} must name one column of lists, got {shown([n for n, _ in found])}"
        )


def _in_class_order(
    source: str, kind: str, found: Found, given: tuple[str, ...] | None
) -> tuple[Found, tuple[str, ...] | None, bool]:
    """The columns in the order of the classes, their names, and whether whole numbers can be their labels."""
    ends = [end for _, end in found]
    if all(end.isascii() and end.isdigit() for end in ends):
        found = sorted(found, key=lambda pair: int(pair[1]))
        numbers = [int(end) for _, end in found]
        from_zero = numbers == list(range(len(found)))
        if not from_zero and given is None:
            own, zero = " ".join(map(str, numbers)), " ".join(map(str, range(len(found))))
            raise InvalidInputError(
                f"{source}: the columns {shown([name for name, _ in found])} are not numbered from 0: type "
                f"--class-names {own} if the labels are these numbers, or --class-names {zero} if they count from 0"
            )
        return found, check_class_names(given, len(found)), from_zero
    if (twice := repeated_name(ends)) is not None:
        raise InvalidInputError(f"{source}: {_flag(kind)} must name each class once, got {twice!r} twice")
    if given is not None and set(given) != set(ends):
        raise InvalidInputError(
            f"{source}: class_names must be those of the columns in any order, {shown(ends)}, got {shown(given)}"
        )
    by_class = {end: name for name, end in found}
    names = tuple(given or ends)
    return [(by_class[name], name) for name in names], names, True


def _find_confidence(source: str, schema: pa.Schema, request: Request) -> Found:
    """The column of the confidence of the predicted class, where no other column is of predictions."""
    found = [name for name in schema.names if name.lower() in CONFIDENCE and not is_list(schema, name)]
    if len(found) > 1:
        choices = " or ".join(f"--confidence {_quoted(name)}" for name in found)
        raise InvalidInputError(f"{source} has confidences in {' and '.join(found)}: type {choices}")
    if request.class_names and found:
        raise InvalidInputError(
            f"{source} has only the confidence of the predicted class ({found[0]}), which has no class names: type "
            f"--positive-probs {_quoted(found[0])} if it is P(class 1)"
        )
    return [(name, name) for name in found]


def _find_outcome(
    source: str, names: Sequence[str], taken: Sequence[str], request: Request, kind: str
) -> tuple[str | None, str | None]:
    """The column of the labels; of a confidence, that of its truths, or those of the label and of the prediction."""
    if kind != "confidence":
        for name in ("correct", "prediction"):
            if getattr(request, name) is not None:
                raise InvalidInputError(f"{source}: --{name} goes with --confidence, got {WORDS[kind]}")
        return _find_label(source, names, taken, request), None
    if request.correct is not None and (request.label or request.prediction) is not None:
        raise InvalidInputError("give --correct, or --prediction and --label")
    correct = _find_column(source, names, taken, "correct", request.correct, CORRECT)
    if correct is not None and (request.label or request.prediction) is None:
        return correct, None
    label = _find_label(source, names, taken, request)
    prediction = _find_column(source, names, taken, "prediction", request.prediction, PREDICTION)
    if label is not None and prediction is None:
        raise InvalidInputError(
            f"{source} has the confidence {taken[0]} and labels from {label}, but not which class was predicted: type "
            f"--prediction with its column, or --positive-probs {_quoted(taken[0])} if that is P(class 1)"
        )
    if label is None and request.label != NO_LABEL and request.prediction is not None:
        raise InvalidInputError(f"{source}: --prediction needs labels to compare it with: type --label")
    return label, prediction if label is not None else None


def _find_column(
    source: str, names: Sequence[str], taken: Sequence[str], option: str, given: str | None, known: Sequence[str]
) -> str | None:
    """The column that an option names, or the one of a known name."""
    if given is not None:
        _check_column(source, f"--{option}", given, names)
        if given in taken:
            raise InvalidInputError(f"{source}: --{option} must not name the confidence, got {given}")
        return given
    found = [name for name in names if name.lower() in known and name not in taken]
    if len(found) > 1:
        choices = " or ".join(f"--{option} {_quoted(name)}" for name in found)
        raise InvalidInputError(f"{source} has {' and '.join(found)}: type {choices}")
    return found[0] if found else None


def _find_label(source: str, names: Sequence[str], taken: Sequence[str], request: Request) -> str | None:
    if request.label == NO_LABEL:
        return None
    if request.label is not None:
        _check_column(source, "--label", request.label, names)
        if request.label in taken:
            raise InvalidInputError(f"{source}: --label must not name a column of predictions, got {request.label}")
        return request.label
    found = [name for name in names if name.lower() in LABELS and name not in taken]
    if len(found) > 1:
        choices = " or ".join(f"--label {_quoted(name)}" for name in found)
        raise InvalidInputError(f"{source} has labels in {' and '.join(found)}: type {choices}")
    return found[0] if found else None


def with_class_names(layout: Layout, names: tuple[str, ...] | None) -> Layout:
    """With the names that the metadata of a table hold, where the layout has none."""
    return layout if layout.class_names or names is None else replace(layout, class_names=names)
