"""Plans: which runs are done, started or to do, which of them are chosen, in which order, and where they are done."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.experiments import config, run_experiment
from calibrant.experiments.cluster import RayBackend
from calibrant.experiments.processes import ProcessBackend
from calibrant.experiments.run import choose_backend, plan_experiment
from calibrant.experiments.tasks import in_this_process
from calibrant.runs import RunFolder
from calibrant.training import Settings
from calibrant.training.folder import config_digest, open_run_folder
from made.sweeps import NAMES, SETTINGS, SHORT, TWO, plan_of, write_sweep

MANY = (
    {"loss": ["cross_entropy", "focal"], "seed": [0, 1], "label_smoothing": [0, 0.1]},
    {"loss": "focal", "seed": [0, 1], "epochs": 3, "variant": "long"},
)


def begin(folder: Path, run: str, **settings: object) -> None:
    values: dict[str, Any] = {**SETTINGS, **settings}
    with open_run_folder(RunFolder(folder / run), Settings(**values)):
        pass


def states_of(folder: Path, *grids: dict[str, Any], **options: Any) -> list[str]:
    file = write_sweep(folder.parent / "other.toml", *grids, **options)
    return list(plan_experiment(file, output=folder).states.values())


def test_states_are_those_of_the_folders(short: Path, tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / NAMES[0]).symlink_to(short / NAMES[0])
    begin(tmp_path / "sweep", "digits-mlp-poly-0", loss="poly", epochs=1)
    plan = plan_of(tmp_path / "sweep", {"loss": ["cross_entropy", "poly", "focal"]}, settings=SHORT)
    found = {key.loss: state for key, state in plan.states.items()}
    assert found == {"cross_entropy": "done", "poly": "started", "focal": "to do"}
    assert [task.key.loss for task in plan.tasks()] == ["poly", "focal"]
    assert {task.key.loss for task in plan.tasks(redo=True)} == set(found)


def test_a_run_that_was_measured_by_something_else_is_not_done(short: Path) -> None:
    assert states_of(short, TWO, settings=SHORT) == ["done", "done"]
    for change in (
        {"calibrators": []},
        {"metrics": ["accuracy", "ece"]},
        {"intervals": []},
        {"calibration_shifts": ["fog"]},
    ):
        assert states_of(short, TWO, settings=SHORT, **change) == ["started", "started"], change
    free = {**SHORT, "workers": 0, "checkpoint_minutes": 1.0, "device": "cpu"}
    assert states_of(short, TWO, settings=free, title="Other", figures=[]) == ["done", "done"]


def test_a_plan_makes_nothing(tmp_path: Path) -> None:
    assert set(plan_of(tmp_path / "sweep", TWO).states.values()) == {"to do"}
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


def test_the_grid_is_expanded_once_and_each_loss_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Settings] = []
    monkeypatch.setattr(config, "check_settings", checked.append)
    plan = plan_of(tmp_path / "sweep", *MANY)
    plan.tasks()
    assert [(settings.loss, settings.label_smoothing, settings.epochs) for settings in checked] == [
        *((loss, smoothing, 2) for loss in ("cross_entropy", "focal") for smoothing in (0, 0.1)),
        ("focal", 0, 3),
    ]


def test_a_folder_of_another_configuration_is_refused_before_anything_is_trained(short: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in short.rglob("*")}
    file = write_sweep(tmp_path / "other.toml", {"loss": ["maxent_mean", "cross_entropy"]}, settings={"epochs": 2})
    for only in (None, {"loss": "maxent_mean"}):  # also where that run is not chosen
        with pytest.raises(InvalidInputError, match=r"was started with epochs = 1, not 2") as refused:
            run_experiment(file, output=short, only=only)
        message = str(refused.value)
        assert len(message.splitlines()) == 1
        assert str(short / NAMES[0]) in message
        assert re.findall(r"\b[0-9a-f]{12}\b", message) == [
            config_digest(Settings(**{**SETTINGS, "epochs": epochs}).identity) for epochs in (1, 2)
        ]
    assert {path: path.stat().st_mtime_ns for path in short.rglob("*")} == before


# Order and choice


def test_begun_runs_come_first_and_all_losses_of_a_seed_before_the_next(tmp_path: Path) -> None:
    begin(tmp_path / "sweep", "digits-mlp-focal-1", loss="focal", seed=1)
    plan = plan_of(tmp_path / "sweep", {"loss": ["poly", "focal"], "seed": [1, 0]}, {"loss": "maxent_mean", "seed": 0})
    names = ["focal-1", "poly-0", "focal-0", "maxent_mean-0", "poly-1"]
    assert [task.name for task in plan.tasks()] == [f"digits-mlp-{name}" for name in names]
    assert {task.folder.path for task in plan.tasks()} == {tmp_path / "sweep" / f"digits-mlp-{name}" for name in names}


def test_only_some_are_chosen(tmp_path: Path) -> None:
    for only, n_runs in (
        ({}, 10),
        ({"loss": "focal"}, 6),
        ({"seed": "1"}, 5),
        ({"label_smoothing": "0"}, 6),
        ({"label_smoothing": "0.0"}, 6),
        ({"label_smoothing": "0.1", "loss": "focal", "seed": "0"}, 1),
        ({"variant": "long"}, 2),
        ({"variant": ""}, 8),
        ({"data": "digits", "model": "mlp"}, 10),
    ):
        plan = plan_of(tmp_path / "sweep", *MANY, only=only)
        assert len(plan.states) == 10
        assert len(plan.chosen) == len(plan.tasks()) == n_runs, only
        for key in plan.chosen:
            for axis, value in only.items():
                assert str(getattr(key, axis)).removesuffix(".0") == value.removesuffix(".0")


# Where runs are done


@pytest.mark.parametrize(
    ("n_cores", "n_gpus", "jobs", "expected"),
    [
        (1, 0, None, in_this_process),
        (4, 0, None, ProcessBackend(4, 1, 0)),
        (64, 0, None, ProcessBackend(8, 8, 0)),
        (64, 2, None, ProcessBackend(2, 32, 2)),
        (4, 0, 2, ProcessBackend(2, 2, 0)),
        (4, 0, 30, ProcessBackend(10, 1, 0)),
        (4, 2, 1, in_this_process),
    ],
)
def test_processes_by_cores_gpus_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_cores: int, n_gpus: int, jobs: int | None, expected: object
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: n_cores)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    assert choose_backend(plan_of(tmp_path / "sweep", *MANY), jobs=jobs) == expected


def test_a_cluster_is_asked_for_what_the_file_says(short: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "sweep", *MANY, resources={"cpus": 2, "gpus": 0.5})
    assert choose_backend(plan, ray="auto") == RayBackend("auto", cpus=2, gpus=0.5)
    file = write_sweep(tmp_path / "done.toml", TWO, settings=SHORT)
    done = plan_experiment(file, output=short)
    assert choose_backend(done, jobs=2) is in_this_process  # there is nothing to do
    assert choose_backend(done, jobs=2, redo=True) == ProcessBackend(
        2, max(1, (os.cpu_count() or 1) // 2), torch.cuda.device_count()
    )


REFUSED = {
    "axis": ({"los": "focal"}, "unknown axis 'los'; did you mean 'loss'?"),
    "no axis": ({"epochs": "3"}, "unknown axis 'epochs'"),
    "name": ({"run": NAMES[0]}, "unknown axis 'run'"),
    "loss": ({"loss": "poly"}, "only must name a loss of the experiment, got 'poly'; there are cross_entropy, focal"),
    "seed": ({"seed": "7"}, "only must name a seed of the experiment, got '7'; there are 0, 1"),
    "none": ({"seed": "None"}, "got 'None'"),
    "no run": ({"loss": "cross_entropy", "variant": "long"}, "only leaves none of the 10 runs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_only_what_is_not_there(tmp_path: Path, case: str) -> None:
    only, message = REFUSED[case]
    with pytest.raises((InvalidInputError, UnknownNameError), match=re.escape(message)) as refused:
        plan_of(tmp_path / "sweep", *MANY, only=only)
    assert len(str(refused.value).splitlines()) == 1


def test_no_jobs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"jobs must be .* 1, got 0"):
        choose_backend(plan_of(tmp_path / "sweep", *MANY), jobs=0)
