"""Evidence that may be looked at any time: e-processes by betting, and conformal p-values against a reference.

An e-process is the wealth of a gambler who starts with 1 and bets against a hypothesis. Where the hypothesis is true,
the wealth ever reaches 1/alpha with a probability of at most alpha (Ville 1939), however often one looks.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

BETS = np.outer([-1.0, 1.0], 0.8 / 2.0 ** np.arange(7)).ravel()  # on both signs
MIN_BLOCK, MAX_BLOCK = 20, 100  # rows between two looks: a hundredth of those before, within these limits
RANK_BLOCK = 128  # rows that are ranked together


class Alarm(NamedTuple):
    """When the evidence first reached its limit, and which bet had won most."""

    n_rows: int  # of those that this evidence counts
    component: int
    sign: int  # of the mean that it bet on


@dataclass
class EProcess:
    """Wealth of bets against the hypothesis that each z in [−1, 1] has the mean 0, given all rows before it.

    A bet b multiplies its wealth by 1 + b·z, which has the mean 1 (Waudby-Smith and Ramdas 2024). The wealth is spread
    over bets of both signs, over components (all rows, and each bin of the confidence), and over starts: a part is kept
    back and enters block by block, for changes that come late. A mean of e-processes is an e-process, however they
    depend on each other.

    Args:
        weights: (components,) the share of each, of the sum 1.
        limit: The logarithm of the wealth that is an alarm.
        n_rows: The number of rows so far.
        n_blocks: The number of complete blocks of rows.
        block_end: The number of rows at which the present block ends.
        log_wealth: (bets, components) the wealth that bets on the present block.
        log_factors: (bets, components) by how much that has changed since.
        alarm: When the wealth first reached the limit.
    """

    weights: Floats
    limit: float
    n_rows: int = 0
    n_blocks: int = 0
    block_end: int = MIN_BLOCK
    log_wealth: Floats = field(default_factory=lambda: np.zeros(0))
    log_factors: Floats = field(default_factory=lambda: np.zeros(0))
    alarm: Alarm | None = None

    def __post_init__(self) -> None:
        shape = (len(BETS), len(self.weights))
        if self.log_wealth.shape != shape:
            self.log_wealth, self.log_factors = np.full(shape, math.log(1 - _kept_back(0))), np.zeros(shape)
        self._log_prior = np.log(self.weights / len(BETS))

    @property
    def log_e(self) -> float:
        """The logarithm of the wealth after the last row."""
        return float(np.logaddexp(_log_sum(self._shares()), math.log(_kept_back(self.n_blocks))))

    def component_log_e(self) -> Floats:
        """The same of each component alone, as if it had all of the wealth."""
        alone = [_log_sum(share) for share in (self._shares() - np.log(self.weights)).T]
        found: Floats = np.logaddexp(alone, math.log(_kept_back(self.n_blocks)))
        return found

    def _shares(self) -> Floats:
        shares: Floats = self.log_wealth + self.log_factors + self._log_prior
        return shares

    def add(self, component: Integers, z: Floats) -> None:
        """Bet on rows in their order: on each for the components of its row (n, m), with one z (n, 1) or several."""
        first, n_components, ends = self.n_rows, len(self.weights), []
        while self.block_end <= first + len(z):
            ends.append(self.block_end)
            self.block_end += min(max(self.block_end // 100, MIN_BLOCK), MAX_BLOCK)
        block = np.searchsorted(ends, np.arange(first, first + len(z)), side="right")
        # The factors so far come first: the bits do not depend on how rows are divided into calls.
        key = np.append(np.arange(n_components), block[:, None] * n_components + component)
        factors = np.empty((len(ends) + 1, *self.log_factors.shape))
        for index, bet in enumerate(BETS):
            terms = np.append(self.log_factors[index], np.broadcast_to(np.log1p(bet * z), component.shape))
            factors[:, index] = np.bincount(key, terms, len(factors) * n_components).reshape(len(factors), -1)
        for end, self.log_factors in zip(ends, factors, strict=False):
            self.n_rows = end
            self._raise_alarm()
            entering = _kept_back(self.n_blocks) - _kept_back(self.n_blocks + 1)
            self.log_wealth = np.logaddexp(self.log_wealth + self.log_factors, math.log(entering))
            self.n_blocks += 1
        self.n_rows, self.log_factors = first + len(z), factors[-1]

    def _raise_alarm(self) -> None:
        if self.alarm is None and self.log_e >= self.limit:
            bet, component = np.unravel_index(self._shares().argmax(), self.log_wealth.shape)
            self.alarm = Alarm(self.n_rows, int(component), int(np.sign(BETS[bet])))


def _kept_back(n_blocks: int) -> float:
    """The wealth that does not bet yet: what enters with each block falls little faster than 1 / n_blocks."""
    return 1 / (1 + math.log(2 + n_blocks))


def _log_sum(values: Floats) -> float:
    largest = float(values.max())
    return largest + math.log(float(np.exp(values - largest).sum()))


def conformal_p_values(counts: Integers, cells: Integers, uniforms: Floats) -> Floats:
    """The rank of each row among all before it and itself, as a share; ties are broken at random.

    Where the rows and those that ``counts`` began with are exchangeable, these are independent and uniform, however
    many there are (Vovk et al. 2005). Ranks in a fixed reference alone would not be: its error is in all of them.

    Args:
        counts: (cells,) the number of rows in each cell of the score; the new rows are added to it.
        cells: (n,) the cell of each row, in order.
        uniforms: (n,) uniform random numbers.

    Returns:
        (n,) p-values: small where the score is.
    """
    p_values = np.empty(len(cells))
    for start in range(0, len(cells), RANK_BLOCK):
        rows = slice(start, start + RANK_BLOCK)
        own, before = cells[rows], np.append(0, np.cumsum(counts))
        earlier = np.tri(len(own), k=-1, dtype=bool)
        below = before[own] + ((own < own[:, None]) & earlier).sum(1)
        equal = counts[own] + ((own == own[:, None]) & earlier).sum(1) + 1
        p_values[rows] = (below + uniforms[rows] * equal) / (before[-1] + np.arange(1, len(own) + 1))
        counts += np.bincount(own, minlength=len(counts))
    return p_values


def uniforms(seed: int, first: int, n: int) -> Floats:
    """Random numbers number ``first`` to ``first + n`` of a seed: the same, however they are divided into calls."""
    skipped = first % 4  # Philox makes four at a time
    return np.random.Generator(np.random.Philox(key=seed, counter=first // 4)).random(skipped + n)[skipped:]
