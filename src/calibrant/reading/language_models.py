"""Logs of language models: the log-probability of each answer option of a question.

The samples of lm-evaluation-harness (``--log_samples``) of tasks with multiple choice, and JSON lines with a mapping or
a list of options. Options need not be all that a model could have said, so their log-probabilities are taken as logits.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calibrant._checks import PRIOR_TOLERANCE
from calibrant._names import suggestion
from calibrant._paths import absolute_url
from calibrant.errors import CorruptFileError, InvalidInputError, UnknownNameError
from calibrant.predictions import RESERVED
from calibrant.reading.columns import LABELS, SINGLE, WORDS, Request, shown
from calibrant.reading.json_objects import first_object, is_json, read_objects
from calibrant.reading.options import Options, all_names
from calibrant.reading.tables import TableSource, memory_table

SAMPLE = ("doc_id", "target", "arguments", "resps", "filtered_resps")  # fields of lm-evaluation-harness
SAMPLES_NAME = re.compile(r"samples_(.+?)(?:_\d{4}-\d\d-\d\dT[\d.-]+)?$")
SCORES = ("score", "prob")  # beside "label" in a list of objects: of pipelines of Hugging Face, of BigQuery
TEXTS = ("choices", "options")  # fields with the texts of the options of a list


def open_options(paths: Sequence[str], request: Request) -> dict[str, TableSource]:
    """The tables of those files whose classes are options, each with the options of all. Raises: CorruptFileError."""
    found = {path: options for path in paths if (options := read_options(path, request)) is not None}
    if not found:
        return {}
    names, width = all_names(list(found.values()), request.class_names)
    named = {path: replace(options, names=names) for path, options in found.items()}
    tables = {path: memory_table(path, absolute_url(path), options.table(width)) for path, options in named.items()}
    return {path: replace(table, options=replace(named[path], values=(), columns={})) for path, table in tables.items()}


def read_options(path: str, request: Request) -> Options | None:
    """The options in a file; None where its first line says that it is another table. Raises: CorruptFileError."""
    first = first_object(path) if is_json(path) else None
    if not isinstance(first, dict):
        return None
    if all(name in first for name in SAMPLE):
        return _read_samples(path, request)
    found = _find_field(path, first, request)
    return None if found is None else _read_rows(path, first, *found, request)


def _read_samples(path: str, request: Request) -> Options:
    """The questions of a log of lm-evaluation-harness; an id names its task too, as every task counts from 0."""
    if request.predictions or request.label:
        raise InvalidInputError(f"{path} is a log of lm-evaluation-harness, which says itself what it holds: no flags")
    stem = os.path.basename(path.removesuffix(".gz")).rpartition(".")[0]
    match = SAMPLES_NAME.match(stem)
    task = match[1] if match else stem
    values, labels, documents, filters = [], [], [], set()
    for row, sample in read_objects(path):
        if not all(name in sample for name in SAMPLE):
            raise CorruptFileError(f"{path} must have {', '.join(SAMPLE)} in each line, got others at row {row}")
        options = _likelihoods(path, row, sample)
        values.append([value for value, _ in options])
        labels.append(_target(path, row, sample, options))
        documents.append(f"{task}/{sample['doc_id']}")
        filters.add(sample.get("filter"))
    if len(filters) > 1:
        raise CorruptFileError(
            f"{path} has each question once for each filter ({', '.join(sorted(map(str, filters)))})"
        )
    found = f"log-likelihoods of {_sizes(values)} options as logits; labels from target; task from the name of the file"
    columns: dict[str, Sequence[Any]] = {
        "label": labels,
        "task": [task] * len(values),
        "doc_id": documents,
        "n_options": list(map(len, values)),
    }
    return Options(path, "logits", values, columns, "label", found)


def _sizes(values: Sequence[Any]) -> str:
    sizes = sorted(set(map(len, values)))
    return f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])


def _likelihoods(path: str, row: int, sample: Mapping[str, Any]) -> list[tuple[float, tuple[str, str]]]:
    """The log-likelihood of each option with its context and continuation.

    Where `acc_mutual_info` is measured, the log holds those of the continuations without context too.
    """
    arguments = sample["arguments"]
    requests = [tuple(each.values()) if isinstance(each, dict) else tuple(each) for each in _items(arguments)]
    try:
        pairs = [each if isinstance(each, list) else [] for each in sample["filtered_resps"]]  # else a generated text
        values = [float(value) for value, _ in pairs]
        found = [(value, (str(ask[0]), str(ask[1]))) for value, ask in zip(values, requests, strict=True)]
    except (TypeError, ValueError, IndexError):
        rule = "only tasks of multiple choice have the log-likelihoods of options"
        raise CorruptFileError(
            f"{path} must have (log-likelihood, is_greedy) in filtered_resps at row {row}: {rule}"
        ) from None
    if "acc_mutual_info" in sample:
        found = [each for each in found if each[1][0]]
    if len(found) < 2 or not all(value <= PRIOR_TOLERANCE for value, _ in found):
        got = shown([f"{value:g}" for value, _ in found])
        raise CorruptFileError(f"{path} must have log-likelihoods ≤ 0 of at least two options, got {got} at row {row}")
    return found


def _items(arguments: Any) -> list[Any]:
    """The arguments of all requests: a list, or from version 0.4.2 on a mapping."""
    return list(arguments.values()) if isinstance(arguments, dict) else list(arguments)


def _target(path: str, row: int, sample: Mapping[str, Any], options: Sequence[tuple[float, tuple[str, str]]]) -> int:
    """The option that is correct: by number, by its text, or of two that differ in their contexts by `acc`."""
    target, texts = str(sample["target"]), [text.strip() for _, (_, text) in options]
    best = max(range(len(options)), key=lambda option: options[option][0])
    accuracy = sample.get("acc", float("nan"))
    if re.fullmatch(r"\d+", target) and int(target) < len(options):
        label = int(target)
    elif texts.count(target.strip()) == 1:
        label = texts.index(target.strip())
    elif len(options) == 2 and texts == [target.strip()] * 2 and accuracy in (0, 1):
        label = best if accuracy == 1 else 1 - best
    else:
        raise CorruptFileError(
            f"{path} must have one of {len(options)} options as target, got {target!r} at row {row}: "
            "questions with several correct options, or none, cannot be scored"
        )
    if not math.isnan(accuracy) and accuracy != (label == best):
        raise CorruptFileError(
            f"{path}: at row {row} acc is {accuracy:g}, and the most likely option is {best} where target is {label}: "
            "more than one option is correct, or acc measures something else"
        )
    return label


Field = tuple[str, str]  # the kind of the predictions, and the field


def _find_field(path: str, first: Mapping[str, Any], request: Request) -> Field | None:
    """The field with the options, if there is one, by what the user says or by its name."""
    if (asked := request.predictions) is not None:
        kind, patterns = asked
        fits = len(patterns) == 1 and _holds_options(first, patterns[0])
        return (kind, patterns[0]) if fits and kind != "positive_probs" else None
    found = [
        (kind, name)
        for kind, names in SINGLE.items()
        for name in first
        if name.lower() in names and kind != "positive_probs" and _holds_options(first, name)
    ]
    if len(found) > 1:
        choices = " or ".join(f"--{kind.replace('_', '-')} {name}" for kind, name in found)
        raise InvalidInputError(f"{path} has options in {shown([name for _, name in found])}: type {choices}")
    return found[0] if found else None


def _holds_options(first: Mapping[str, Any], name: str) -> bool:
    """Whether a field is a mapping, a list of labels with scores, or one of numbers: logprobs, or beside the texts."""
    value = first.get(name)
    if isinstance(value, dict):
        return True
    if not isinstance(value, list):
        return False
    named = bool(value) and isinstance(value[0], dict) and "label" in value[0]
    return named or name.lower() == "logprobs" or any(isinstance(first.get(texts), list) for texts in TEXTS)


def _read_rows(path: str, first: Mapping[str, Any], kind: str, name: str, request: Request) -> Options:
    """The options of every row, by name where they are a mapping, else in order."""
    values: list[Any] = []
    columns: dict[str, list[Any]] = {}
    label = request.label
    if label is not None and label not in first:
        raise UnknownNameError(f"{path} has no field {label!r}, which --label names; {suggestion(label, first)}")
    for row, content in read_objects(path):
        if not row:
            flat = [each for each, value in content.items() if each != name and not isinstance(value, dict | list)]
            label = label or _label_of(path, flat)
            columns = {each: [] for each in flat if each == label or each not in RESERVED}
        options = _checked(path, row, name, kind, content.get(name))
        if values and isinstance(options, dict) != isinstance(values[0], dict):
            raise CorruptFileError(
                f"{path}: {name} must hold options by name in every row or in none, row {row} differs"
            )
        values.append(options)
        for each in columns:
            columns[each].append(content.get(each))
        if label and isinstance(options, list):
            columns[label][-1] = _position(path, row, content, label, options)
    named = isinstance(values[0], dict)
    names = tuple(dict.fromkeys(each for options in values for each in options)) if named else None
    what = "probs" if kind == "probs" else "logits"
    how = "" if what == "probs" else " as logits (those of the options need not sum to 1)" * (kind == "log_probs")
    found = f"{WORDS[kind]} of {_sizes(values)} options from {name}{how}; "
    found += f"labels from {label}" if label else "no labels"
    return Options(path, what, values, columns, label, found, names)


def _label_of(path: str, names: Sequence[str]) -> str | None:
    found = [name for name in names if name.lower() in LABELS]
    if len(found) > 1:
        raise InvalidInputError(
            f"{path} has labels in {' and '.join(found)}: type --label {' or --label '.join(found)}"
        )
    return found[0] if found else None


def _checked(path: str, row: int, name: str, kind: str, value: Any) -> dict[str, float] | list[float]:
    """The numbers of the options of a row. Raises: CorruptFileError."""
    if isinstance(value, list) and value and all(isinstance(each, dict) and "label" in each for each in value):
        scores = {each["label"]: next((each[key] for key in SCORES if key in each), None) for each in value}
        value = scores if len(scores) == len(value) else f"a label twice in {value}"
    numbers = list(value.values()) if isinstance(value, dict) else value
    limit = PRIOR_TOLERANCE if kind == "log_probs" else math.inf
    if not isinstance(numbers, list) or not numbers or not all(_is_number(each, limit) for each in numbers):
        rule = "log-probabilities ≤ 0" if kind == "log_probs" else "numbers"
        raise CorruptFileError(f"{path}: {name} must hold {rule} of options, got {str(value)[:60]} at row {row}")
    return {str(key): float(each) for key, each in value.items()} if isinstance(value, dict) else numbers


def _is_number(value: object, limit: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value <= limit


def _position(path: str, row: int, content: Mapping[str, Any], label: str, options: Sequence[float]) -> int | None:
    """The option that a label is: its number, or its text among those of the row."""
    value = content.get(label)
    texts: list[Any] = next((content[name] for name in TEXTS if isinstance(content.get(name), list)), [])
    if isinstance(value, str) and texts.count(value) == 1:
        value = texts.index(value)
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    if value is not None and not (isinstance(value, int) and 0 <= value < len(options)):
        raise CorruptFileError(f"{path}: {label} must be one of {len(options)} options, got {value!r} at row {row}")
    return value
