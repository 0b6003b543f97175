"""Calibrators: better probabilities from a trained model's predictions, also for shifted data."""

from calibrant.calibrators.apply import apply_calibrator
from calibrant.calibrators.base import Calibrator, FitRecord
from calibrant.calibrators.binary import BetaCalibration, PlattScaling
from calibrant.calibrators.binning import BayesianBinning, HistogramBinning, IsotonicCalibration, MulticlassIsotonic
from calibrant.calibrators.choice import Candidate, CrossFit, choose, cross_fit
from calibrant.calibrators.comparison import Comparison, LeaveOneShiftOut, compare_calibrators
from calibrant.calibrators.conditional import ConditionalTemperature, DensityAwareScaling
from calibrant.calibrators.decomposition import Decomposition, ScoreTerm, decompose
from calibrant.calibrators.domains import DomainTemperature, PerturbedTemperature
from calibrant.calibrators.label_shift import LabelShift
from calibrant.calibrators.perturbation import perturb_gaussian
from calibrant.calibrators.proportions import ClassProportions, class_proportions
from calibrant.calibrators.scaling import DirichletCalibration, MatrixScaling, VectorScaling
from calibrant.calibrators.sets import SetTemperature
from calibrant.calibrators.spline import SplineCalibration
from calibrant.calibrators.structured import StructuredMatrixScaling, StructuredVectorScaling
from calibrant.calibrators.table import CALIBRATORS, load_calibrator
from calibrant.calibrators.temperature import (
    PAPER_GRID,
    EnsembleTemperature,
    GridTemperature,
    Identity,
    TemperatureScaling,
)
from calibrant.calibrators.transcal import TransCal
from calibrant.calibrators.venn_abers import VennAbers

__all__ = [
    "CALIBRATORS",
    "PAPER_GRID",
    "BayesianBinning",
    "BetaCalibration",
    "Calibrator",
    "Candidate",
    "ClassProportions",
    "Comparison",
    "ConditionalTemperature",
    "CrossFit",
    "Decomposition",
    "DensityAwareScaling",
    "DirichletCalibration",
    "DomainTemperature",
    "EnsembleTemperature",
    "FitRecord",
    "GridTemperature",
    "HistogramBinning",
    "Identity",
    "IsotonicCalibration",
    "LabelShift",
    "LeaveOneShiftOut",
    "MatrixScaling",
    "MulticlassIsotonic",
    "PerturbedTemperature",
    "PlattScaling",
    "ScoreTerm",
    "SetTemperature",
    "SplineCalibration",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "TemperatureScaling",
    "TransCal",
    "VectorScaling",
    "VennAbers",
    "apply_calibrator",
    "choose",
    "class_proportions",
    "compare_calibrators",
    "cross_fit",
    "decompose",
    "load_calibrator",
    "perturb_gaussian",
]
