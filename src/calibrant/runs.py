"""A run in files: its key and its folder, without torch or pyarrow."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from calibrant._digests import dump_record, parse_record
from calibrant._files import atomic_write, read_error, write_error
from calibrant.errors import CorruptFileError, NoDataError

RAW = "none"  # the calibrator of predictions that are not calibrated
UNSHIFTED = "none"  # the shift of the unshifted test
REMOVE_IT = "remove it, and the same command makes it again (so does run --redo)"  # a remedy


ENSEMBLE = re.compile(r"(?:^|_)ensemble(\d+)$")  # the end of the variant of an ensemble: ensemble3, or global_ensemble3


def ensemble_variant(variant: str, n_members: int) -> str:
    """The variant of the ensemble over runs of this variant."""
    return f"{variant}_ensemble{n_members}".removeprefix("_")


def split_variant(variant: str) -> tuple[str, int]:
    """The variant of the members of an ensemble, and their number; 0 if it is that of a run.

    >>> split_variant("global_ensemble3"), split_variant("global")
    (('global', 3), ('global', 0))
    """
    found = ENSEMBLE.search(variant)
    return (variant[: found.start()], int(found[1])) if found else (variant, 0)


class RunKey(NamedTuple):
    """The identity of a run: columns that every row of the run has.

    Attributes:
        data: The data set.
        model: The model.
        loss: The loss.
        variant: The name of other differences in the grid, for example global.
        label_smoothing: The label smoothing α.
        seed: The seed.

    >>> RunKey("cifar10", "timm:vit/tiny", "maxent_mean", "global", 0.01, 0).name
    'cifar10-timm-vit-tiny-maxent_mean-global-smooth0.01-0'
    """

    data: str
    model: str
    loss: str
    variant: str = ""
    label_smoothing: float = 0.0
    seed: int = 0

    @property
    def name(self) -> str:
        """The folder of the run in that of the experiment, and the column `run` of its rows."""
        model = self.model.replace(":", "-").replace("/", "-")
        smoothing = f"smooth{self.label_smoothing:g}" if self.label_smoothing else ""
        return "-".join(part for part in (self.data, model, self.loss, self.variant, smoothing, str(self.seed)) if part)

    @property
    def kind(self) -> tuple[str, str, str, str, float]:
        """The key without the seed."""
        return self[:5]

    def columns(self) -> dict[str, Any]:
        """The columns of its rows: its name, then the key."""
        return {"run": self.name, **self._asdict()}


@contextmanager
def remedy(what: str) -> Iterator[None]:
    """Add to the error about a damaged file what makes it again."""
    try:
        yield
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; {what}") from None


class RunFolder:
    """The folder of a run, and the paths of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"  # the settings, from the start of the run
        self.environment = path / "environment.json"  # versions, hardware, whether the data are as published
        self.log = path / "log.jsonl"  # a line of JSON per epoch
        self.last = path / "checkpoint" / "last.safetensors"
        self.best = path / "checkpoint" / "best.safetensors"
        self.weights = path / "weights.safetensors"
        self.metrics = path / "metrics.parquet"  # the scores, in the columns of `ROWS`
        self.curves = path / "curves.parquet"  # in the columns of `CURVES`; of a run of an experiment
        self.done = path / "DONE"  # written last: the sizes of weights and predictions
        self.error_log = path / "error.log"  # why a run of an experiment failed
        self.output_log = path / "output.log"  # what libraries printed, where the run has its process
        self.lock = path / ".lock"
        self.predictions = path / "predictions"

    def prediction(self, name: str) -> Path:
        """The file of predictions of a split or shifted test."""
        return self.predictions / f"{name}.parquet"

    def check_config(self) -> None:
        """Raises: NoDataError where it is not the folder of a run."""
        if not self.config.is_file():
            raise NoDataError(f"{self.path} is not the folder of a run: it has no config.json")

    @property
    def is_done(self) -> bool:
        """Whether the run is finished and its files are still as they were then; of their content, only the size."""
        sizes = self._recorded_sizes()
        return bool(sizes) and self.metrics.is_file() and all(_size(path) == size for path, size in sizes.items())

    def check_sizes(self) -> None:
        """Raises: CorruptFileError where a file of the finished run has another size; missing ones are made again."""
        for path, size in self._recorded_sizes().items():
            if _size(path) not in (None, size):
                raise CorruptFileError(f"{path} is damaged: it has {_size(path):,} bytes and had {size:,}")

    def mark_done(self, written: Iterable[Path] | None = None) -> None:
        """Record that the run is finished, and the sizes of its files; written: of these alone, others stay."""
        sizes = self._recorded_sizes() if written is not None else {}
        for path in [self.weights, *sorted(self.predictions.glob("*.parquet"))] if written is None else written:
            sizes[path] = path.stat().st_size
        with atomic_write(self.done) as file:
            record = {"sizes": {path.relative_to(self.path).as_posix(): size for path, size in sizes.items()}}
            file.write(dump_record(record, indent=2))

    def _recorded_sizes(self) -> dict[Path, int]:
        """The sizes of the files of a finished run; none where it is not finished or that is not to be read."""
        try:
            sizes = parse_record(self.done.read_bytes(), self.done)["sizes"]
            return {self.path / name: int(size) for name, size in sizes.items()}
        except (OSError, CorruptFileError, KeyError, AttributeError, TypeError, ValueError):
            return {}

    @property
    def is_started(self) -> bool:
        """Whether the folder contains results of a run."""
        files = (self.last, self.best, self.weights, self.metrics, self.done)
        return any(path.exists() for path in files) or any(self.predictions.glob("*.parquet"))

    def read_log(self) -> tuple[list[dict[str, Any]], int]:
        """The records of the epochs, and the number of broken lines; a run without a log has none."""
        return read_json_lines(self.log)

    def read_environment(self) -> dict[str, Any] | None:
        """Versions and hardware; None where the file is missing or broken."""
        try:
            return parse_record(self.environment.read_bytes(), self.environment)
        except (OSError, CorruptFileError):
            return None

    def append_log(self, record: dict[str, Any]) -> None:
        append_json_line(self.log, record)

    def rewrite_log(self, records: list[dict[str, Any]]) -> None:
        """Write the records up to the checkpoint from which the run resumes."""
        with atomic_write(self.log) as file:
            file.writelines(map(dump_record, records))


def _size(path: Path) -> int | None:
    """The size of a file, None where it is missing."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def read_json_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The JSON objects of a file, one per line, and the number of lines that are none; a missing file has no lines."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise read_error(path, error) from None
    records = []
    for line in lines:
        with suppress(CorruptFileError):
            records.append(parse_record(line, path))
    return records, len(lines) - len(records)


def append_json_line(path: Path, record: dict[str, Any]) -> None:
    """Append a JSON object to a file on a new line, also where the last line was cut off."""
    try:
        with path.open("a+b") as file:
            file.seek(max(0, file.tell() - 1))
            cut_off = file.read(1) not in (b"", b"\n")  # by a kill or a full disk
            file.write(b"\n" * cut_off + dump_record(record))
    except OSError as error:
        raise write_error(path, error) from None
