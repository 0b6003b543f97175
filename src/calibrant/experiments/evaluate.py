"""What a finished run is worth: every test, as predicted and as mended by each calibrator, measured into rows."""

from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

import calibrant
from calibrant._parquet import write_table
from calibrant.calibrators import CALIBRATORS, PAPER_GRID, Calibrator, TemperatureScaling
from calibrant.calibrators.comparison import fit_unseen
from calibrant.data import CORRUPTED, DataSet, open_dataset
from calibrant.errors import CalibrantError
from calibrant.experiments.config import GRID_TEMPERATURE, Experiment, Run
from calibrant.experiments.rows import CURVES, RAW, ROWS, UNSHIFTED
from calibrant.metrics import score
from calibrant.metrics.bins import outcome_bins
from calibrant.metrics.ranking import risk_coverage_curve
from calibrant.predictions import Predictions
from calibrant.shifts import Shift
from calibrant.training.folder import RunFolder
from calibrant.training.predicting import Predictor, chosen_names
from calibrant.training.settings import Settings

N_BINS = 10  # of the reliability diagrams, as in the paper's figures
COVERAGES = np.linspace(0.05, 1, 20)
FORMAT = 2  # of the files, to be raised when what stands in them changes
DIGEST = b"measures"  # in the metadata of the files: what they were measured by


@dataclass(frozen=True)
class Measures:
    """What runs are measured by; see :class:`Experiment`."""

    calibrators: tuple[str, ...]
    calibration_shifts: tuple[str, ...]
    metrics: tuple[str, ...]
    intervals: tuple[str, ...]

    @classmethod
    def of(cls, experiment: Experiment) -> "Measures":
        intervals = tuple(name for name in experiment.intervals if name in experiment.metrics)
        return cls(experiment.calibrators, experiment.calibration_shifts, experiment.metrics, intervals)

    def digest(self, run: Run) -> str:
        """A hash that tells files of another run, or measured by something else or by another version, apart."""
        said = dumps([calibrant.__version__, FORMAT, asdict(self), run.described]).encode()
        return blake2b(said, digest_size=8).hexdigest()

    @property
    def corrupted_validation(self) -> list[str]:
        """The corruptions of validation images that any of the calibrators learns from."""
        learns = any(name in CALIBRATORS and CALIBRATORS[name].fits_shifts for name in self.calibrators)
        wanted = self.calibration_shifts if learns else ()
        return [shift for shift in CORRUPTED if Shift.parse(shift).corruption in wanted]


def evaluation_files(folder: Path) -> tuple[Path, Path]:
    """Rows and curves of one run."""
    return folder / "evaluation.parquet", folder / "curves.parquet"


def is_evaluated(run: Run, folder: Path, measures: Measures) -> bool:
    """Whether the files of the run are there and were measured by the same."""
    for path in evaluation_files(folder):
        if not path.is_file():
            return False
        try:
            metadata = pq.read_schema(path).metadata or {}
        except (pa.ArrowException, OSError):
            return False
        if metadata.get(DIGEST) != measures.digest(run).encode():
            return False
    return True


def evaluate(run: Run, folder: Path, measures: Measures) -> tuple[str, ...]:
    """Measure every test of a finished run, and write its rows and curves; returns what could not be fitted, and why.

    The rows of a calibrator that has no fit, as a temperature where every validation row is right, have no values.

    Raises: CorruptFileError where a file of predictions is damaged.
    """
    settings, files = run.settings, RunFolder(folder)
    data = open_dataset(settings.data, settings.root, image_size=settings.image_size)
    validation = [data.validation, *(f"{data.validation}+{shift}" for shift in measures.corrupted_validation)]
    tests = tests_of(data, settings)
    if not all(files.prediction(name).is_file() for name in (*validation, *tests)):
        predictor = Predictor.of_run(folder, root=settings.root, device=settings.device)
        predictor.write([*validation, *tests], files.predictions, skip=True)
    fits = Fits(Predictions.concat(Predictions.load(files.prediction(name)) for name in validation))
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for name in tests:
        test = Predictions.load(files.prediction(name))
        for calibrator in (RAW, *measures.calibrators):
            mended = test if calibrator == RAW else fits.mended(calibrator, test)
            shared = run.described | _described(name, test, data) | {"calibrator": calibrator}
            rows += [shared | found for found in _values(mended, measures, raw=calibrator == RAW)]
            curves += [] if mended is None else [shared | point for point in _points(mended)]
    for path, found, schema in zip(evaluation_files(folder), (rows, curves), (ROWS, CURVES), strict=True):
        write_table(path, pa.Table.from_pylist(found, schema.with_metadata({DIGEST: measures.digest(run)})))
    return tuple(fits.failures)


def tests_of(data: DataSet, settings: Settings) -> list[str]:
    """The test that is like the training images, which is the last of the splits, and the shifted ones."""
    shifts = chosen_names(data, settings.shifts) if settings.shifts else []
    names = dict.fromkeys([data.splits[-1], *(name for name in shifts if name in data.shifts)])
    return [name for name in names if name not in (data.splits[0], data.validation)]


@dataclass
class Fits:
    """Calibrators fitted to validation rows, each once for every type of corruption that it may not have seen."""

    validation: Predictions
    fitted: dict[tuple[str, Any], Calibrator | None] = field(default_factory=dict)
    failures: dict[str, None] = field(default_factory=dict)  # an ordered set

    def mended(self, name: str, test: Predictions) -> Predictions | None:
        """A test, which is of one type of corruption, mended by what has not seen it; None where nothing fits."""
        unseen = test.column("corruption")[0].as_py()
        known = unseen != UNSHIFTED and unseen in self.validation.column("corruption").unique().to_pylist()
        key = (name, unseen if known else None)
        if key not in self.fitted or name == "transcal":  # which looks at the rows of the test
            self.fitted[key] = self._fit(name, unseen, test)
        calibrator = self.fitted[key]
        return None if calibrator is None else calibrator(test)

    def _fit(self, name: str, unseen: Any, test: Predictions) -> Calibrator | None:
        try:
            if name == GRID_TEMPERATURE:
                return TemperatureScaling.fit(self.validation.where(corruption=UNSHIFTED), grid=PAPER_GRID)
            return fit_unseen(name, self.validation, "corruption", unseen, target=test)
        except CalibrantError as error:
            self.failures[f"{name} could not be fitted: {error}"] = None
            return None


def _described(name: str, test: Predictions, data: DataSet) -> dict[str, Any]:
    """Which test it is, and whether it belongs to the mean over shifted ones."""
    corruption, severity, origin = (test.column(key)[0].as_py() for key in ("corruption", "severity", "origin"))
    shifted = name in data.shifts
    wild = shifted and corruption == UNSHIFTED
    shift = name if wild else corruption
    return {
        "split": name,
        "shift": shift,
        "severity": severity,
        "shifted": shifted,
        "origin": origin,
        "n_rows": len(test),
    }


def _values(test: Predictions | None, measures: Measures, *, raw: bool) -> list[dict[str, Any]]:
    wanted_metrics = (*measures.metrics, "confidence")
    if test is None:
        return [{"metric": name, "value": None} for name in dict.fromkeys(wanted_metrics)]
    card = score(test, metrics=wanted_metrics)
    found = []
    for name, value in card.values().items():
        wanted = name in measures.intervals and value is not None
        low, high = card.interval(name) if wanted else (None, None)
        found.append({"metric": name, "value": value, "low": low, "high": high})
    norms = [name for name in ("feature_norm", "logit_norm") if raw and name in test.columns.column_names]
    return found + [{"metric": name, "value": pc.mean(test.column(name)).as_py()} for name in norms]


def _points(test: Predictions) -> list[dict[str, Any]]:
    confidence, predicted = test.probs().max(dim=1)
    correct = predicted == test.labels
    bins = outcome_bins(confidence, correct, N_BINS, equal_mass_bins=False, weights=None)
    (filled,) = bins.total.nonzero(as_tuple=True)  # the point of a bin is its number, also where others are empty
    found: list[tuple[Any, ...]] = [
        ("reliability", i, bins.mean_confidence[i], bins.accuracy[i], bins.total[i]) for i in filled.tolist()
    ]
    risks = risk_coverage_curve(confidence, correct)
    at = torch.searchsorted(risks.coverage, torch.from_numpy(COVERAGES) - 1e-9)
    found += [("risk_coverage", i, COVERAGES[i], risks.risk[at[i]], len(test)) for i in range(len(COVERAGES))]
    return [
        {"curve": curve, "point": number, "x": float(x), "y": float(y), "weight": float(weight)}
        for curve, number, x, y, weight in found
    ]
