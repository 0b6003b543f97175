"""Calibration before and after averaging: fits of other folds alone, what is chosen on known data, refusals."""

import math

import pytest
import torch

from calibrant import CALIBRATORS, Predictions, average, cross_fit, score
from calibrant.calibrators import TemperatureScaling
from calibrant.calibrators.choice import row_folds
from calibrant.ensembles import ORDERS, OrderScore, compare_orders
from calibrant.errors import InvalidInputError, UnknownNameError


def ensemble(n: int = 1500, *, temperature: float, noise: float, m: int = 3, seed: int = 0) -> list[Predictions]:
    """Members that each see the true logits with noise of their own, and are too sharp or too flat."""
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    labels = true.softmax(1).multinomial(1, generator=generator)[:, 0]
    columns = {"id": list(range(n)), "patient": [i // 3 for i in range(n)]}
    return [
        Predictions.from_logits(
            (true + noise * torch.randn(n, 4, generator=generator, dtype=torch.float64)) * temperature,
            labels,
            columns=columns,
        )
        for _ in range(m)
    ]


def by_order(found: list[OrderScore]) -> dict[str, OrderScore]:
    assert [row.order for row in found] == list(ORDERS)
    assert sum(row.chosen for row in found) == 1
    return {row.order: row for row in found}


def test_each_fold_is_calibrated_by_fits_to_the_others() -> None:
    members = ensemble(300, temperature=2.0, noise=0.5)
    found = by_order(compare_orders(members, folds=3))
    fold = row_folds(average(members), 3, None)
    totals = dict.fromkeys(ORDERS, 0.0)
    for number in range(3):
        known, new = [each[fold != number] for each in members], [each[fold == number] for each in members]
        fits = [TemperatureScaling.fit(each) for each in known]
        calibrated = [fit(each) for fit, each in zip(fits, new, strict=True)]
        pairs = {
            "none": (None, average(new)),
            "after": (average(known), average(new)),
            "before": (None, average(calibrated)),
            "both": (
                average([fit.calibrate(each) for fit, each in zip(fits, known, strict=True)]),
                average(calibrated),
            ),
        }
        for order, (fitted_to, rows) in pairs.items():
            rows = rows if fitted_to is None else TemperatureScaling.fit(fitted_to)(rows)
            totals[order] += score(rows, metrics=["nll"]).nll * len(rows)
    assert {order: row.nll.a for order, row in found.items()} == pytest.approx(
        {order: total / 300 for order, total in totals.items()}, rel=1e-6
    )
    lowest = min(row.nll.a for row in found.values())
    assert all(row.nll.b == pytest.approx(lowest) for row in found.values())


def test_calibrated_members_that_differ_make_an_underconfident_average() -> None:
    """Known from Rahaman and Thiery 2021, Wu and Gales 2021: a calibrator of the average is then needed."""
    members = ensemble(3000, temperature=1.0, noise=1.5)
    found = by_order(compare_orders(members))
    calibrated = average([cross_fit(member).predictions for member in members])
    assert (
        score(calibrated, metrics=["confidence"]).confidence < score(calibrated, metrics=["accuracy"]).accuracy - 0.03
    )
    assert found["before"].ece.a > 0.03
    assert found["both"].ece.a < found["before"].ece.a
    assert found["after"].chosen or found["both"].chosen
    assert found["none"].nll.interval[0] > 0


def test_a_calibrated_average_needs_no_calibrator() -> None:
    found = by_order(compare_orders(ensemble(temperature=1.0, noise=0.0)))
    assert found["none"].chosen
    assert abs(found["after"].nll.a - found["none"].nll.a) < 0.002


def test_ids_and_clusters() -> None:
    members = ensemble(300, temperature=2.0, noise=0.5)
    plain = by_order(compare_orders(members, folds=3))
    turned = [members[0], members[1][list(range(300))[::-1]], members[2]]
    again = by_order(compare_orders(turned, folds=3, id="id"))
    assert [row.nll.a for row in again.values()] == pytest.approx([row.nll.a for row in plain.values()])
    clustered = by_order(compare_orders(members, folds=3, cluster="patient"))
    assert clustered["none"].nll.a == pytest.approx(plain["none"].nll.a)
    assert clustered["after"].nll.a != plain["after"].nll.a
    assert clustered["after"].to_dict()["nll"]["n_rows"] == 300


def test_labels_of_one_member_are_those_of_all() -> None:
    members = ensemble(300, temperature=2.0, noise=0.5)
    bare = [members[0], *(Predictions.from_logits(each.logits) for each in members[1:])]
    found, wanted = (by_order(compare_orders(each, folds=3)) for each in (bare, members))
    assert {order: row.nll.a for order, row in found.items()} == {order: row.nll.a for order, row in wanted.items()}


def test_an_infinite_nll_is_never_chosen_over_a_finite_one() -> None:
    members = ensemble(300, temperature=2.0, noise=0.5)
    broken = [Predictions.from_logits(each.logits.clone(), each.labels) for each in members]
    for each in broken:
        each.logits[0, each.labels[0]] = -math.inf
    found = by_order(compare_orders(broken, "isotonic_multiclass", folds=3))
    assert found["none"].nll.a == math.inf
    assert not found["none"].chosen or all(row.nll.a == math.inf for row in found.values())


def test_refusals() -> None:
    members = ensemble(60, temperature=2.0, noise=0.5)
    with pytest.raises(UnknownNameError, match="unknown calibrator 'temperatur'; did you mean 'temperature'"):
        compare_orders(members, "temperatur")
    with pytest.raises(InvalidInputError, match="calibrator must not need a target, as transcal does"):
        compare_orders(members, "transcal")
    with pytest.raises(InvalidInputError, match="folds must be at most the 60 rows, got 61"):
        compare_orders(members, folds=61)
    with pytest.raises(InvalidInputError, match="members must have labels to be compared, got none at row 0"):
        compare_orders([Predictions.from_logits(each.logits) for each in members])
    with pytest.raises(UnknownNameError, match="unknown column 'hospital'"):
        compare_orders(members, cluster="hospital")
    assert CALIBRATORS["transcal"].needs_target
