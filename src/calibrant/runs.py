"""A run as its files describe it: its key, its folder, and the columns of its rows and curves; no torch is needed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from calibrant._files import atomic_write, read_error, write_error

RAW = "none"  # the calibrator of predictions as the model made them
UNSHIFTED = "none"  # the shift of a test that is like the training images


class RunKey(NamedTuple):
    """Which run of an experiment it is: the columns that every row of the run has.

    >>> RunKey("cifar10", "timm:vit/tiny", "maxent_mean", "global", 0.01, 0).name
    'cifar10-timm-vit-tiny-maxent_mean-global-smooth0.01-0'
    """

    data: str
    model: str
    loss: str
    variant: str = ""  # what the grid calls runs that differ in something else, as global
    label_smoothing: float = 0.0
    seed: int = 0

    @property
    def name(self) -> str:
        """The folder of the run, below that of the experiment, and the column `run` of its rows."""
        model = self.model.replace(":", "-").replace("/", "-")
        smoothing = f"smooth{self.label_smoothing:g}" if self.label_smoothing else ""
        return "-".join(part for part in (self.data, model, self.loss, self.variant, smoothing, str(self.seed)) if part)

    @property
    def kind(self) -> tuple[str, str, str, str, float]:
        """What runs have in common that differ in the seed alone."""
        return self[:5]

    def columns(self) -> dict[str, Any]:
        """The columns of its rows: its name, then the key."""
        return {"run": self.name, **self._asdict()}


_RUN = {
    "run": pa.string(),  # the folder of the run
    "data": pa.string(),
    "model": pa.string(),
    "loss": pa.string(),
    "variant": pa.string(),
    "label_smoothing": pa.float64(),
    "seed": pa.int64(),
}
_TEST = {
    "split": pa.string(),  # the name of the file of predictions, as test or fog-3
    "corruption": pa.string(),  # "none" of the unshifted test; of a natural shift, the name of the split
    "severity": pa.int64(),  # 1 to 5 of corruptions, else 0
    "shifted": pa.bool_(),  # whether it counts in the mean over shifted tests
    "origin": pa.string(),  # published files, or generated here
    "calibrator": pa.string(),
    "n_rows": pa.int64(),
}
ROWS = pa.schema(
    _RUN
    | _TEST
    | {
        "metric": pa.string(),
        "value": pa.float64(),  # null where it is undefined
        "low": pa.float64(),  # the 95 % interval, null where none was asked for
        "high": pa.float64(),
    }
)
# reliability: of ten bins of confidence x its mean, y the accuracy, weight the count;
# risk_coverage: at 20 coverages x the error y among the most confident, weight the count
CURVES = pa.schema(
    _RUN
    | _TEST
    | {"curve": pa.string(), "point": pa.int64(), "x": pa.float64(), "y": pa.float64(), "weight": pa.float64()}
)


def run_keys(rows: pa.Table) -> dict[str, RunKey]:
    """The runs that rows, or curves, are of, by their names in order of appearance.

    >>> run_keys(pa.table({"run": ["a", "a"], "data": ["d"] * 2, "model": ["m"] * 2, "loss": ["l"] * 2,
    ...                   "variant": [""] * 2, "label_smoothing": [0.0] * 2, "seed": [3, 3]}))
    {'a': RunKey(data='d', model='m', loss='l', variant='', label_smoothing=0.0, seed=3)}
    """
    columns = ["run", *RunKey._fields]
    found = rows.select(columns).group_by(columns, use_threads=False).aggregate([]).to_pylist()
    return {row["run"]: RunKey(*(row[name] for name in RunKey._fields)) for row in found}


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run: each of its files is named here, and only here."""

    path: Path

    @property
    def config(self) -> Path:
        """The settings of the run, as JSON; it is there from the first moment of a run."""
        return self.path / "config.json"

    @property
    def environment(self) -> Path:
        """Versions and hardware, as JSON."""
        return self.path / "environment.json"

    @property
    def log(self) -> Path:
        """A line of JSON per epoch."""
        return self.path / "log.jsonl"

    @property
    def last(self) -> Path:
        return self.path / "checkpoint" / "last.safetensors"

    @property
    def best(self) -> Path:
        return self.path / "checkpoint" / "best.safetensors"

    @property
    def weights(self) -> Path:
        return self.path / "weights.safetensors"

    @property
    def metrics(self) -> Path:
        """The scores, in the columns of `ROWS`."""
        return self.path / "metrics.parquet"

    @property
    def curves(self) -> Path:
        """The curves of a run of an experiment, in the columns of `CURVES`."""
        return self.path / "curves.parquet"

    @property
    def done(self) -> Path:
        return self.path / "DONE"

    @property
    def error_log(self) -> Path:
        """Why the run failed the last time, of a run of an experiment."""
        return self.path / "error.log"

    @property
    def output_log(self) -> Path:
        """What libraries printed, of a run in a process of its own."""
        return self.path / "output.log"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    @property
    def predictions(self) -> Path:
        return self.path / "predictions"

    def prediction(self, name: str) -> Path:
        """The file of a split or shifted test."""
        return self.predictions / f"{name}.parquet"

    @property
    def is_done(self) -> bool:
        return self.done.exists() and self.metrics.is_file()

    @property
    def is_started(self) -> bool:
        """Whether there is anything of a run that could be mixed up with another's."""
        files = (self.last, self.best, self.weights, self.metrics, self.done)
        return any(path.exists() for path in files) or any(self.predictions.glob("*.parquet"))

    def read_log(self) -> tuple[list[dict[str, Any]], int]:
        """The records of the epochs, and how many lines are broken; a run without a log has none."""
        return read_json_lines(self.log)

    def read_environment(self) -> dict[str, Any] | None:
        """What the run was computed with; None where the file is missing or broken."""
        try:
            return _object(self.environment.read_bytes())
        except OSError:
            return None

    def append_log(self, record: dict[str, Any]) -> None:
        append_json_line(self.log, record)

    def rewrite_log(self, records: list[dict[str, Any]]) -> None:
        """As it was when the checkpoint was written that the run resumes from."""
        with atomic_write(self.log) as file:
            file.write("".join(json.dumps(record) + "\n" for record in records).encode())


def read_json_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a file that are JSON objects, and how many are not: a kill cuts one off. No file has no lines."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise read_error(path, error) from None
    records = [record for line in lines if (record := _object(line)) is not None]
    return records, len(lines) - len(records)


def append_json_line(path: Path, record: dict[str, Any]) -> None:
    """Append a JSON object to a file, on a line of its own also where the last one was cut off."""
    try:
        with path.open("a+b") as file:
            file.seek(max(0, file.tell() - 1))
            cut_off = file.read(1) not in (b"", b"\n")  # by a kill or a full disk
            file.write(b"\n" * cut_off + json.dumps(record).encode() + b"\n")
    except OSError as error:
        raise write_error(path, error) from None


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
