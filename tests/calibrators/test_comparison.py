"""The comparison of calibrators: its sets and its reference, and why some calibrators have no values."""

import pytest
import torch

import calibrant as cb
from calibrant.calibrators import CALIBRATORS, Comparison, DensityAwareScaling, SetTemperature
from calibrant.calibrators.comparison import default_sets
from calibrant.errors import CalibrantError
from made.calibrator_data import draw, set_rows

KNOWN = [("none", 0.0), *((kind, float(severity)) for kind in ("blur", "fog", "noise") for severity in range(1, 5))]


def validation() -> cb.Predictions:
    return set_rows(200, KNOWN, seed=1).predictions


def domains() -> cb.Predictions:
    """Rows of two domains: like clean rows, and like rows of severity 4. Their own columns say that all are clean."""
    parts = [set_rows(300, [("none", severity)], seed=2 + i).predictions for i, severity in enumerate((0.0, 4.0))]
    rows = cb.Predictions.concat(parts)
    columns = {
        "corruption": ["none"] * 600,
        "severity": [0.0] * 600,
        "domain": ["near"] * 300 + ["far"] * 300,
        "class": [f"class {label}" for label in rows.labels.tolist()],
    }
    return cb.Predictions.from_logits(rows.logits, rows.labels, features=rows.features, columns=columns)


def ece(rows: list[Comparison]) -> dict[object, float | None]:
    return {row.group: row.values["ece"] for row in rows}


def test_each_group_of_the_comparison_is_a_set() -> None:
    test, calibrator = domains(), SetTemperature.fit(validation())
    alone = {name: cb.score(calibrator(test.where(domain=name))).ece for name in ("near", "far")}
    found = ece(cb.compare_calibrators(validation(), test, ["set_temperature"], by="domain", metrics=["ece"]))
    assert {name: found[name] for name in alone} == pytest.approx(alone, abs=1e-6)
    as_one = ece(cb.compare_calibrators(validation(), test, ["set_temperature"], metrics=["ece"]))
    assert as_one[None] != pytest.approx(found[None], abs=0.001)
    said = ece(cb.compare_calibrators(validation(), test, ["set_temperature"], sets=["domain"], metrics=["ece"]))
    assert said[None] == found[None]
    with pytest.raises(CalibrantError, match="'site'"):
        cb.compare_calibrators(validation(), test, ["set_temperature"], sets=["site"])


def test_a_column_that_the_labels_decide_makes_no_sets() -> None:
    test = domains()
    assert default_sets(test, "corruption", "class") == ("corruption", "severity")
    assert default_sets(test, "corruption", "domain") == ("corruption", "severity", "domain")
    assert default_sets(test.select(["domain"]), "corruption", "domain") == ("domain",)


def test_real_domains_are_fitted_as_sets_without_severities() -> None:
    """`shift` names them, and a domain of test is left out of the fit."""
    rows = validation()
    names = [f"{kind}{severity:g}" for kind, severity in KNOWN for _ in range(200)]
    known = cb.Predictions.from_logits(rows.logits, rows.labels, features=rows.features, columns={"site": names})
    new = set_rows(300, [("frost", 3.0)], seed=9).predictions
    test = cb.Predictions.from_logits(new.logits, new.labels, features=new.features, columns={"site": ["blur3"] * 300})
    [found, _] = cb.compare_calibrators(known, test, ["set_temperature"], by="site", shift="site", metrics=["ece"])
    others = known.where(site=[name for name in dict.fromkeys(names) if name != "blur3"])
    wanted = SetTemperature.fit(others, sets=("site",))(test)
    assert found.values["ece"] == pytest.approx(cb.score(wanted).ece, abs=1e-6)


def test_the_reference_reaches_the_calibrators_of_distances() -> None:
    reference = set_rows(300, [("none", 0.0)], seed=8).predictions
    test, names = domains(), ["density_aware", "set_temperature", "temperature"]
    found = cb.compare_calibrators(validation(), test, names, sets=["domain"], reference=reference, metrics=["nll"])
    clean = validation().where(corruption="none")
    aware = DensityAwareScaling.fit(clean, reference=reference)(test)
    by_set = SetTemperature.fit(validation(), reference=reference).with_sets(["domain"])(test)
    wanted = [cb.score(rows).nll for rows in (aware, by_set)]
    assert [row.values["nll"] for row in found[:2]] == pytest.approx(wanted, abs=1e-6)


def test_every_calibrator_is_compared_or_has_a_reason() -> None:
    found = {row.calibrator: row for row in cb.compare_calibrators(draw(200), draw(200, seed=1), metrics=["nll"])}
    assert list(found) == list(CALIBRATORS)
    reasons = {name: row.failure for name, row in found.items() if row.failure is not None}
    lacking = {"corruption": ("perturbed_temperature", "set_temperature"), "domain": ("domain_temperature",)}
    lacking |= {"features": ("density_aware",), "two classes": ("platt", "beta", "venn_abers")}
    assert set(reasons) == {name for names in lacking.values() for name in names}
    for word, names in lacking.items():
        assert all(word in str(reasons[name]) for name in names), reasons
    assert torch.tensor([row.values["nll"] for row in found.values() if row.failure is None]).isfinite().all()
