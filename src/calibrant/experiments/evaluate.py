"""Evaluation of a trained run: rows and curves of every test, uncalibrated and with each calibrator."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from json import dumps
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch

import calibrant
from calibrant._parquet import open_parquet
from calibrant.calibrators import CALIBRATORS, LeaveOneShiftOut
from calibrant.data import DataSet, corruption_shifts
from calibrant.ensembles import average
from calibrant.errors import CalibrantError
from calibrant.experiments.config import Experiment
from calibrant.metrics.bins import reliability_bins
from calibrant.metrics.ranking import risk_coverage_curve
from calibrant.predictions import Predictions
from calibrant.run_tables import CURVES, ROWS
from calibrant.runs import RAW, RunFolder, RunKey
from calibrant.shifts import Shift
from calibrant.training.predicting import Predictor, select_shifts
from calibrant.training.results import score_rows, split_columns, write_rows
from calibrant.training.settings import Settings, open_data

RELIABILITY_BINS = 10  # of the reliability diagrams, as in the paper's figures
COVERAGES = np.linspace(0.05, 1, 20)
FORMAT = 7  # of the files: raise it when their content changes
NORMS = ("feature_norm", "logit_norm")
DIGEST = b"evaluation"  # the key of the digest in the metadata of the files


@dataclass(frozen=True)
class EvaluationConfig:
    """How runs are evaluated; see :class:`Experiment`."""

    calibrators: tuple[str, ...]
    calibration_shifts: tuple[str, ...]
    metrics: tuple[str, ...]
    intervals: tuple[str, ...]

    @classmethod
    def of(cls, experiment: Experiment) -> "EvaluationConfig":
        intervals = tuple(name for name in experiment.intervals if name in experiment.metrics)
        return cls(experiment.calibrators, experiment.calibration_shifts, experiment.metrics, intervals)

    def digest(self, key: RunKey, members: Sequence[RunFolder] = ()) -> bytes:
        """A hash of run, configuration and version, and of the rows of the members of an ensemble.

        Files with another one are evaluated again.
        """
        found = blake2b(dumps([calibrant.__version__, FORMAT, asdict(self), key]).encode(), digest_size=8)
        for member in members:
            found.update(member.metrics.read_bytes())
        return found.hexdigest().encode()

    @property
    def corrupted_validation(self) -> list[str]:
        """The corruptions of validation images that the calibrators are fitted to."""
        fits_shifts = any(CALIBRATORS[name].fits_shifts for name in self.calibrators)
        wanted = self.calibration_shifts if fits_shifts else ()
        return [shift for shift in corruption_shifts() if Shift.parse(shift).corruption in wanted]


def is_evaluated(key: RunKey, run: RunFolder, config: EvaluationConfig, members: Sequence[RunFolder] = ()) -> bool:
    """Whether the run, or the ensemble of members, has rows and curves of this configuration."""
    if not all(member.metrics.is_file() for member in members):
        return False
    digest = config.digest(key, members)
    for path in (run.metrics, run.curves):
        if not path.is_file():
            return False
        try:
            with open_parquet(str(path), str(path)) as file:
                metadata = file.schema_arrow.metadata or {}
        except CalibrantError:
            return False
        if metadata.get(DIGEST) != digest:
            return False
    return True


def evaluate(
    key: RunKey, settings: Settings, run: RunFolder, config: EvaluationConfig, members: Sequence[RunFolder] = ()
) -> tuple[str, ...]:
    """Score every test of a trained run, and write its rows and curves; returns why calibrators could not be fitted.

    The rows of a calibrator that cannot be fitted, as a temperature where every validation row is correct, have no
    values. The predictions of an ensemble are the mean of its members'. Raises: CorruptFileError where a file of
    predictions is damaged.
    """
    data = open_data(settings)
    validation = [data.validation, *(f"{data.validation}+{shift}" for shift in config.corrupted_validation)]
    tests = evaluated_tests(data, settings)
    if not members and not all(run.prediction(name).is_file() for name in (*validation, *tests)):
        predictor = Predictor.of_run(run.path, root=settings.root, device=settings.device)
        predictor.write([*validation, *tests], run.predictions, skip=True)
        run.mark_done()

    def load(name: str) -> Predictions:
        return (
            average([member.prediction(name) for member in members])
            if members
            else Predictions.load(run.prediction(name))
        )

    fits = LeaveOneShiftOut(Predictions.concat(map(load, validation)))
    failures: dict[str, None] = {}  # an ordered set
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for name in tests:
        test = load(name)
        for calibrator in (RAW, *config.calibrators):
            calibrated = test if calibrator == RAW else _calibrate(fits, calibrator, test, failures)
            shared = key.columns() | split_columns(name, test, data) | {"calibrator": calibrator}
            rows += [shared | found for found in _values(calibrated, config, raw=calibrator == RAW)]
            curves += [] if calibrated is None else [shared | point for point in _points(calibrated)]
    metadata = {DIGEST: config.digest(key, members)}
    write_rows(run.metrics, rows, ROWS, metadata)
    write_rows(run.curves, curves, CURVES, metadata)
    return tuple(failures)


def evaluated_tests(data: DataSet, settings: Settings) -> list[str]:
    """The unshifted test, which is the last of the splits, and the shifted tests."""
    names = dict.fromkeys([data.splits[-1], *(name for name in select_shifts(data, settings) if name in data.shifts)])
    return [name for name in names if name not in (data.splits[0], data.validation)]


def _calibrate(fits: LeaveOneShiftOut, name: str, test: Predictions, failures: dict[str, None]) -> Predictions | None:
    """Calibrate a test without having seen its corruption; None, and the reason kept, where that cannot be fitted."""
    fits.check_disjoint(test)
    try:
        return fits.calibrate(name, test)
    except CalibrantError as error:
        failures[f"{name} could not be fitted: {error}"] = None
        return None


def _values(test: Predictions | None, config: EvaluationConfig, *, raw: bool) -> list[dict[str, Any]]:
    metrics = dict.fromkeys((*config.metrics, "accuracy", "confidence"))
    if test is None:
        return [{"metric": name, "value": None} for name in metrics]
    norms = [name for name in NORMS if raw and name in test.columns.column_names]
    means = [{"metric": name, "value": pc.mean(test.column(name)).as_py()} for name in norms]
    return score_rows(test, metrics, config.intervals) + means


def _points(test: Predictions) -> list[dict[str, Any]]:
    confidence, predicted = test.probs.max(dim=1)
    correct = predicted == test.labels
    bins = reliability_bins(confidence, correct, n_bins=RELIABILITY_BINS)
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
