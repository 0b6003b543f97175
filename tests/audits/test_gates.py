"""Gates: parsed from text, and failing if their condition is true."""

import math

import pytest

from calibrant.audits import Gate
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.metrics import score
from calibrant.predictions import Predictions


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("ece > 0.05", ("ece", ">", 0.05)),
        ("ece>=1e-3", ("ece", ">=", 1e-3)),
        ("  accuracy <.9 ", ("accuracy", "<", 0.9)),
        ("l2ce <= -1", ("l2ce", "<=", -1.0)),
    ],
)
def test_gates_are_parsed(text: str, gate: tuple[str, str, float]) -> None:
    assert Gate.parse(text) == Gate(*gate)
    assert Gate.parse(str(Gate(*gate))) == Gate(*gate)


def test_a_gate_fails_if_its_condition_is_true() -> None:
    card = score(Predictions.from_logits([[0.0, 0.0]] * 4, [0, 0, 0, 1]))  # accuracy 0.75, exactly
    for operator, fails in {"<": False, "<=": True, ">": False, ">=": True}.items():
        gate = Gate("accuracy", operator, 0.75)
        assert gate.fails(card) == fails
        assert gate.describe(card) == f"accuracy {operator} 0.75 (accuracy = 0.75)"


@pytest.mark.parametrize("text", ["ece", "ece => 1", "ece > 5%", "ece > inf", "ece > 0.1 > 0", ""])
def test_other_text_is_no_gate(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"\(--fail-if\) must be a condition such as \"ece > 0.05\", got '"):
        Gate.parse(text)


def test_invalid_gates() -> None:
    with pytest.raises(UnknownNameError, match="unknown metric 'ecee'; did you mean 'ece'"):
        Gate.parse("ecee > 1")
    with pytest.raises(UnknownNameError, match="unknown operator '=='"):
        Gate("ece", "==", 1)
    with pytest.raises(InvalidInputError, match="must be a finite number, got nan"):
        Gate("ece", ">", math.nan)
    card = score(Predictions.from_logits([[3.0, 0.0], [0.0, 1.0]], [0, 1]))
    with pytest.raises(InvalidInputError, match=r"the gate nll_on_errors > 3 cannot be decided: .*none of 2 rows"):
        Gate("nll_on_errors", ">", 3).fails(card)
