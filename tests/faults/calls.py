"""Wrong calls of every public name: one argument at a time is replaced by what a careless caller might pass.

A call holds if it works, or raises a CalibrantError of one line. `faults.valid_calls` has one valid call of each name.
"""

import datetime
import decimal
import inspect
import math
import os
import random
import re
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse
import torch
from torch import Tensor

from calibrant import Predictions
from calibrant.errors import CalibrantError
from faults.trial import Trial
from faults.valid_calls import LEFT_OUT, RECORDS, is_hook, resolve, valid_calls

MAX_SECONDS = 10.0
MAX_BYTES = 2 * 2**30  # beyond what is in use already: a size that cannot be meant must not take the machine down
OPERATORS = ("__add__", "__radd__", "__call__", "__contains__", "__getitem__")
REFERENCE = Path(__file__).parents[2] / "docs/reference"


def _quietly(make: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch and numpy warn of the kinds that few use
            return make()

    return made


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "-1": lambda: -1,
    "0": lambda: 0,
    "1.5": lambda: 1.5,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "10**9": lambda: 10**9,
    "10**400": lambda: 10**400,
    "1j": lambda: 1j,
    "decimal": lambda: decimal.Decimal("0.5"),
    "numpy bool": lambda: np.bool_(True),
    "empty text": lambda: "",
    "text": lambda: "x",
    "text with NUL": lambda: "a\0b",
    "lone surrogate": lambda: "\ud800",
    "long text": lambda: "x" * 5000,
    "text of two lines": lambda: "a\nb",
    "bytes": lambda: b"x",
    "empty list": list,
    "list": lambda: ["a", 1, None],
    "list of texts": lambda: ["a", "b"],
    "nested list": lambda: [[1.0, 2.0], [3.0]],
    "list that contains itself": lambda: _list_of_itself(),
    "tuple": lambda: (1, 2, 3),
    "empty dict": dict,
    "dict": lambda: {"a": 1},
    "set": lambda: {"a", "b", "c"},
    "generator": lambda: (i for i in range(3)),
    "range": lambda: range(3),
    "slice": lambda: slice(None),
    "lambda": lambda: lambda *arguments: None,
    "object": object,
    "class": lambda: int,
    "module": lambda: math,
    "error": lambda: ValueError("a\nb"),
    "path": lambda: Path("no/such/file"),
    "date": lambda: datetime.datetime(2024, 1, 1),
    "empty array": lambda: np.zeros(0),
    "0-d array": lambda: np.array(1.0),
    "3-d array": lambda: np.zeros((2, 3, 4)),
    "read-only array": lambda: np.broadcast_to(np.float32(1), (5, 3)),
    "object array": lambda: np.array([1, "a", None], dtype=object),
    "text array": lambda: np.array(["a", "b"]),
    "datetime array": lambda: np.array(["2024-01-01"] * 8, "datetime64[s]"),
    "complex array": lambda: np.ones((8, 3), complex),
    "masked array": lambda: np.ma.masked_array(np.ones(8), mask=[0, 1] * 4),
    "structured array": lambda: np.zeros(8, [("a", int), ("b", float)]),
    "matrix of NaN": lambda: np.full((8, 3), np.nan),
    "sparse matrix": lambda: scipy.sparse.eye_array(3).tocsr(),
    "0-d tensor": lambda: torch.tensor(1.0),
    "empty tensor": lambda: torch.zeros(0),
    "tensor of integers": lambda: torch.ones(8, dtype=torch.int64),
    "tensor of booleans": lambda: torch.ones(8, dtype=torch.bool),
    "tensor of uint64": lambda: torch.full((8,), 2**63, dtype=torch.uint64),
    "3-d tensor": lambda: torch.zeros(2, 3, 4),
    "tensor with a gradient": lambda: torch.zeros(8, 3, requires_grad=True),
    "tensor of NaN": lambda: torch.full((8, 3), math.nan),
    "complex tensor": lambda: torch.ones(8, 3, dtype=torch.complex64),
    "sparse tensor": _quietly(lambda: torch.eye(8, 3).to_sparse()),
    "sparse CSR tensor": _quietly(lambda: torch.eye(8, 3).to_sparse_csr()),
    "meta tensor": lambda: torch.zeros(8, 3, device="meta"),
    "quantized tensor": _quietly(lambda: torch.quantize_per_tensor(torch.ones(8, 3), 0.1, 0, torch.qint8)),
    "nested tensor": _quietly(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    "float8 tensor": lambda: torch.ones(8, 3).to(torch.float8_e4m3fn),
    "data frame": lambda: pd.DataFrame({"a": [1, 2]}),
    "series": lambda: pd.Series([1.0, 2.0], index=[5, 7]),
    "categorical": lambda: pd.Categorical(["a", "b"]),
    "arrow array": lambda: pa.array([1, None, 3]),
    "arrow texts": lambda: pa.chunked_array([["a"], ["b"]]),
    "arrow table": lambda: pa.table({"a": [1, 2]}),
    "predictions": lambda: Predictions.from_logits(torch.zeros(3, 5), torch.tensor([0, 1, 2])),
    "predictions without rows": lambda: Predictions.from_logits(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)),
}
# Kinds that no argument takes, unless its valid call says so: to accept one is to ignore what it says
NEVER = (
    *("1j", "bytes", "object", "class", "module", "error", "nested list", "list that contains itself"),
    *("object array", "datetime array", "complex array", "masked array", "structured array", "sparse matrix"),
    *("complex tensor", "sparse tensor", "sparse CSR tensor", "meta tensor", "quantized tensor", "nested tensor"),
)
CALLBACKS = (
    "backend",
    "bar",
    "callback",
    "images",
    "model",
    "progress",
    "read",
    "say",
)  # their results are the caller's
CALLABLES = ("lambda", "class")
SETS = ("set", "dict")  # where order matters


def _list_of_itself() -> list[Any]:
    values: list[Any] = []
    values.append(values)
    return values


def public_names() -> dict[str, Callable[..., Any]]:
    """What the reference lists and a caller can pass arguments to: functions, classes, and methods of classes."""
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    found = dict(pair for path in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE) for pair in _callables(path))
    return {path.removeprefix("calibrant."): function for path, function in found.items()}


def _callables(path: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    found = resolve(path)
    if inspect.ismodule(found):
        own = [name for name, value in vars(found).items() if getattr(value, "__module__", "") == found.__name__]
        for name in getattr(found, "__all__", [name for name in own if not name.startswith("_")]):
            yield from _callables(f"{path}.{name}")
    elif inspect.isclass(found) and not issubclass(found, Exception):
        yield path, found
        for name, member in vars(found).items():
            method = inspect.isfunction(member) or isinstance(member, classmethod)
            if method and (not name.startswith("_") or name in OPERATORS) and _takes_arguments(getattr(found, name)):
                yield f"{path}.{name}", getattr(found, name)
    elif inspect.isfunction(found) and _takes_arguments(found):
        yield path, found


def _takes_arguments(function: Callable[..., Any]) -> bool:
    return list(inspect.signature(function).parameters) not in ([], ["self"])


def _arguments(function: Callable[..., Any]) -> list[str]:
    """The names of the arguments, without self and without options by any name."""
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.name != "self" and each.kind != each.VAR_KEYWORD]


def missing_calls() -> list[str]:
    """Public names without a valid call."""
    given = valid_calls()
    return sorted(name for name in public_names() if name not in given and name not in RECORDS and not is_hook(name))


def combinations() -> list[tuple[str, str, str]]:
    """Every name, argument and wrong value."""
    listed = public_names()
    found = []
    for name, call in valid_calls().items():
        arguments = [*call.arguments, *(a for a in _arguments(listed[name]) if a not in call.arguments)]
        tried = [each for each in arguments if (name, each) not in LEFT_OUT]
        found += [
            (name, each, kind) for each in tried for kind in WRONG if not (each in CALLBACKS and kind in CALLABLES)
        ]
    return found


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Draws n of all wrong calls, without repetition while there are others."""
    every = combinations()
    draw = random.Random(seed)
    for start in range(0, n, len(every)):
        for name, argument, kind in draw.sample(every, min(n - start, len(every))):
            yield trial(name, argument, kind)


def trial(name: str, argument: str, kind: str) -> Trial:
    """The call of a name whose argument is of a wrong kind."""
    package = name.partition(".")[0]
    return Trial(
        f"wrong call, {package}", f"{name}({argument}={kind})", lambda folder: _judge(name, argument, kind, folder)
    )


def _judge(name: str, argument: str, kind: str, folder: Path) -> str | None:
    call = valid_calls()[name]
    wrong = WRONG[kind]()
    begun = time.monotonic()
    try:
        with _within(folder), _bounded(), warnings.catch_warnings():
            warnings.simplefilter("error")
            result = call.function(**call.arguments | {argument: wrong})
            if inspect.isgenerator(result):
                result = list(result)
    except CalibrantError as error:
        return None if len(str(error).splitlines()) == 1 else f"a message of several lines: {str(error)!r}"
    except TooLongError:
        return f"takes more than {MAX_SECONDS:.0f} s"
    except Exception as error:
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text[:200]}"
    if time.monotonic() - begun > MAX_SECONDS:
        return f"takes more than {MAX_SECONDS:.0f} s"
    if argument not in call.anything and (kind in NEVER or (kind in SETS and argument in call.ordered)):
        return "accepted"
    return _fault_in(result)


def _fault_in(result: object) -> str | None:
    """What cannot be in a result, whatever was passed."""
    if isinstance(result, Predictions) and len(result) and not bool((result.probs.sum(1) - 1).abs().max() < 1e-3):
        return "returns predictions that are no distributions"
    if isinstance(result, float) and math.isnan(result):
        return "returns NaN"
    if isinstance(result, Tensor) and result.is_floating_point() and bool(result.isnan().any()):
        return "returns NaN"
    return None


class TooLongError(BaseException):
    """A call did not end in time; not an Exception, which the call could catch."""


@contextmanager
def _bounded() -> Iterator[None]:
    """Ends a call that takes too long, and refuses it more memory than any call needs."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    resource.setrlimit(resource.RLIMIT_DATA, (used + MAX_BYTES, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    """With an empty working directory: relative paths are written there."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
