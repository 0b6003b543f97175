"""Evidence: the definition written slowly, the promise about false alarms simulated, and what each question finds."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from calibrant.monitors.evidence import BETS, MIN_BLOCK, Alarm, EProcess, conformal_p_values, uniforms
from calibrant.monitors.questions import Evidence

ALPHA = 0.05


def rows(rng: np.random.Generator, n: int, drop: float = 0.0, scale: float = 1.0) -> tuple[np.ndarray, ...]:
    """Confidences, whether they are correct, and entropies of a model that is calibrated but for a drop of accuracy."""
    confidence = rng.beta(8, 1.2, n)
    correct = (rng.random(n) < confidence - drop).astype(float)
    return confidence, correct, scale * rng.gamma(1.0, 1.0, n)


def evidence_of(*parts: tuple[np.ndarray, ...], alpha: float = ALPHA) -> Evidence:
    """Of the first part as the reference, and the others after it."""
    (confidence, correct, entropy), *stream = parts
    evidence = Evidence.from_reference(confidence, correct, {"entropy": entropy}, alpha)
    for confidence, correct, entropy in stream:
        evidence.add_labelled(confidence, correct)
        evidence.add_rows({"entropy": entropy})
    return evidence


def alarms(evidence: Evidence) -> dict[str, Alarm]:
    return {name: process.alarm for name, process in evidence.processes.items() if process.alarm is not None}


def test_the_wealth_is_that_of_a_gambler_who_bets_row_by_row() -> None:
    rng, weights = np.random.default_rng(0), np.array([0.75, 0.25])
    z, component = rng.uniform(-1, 1, 50), rng.integers(0, 2, 50)
    wealth, kept, n_blocks = np.zeros((len(BETS), 2)), 1.0, 0
    for row in range(50):
        if row % MIN_BLOCK == 0:  # a block begins: a part of what is kept back enters
            left = 1 / (1 + math.log(2 + n_blocks))
            wealth, kept, n_blocks = wealth + kept - left, left, n_blocks + 1
        wealth[:, component[row]] *= 1 + BETS * z[row]
    at_once, parts = EProcess(weights, 1e9), EProcess(weights, 1e9)
    at_once.add(component[:, None], z[:, None])
    assert at_once.log_e == pytest.approx(math.log(kept + (wealth * weights).sum() / len(BETS)), rel=1e-12)
    alone = np.log(kept + wealth.mean(0))
    assert at_once.component_log_e() == pytest.approx(alone, rel=1e-12)
    for each in np.array_split(np.arange(50), 7):
        parts.add(component[each, None], z[each, None])
    assert parts.log_e == at_once.log_e  # to the last bit


def test_p_values_are_ranks_among_all_rows_before() -> None:
    rng = np.random.default_rng(1)
    cells, drawn = rng.integers(0, 5, 300), uniforms(0, 7, 300)
    assert (uniforms(0, 0, 307)[7:] == drawn).all()
    past = [0, 0, 1, 3]
    expected = []
    for cell, u in zip(cells.tolist(), drawn.tolist(), strict=True):
        past.append(cell)
        expected.append((sum(other < cell for other in past) + u * past.count(cell)) / len(past))
    counts = np.array([2, 1, 0, 1, 0])
    assert conformal_p_values(counts, cells, drawn) == pytest.approx(expected, rel=1e-12)
    assert counts.tolist() == np.bincount(past).tolist()


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_promised() -> None:
    """400 streams of 5,000 rows after a reference of 200: ranks or shares of the reference alone alarm in most."""
    n_streams, rng = 400, np.random.default_rng(2)
    false = {"miscalibrated": 0, "changed": 0, "shifted": 0, "any": 0}
    for _ in range(n_streams):
        evidence = evidence_of(rows(rng, 200))
        promised = evidence.processes["shifted"].limit
        assert promised == pytest.approx(math.log(3 / ALPHA))  # the three questions share alpha
        for name, process in evidence.processes.items():  # each question alone, at the whole of alpha
            evidence.processes[name] = replace(process, limit=math.log(1 / ALPHA))
        confidence, correct, entropy = rows(rng, 5000)
        evidence.add_labelled(confidence, correct)
        evidence.add_rows({"entropy": entropy})
        for name in alarms(evidence):
            false[name] += 1
        false["any"] += any(process.log_e >= promised for process in evidence.processes.values())
    assert max(false.values()) <= binom.ppf(0.999, n_streams, ALPHA), false


@pytest.mark.parametrize(
    ("reference_drop", "drop", "scale", "found"),
    [
        (0.0, 0.1, 1.0, {"miscalibrated": -1, "changed": -1}),
        (0.1, 0.1, 1.0, {"miscalibrated": -1}),  # as the reference was: nothing has changed
        (0.1, 0.0, 1.0, {"changed": 1}),  # and now it is calibrated
        (0.0, 0.0, 1.3, {"shifted": 1}),
        (0.0, 0.0, 1.0, {}),
    ],
)
def test_each_question_has_its_own_answer(
    reference_drop: float, drop: float, scale: float, found: dict[str, int]
) -> None:
    rng = np.random.default_rng(3)
    evidence = evidence_of(rows(rng, 4000, reference_drop), rows(rng, 3000, drop, scale))
    raised = alarms(evidence)
    assert {name: alarm.sign for name, alarm in raised.items()} == found
    assert all(alarm.n_rows < 1500 for alarm in raised.values())


def test_the_bin_that_changed_is_named_and_without_labels_nothing_is_said_of_change() -> None:
    rng = np.random.default_rng(4)
    confidence, correct, entropy = rows(rng, 4000)
    worse = np.where(confidence > 14 / 15, correct * (rng.random(4000) < 0.8), correct)
    process = evidence_of(rows(rng, 4000), (confidence, worse, entropy)).processes["changed"]
    assert process.component_log_e()[1:].argmax() == 14
    unlabelled = Evidence.from_reference(np.zeros(0), np.zeros(0), {"entropy": entropy, "distance": entropy}, ALPHA)
    unlabelled.add_labelled(confidence, worse)
    assert set(alarms(unlabelled)) == {"miscalibrated"}
    assert unlabelled.component_name("miscalibrated", 15) == "confidence 0.93 to 1.00"
    assert unlabelled.component_name("shifted", 4) == "largest distance"
