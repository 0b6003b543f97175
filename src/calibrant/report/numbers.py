"""Numbers as text, for all tables, sentences and the terminal."""

import math
from collections.abc import Iterable, Sequence

MISSING = "–"
MAX_DECIMALS = 6


def percent(share: float, *, unit: str = " %") -> str:
    """A share as a percentage with three digits; more where it would be rounded to 0 or 100.

    >>> percent(0.8333), percent(0.0512), percent(0.99996), percent(1.0), percent(1e-12)
    ('83.3 %', '5.12 %', '99.996 %', '100 %', '< 0.000001 %')
    """
    if share <= 0 or share >= 1:
        return f"{0 if share <= 0 else 100}{unit}"
    for decimals in range(2 if share < 0.09995 else 1, MAX_DECIMALS + 1):
        text = f"{100 * share:.{decimals}f}"
        if 0 < float(text) < 100:
            return text + unit
    least = 10.0**-MAX_DECIMALS
    return f"< {least:.{MAX_DECIMALS}f}{unit}" if share < 0.5 else f"> {100 - least:.{MAX_DECIMALS}f}{unit}"


def percent_limits(limits: tuple[float, float]) -> str:
    """
    >>> percent_limits((0.812, 0.853))
    '81.2 to 85.3 %'
    """
    return f"{percent(limits[0], unit='')} to {percent(limits[1])}"


def points(difference: float, sign: str = "") -> str:
    """A difference of shares in percentage points; small differences have more digits.

    >>> points(0.0412), points(0.00412), points(0.0), points(-0.05, "+"), points(1e-9)
    ('4.1', '0.41', '0', '−5.0', '< 0.001')
    """
    size = 100 * abs(difference)
    if size == 0:
        return "0"
    if size < 0.0005:
        return "< 0.001" if not sign else "0.000"
    decimals = 3 if size < 0.0995 or 99.95 <= size < 100 else 2 if size < 0.995 else 1
    return _minus(f"{100 * difference:{sign}.{decimals}f}")


def _minus(text: str) -> str:
    """The text of a number with a minus sign instead of a hyphen in front."""
    return "−" + text[1:] if text.startswith("-") else text


def points_limits(limits: tuple[float, float], sign: str = "") -> str:
    """
    >>> points_limits((0.031, 0.0512))
    '3.1 to 5.1'
    """
    return f"{points(limits[0], sign)} to {points(limits[1], sign)}"


def metric_text(value: float | None, sign: str = "") -> str:
    """
    >>> metric_text(0.04123), metric_text(None), metric_text(0.000123), metric_text(float("inf")), metric_text(0.5, "+")
    ('0.0412', '–', '1.23e-04', '∞', '+0.5000')
    """
    if value is None:
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return _minus(f"{value:{sign}.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:{sign}.2e}")


def interval_text(pair: tuple[float, float], sign: str = "") -> str:
    """
    >>> interval_text((0.031, 0.0512)), interval_text((float("-inf"), float("inf")))
    ('0.0310 to 0.0512', 'unbounded')
    """
    return (
        "unbounded" if all(map(math.isinf, pair)) else f"{metric_text(pair[0], sign)} to {metric_text(pair[1], sign)}"
    )


def p_value_text(p_value: float) -> str:
    """
    >>> p_value_text(0.0312), p_value_text(1e-9)
    ('0.0312', '< 0.0001')
    """
    return "< 0.0001" if p_value < 1e-4 else f"{p_value:.4f}"


def p_value_phrase(p_value: float) -> str:
    """
    >>> p_value_phrase(0.0312), p_value_phrase(0.0004), p_value_phrase(1e-9)
    ('p = 0.031', 'p = 0.0004', 'p < 0.0001')
    """
    if p_value < 1e-4:
        return "p < 0.0001"
    return f"p = {p_value:.3f}" if p_value >= 0.000995 else f"p = {p_value:.4f}"


def level_text(level: float) -> str:
    """
    >>> level_text(0.95), level_text(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * level:.10g} %"


def threshold_text(confidence: float) -> str:
    """A confidence rounded down: rows of this confidence reach the printed threshold.

    >>> threshold_text(0.72039), threshold_text(0.99999876), threshold_text(1.0)
    ('0.720', '0.999998', '1')
    """
    if confidence >= 1:
        return "1"
    decimals = 3 if confidence < 0.999 else 6
    return f"{math.floor(confidence * 10**decimals) / 10**decimals:.{decimals}f}"


def upward_text(confidence: float) -> str:
    """A certified confidence rounded up: rows that reach the printed one reach it too.

    >>> upward_text(0.8931), upward_text(0.9995123), upward_text(1 - 5.18e-12), upward_text(1.0)
    ('0.894', '0.99952', '1 − 5.1e-12', '1')
    """
    if confidence >= 1:
        return "1"
    exponent = math.floor(math.log10(1 - confidence))
    if exponent < -4:
        return f"1 − {math.floor((1 - confidence) / 10.0 ** (exponent - 1)) / 10:.1f}e{exponent:03d}"
    decimals = max(3, 1 - exponent)
    return f"{math.ceil(confidence * 10**decimals) / 10**decimals:.{decimals}f}"


def mean_text(value: float, in_percent: bool) -> str:
    """A mean in a table: a percentage has three digits and at most two decimals, another number three decimals.

    >>> [mean_text(value, True) for value in (0.4, 8.7, 9.996, 14.46, 99.97)], mean_text(3.3294, False)
    (['0.40', '8.70', '10.0', '14.5', '100'], '3.329')
    """
    if not in_percent:
        return _minus(f"{value:.3f}")
    texts = (f"{value:.2f}", f"{value:.1f}", f"{value:.0f}")
    return _minus(next(text for text in texts if len(text) <= 4 or "." not in text))


def standard_error_text(value: float) -> str:
    """A standard error in a table: one decimal, or one significant digit where that would be rounded to zero.

    >>> [standard_error_text(value) for value in (0.0, 0.23, 0.0996, 0.04, 0.004, 1e-9, 12.8)]
    ['0.0', '0.2', '0.1', '0.04', '0.004', '<0.0001', '12.8']
    """
    if 0 < value < 1e-4:
        return "<0.0001"
    return f"{value:.1f}" if value >= 0.1 or value == 0 else f"{value:.1g}"


def count(n: int, noun: str, plural: str = "") -> str:
    """
    >>> count(1, "run"), count(2000, "run"), count(9, "loss", "losses")
    ('1 run', '2,000 runs', '9 losses')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def format_range(counts: Sequence[int]) -> str:
    """
    >>> format_range([3, 3]), format_range([5, 2, 3])
    ('3', '2 to 5')
    """
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def duration(seconds: float) -> str:
    """In seconds, minutes or hours.

    >>> [duration(seconds) for seconds in (0.4, 89, 90, 3600, 7200)]
    ['0.4 s', '89 s', '2 min', '60 min', '2.0 h']
    """
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def join_words(names: Iterable[str]) -> str:
    """Names separated by commas and "and".

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *most, last = list(names)
    return f"{', '.join(most)} and {last}" if most else last


def shorten_list(names: Iterable[str], maximum: int = 20) -> list[str]:
    """The first names, and the number of others.

    >>> shorten_list(["a", "b", "c"], 2)
    ['a', 'b', 'and 1 more']
    """
    names = list(names)
    rest = len(names) - maximum
    return names if rest <= 0 else [*names[:maximum], f"and {rest:,} more"]
