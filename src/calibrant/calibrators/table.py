"""The table `CALIBRATORS`, and calibrators loaded from files."""

import os
from collections.abc import Iterable

from calibrant._names import check_choice
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.binary import BetaCalibration, PlattScaling
from calibrant.calibrators.binning import BayesianBinning, HistogramBinning, IsotonicCalibration, MulticlassIsotonic
from calibrant.calibrators.conditional import ConditionalTemperature, DensityAwareScaling
from calibrant.calibrators.domains import DomainTemperature, PerturbedTemperature
from calibrant.calibrators.label_shift import LabelShift
from calibrant.calibrators.scaling import DirichletCalibration, MatrixScaling, VectorScaling
from calibrant.calibrators.sets import SetTemperature
from calibrant.calibrators.spline import SplineCalibration
from calibrant.calibrators.store import read_record
from calibrant.calibrators.structured import StructuredMatrixScaling, StructuredVectorScaling
from calibrant.calibrators.temperature import EnsembleTemperature, GridTemperature, Identity, TemperatureScaling
from calibrant.calibrators.transcal import TransCal
from calibrant.calibrators.venn_abers import VennAbers
from calibrant.errors import CorruptFileError, InvalidInputError, UnknownNameError

CALIBRATORS: dict[str, type[Calibrator]] = {  # from the simplest on: `choose` prefers the first of equals
    "identity": Identity,
    "temperature": TemperatureScaling,
    "temperature_grid": GridTemperature,
    "ensemble_temperature": EnsembleTemperature,
    "platt": PlattScaling,
    "beta": BetaCalibration,
    "spline": SplineCalibration,
    "conditional_temperature": ConditionalTemperature,
    "isotonic_multiclass": MulticlassIsotonic,
    "svs": StructuredVectorScaling,
    "vector": VectorScaling,
    "sms": StructuredMatrixScaling,
    "matrix": MatrixScaling,
    "dirichlet": DirichletCalibration,
    "histogram": HistogramBinning,
    "bbq": BayesianBinning,
    "venn_abers": VennAbers,
    "isotonic": IsotonicCalibration,
    "perturbed_temperature": PerturbedTemperature,
    "domain_temperature": DomainTemperature,
    "set_temperature": SetTemperature,
    "transcal": TransCal,
    "label_shift": LabelShift,
    "density_aware": DensityAwareScaling,
}


def calibrator_class(calibrator: str, options: Iterable[str] = ()) -> type[Calibrator]:
    """The class of a name. Raises: UnknownNameError, and InvalidInputError if its `fit` lacks one of the options."""
    cls = CALIBRATORS[check_choice("calibrator", calibrator, CALIBRATORS)]
    for option in options:
        if option not in cls.options():
            known = ", ".join(cls.options()) or "none"
            raise InvalidInputError(f"{option} is no option of {calibrator}, whose options are: {known}")
    return cls


def load_calibrator(path: str | os.PathLike[str]) -> Calibrator:
    """Load a calibrator of any kind.

    Args:
        path: A JSON file that `Calibrator.save` or `calibrant fit` wrote.

    Returns:
        The calibrator.

    Raises:
        NoDataError: There is no such file.
        CorruptFileError: The file is not a calibrator.
    """
    record = read_record(path)
    try:
        cls = calibrator_class(record["calibrator"])
    except UnknownNameError as error:
        raise CorruptFileError(f"{os.fspath(path)} is damaged: {error}") from None
    return cls.from_record(record, path)
