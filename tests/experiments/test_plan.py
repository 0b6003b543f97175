"""Plans: which runs are done, begun or to do, which of them are chosen, in which order, and how long they take."""

import json
import re
from pathlib import Path

import pytest
from sweep_run import NAMES, SETTINGS, TWO, plan_of, sweep, write_sweep

from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.experiments import run_experiment
from calibrant.training import Settings
from calibrant.training.folder import RunFolder, digest_of

ONE = {"loss": "cross_entropy"}
MANY = (
    {"loss": ["cross_entropy", "focal"], "seed": [0, 1], "label_smoothing": [0, 0.1]},
    {"loss": "focal", "seed": [0, 1], "epochs": 3, "variant": "long"},
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one run of several is done."""
    folder = tmp_path_factory.mktemp("plan") / "sweep"
    sweep(folder, ONE, settings={"epochs": 1})
    return folder


def begin(folder: Path, run: str, **settings: object) -> None:
    values = {**SETTINGS, **settings}
    with RunFolder(folder / run).open(Settings(**values)):  # type: ignore[arg-type]
        pass


# States


def test_states_are_those_of_the_folders(done: Path) -> None:
    begin(done, "digits-mlp-poly-0", loss="poly", epochs=1)
    plan = plan_of(done, {"loss": ["cross_entropy", "poly", "focal"]}, settings={"epochs": 1})
    found = {run.settings.loss: state for run, state in plan.states.items()}
    assert found == {"cross_entropy": "done", "poly": "begun", "focal": "to do"}
    assert [task.run for task in plan.tasks()] == ["digits-mlp-poly-0", "digits-mlp-focal-0"]
    assert {task.run for task in plan.tasks(redo=True)} == {f"digits-mlp-{loss}-0" for loss in found}


@pytest.mark.parametrize(
    "change",
    [
        {"calibrators": []},
        {"metrics": ["accuracy", "ece"]},
        {"intervals": []},
        {"calibration_shifts": ["fog"]},
    ],
    ids=["calibrators", "metrics", "intervals", "calibration_shifts"],
)
def test_a_run_that_was_measured_by_something_else_is_not_done(done: Path, change: dict[str, list[str]]) -> None:
    assert [*plan_of(done, ONE, settings={"epochs": 1}).states.values()] == ["done"]
    assert [*plan_of(done, ONE, settings={"epochs": 1}, **change).states.values()] == ["begun"]


def test_what_does_not_change_the_run_leaves_it_done(done: Path) -> None:
    free = {"epochs": 1, "workers": 0, "checkpoint_minutes": 1.0, "device": "cpu"}
    assert [*plan_of(done, ONE, settings=free, title="Other", figures=[]).states.values()] == ["done"]


def test_a_plan_makes_nothing(tmp_path: Path) -> None:
    assert set(plan_of(tmp_path / "sweep", TWO).states.values()) == {"to do"}
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


# Another configuration


def test_a_folder_of_another_configuration_is_refused_before_anything_is_trained(done: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*")}
    file = write_sweep(tmp_path / "other.toml", {"loss": ["maxent_mean", "cross_entropy"]}, settings={"epochs": 2})
    with pytest.raises(InvalidInputError, match=r"was begun with epochs = 1, not 2") as refused:
        run_experiment(file, output=done)
    message = str(refused.value)
    assert len(message.splitlines()) == 1
    assert str(done / NAMES[0]) in message
    theirs, ours = re.findall(r"\b[0-9a-f]{12}\b", message)
    assert theirs == digest_of(Settings(**{**SETTINGS, "epochs": 1}).identity)
    assert ours == digest_of(Settings(**{**SETTINGS, "epochs": 2}).identity)
    assert {path: path.stat().st_mtime_ns for path in done.rglob("*")} == before


def test_it_is_refused_also_where_that_run_is_not_chosen(done: Path) -> None:
    with pytest.raises(InvalidInputError, match="was begun with epochs = 1, not 2"):
        plan_of(done, TWO, only={"loss": "focal"})


# Order and choice


def test_all_losses_of_a_seed_come_before_the_next(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "sweep", {"loss": ["poly", "focal"], "seed": [1, 0]}, {"loss": "maxent_mean", "seed": 0})
    names = ["poly-0", "focal-0", "maxent_mean-0", "poly-1", "focal-1"]
    assert [task.run for task in plan.tasks()] == [f"digits-mlp-{name}" for name in names]


def test_begun_runs_come_first(tmp_path: Path) -> None:
    begin(tmp_path / "sweep", "digits-mlp-focal-1", loss="focal", seed=1)
    plan = plan_of(tmp_path / "sweep", {"loss": ["cross_entropy", "focal"], "seed": [0, 1]})
    names = ["focal-1", "cross_entropy-0", "focal-0", "cross_entropy-1"]
    assert [task.run for task in plan.tasks()] == [f"digits-mlp-{name}" for name in names]


@pytest.mark.parametrize(
    ("only", "n_runs"),
    [
        ({}, 10),
        ({"loss": "focal"}, 6),
        ({"seed": "1"}, 5),
        ({"label_smoothing": "0"}, 6),
        ({"label_smoothing": "0.0"}, 6),
        ({"label_smoothing": "0.1", "loss": "focal", "seed": "0"}, 1),
        ({"variant": "long"}, 2),
        ({"variant": ""}, 8),
        ({"data": "digits", "model": "mlp"}, 10),
    ],
    ids=lambda value: ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value),
)
def test_only_some_are_chosen(tmp_path: Path, only: dict[str, str], n_runs: int) -> None:
    plan = plan_of(tmp_path / "sweep", *MANY, only=only)
    assert len(plan.states) == 10
    assert len(plan.chosen) == len(plan.tasks()) == n_runs
    for run in plan.chosen:
        said = {key: str(value) for key, value in run.described.items()}
        assert all(said[key].removesuffix(".0") == value.removesuffix(".0") for key, value in only.items())


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ({"los": "focal"}, "unknown axis 'los'; did you mean 'loss'?"),
        ({"epochs": "3"}, "unknown axis 'epochs'"),
        ({"run": NAMES[0]}, "unknown axis 'run'"),
        ({"loss": "poly"}, "only must name a loss of the experiment, got 'poly'; there are cross_entropy, focal"),
        ({"seed": "7"}, "only must name a seed of the experiment, got '7'; there are 0, 1"),
        ({"seed": "None"}, "got 'None'"),
        ({"loss": "cross_entropy", "variant": "long"}, "only leaves none of the 10 runs"),
    ],
    ids=["axis", "no axis", "name", "loss", "seed", "none", "no run"],
)
def test_only_what_is_not_there(tmp_path: Path, only: dict[str, str], message: str) -> None:
    with pytest.raises((InvalidInputError, UnknownNameError), match=re.escape(message)) as refused:
        plan_of(tmp_path / "sweep", *MANY, only=only)
    assert len(str(refused.value).splitlines()) == 1


# Time


def write_log(folder: Path, *records: tuple[str, float, str | None], end: str = "") -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"run": run, "failure": why, "seconds": seconds}) for run, seconds, why in records]
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n" + end)


def test_seconds_are_the_median_of_what_such_runs_took(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    took = [(NAMES[0], 1.0, None), (NAMES[1], 9.0, None), (NAMES[1], 0.1, None), (NAMES[0], 100.0, "diverged")]
    write_log(folder, *took, ("somebody-else-0", 500.0, None))
    plan = plan_of(folder, TWO, {"loss": "poly", "model": "small_convnet"})
    found = {run.name: seconds for run, seconds in plan.seconds().items()}
    assert found == {NAMES[0]: 5.0, NAMES[1]: 5.0, "digits-small_convnet-poly-0": None}


def test_seconds_are_of_the_runs_that_are_left_and_chosen(done: Path) -> None:
    plan = plan_of(done, {"loss": ["cross_entropy", "focal", "poly"]}, settings={"epochs": 1}, only={"loss": "focal"})
    (seconds,) = plan.seconds().values()
    assert seconds is not None
    assert 0 < seconds < 600
    assert [run.settings.loss for run in plan.seconds()] == ["focal"]


@pytest.mark.parametrize("end", ['{"run": "digits-ml', '{"run": "' + NAMES[0] + '", "seconds": 50', '{"a'])
def test_a_line_that_was_cut_off_is_ignored(tmp_path: Path, end: str) -> None:
    folder = tmp_path / "sweep"
    write_log(folder, (NAMES[0], 3.0, None), end=end)
    assert set(plan_of(folder, TWO).seconds().values()) == {3.0}


def test_a_log_goes_on_behind_a_line_that_was_cut_off(tmp_path: Path) -> None:
    """The machine went down while it was written; the sweep goes on, twice."""
    folder = tmp_path / "sweep"
    write_log(folder, ("digits-mlp-cross_entropy-0", 300.0, None), end='{"run": "digits-mlp-focal-0", "fai')
    for _ in range(2):
        sweep(folder, ONE, settings={"epochs": 1})
        plan = plan_of(folder, {"loss": ["cross_entropy", "poly"]}, settings={"epochs": 1})
        assert [*plan.seconds().values()] != [None]
