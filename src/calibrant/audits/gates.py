"""Gates: conditions on metrics under which an audit fails, as in ``--fail-if``."""

from collections.abc import Collection
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import ClassVar, Self

from calibrant._checks import check_number
from calibrant._conditions import parse_condition
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import METRICS

OPERATORS = {">": gt, ">=": ge, "<": lt, "<=": le}


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition such as ``ece > 0.05``; the gate fails if it is true.

    Args:
        metric: A name of METRICS.
        operator: ">", ">=", "<" or "<=".
        limit: A finite number.

    Raises:
        UnknownNameError: There is no such metric or operator.
        InvalidInputError: The limit is not finite.
    """

    names: ClassVar[Collection[str]] = METRICS

    metric: str
    operator: str
    limit: float

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, self.names)
        check_choice("operator", self.operator, OPERATORS)
        check_number("the limit of a gate", self.limit)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a gate from text.

        Args:
            text: A metric, an operator and a number.

        Returns:
            The gate.

        Raises:
            InvalidInputError: The text is not such a condition.
            UnknownNameError: There is no such metric.

        >>> Gate.parse("ece > 0.05")
        Gate(metric='ece', operator='>', limit=0.05)
        """
        return cls(*parse_condition(text, cls.names))

    @checked
    def fails(self, card: Scorecard) -> bool:
        """Whether the condition is true.

        Args:
            card: A scorecard with the metric.

        Returns:
            True if the gate fails.

        Raises:
            InvalidInputError: The metric is undefined.
        """
        try:
            return self.holds(card[self.metric])
        except UndefinedMetricError as error:
            raise InvalidInputError(f"the gate {self} cannot be decided: {error}") from None

    @checked
    def holds(self, value: float) -> bool:
        """Whether the condition is true of a value.

        Args:
            value: That of the metric.

        Returns:
            True if the gate fails.
        """
        return bool(OPERATORS[self.operator](value, self.limit))

    @checked
    def describe(self, card: Scorecard) -> str:
        """The condition and the value of the metric.

        Args:
            card: A scorecard with the metric.

        Returns:
            One line of text.

        >>> from calibrant import Predictions, score
        >>> Gate("accuracy", "<", 0.9).describe(score(Predictions.from_logits([[1.0, 0.0]], [0])))
        'accuracy < 0.9 (accuracy = 1)'
        """
        return f"{self} ({self.metric} = {card[self.metric]:.6g})"

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.limit:g}"
