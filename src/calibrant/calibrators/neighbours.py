"""Distance to what is known: the mean distance of a row's features to its nearest neighbours in a bank of others."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from calibrant._arrays import blocks
from calibrant._checks import check_known_features, check_whole
from calibrant.calibrators.maps import mean_distance, nearest_mean, square_distances
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

BANK_ROWS = 5000  # at most; those of the least hashes, so that the order of rows does not matter
MAX_NEIGHBOURS = 200  # k unless told (Tomani et al. 2023),
NEIGHBOUR_SHARE = 0.01  # but no more than this share of the bank
BLOCK = 2**20  # distances of a block


def feature_bank(method: str, reference: Predictions, argument: str) -> tuple[Tensor, Tensor]:
    """(m, f) float16 features of known rows, scaled to length 1, and (m,) the numbers of these rows."""
    features = check_known_features(method, reference.features, argument)
    members = torch.from_numpy(np.argsort(reference.row_hashes[0], kind="stable")[:BANK_ROWS])
    return nn.functional.normalize(features[members].float(), dim=1).half(), members


def neighbour_count(k: int | None, n_rows: int, argument: str) -> int:
    """How many neighbours of a bank count."""
    usual = min(MAX_NEIGHBOURS, math.ceil(NEIGHBOUR_SHARE * n_rows))
    chosen = usual if k is None else check_whole("k", k, 1)
    if chosen >= n_rows:
        raise InvalidInputError(f"k must be less than the {n_rows} rows of {argument}, got {chosen}")
    return chosen


def bank_distances(features: Tensor, bank: Tensor, k: int) -> Tensor:
    """(n,) float64, of rows that are not in the bank."""
    found = torch.empty(len(features), dtype=torch.float64)
    bank = bank.double()
    for rows in blocks(len(features), len(bank), size=BLOCK):
        found[rows] = mean_distance(features[rows], bank, k)
    return found


def own_distances(features: Tensor, bank: Tensor, members: Tensor, k: int) -> Tensor:
    """(n,) float64, of the rows that the bank was made of, none of them its own neighbour."""
    found = bank_distances(features, bank, k)
    bank = bank.double()
    for part in blocks(len(bank), len(bank), size=BLOCK):
        squares = square_distances(features[members[part]], bank)
        squares.diagonal(part.start).fill_(torch.inf)
        found[members[part]] = nearest_mean(squares, k)
    return found
