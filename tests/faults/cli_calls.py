"""Wrong calls of the command line: every argument of every verb, found by looking at the app, with wrong values."""

import atexit
import contextlib
import functools
import hashlib
import io
import os
import random
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from types import FrameType
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cyclopts import App, Argument
from PIL import Image

from calibrant import Predictions, cli
from calibrant.calibrators import TemperatureScaling
from calibrant.decisions import ConformalSets
from faults.trial import Trial
from made.folder import write_folder
from made.predictions import example
from made.rows import Experiment

MAX_SECONDS = 120  # a call takes a tenth of a second; the machine may be busy
MAX_BYTES = 2 * 2**30  # of memory that a call may add; Vega reserves far more addresses than that
TINY = "--data digits --model mlp --epochs 1 --shifts none --device cpu"
# A call of each verb that works, in the folder that `_inputs` makes.
CALLS = {
    "--install-completion": "--shell bash -o out",
    "apply": "t.json y.parquet -o out",
    "audit": "x.parquet",
    "average": "x.parquet same.parquet -o out",
    "certify": "x.parquet --max-error 0.4 -o out",
    "compare-calibrators": "x.parquet y.parquet --calibrators temperature",
    "convert": "x.parquet -o out",
    "corrupt": "photos fog 3 -o out",
    "data check": "digits",
    "data fetch": "digits",
    "data list": "",
    "data where": "",
    "detect": "x.parquet y.parquet --scores out",
    "estimate": "y.parquet --reference x.parquet",
    "export": "t.json -o out",
    "figure": "severity experiment -o out.svg",
    "fit": "x.parquet -o out",
    "label": "ids.parquet labels.csv --id id -o out",
    "monitor": "x.parquet --reference y.parquet --every 10 --state out",
    "predict": "run test -o out --device cpu",
    "report": "experiment",
    "run": "sweep.toml -o out --dry-run",
    "schema": "-o out",
    "sets apply": "sets.json y.parquet -o out",
    "sets check": "sets.parquet",
    "sets fit": "x.parquet -o out",
    "solve": "--prior prior.json",
    "table": "experiment -o out.csv",
    "train": f"{TINY} -o out",
}
LEFT_OUT = {"--ray", "--epochs"}  # an address is tried with the signals; many epochs may be meant
WRONG = {
    "empty": "",
    "a NUL": "a\0b",
    "300 characters": "x" * 300,
    "a folder": "photos",
    "an experiment": "experiment",
    "a missing file": "no/such.parquet",
    "a FIFO": "fifo",
    "/dev/null": "/dev/null",
    "/dev/zero": "/dev/zero",
    "a text": "notes.txt",
    "an image": "photos/a.png",
    "other columns": "other.parquet",
    "predictions": "x.parquet",
    "a calibrator": "t.json",
    "a glob": "*.parquet",
    "negative": "-1",
    "zero": "0",
    "a fraction": "1.5",
    "huge": "9" * 18,
    "too huge": "9" * 40,
    "1e400": "1e400",
    "nan": "nan",
    "inf": "inf",
    "unicode": "\u00fcn\u00efc\u00f6d\u00e9",
    "a surrogate": "a\udcffb",
    "a line break": "a\nb",
    "an escape": "\x1b[31mred",
    "markup": "[red]x[/]",
    "end of options": "--",
    "a dash": "-",
    "a brace": "{}",
    "twice": "x y",  # stands for the option given twice
}


def verbs(app: App, before: str = "") -> Iterator[tuple[str, App]]:
    """Every verb that can be called, by its words."""
    for name in app:
        if name not in (*app.help_flags, *app.version_flags):
            words = f"{before} {name}".strip()
            if app[name].default_command is None:
                yield from verbs(app[name], words)
            else:
                yield words, app[name]


def trials(n: int, seed: int) -> Iterator[Trial]:
    """The first n of all wrong calls, in an order that the seed decides."""
    calls = [
        (verb, argument, kind)
        for verb, app in verbs(cli.app)
        for argument, kind in product(app.assemble_argument_collection(), WRONG)
        if argument.names and not LEFT_OUT & set(argument.names)
    ]
    random.Random(seed).shuffle(calls)
    for verb, argument, kind in islice(calls, n):
        tokens = wrong_call(verb, argument, kind)
        name = f"{verb} {argument.name} {kind}"
        yield Trial("wrong call of the command line", name, functools.partial(_attempt, tokens, WRONG[kind]))


def wrong_call(verb: str, argument: Argument, kind: str) -> list[str]:
    """The call that works, with the value in the place of the argument."""
    tokens, value = shlex.split(CALLS[verb]), WRONG[kind]
    values = [value, value] if kind == "twice" else [value]
    if argument.index is not None and argument.field_info.kind is not argument.field_info.KEYWORD_ONLY:
        n_words = next((at for at, token in enumerate(tokens) if token.startswith("-")), len(tokens))
        at = min(argument.index, n_words)
        return [*verb.split(), *tokens[:at], *values, *tokens[at + 1 :]] if at < n_words else [
            *verb.split(), *tokens[:n_words], *values, *tokens[n_words:]
        ]  # fmt: skip
    given = next((at for at, token in enumerate(tokens) if token in argument.names), None)
    if given is not None:
        has_value = argument.hint is not bool
        tokens = tokens[:given] + tokens[given + 1 + has_value :]
    return [*verb.split(), *tokens, *(token for one in values for token in (argument.name, one))]


def _attempt(tokens: list[str], value: str, folder: Path) -> str | None:
    """Call in a copy of the inputs; what did not hold."""
    shutil.copytree(_inputs(), folder, dirs_exist_ok=True, symlinks=True)
    os.mkfifo(folder / "fifo")
    before = _contents(folder)
    with _limits():
        code, error = _call(tokens, folder)
    after = _contents(folder)
    if "Traceback" in error:
        return error.strip().splitlines()[-1][:200]
    lines = [line for line in error.splitlines() if not line.startswith("skipped ")]  # corrupt: one for each file
    if code not in (0, 1, 2, 3) or len(lines) > 1 or (code in (1, 2) and not lines):
        return f"exit code {code} with {len(lines)} lines: {error[:200]!r}"
    if changed := [name for name, digest in before.items() if after.get(name) != digest]:
        return f"changed {', '.join(changed)[:200]}"
    allowed = ("out", "runs", ".bashrc", "experiment/figures", "experiment/report.html", value)
    if stray := [name for name in after if name not in before and not name.startswith(allowed)]:
        return f"wrote {', '.join(stray)[:200]}"
    return None


def _call(tokens: list[str], folder: Path) -> tuple[object, str]:
    """The exit code, and standard error with the traceback if there is one."""
    out, err, code = io.StringIO(), io.StringIO(), object()
    environment = {"HOME": str(folder), "COLUMNS": "200", "CALIBRANT_DATA": str(folder / "data")}
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", ["calibrant", *tokens]),
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
    return code, err.getvalue()


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """Some seconds, and some memory more than the process has."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {MAX_SECONDS} seconds")

    pages = int(Path("/proc/self/statm").read_text().split()[5])
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    handler = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + MAX_BYTES, hard))
    signal.alarm(MAX_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        signal.signal(signal.SIGALRM, handler)


@functools.cache
def _inputs() -> Path:
    """A folder with one of everything, made once."""
    folder = Path(tempfile.mkdtemp(prefix="calibrant-calls-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    example().save(folder / "x.parquet")
    example(1).save(folder / "y.parquet")
    example().save(folder / "same.parquet")
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), folder / "other.parquet")
    ids = Predictions.from_logits(example().logits, None, columns={"id": list(range(10))})
    ids.save(folder / "ids.parquet")
    (folder / "labels.csv").write_text("id,label\n3,0\n5,2\n")
    TemperatureScaling.fit(example()).save(folder / "t.json")
    sets = ConformalSets.fit(example())
    sets.save(folder / "sets.json")
    sets(example(1)).save(folder / "sets.parquet")
    (folder / "prior.json").write_text("[0.2, 0.8]")
    (folder / "notes.txt").write_text("my notes\n")
    (folder / "sweep.toml").write_text('[settings]\ndata = "digits"\nmodel = "mlp"\n[[grid]]\nloss = "focal"\n')
    (folder / "photos").mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(folder / "photos" / "a.png")
    sweep = (folder / "sweep.toml").read_text()
    write_folder(folder / "experiment", Experiment(severities=(1,), losses=("focal",)), toml=sweep)
    code, error = _call(["train", *TINY.split(), "-o", "run"], folder)
    if code != 0:
        raise RuntimeError(error)
    return folder


def _contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
