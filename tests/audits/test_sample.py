"""The random sample: independent of the order of rows, and fair."""

import math

import numpy as np
import pytest
import torch

from calibrant.audits.sample import Sample
from calibrant.audits.statistics import collect_statistics
from calibrant.predictions import Predictions
from made.audits import make_rows

pytestmark = pytest.mark.usefixtures("small_sample")


def test_the_sample_does_not_depend_on_the_order_but_on_the_seed() -> None:
    rows = make_rows()
    order = np.random.default_rng(0).permutation(len(rows))
    first, shuffled, other = (
        collect_statistics(source, seed=seed).sample.predictions()
        for source, seed in ((rows, 0), (rows[order], 0), (rows, 1))
    )
    assert torch.equal(first.logits, shuffled.logits)
    assert {tuple(row) for row in first.logits.tolist()} < {tuple(row) for row in rows.logits.tolist()}
    assert not torch.equal(first.logits, other.logits)


def test_equal_rows_of_different_weight_are_sampled_alike_in_any_order() -> None:
    rows = make_rows(n=2)[[i % 2 for i in range(240)]]
    weight = 0.1 + torch.rand(240, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    for start in (0, 50, 133):
        order = torch.tensor([*range(start, 240), *range(start)])
        turned = Predictions.from_logits(rows.logits[order], rows.labels[order], columns={"w": weight[order]})
        parts = [collect_statistics(turned[at : at + 10], weights="w").sample for at in range(0, 240, 10)]
        found.append(sum(parts[1:], start=parts[0]).predictions())
    for other in found[1:]:
        assert torch.equal(found[0].logits, other.logits)
        assert found[0].columns.equals(other.columns)


def test_a_sample_has_each_row_alike() -> None:
    rows = make_rows(n=200)
    place = {tuple(row): i for i, row in enumerate(rows.logits.tolist())}
    times = np.zeros(200)
    for seed in range(100):
        found = Sample.from_rows(rows, np.ones(200), np.zeros(200, np.int64), rows.row_hashes[1], seed).predictions()
        times[[place[tuple(row)] for row in found.logits.tolist()]] += 1
    assert times.mean() == 25
    assert times.std() == pytest.approx(math.sqrt(100 * 0.25 * 0.75), rel=0.25)
