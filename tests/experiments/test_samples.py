"""Images of an experiment's tests: those of the data set, as they are and under its shifts."""

import numpy as np
import pyarrow as pa
import pytest

from calibrant.data import open_dataset
from calibrant.errors import NoDataError, UnknownNameError
from calibrant.experiments.samples import sample_images
from made.rows import Experiment, rows_table


def rows() -> pa.Table:
    made = Experiment(losses=("focal",), seeds=1, severities=(1, 3), metrics=("ece",))
    return rows_table({**row, "origin": "generated"} for row in made.rows)


def test_images_are_those_of_the_tests() -> None:
    images = sample_images(rows())
    assert list(images) == ["digits 1", "digits 2"]
    assert list(images["digits 1"]) == ["clean", "fog 3", "snow 3"]
    digits = open_dataset("digits")
    for heading, split in (("clean", "test"), ("fog 3", "fog-3"), ("snow 3", "snow-3")):
        expected = digits.split(split).images[:2, 0].numpy()
        assert np.array_equal(images["digits 1"][heading], expected[0])
        assert np.array_equal(images["digits 2"][heading], expected[1])
    assert list(sample_images(rows(), severity=1)["digits 1"]) == ["clean", "fog 1", "snow 1"]


def test_refusals() -> None:
    with pytest.raises(NoDataError, match="no shifted test of severity 2 of digits"):
        sample_images(rows(), severity=2)
    with pytest.raises(UnknownNameError, match="unknown data of the experiment 'cifar10'; known: digits"):
        sample_images(rows(), data=["cifar10"])
