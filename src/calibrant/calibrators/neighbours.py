"""Distance to what is known: the mean distance of a row's features to its nearest neighbours in a bank of others."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from calibrant._checks import check_known_features, check_whole
from calibrant.calibrators.maps import mean_distance, nearest_mean, square_distances
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

BANK_ROWS = 5000  # at most; those of the least hashes, so that the order of rows does not matter
MOST_NEIGHBOURS = 200  # k unless told (Tomani et al. 2023),
NEIGHBOUR_SHARE = 0.01  # but no more than this share of the bank
BLOCK_ELEMENTS = 2**20


@dataclass(frozen=True, eq=False)
class Bank:
    """Features of known rows, scaled to length 1, and how many neighbours among them count."""

    features: Tensor  # (m, f) float16
    k: int
    members: Tensor  # (m,) their row numbers in what the bank was made of

    @classmethod
    def of(cls, method: str, reference: Predictions, k: int | None, argument: str) -> Self:
        features = check_known_features(method, reference.features, argument)
        members = torch.from_numpy(np.argsort(reference.row_hashes[0], kind="stable")[:BANK_ROWS])
        usual = min(MOST_NEIGHBOURS, math.ceil(NEIGHBOUR_SHARE * len(members)))
        chosen = usual if k is None else check_whole("k", k, 1)
        if chosen >= len(members):
            raise InvalidInputError(f"k must be less than the {len(members)} rows of {argument}, got {chosen}")
        return cls(nn.functional.normalize(features[members].float(), dim=1).half(), chosen, members)

    def distances(self, features: Tensor) -> Tensor:
        """(n,) of other rows, float64."""
        bank = self.features.double()
        step = max(1, BLOCK_ELEMENTS // len(bank))
        found = [mean_distance(features[i : i + step], bank, self.k) for i in range(0, len(features), step)]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)

    def own_distances(self, features: Tensor) -> Tensor:
        """(n,) of the rows that the bank was made of, none of them its own neighbour."""
        distances = self.distances(features)
        bank = self.features.double()
        step = max(1, BLOCK_ELEMENTS // len(bank))
        for start in range(0, len(bank), step):
            rows = self.members[start : start + step]
            squares = square_distances(features[rows], bank)
            squares[torch.arange(len(rows)), torch.arange(start, start + len(rows))] = torch.inf
            distances[rows] = nearest_mean(squares, self.k)
        return distances
