"""Rows that a calibrator was fitted on are recognized, in part and among others."""

import pytest
import torch

import calibrant as cb
from calibrant.calibrators import TemperatureScaling
from calibrant.calibrators.leakage import LeakCheck
from calibrant.errors import InvalidInputError
from made.calibrator_data import draw32, rounded_rows


def test_leaks_of_every_kind_are_refused() -> None:
    rows, others = draw32(1000, 5, 0), draw32(1000, 5, 1)
    doubled = cb.Predictions.concat([rows, rows[:1]])
    calibrator = TemperatureScaling.fit(doubled)
    bootstrap = rows[torch.randint(1000, (1000,), generator=torch.Generator().manual_seed(0))]
    for leak in (
        rows,
        rows[:100],
        rows[1::3],
        bootstrap,
        cb.Predictions.from_logits(rows.logits, (rows.labels + 1) % 5),
        cb.Predictions.concat([rows, rows]),
        cb.Predictions.concat([rows[:400], others[:600]]),
        cb.Predictions.concat([rows, others, others[:5]]),
    ):
        with pytest.raises(InvalidInputError, match="allow_same_rows"):
            calibrator(leak)
    assert len(calibrator(others)) == 1000
    rounded = TemperatureScaling.fit(rounded_rows(300, 5, seed=0))
    assert rounded.fitted.rows.sample == ()
    with pytest.raises(InvalidInputError, match="allow_same_rows"):
        rounded(cb.Predictions.from_logits(rounded_rows(300, 5, seed=0).logits))  # without labels
    assert len(rounded(cb.Predictions.from_logits(rounded_rows(300, 5, seed=1).logits))) == 300
    assert len(calibrator(cb.Predictions.concat([others, rows[:3]]))) == 1003


def test_the_search_keeps_no_more_than_the_sketch() -> None:
    rows = draw32(400, 5, 1)
    fitted = TemperatureScaling.fit(rows[:300]).fitted.rows
    leak = LeakCheck(fitted)
    for start in range(0, 20_000, 2000):  # none of these, and one of the fit
        leak.add(draw32(2000, 5, 2 + start))
    leak.add(rows[299:])
    assert len(leak.small) == 300
    assert leak.found.tolist() == [int(rows[299:300].row_hashes[0][0])]
    leak.check()
