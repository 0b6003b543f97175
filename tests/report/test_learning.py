"""Learning curves against slow means, notes on broken logs, and charts with descriptions."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.errors import InvalidInputError
from calibrant.experiments.folder import ExperimentFolder, RunKey
from calibrant.report.learning import (
    CONSTRAINTS,
    LEARNING,
    LOGGED,
    draw_epochs,
    draw_learning_curves,
    line_styles,
    read_learning_curves,
)
from calibrant.report.render import to_svg
from made.folder import EPOCHS, epoch_records, write_lines

LOSSES = ("cross_entropy", "focal", "maxent_mean")


def write_logs(folder: Path, *logs: tuple[RunKey, list[Any]]) -> tuple[ExperimentFolder, dict[str, RunKey]]:
    """Runs with these logs; the rest of their folders is not there."""
    for run, records in logs:
        write_lines(folder / run.name / "log.jsonl", records)
    return ExperimentFolder(folder), {run.name: run for run, _ in logs}


def run(loss: str = "maxent_mean", seed: int = 0, **about: Any) -> RunKey:
    return RunKey("digits", "mlp", loss, seed=seed)._replace(**about)


@pytest.fixture
def made(tmp_path: Path) -> tuple[ExperimentFolder, dict[str, RunKey]]:
    return write_logs(tmp_path, *((run(loss, seed), epoch_records(loss, seed)) for loss in LOSSES for seed in range(3)))


def test_learning_curves_against_slow_means(made: tuple[ExperimentFolder, dict[str, RunKey]]) -> None:
    points, moments, notes = read_learning_curves(*made)
    assert notes == []
    assert [line.label for line in line_styles(points)] == ["CE", "Focal", "MaxEnt M"]
    found = {(point["loss"], point["quantity"], point["epoch"]): point for point in points}
    for loss in LOSSES:
        logs = [epoch_records(loss, seed) for seed in range(3)]
        for quantity in LOGGED:
            for epoch in range(1, EPOCHS + 1):
                values = [log[epoch - 1][quantity] for log in logs if quantity in log[epoch - 1]]
                assert ((loss, quantity, epoch) in found) == bool(values)
                if values:
                    point = found[loss, quantity, epoch]
                    error = np.std(values, ddof=1) / math.sqrt(3)
                    assert (point["mean"], point["high"] - point["mean"]) == pytest.approx((np.mean(values), error))
                    assert point["n_seeds"] == 3
    assert {(moment["loss"], moment["constraint"]) for moment in moments} == {("maxent_mean", "mean class index")}
    last = next(moment for moment in moments if moment["epoch"] == EPOCHS)
    values = [4.5 + 0.1 / EPOCHS + 0.2 * seed for seed in range(3)]
    assert (last["mean"], last["global"], last["local"]) == pytest.approx((np.mean(values), 4.5, 4.25))


@pytest.mark.slow
def test_charts_have_descriptions(made: tuple[ExperimentFolder, dict[str, RunKey]]) -> None:
    found, lines, notes = draw_learning_curves(*made)
    assert (lines, notes) == (["CE", "Focal", "MaxEnt M"], [])
    assert list(found) == [*LOGGED, "moments"]
    for name in ("val_ece", "moments"):
        found[name].to_dict()  # altair validates it
    for quantity in (*LEARNING, *CONSTRAINTS):
        svg = to_svg(found[quantity.key])
        if quantity.key == "moments":
            assert "mean class index 4.725, targets 4.5 (global) and 4.25 (local)" in svg
        else:
            assert f"MaxEnt M: epoch 4, {quantity.heading.lower().replace('ece', 'ECE')} " in svg
            assert ('aria-label="CE"' in svg) == (quantity in LEARNING)


def test_at_most_twenty_epochs_have_points(tmp_path: Path) -> None:
    points, _, _ = read_learning_curves(*write_logs(tmp_path, (run("focal"), epoch_records("focal", 0, 90))))
    svg = to_svg(draw_epochs([point for point in points if point["quantity"] == "val_ece"], LEARNING[0]))
    assert svg.count("Focal: epoch ") == 18  # every fifth, back from the last
    assert "Focal: epoch 90, " in svg


def test_broken_lines_are_left_out_and_noted(tmp_path: Path) -> None:
    good = {"epoch": 1, "val_ece": 0.25}
    broken = ['{"epoch": 2, "val_e', "[1]", "", '{"val_ece": 0.5}', '{"epoch": "3", "val_ece": 0.5}']
    odd = [{"epoch": 4, "val_ece": float("nan")}, {"epoch": 5, "val_ece": "0.5"}, {"epoch": 6, "val_ece": True}]
    own = run()
    points, _, notes = read_learning_curves(*write_logs(tmp_path, (own, [good, *broken, *odd])))
    assert [(point["epoch"], point["mean"]) for point in points] == [(1, 0.25)]
    assert notes == [
        f"Lines of log.jsonl that cannot be read are left out: 4 lines of {own.name}.",
        f"Values that are not finite numbers are left out: val_ece at 3 epochs of {own.name}.",
    ]
    records = epoch_records("maxent_mean", 0)
    records[1]["constraint_moments"] = [math.nan]
    _, moments, notes = read_learning_curves(*write_logs(tmp_path, (own, records)))
    assert [moment["epoch"] for moment in moments] == [1, 3, 4]
    assert notes == [f"Values that are not finite numbers are left out: constraint_moments at 1 epoch of {own.name}."]
    again = [{"epoch": 1, "val_ece": 0.5}, {"epoch": 1, "val_ece": 0.25}]  # an epoch that was done again counts once
    ((point,), _, _) = read_learning_curves(*write_logs(tmp_path, (own, again)))
    assert (point["mean"], point["n_seeds"]) == (0.25, 1)


def test_runs_without_a_log_and_with_fewer_epochs_are_noted(tmp_path: Path) -> None:
    logs = [(run("focal", seed), epoch_records("focal", seed, n)) for seed, n in ((0, 4), (1, 2), (2, 0))]
    points, _, notes = read_learning_curves(*write_logs(tmp_path, *logs))
    assert notes == [
        "These runs have no per-epoch log: digits-mlp-focal-2.",
        "Runs of Focal have different numbers of epochs; each mean is over the seeds that reached the epoch.",
    ]
    seeds = {point["epoch"]: point["n_seeds"] for point in points if point["quantity"] == "val_ece"}
    assert seeds == {1: 2, 2: 2, 3: 1, 4: 1}
    assert read_learning_curves(*write_logs(tmp_path, logs[2])) == ([], [], [])
    smoothed = run("focal", label_smoothing=0.01)  # which is left out
    assert read_learning_curves(*write_logs(tmp_path, (smoothed, epoch_records("focal", 0)))) == ([], [], [])


def test_the_constraints_farthest_from_their_targets_are_drawn(tmp_path: Path) -> None:
    lists = {"constraint_global_moments": [0.25] * 4, "constraint_local_moments": [0.25] * 4}
    first = {"epoch": 1, **lists, "constraint_moments": [0.1, 0.5, 0.15, 0.25]}
    other = {"epoch": 2, **lists, "constraint_moments": [1]}  # of another size than its targets
    _, moments, _ = read_learning_curves(*write_logs(tmp_path, (run("maxent_prior"), [first, other])))
    assert [moment["constraint"] for moment in moments] == ["probability of class 0", "probability of class 1"]


def test_a_run_outside_the_folder_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "elsewhere" / "log.jsonl", epoch_records("focal", 0))
    inside = ExperimentFolder(tmp_path / "runs")
    for name in ("../elsewhere", str(tmp_path / "elsewhere"), "..", "a\0b"):
        with pytest.raises(InvalidInputError, match="run must be the name of a folder"):
            read_learning_curves(inside, {name: run("focal")})
