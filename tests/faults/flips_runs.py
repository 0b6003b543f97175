"""Damaged files of runs, experiments and calibrators: the same results, or one line; never other numbers."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache, partial
from io import StringIO
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from calibrant import Predictions, load_calibrator
from calibrant.calibrators import HistogramBinning, SplineCalibration, TemperatureScaling, VectorScaling
from calibrant.errors import CalibrantError, InterruptedRunError
from calibrant.experiments import ExperimentFolder, run_experiment
from calibrant.report.experiment import write_experiment
from calibrant.report.formats import render
from calibrant.report.paper import make_table
from calibrant.runs import RunFolder
from calibrant.training import Settings, predict_run, train
from calibrant.training.callback import TrainingCallback
from calibrant.training.results import mean_scores
from faults.trial import Trial

SETTINGS: dict[str, Any] = {"data": "digits", "model": "mlp", "epochs": 2, "batch_size": 256, "shifts": ("fog-3",)}
TOML = """calibrators = ["temperature"]
metrics = ["accuracy", "ece", "nll"]
figures = []
[settings]
data = "digits"
model = "mlp"
epochs = 1
batch_size = 256
shifts = ["fog-3"]
[[grid]]
loss = ["cross_entropy", "focal"]
"""
NOT_RESULTS = {".lock", "report.html", "sweep.toml"}


class RefusedError(Exception):
    """A damaged file was named in one line."""


# Whole folders, made once, which every trial copies


class Stop(TrainingCallback):
    """Stops a run after its first epoch, and leaves its checkpoint."""

    def on_epoch_end(self, record: dict[str, Any]) -> None:
        raise InterruptedRunError("stopped")


@cache
def whole(kind: str) -> Path:
    folder = Path(mkdtemp(prefix="whole-"))
    if kind == "finished run":
        train(Settings(**SETTINGS, keep="nll"), folder / "run")
    elif kind == "begun run":
        with suppress(InterruptedRunError):
            train(Settings(**SETTINGS, keep="nll"), folder / "run", callback=Stop())
    elif kind == "experiment":
        (folder / "sweep.toml").write_text(TOML)
        assert not run_experiment(folder / "sweep.toml", output=folder / "run").failures
    else:
        (folder / "run").mkdir()
        for cls in (TemperatureScaling, VectorScaling, HistogramBinning, SplineCalibration):
            cls.fit(rows(0)).save(folder / "run" / f"{cls.name}.json")
    return folder


def rows(seed: int) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(300, 4, generator=generator)
    return Predictions.from_logits(3 * logits, (logits + torch.randn(300, 4, generator=generator)).argmax(1))


# What is done with a damaged folder, and what it yields


def train_again(folder: Path) -> Any:
    """The scores, and all that depends on the settings alone."""
    run = RunFolder(train(Settings(**SETTINGS, keep="nll"), folder / "run"))
    return {"scores": mean_scores(run), "predictions": {path.name: contents(path) for path in predictions(run)}}


def predict_again(folder: Path) -> Any:
    return [contents(path) for path in predict_run(folder / "run", ["test", "fog-3"], output=folder / "out")]


def run_again(folder: Path, *, redo: bool = False) -> Any:
    result = run_experiment(folder / "sweep.toml", output=folder / "run", redo=redo)
    for outcome in result.failures:
        raise RefusedError(outcome.failure)
    return result.folder.read_rows().to_pylist(), result.folder.read_curves().to_pylist()


def table_again(folder: Path) -> str:
    return render(make_table(ExperimentFolder(folder / "run").read_rows(), "1"), "csv")


def report_again(folder: Path) -> str:
    """The page without its paths and times."""
    text = write_experiment(folder / "run").read_text().replace(str(folder), "FOLDER")
    if "readable" in text or "planned runs are unknown" in text:
        raise RefusedError("the page says what it lacks")
    return "\n".join(line for line in text.splitlines() if "page written" not in line)


def calibrate_again(folder: Path) -> Any:
    found = {path.name: load_calibrator(path) for path in sorted((folder / "run").glob("*.json"))}
    return {name: (calibrator.summary(), calibrator(rows(1)).logits.tolist()) for name, calibrator in found.items()}


def predictions(run: RunFolder) -> list[Path]:
    return sorted(run.predictions.glob("*.parquet"))


def contents(path: Path) -> Any:
    """The rows of a file; of one that cannot be read, that."""
    try:
        found = Predictions.load(path)
    except CalibrantError:
        return None
    return found.logits.tolist(), found.labels.tolist(), found.columns.to_pydict()


ACTIONS: dict[str, tuple[Callable[[Path], Any], ...]] = {
    "finished run": (train_again, predict_again),
    "begun run": (train_again,),
    "experiment": (run_again, partial(run_again, redo=True), table_again, report_again),
    "calibrator": (calibrate_again,),
}


@cache
def expected(kind: str, number: int) -> Any:
    folder = Path(mkdtemp(prefix="expected-"))
    shutil.copytree(whole(kind), folder / "copy")
    return ACTIONS[kind][number](folder / "copy")


# Damage


def flip(content: bytes, draws: random.Random) -> bytes:
    place = draws.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draws.randrange(8)]) + content[place + 1 :]


def cut(content: bytes, draws: random.Random) -> bytes:
    return content[: draws.randrange(len(content))]


def zero(content: bytes, draws: random.Random) -> bytes:
    n_bytes = draws.randint(1, min(4096, len(content)))
    return content[:-n_bytes] + bytes(n_bytes)


def change_key(content: bytes, draws: random.Random) -> bytes:
    """Another value somewhere in the record of a calibrator, without the digest: what a person might have edited."""
    record = json.loads(content)
    del record["digest"]
    parent, key = draws.choice(list(_places(record)))
    parent[key] = draws.choice([None, -1, 0.5, "x", [], {}, True, [[1]], 10**400, {"a": {"b": 1}}])
    return json.dumps(record).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(min(3, len(value))) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes] | None] = {
    "flipped bit": flip,
    "truncated": cut,
    "zeroed tail": zero,
    "removed": None,
}


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Half of them flipped bits; the files, the other damages and what is done next in turn."""
    draws = random.Random(seed)
    kinds = cycle(["finished run", "begun run", "experiment", "calibrator"])
    for number, kind in zip(range(n), kinds, strict=False):
        damage = "flipped bit" if draws.random() < 0.5 else draws.choice(list(DAMAGES)[1:])
        if kind == "calibrator" and damage == "removed":
            damage = "changed key"
        yield Trial(
            f"{damage}, {kind}", f"{kind} {damage} {seed}:{number}", partial(attempt, kind, damage, seed, number)
        )


def attempt(kind: str, damage: str, seed: int, number: int, folder: Path) -> str | None:
    draws = random.Random(f"{seed}:{number}")
    shutil.copytree(whole(kind), folder / "copy")
    files = sorted(path for path in (folder / "copy" / "run").rglob("*") if path.is_file())
    path = draws.choice([path for path in files if path.name not in NOT_RESULTS and path.stat().st_size])
    harm = change_key if damage == "changed key" else DAMAGES[damage]
    if harm is None:
        path.unlink()
    else:
        path.write_bytes(harm(path.read_bytes(), draws))
    which = draws.randrange(len(ACTIONS[kind]))
    what = f"{path.relative_to(folder / 'copy')}, action {which}"
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            found = ACTIONS[kind][which](folder / "copy")
    except (CalibrantError, RefusedError) as error:
        return None if len(str(error).splitlines()) == 1 else f"{what}: {error}"
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"
    if kind == "calibrator" and damage == "changed key":
        return None  # a person may do so
    return None if same(found, expected(kind, which), path.name) else f"{what}: other results in silence"


def same(found: Any, wanted: Any, damaged: str) -> bool:
    """Whether the results are the same; the damaged file of a finished run may stay, if it is refused when read."""
    if isinstance(found, dict) and "predictions" in found and found["predictions"].get(damaged, 0) is None:
        found["predictions"][damaged] = wanted["predictions"][damaged]
    return bool(found == wanted)
