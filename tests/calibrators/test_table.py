"""Every entry of CALIBRATORS against the shared battery; the promises of the table; all that a fit refuses."""

import inspect
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import calibrant as cb
from calibrant import Predictions, calibrators
from calibrant.calibrators.apply import apply_calibrator
from calibrant.calibrators.base import mean_nll
from calibrant.calibrators.table import calibrator_class
from calibrant.errors import CalibrantError, InvalidInputError
from made.calibrator_check import ASPECTS, CALIBRATORS, NO_CERTAINTIES, PLAIN, assert_one_line, fit, validation_of
from made.calibrator_data import bare, draw, draw32, like
from made.marks import slow_where

MAY_CHANGE_THE_CLASS = {
    *("svs", "vector", "sms", "matrix", "dirichlet", "platt", "beta"),
    *("histogram", "bbq", "venn_abers", "isotonic", "label_shift"),
}
NO_LIKELIHOOD = {"histogram", "bbq", "venn_abers", "isotonic", "isotonic_multiclass", "spline", "temperature_grid"}
FOR_SHIFT = {
    "perturbed_temperature",
    "domain_temperature",
    "set_temperature",
    "transcal",
    "label_shift",
    "density_aware",
}


@pytest.mark.parametrize("aspect", slow_where(ASPECTS, ("onnx_file", "exported_module", "dense_module")))
@pytest.mark.parametrize("name", CALIBRATORS)
def test_contract(name: str, aspect: str) -> None:
    ASPECTS[aspect](name)


def test_promises_of_the_table() -> None:
    for name, cls in CALIBRATORS.items():
        assert cls.name == name
        assert getattr(calibrators, cls.__name__) is cls
    assert cb.TemperatureScaling is CALIBRATORS["temperature"]
    assert set(CALIBRATORS) - PLAIN == FOR_SHIFT
    assert {name for name, cls in CALIBRATORS.items() if not cls.keeps_argmax} == MAY_CHANGE_THE_CLASS
    plain_likelihood = {name for name in PLAIN if CALIBRATORS[name].likelihood_fitted}
    assert plain_likelihood == PLAIN - NO_LIKELIHOOD
    assert {name for name, cls in CALIBRATORS.items() if cls.two_classes_only} == {"platt", "beta", "venn_abers"}
    assert {name for name, cls in CALIBRATORS.items() if cls.default_candidate} <= PLAIN


def test_options_are_those_of_the_fit() -> None:
    for name, cls in CALIBRATORS.items():
        keywords = [p for p in inspect.signature(cls.fit).parameters.values() if p.name != "validation"]
        assert (*cls.options(), *["progress"] * cls.shows_progress) == tuple(p.name for p in keywords)
        assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in keywords), name
        assert calibrator_class(name, cls.options()) is cls
    with pytest.raises(InvalidInputError, match=r"n_bins.*vector.*strength"):
        calibrator_class("vector", ["n_bins"])
    with pytest.raises(InvalidInputError, match=r"grid.*identity.*none"):
        cb.cross_fit(draw(30), "identity", grid=(1.0,))


# What a fit refuses: the cls, its options, and what the message names

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *(
        (name, {"strength": value}, f"strength.*{value:g}")
        for name, cls in CALIBRATORS.items()
        if "strength" in cls.options()
        for value in (-1.0, math.nan, math.inf)
    ),
    *(("histogram", {"n_bins": value}, f"n_bins.*{value}") for value in (0, -3, 2.5)),
    *(
        (name, {"n_knots": value}, f"n_knots.*{value}")
        for name in ("spline", "conditional_temperature")
        for value in (0, -2, 3.5)
    ),
    *(("density_aware", {"k": value}, f"k .*{value}") for value in (0, -1, 1.5, 900)),
    *(("temperature_grid", {"grid": value}, "grid") for value in ((), (0.0, 1.0), (math.inf,), 1.5)),
    ("temperature_grid", {"grid": (1.0, -2.5)}, "grid.*-2.5"),
    ("temperature_grid", {"grid": (math.nan,)}, "grid.*nan"),
    ("temperature", {"bounds": (2.0, 1.0)}, "bounds.*2.*1"),
    ("temperature", {"bounds": (-3.0, 1.0)}, "bounds.*-3"),
    ("temperature", {"bounds": (0.5, math.nan)}, "bounds.*nan"),
    *(("temperature", {"bounds": value}, "bounds") for value in ((0.5,), 5, ("a", "b"))),
    ("temperature", {"at_bound": "stop"}, "stop"),
    ("temperature", {"weights": "wait"}, "wait"),
    ("transcal", {"target": None}, "target"),
    ("transcal", {"target": 5}, "target"),
    ("transcal", {"target": draw(50, n_classes=3, features=torch.ones(50, 6))}, "4.*3|3.*4"),
    ("transcal", {"target": draw(50, n_classes=4)[:0]}, "row"),
    ("perturbed_temperature", {"shift": "kind"}, "kind"),
    ("domain_temperature", {"domain": "site"}, "site"),
    ("set_temperature", {"sets": ("severity", "weather")}, "weather"),
    ("set_temperature", {"sets": ("class",)}, "class"),
    ("density_aware", {"reference": draw(50, n_classes=4)}, "features"),
    ("density_aware", {"reference": draw(50, n_classes=4, features=torch.ones(50, 3))}, "features.*(3.*6|6.*3)"),
    ("set_temperature", {"reference": draw(50, n_classes=4, features=torch.ones(50, 3))}, "features.*(3.*6|6.*3)"),
    ("conditional_temperature", {"score": "skore"}, "skore"),
    ("conditional_temperature", {"score": "corruption"}, "corruption"),
]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused_options(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CalibrantError, match=message) as caught:
        fit(name, validation_of(name), **options)
    assert_one_line(caught.value)


def test_refused_rows() -> None:
    """More than two classes, no columns or features where they are needed, one set, labels of probability 0."""
    four = validation_of("vector")
    for name, cls in CALIBRATORS.items():
        if cls.two_classes_only:
            with pytest.raises(InvalidInputError, match="4"):
                fit(name, four)
        if cls.needs_columns or cls.needs_features or cls.fits_shifts:
            with pytest.raises(CalibrantError, match=r"corruption|domain|features") as caught:
                fit(name, cb.Predictions.from_logits(four.logits, four.labels))
            assert_one_line(caught.value)
    with pytest.raises(InvalidInputError, match="3 sets, got 1"):
        fit("set_temperature", four.where(corruption="fog", severity=1.0))
    logits = four.logits.clone()
    logits[31, four.labels[31]] = -math.inf
    for name in ("temperature", "ensemble_temperature", "vector", "dirichlet"):
        with pytest.raises(InvalidInputError, match="row 31"):
            fit(name, like(four, logits=logits))


def test_refused_calls() -> None:
    """Rows without the features or the column that a fit went by, of classes in another order, or calibrated before."""
    rows = validation_of("vector")
    new = draw(60, seed=1, n_classes=4)
    for name in ("density_aware", "domain_temperature", "set_temperature"):
        for given in (new, new.with_features(torch.ones(60, 2))):
            with pytest.raises(InvalidInputError, match="features"):
                fit(name, rows)(given)
    with pytest.raises(InvalidInputError, match="features"):
        fit("domain_temperature", like(rows, features=None))(bare(rows), allow_same_rows=True)
    with pytest.raises(InvalidInputError, match="all columns of sets"):
        fit("set_temperature", rows)(rows.select(["severity"]), allow_same_rows=True)
    with pytest.raises(CalibrantError, match="severity"):
        fit("conditional_temperature", rows, score="severity")(new)
    with pytest.raises(InvalidInputError, match="class 0 is 'z', not 'class 0'"):
        fit("vector", rows)(draw(9, n_classes=4, class_names=["z", "class 1", "class 2", "class 3"]))
    with pytest.raises(InvalidInputError, match="got 5"):
        fit("temperature", rows)(5)  # type: ignore[arg-type]
    calibrator = fit("temperature", rows)
    once = calibrator(new)
    with pytest.raises(InvalidInputError, match="already calibrated"):
        calibrator(once)
    twice = fit("identity", rows)(fit("identity", rows)(once))
    assert twice.metadata["calibrator"]["after"]["after"]["name"] == "temperature"


# No evidence: how much worse than the truth the mean NLL of new rows may get


@pytest.mark.parametrize("name", sorted(PLAIN))
@pytest.mark.parametrize(("n", "k", "spread", "factor"), [(100, 2, 2, 1), (1000, 10, 2, 1), (1000, 10, 8, 1.5)])
def test_fresh_rows_of_a_calibrated_model_stay_nearly_so(
    name: str, n: int, k: int, spread: float, factor: float
) -> None:
    if CALIBRATORS[name].two_classes_only and k > 2:
        return
    allowed = 0.1 if n == 100 or name in NO_CERTAINTIES else 0.06
    if name in ("identity", "temperature_grid") and factor != 1:  # these do not adapt to any factor
        return
    calibrator = CALIBRATORS[name].fit(draw32(n, k, 0, spread=spread, factor=factor))
    truth = mean_nll(draw32(5000, k, 100, spread=spread))
    fresh = mean_nll(calibrator.calibrate(draw32(5000, k, 100, spread=spread, factor=factor)))
    assert fresh - truth < allowed + (0.05 if name in ("histogram", "bbq") else 0)


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_saturated_logits_give_no_nan(name: str) -> None:
    for k in (2,) if CALIBRATORS[name].two_classes_only else (2, 10):
        calibrator = CALIBRATORS[name].fit(draw32(1000, k, 0, spread=30))
        assert not calibrator.calibrate(draw32(500, k, 1, spread=30)).logits.isnan().any()
        single = calibrator.module().float()(draw32(500, k, 1, spread=30).logits)
        assert not single.isnan().any()


def test_a_row_that_is_no_distribution_is_never_written(tmp_path: Path) -> None:
    """Step functions that are 0 up to 0.9, as a file may have them; the row is counted over batches."""
    validation = draw(90, n_classes=4)
    edges, values = torch.tensor([[0.9]] * 4), torch.tensor([[0.0, 1.0]] * 4)
    binning = replace(fit("histogram", validation), knots=edges.double(), values=values.double())  # type: ignore[call-arg]
    logits = 9.0 * torch.eye(4)[torch.arange(90) % 4]
    logits[61] = 0.0
    Predictions.from_logits(logits).save(tmp_path / "rows.parquet")
    scan, output = Predictions.scan(tmp_path / "rows.parquet", batch_rows=20), tmp_path / "calibrated.parquet"
    with pytest.raises(InvalidInputError, match=r"logits calibrated by histogram .* at row 61"):
        apply_calibrator(binning, scan, output)
    assert not output.exists()
