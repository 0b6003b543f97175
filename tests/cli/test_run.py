"""`calibrant run`: the plan, the runs that are chosen, what fails, and Ctrl-C; through `main` in this process."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from calibrant.experiments import ExperimentFolder
from calibrant.report import experiment
from calibrant.report.experiment_words import headlines
from made.cli import Run
from made.sweeps import wait_for
from made.training import command, start

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

SWEEP = """
title = "A small sweep"
metrics = ["accuracy", "ece", "cece", "kse"]
intervals = []
figures = []

[settings]
data = "digits"
model = "mlp"
epochs = 1
shifts = ["fog-3"]

[[grid]]
loss = ["cross_entropy", "focal"]
seed = [0, 1]
"""
FAILS = '\n[[grid]]\nloss = ["poly", "flsd"]\nlr = 1e30\n'
LONG = SWEEP.replace("epochs = 1", "epochs = 100000\ncheckpoint_minutes = 0.0")
KEPT = ("weights.safetensors", "test.parquet", "DONE")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SWEEP)
    return path


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.name in KEPT}


# The plan


def test_a_dry_run_shows_the_plan_and_makes_nothing(calibrant: Run, file: Path, tmp_path: Path) -> None:
    out = calibrant("run", file, "-o", tmp_path / "out", "--dry-run", "--jobs", 1).done()
    assert "A small sweep" in out
    for words in (
        ["digits", "mlp", "cross_entropy", "0", "2", "0", "2"],
        ["digits", "mlp", "focal", "0", "2", "0", "2"],
    ):
        assert any([word for word in line.split() if word.isascii()] == words for line in out.splitlines()), out
    assert f"4 runs in {tmp_path / 'out'}: 0 done, 4 remaining" in out
    assert list(tmp_path.iterdir()) == [file]


# Refusals: what is the library's is tested there


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--jobs", "0"), "jobs must be an integer from 1 to 1024, got 0"),
        (("--only", "focal"), "only must be as loss=maxent_mean,seed=0, got 'focal'"),
        (("--only", "seed=0,seed=1"), "only must have one value of each"),
    ],
    ids=["no job", "no axis", "twice"],
)
def test_bad_flags_are_refused(
    calibrant: Run, file: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    calibrant("run", file, "-o", tmp_path / "out", *arguments).refused(message)
    assert not (tmp_path / "out").exists()


def test_bad_files_are_refused_before_anything_is_trained(calibrant: Run, file: Path, tmp_path: Path) -> None:
    file.write_text(SWEEP.replace("figures = []", 'figures = ["severty"]'))
    calibrant("run", file, "-o", tmp_path / "out").refused("did you mean 'severity'?")
    assert not (tmp_path / "out").exists()


# Runs


@pytest.mark.slow
def test_a_sweep_from_its_plan_to_its_rows(calibrant: Run, file: Path, tmp_path: Path) -> None:
    """With two runs that fail for one reason: the exit code says so, once all others are done."""
    file.write_text(SWEEP + FAILS)
    folder = tmp_path / "out"
    first = calibrant("run", file, "-o", folder, "--jobs", 1, "--only", "seed=1")
    out = first.done()
    assert "2 runs in" in out
    assert "1/2 digits-mlp-cross_entropy-1 done in" in out
    assert "2/2 digits-mlp-focal-1 done in" in out
    before = written(folder)
    assert before
    second = calibrant("run", file, "-o", folder, "--jobs", 1)
    assert second.code == 1
    assert f"6 runs in {folder}: 2 done, 4 remaining" in second.out
    assert "Traceback" not in second.out + second.err
    assert len(second.err.strip().splitlines()) == 1
    assert "2 of 6 runs failed" in second.err
    failed = [
        line for line in second.out.splitlines() if line.startswith("digits-mlp-poly-0 and 1 more failed: the loss")
    ]
    assert len(failed) == 1
    assert failed[0].endswith(f"({folder / 'digits-mlp-poly-0' / 'error.log'})")
    assert {path: written(folder)[path] for path in before} == before
    assert set(ExperimentFolder(folder).read_rows()["run"].to_pylist()) == {
        f"digits-mlp-{loss}-{seed}" for loss in ("cross_entropy", "focal") for seed in (0, 1)
    }
    assert (folder / "report.html").is_file()
    found = headlines(ExperimentFolder(folder).read_rows())
    assert len(found) == 3
    assert all(f"- {sentence}" in " ".join(second.out.split()) for sentence in found)


def test_redo_is_passed_on(calibrant: Run, file: Path, tmp_path: Path) -> None:
    folder, only = tmp_path / "out", ("--only", "loss=focal,seed=0")
    calibrant("run", file, "-o", folder, *only).done()
    path = folder / "digits-mlp-focal-0" / "predictions" / "fog-3.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    ran = calibrant("run", file, "-o", folder, *only)
    assert ran.code == 1
    assert "fog-3.parquet is damaged: it has 100 bytes and had" in ran.out
    assert "run --redo" in ran.out
    assert path.read_bytes() == whole[:100]
    calibrant("run", file, "-o", folder, *only, "--redo").done()
    assert path.read_bytes() == whole


def test_a_stop_is_one_line_and_leaves_a_checkpoint(file: Path, tmp_path: Path) -> None:
    file.write_text(LONG)
    folder = tmp_path / "out"
    checkpoint = folder / "digits-mlp-cross_entropy-0" / "checkpoint" / "last.safetensors"
    child = start(command("run", file, "-o", folder, "--jobs", 1))
    wait_for(checkpoint.is_file, "checkpoint")
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait()
    assert ended.code == 143, ended
    assert len(ended.err.strip().splitlines()) == 1
    assert "the same command resumes" in ended.err
    assert checkpoint.is_file()
    assert not (folder / "digits-mlp-focal-0").exists()


def test_a_sweep_that_no_table_can_show_is_well_all_the_same(
    calibrant: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(SWEEP.replace('shifts = ["fog-3"]', 'shifts = ["none"]').replace("[0, 1]", "0"))
    write, seconds = experiment.write_experiment, list[int | None]()

    def write_and_note(folder: Path, *, refresh: int | None = None, **options: Any) -> Path:
        seconds.append(refresh)
        return write(folder, refresh=refresh, **options)

    monkeypatch.setattr(experiment, "write_experiment", write_and_note)
    out = calibrant("run", file, "-o", tmp_path / "out", "--jobs", 1).done()
    assert "no table: no results for table 1" in out
    assert (tmp_path / "out" / "report.html").is_file()
    assert seconds[0] is not None, "while it runs, the page reloads itself"
    assert seconds[-1] is None
