"""Counts of repeated values, exact and in bounded memory, in any parts."""

import numpy as np
import pyarrow as pa
import pytest

from calibrant.audits.repeats import MAX_COUNTED_VALUES, ValueCounts


def counts_of(values: list[object], n_parts: int = 1) -> ValueCounts:
    first, *others = (ValueCounts.of("id", pa.chunked_array([pa.array(values[i::n_parts])])) for i in range(n_parts))
    return sum(others, start=first)


@pytest.mark.parametrize(
    ("values", "n_values", "repeats"),
    [
        (list(range(300)), 300, False),
        ([i // 6 for i in range(300)], 50, True),
        (["model"] * 300, 1, False),
        ([None] * 300, 0, False),
        ([None] * 200 + list(range(100)), 100, False),
        ([*range(290), *range(10)], 290, True),  # 20 of 300 rows
        ([*range(295), *range(5)], 295, False),
    ],
    ids=["distinct", "patients", "constant", "nulls", "half null", "some twice", "few twice"],
)
def test_repeated_values(values: list[object], n_values: int, repeats: bool) -> None:
    for n_parts in (1, 4):
        found = counts_of(values, n_parts)
        assert (found.n_values, found.repeats) == (n_values, repeats)


def test_many_values_are_counted_in_bounded_memory() -> None:
    images = [f"image {i}" for i in range(30_000)]
    unique, twice = counts_of(images, 3), counts_of([*images, *images], 5)
    assert len(twice.hashes) == len(unique.hashes) == MAX_COUNTED_VALUES
    assert np.array_equal(twice.hashes, unique.hashes)
    assert np.array_equal(twice.counts, 2 * unique.counts)
    assert (unique.repeats, twice.repeats) == (False, True)
    assert unique.n_values == twice.n_values == 30_000
