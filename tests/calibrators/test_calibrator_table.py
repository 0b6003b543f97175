"""Every entry of CALIBRATORS against the shared battery; the table itself; options that no method takes."""

import math
from typing import Any

import pytest
from calibrator_check import ASPECTS, TWO_CLASSES, assert_one_line, check_calibrator, fit, validation_of

import calibrant as cb
from calibrant import calibrators
from calibrant.errors import CalibrantError, InvalidInputError, UnknownNameError

CLASSES = {
    "identity": "Identity",
    "temperature": "TemperatureScaling",
    "ensemble_temperature": "EnsembleTemperature",
    "vector": "VectorScaling",
    "matrix": "MatrixScaling",
    "dirichlet": "DirichletCalibration",
    "platt": "PlattScaling",
    "beta": "BetaCalibration",
    "histogram": "HistogramBinning",
    "bbq": "BayesianBinning",
    "isotonic": "IsotonicCalibration",
    "isotonic_multiclass": "MulticlassIsotonic",
    "spline": "SplineCalibration",
    "perturbed_temperature": "PerturbedTemperature",
    "domain_temperature": "DomainTemperature",
    "set_temperature": "SetTemperature",
    "transcal": "TransferTemperature",
    "density_aware": "DensityAwareScaling",
    "conditional_temperature": "ConditionalTemperature",
}
MAY_CHANGE_THE_CLASS = {"vector", "matrix", "dirichlet", "platt", "beta", "histogram", "bbq", "isotonic"}
LIKELIHOOD_FITTED = {
    "identity",
    "temperature",
    "ensemble_temperature",
    "vector",
    "matrix",
    "dirichlet",
    "platt",
    "beta",
    "conditional_temperature",
    "density_aware",
}


@pytest.mark.parametrize("aspect", ASPECTS)
@pytest.mark.parametrize("name", cb.CALIBRATORS)
def test_contract(name: str, aspect: str) -> None:
    check_calibrator(name, [aspect])


def test_the_table_is_whole() -> None:
    assert {name: method.__name__ for name, method in cb.CALIBRATORS.items()} == CLASSES
    for name, method in cb.CALIBRATORS.items():
        assert method.name == name
        assert getattr(calibrators, CLASSES[name]) is method
        assert issubclass(method, calibrators.Calibrator)
    assert cb.TemperatureScaling is cb.CALIBRATORS["temperature"]


def test_promises_of_the_table() -> None:
    assert {name for name, method in cb.CALIBRATORS.items() if not method.keeps_argmax} == MAY_CHANGE_THE_CLASS
    assert {name for name, method in cb.CALIBRATORS.items() if method.likelihood_fitted} == LIKELIHOOD_FITTED


@pytest.mark.parametrize("name", sorted(TWO_CLASSES))
def test_methods_of_two_classes_refuse_more(name: str) -> None:
    for n_classes in (3, 4):
        with pytest.raises(InvalidInputError) as caught:
            fit(name, validation_of(name, n_classes=n_classes))
        assert str(n_classes) in str(caught.value)


BAD_OPTIONS: list[tuple[str, str, Any]] = [
    *(
        (name, "strength", value)
        for name in ("vector", "matrix", "dirichlet", "platt", "beta")
        for value in (-1.0, math.nan, math.inf)
    ),
    *(("histogram", "n_bins", value) for value in (0, -3, 2.5)),
    *(("spline", "n_knots", value) for value in (0, -1, 2.5)),
    *(("conditional_temperature", "n_knots", value) for value in (0, -1, 2.5)),
    *((name, "k", value) for name in ("density_aware",) for value in (0, -1, 1.5)),
    *(("temperature", "grid", value) for value in ((), (0.0, 1.0), (1.0, -2.0), (math.nan,))),
    *(("temperature", "bounds", value) for value in ((2.0, 1.0), (-1.0, 1.0), (math.nan, 1.0))),
]


@pytest.mark.parametrize(("name", "option", "value"), BAD_OPTIONS, ids=str)
def test_options_that_no_method_takes(name: str, option: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=option) as caught:
        fit(name, validation_of(name), **{option: value})
    assert_one_line(caught.value)


def test_an_unknown_word_for_the_bound_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="stop"):
        fit("temperature", validation_of("temperature"), at_bound="stop")


def test_the_target_is_required() -> None:
    with pytest.raises((InvalidInputError, TypeError), match="target"):
        cb.CALIBRATORS["transcal"].fit(validation_of("transcal"))


@pytest.mark.parametrize("name", ["perturbed_temperature", "domain_temperature", "set_temperature", "density_aware"])
def test_what_a_method_needs_must_be_there(name: str) -> None:
    """A column, or features, that the validation rows do not have."""
    validation = validation_of(name)
    plain = cb.Predictions.from_logits(validation.logits, validation.labels)
    with pytest.raises(CalibrantError) as caught:
        fit(name, plain)
    assert_one_line(caught.value)
