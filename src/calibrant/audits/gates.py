"""Gates: conditions on metrics under which an audit fails, as of ``--fail-if``."""

import math
import re
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Self

from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import METRICS

OPERATORS = {">": gt, ">=": ge, "<": lt, "<=": le}


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition such as ``ece > 0.05``; the gate fails where it holds.

    Args:
        metric: A name of METRICS.
        operator: ">", ">=", "<" or "<=".
        limit: A finite number.

    Raises:
        UnknownNameError: Where there is no such metric or operator.
    """

    metric: str
    operator: str
    limit: float

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)
        check_choice("operator", self.operator, OPERATORS)
        if not math.isfinite(self.limit):
            raise InvalidInputError(f"the limit of a gate must be finite, got {self.limit}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The gate of a condition as it is written.

        >>> Gate.parse("ece > 0.05")
        Gate(metric='ece', operator='>', limit=0.05)
        """
        match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\S+)\s*", text)
        try:
            limit = float(match[3]) if match else math.nan
        except ValueError:
            limit = math.nan
        if match is None or not math.isfinite(limit):
            raise InvalidInputError(f'a gate (--fail-if) must be a condition such as "ece > 0.05", got {text!r}')
        return cls(match[1], match[2], limit)

    def fails(self, card: Scorecard) -> bool:
        """Whether the condition holds. Raises: InvalidInputError where the metric is undefined."""
        try:
            return bool(OPERATORS[self.operator](card[self.metric], self.limit))
        except UndefinedMetricError as error:
            raise InvalidInputError(f"the gate {self} cannot be decided: {error}") from None

    def describe(self, card: Scorecard) -> str:
        """The condition and what the metric is.

        >>> from calibrant import Predictions, score
        >>> Gate("accuracy", "<", 0.9).describe(score(Predictions.from_logits([[1.0, 0.0]], [0])))
        'accuracy < 0.9 (it is 1)'
        """
        return f"{self} (it is {card[self.metric]:.6g})"

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.limit:g}"
