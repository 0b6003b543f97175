"""Every entry of LOSSES against the shared battery; the options of single losses against their oracles."""

import pytest
from check import ASPECTS, build_of, check_loss
from oracles import ORACLES

from calibrant.losses import LOSSES


def test_every_loss_has_an_oracle() -> None:
    assert set(ORACLES) == set(LOSSES)


@pytest.mark.parametrize("aspect", ASPECTS)
@pytest.mark.parametrize("name", LOSSES)
def test_contract(name: str, aspect: str) -> None:
    check_loss(name, build_of(name), [aspect])
