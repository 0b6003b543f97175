"""Importance weights: the density ratio of two Gaussians, row by row, and what it refuses."""

import pytest
import torch

from calibrant import Predictions
from calibrant.calibrators.importance import DensityRatio, importance_weights
from calibrant.errors import InvalidInputError
from made.calibrator_data import generator_of


def covariate(n: int, centre: float, seed: int, *, features: bool = True) -> Predictions:
    """A feature of the distribution N(centre, 1), which scales the logits."""
    place = torch.randn(n, 1, generator=generator_of(seed)) + centre
    logits = torch.randn(n, 6, generator=generator_of(seed + 1)) * (1 + place.clamp(-2, 2).exp())
    return Predictions.from_logits(logits, features=place if features else None)


def test_the_density_ratio_is_that_of_two_gaussians_and_the_cross_fitted_weights_are_near() -> None:
    validation, target = covariate(8000, 0.0, 1), covariate(8000, 1.0, 3)
    ratio = DensityRatio.fit(validation, target)
    assert float(ratio.weight) == pytest.approx(1.0, abs=0.1)
    assert ratio.bias == pytest.approx(-0.5, abs=0.1)
    own = ratio(validation)
    assert torch.allclose(own, importance_weights(validation, target), rtol=0.15)
    assert torch.equal(ratio(validation[100:110]), own[100:110])
    blind = DensityRatio.fit(covariate(2000, 0.0, 1, features=False), target)
    assert (blind.of_features, len(blind.weight)) == (False, 6)
    with pytest.raises(InvalidInputError, match="features"):
        ratio(covariate(10, 0.0, 1, features=False))
    with pytest.raises(InvalidInputError, match=r"1.*2|2.*1"):
        ratio(validation.with_features(torch.ones(8000, 2)))
