"""Runs that are killed, stopped or run out of disk, and then resume: the same bytes as of an uninterrupted run."""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from calibrant.errors import CalibrantError, CorruptFileError, ResourceError
from calibrant.training import Settings, train
from made.training import (
    at_moment,
    command,
    flags,
    in_child,
    kill,
    log_of,
    n_moments,
    quick,
    results_of,
    some_moments,
    timeless,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

# a checkpoint after every step; the options keep state of every kind: momenta, averages, the best epoch, a warm-up
SMALL: dict[str, Any] = {"batch_size": 128, "checkpoint_minutes": 0.0, "shifts": ("fog-1",)}
RECIPES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam, average, best": {"optimizer": "adam", "lr": 0.003, "ema": 0.9, "keep": "nll", "epochs": 3},
    "avuc, parts, clip": {"loss": "avuc", "loss_warmup": 1, "accumulate": 2, "clip": 0.5, "flip": True},
    "augmix": {"augment": "augmix", "loss": "focal", "accumulate": 2},
    "maxent, bf16, patience": {"loss": "maxent_mean", "precision": "bf16", "patience": 1, "label_smoothing": 0.1},
    "mixup": {"augment": "mixup", "loss": "maxent_variance", "flip": True},
}
N_KILLS = 5  # of each recipe


def small(name: str = "sgd", **changes: Any) -> Settings:
    return quick(**{**SMALL, **RECIPES[name], **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the first recipe that nothing has stopped."""
    return train(small(), tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def n_moments_of_whole(tmp_path_factory: pytest.TempPathFactory) -> int:
    run = tmp_path_factory.mktemp("counted") / "run"
    return n_moments(partial(train, small(), run), run)


def check_equal(run: Path, whole: Path) -> None:
    ours, theirs = results_of(run), results_of(whole)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert timeless(log_of(run)) == timeless(log_of(whole))


# kill -9


@pytest.mark.parametrize(("seed", "name"), list(enumerate(RECIPES)), ids=list(RECIPES))
def test_killed_anywhere(tmp_path: Path, seed: int, name: str) -> None:
    settings = small(name)
    n = n_moments(partial(train, settings, tmp_path / "whole"), tmp_path / "whole")
    for moment in some_moments(N_KILLS, n, seed):
        run = tmp_path / f"killed-{moment}"
        ended = in_child(at_moment(moment, kill, partial(train, settings, run), run))
        assert ended.code == -signal.SIGKILL, ended.err
        assert not (run / "DONE").exists()
        train(settings, run)
        check_equal(run, tmp_path / "whole")


def test_killed_again_and_again(tmp_path: Path, whole: Path) -> None:
    """Each process gets a little further than the checkpoint it started from."""
    run, lives = tmp_path / "run", 0
    while True:
        ended = in_child(at_moment(60 + 7 * lives, kill, partial(train, small(), run), run))
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.err
        lives += 1
        assert lives < 30
    assert lives >= 3
    check_equal(run, whole)


@pytest.mark.parametrize("left", ["DONE", "metrics.parquet", "predictions/test.parquet", "weights.safetensors"])
def test_killed_just_before_a_file_is_in_place(tmp_path: Path, whole: Path, left: str) -> None:
    run = tmp_path / "run"

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.rename") and str(run / left) in map(str, arguments[:2]):
            kill()

    def action() -> None:
        sys.addaudithook(hook)
        train(small(), run)

    ended = in_child(action)
    assert ended.code == -signal.SIGKILL, ended.err
    assert not (run / left).exists()
    train(small(), run)
    check_equal(run, whole)


def test_a_log_that_was_cut_is_repaired(tmp_path: Path, whole: Path) -> None:
    settings, run = small(epochs=3), tmp_path / "run"
    n = n_moments(partial(train, settings, tmp_path / "three"), tmp_path / "three")
    in_child(at_moment(int(n * 0.55), kill, partial(train, settings, run), run))
    lines = (run / "log.jsonl").read_bytes()
    assert lines
    (run / "log.jsonl").write_bytes(lines[:-20])
    train(settings, run)
    check_equal(run, tmp_path / "three")


def test_without_minutes_to_wait_resumes_at_the_epoch(tmp_path: Path) -> None:
    """By default checkpoints come with the epochs, and what came after the last of them is done again."""
    settings = small(epochs=3, checkpoint_minutes=10.0)
    n = n_moments(partial(train, settings, tmp_path / "whole"), tmp_path / "whole")
    run = tmp_path / "run"
    ended = in_child(at_moment(n // 2, kill, partial(train, settings, run), run))
    assert ended.code == -signal.SIGKILL
    assert 1 <= len(log_of(run)) < 3
    train(settings, run)
    check_equal(run, tmp_path / "whole")


def test_a_run_may_resume_with_other_workers(tmp_path: Path, whole: Path) -> None:
    """How often to save, and how many workers, are no part of a run's identity."""
    run = tmp_path / "run"
    in_child(at_moment(80, kill, partial(train, small(), run), run))
    train(small(checkpoint_minutes=5.0, workers=1, device="cpu"), run)
    check_equal(run, whole)


# Signals that ask


@pytest.mark.parametrize(
    ("number", "share"),
    [(signal.SIGTERM, 0.3), (signal.SIGINT, 0.75)],
    ids=["SIGTERM in training", "SIGINT in predicting"],
)
def test_a_signal_stops_the_command_where_it_can_resume(
    tmp_path: Path, whole: Path, n_moments_of_whole: int, number: signal.Signals, share: float
) -> None:
    run = tmp_path / "run"
    go = command("train", *flags(small()), "-o", run)
    moment = int(share * n_moments_of_whole)
    ended = in_child(at_moment(moment, lambda: os.kill(os.getpid(), number), go, run))
    assert ended.code == 128 + number, (ended.out, ended.err)
    assert len(ended.err.strip().splitlines()) == 1
    assert "same command" in ended.err
    assert "Traceback" not in ended.err
    assert not (run / "DONE").exists()
    again = in_child(go)
    assert again.code == 0, again.err
    check_equal(run, whole)


def test_a_signal_saves_the_steps_of_the_epoch(tmp_path: Path) -> None:
    """Even where checkpoints are ten minutes apart, what was done is not done again."""
    settings, run = small(checkpoint_minutes=10.0, epochs=1), tmp_path / "run"
    go = command("train", *flags(settings), "-o", run)
    n = n_moments(partial(train, settings, tmp_path / "whole"), tmp_path / "whole")
    ended = in_child(at_moment(n // 3, lambda: os.kill(os.getpid(), signal.SIGTERM), go, run))
    assert ended.code == 143, ended.err
    assert (run / "checkpoint" / "last.safetensors").exists()
    train(settings, run)
    check_equal(run, tmp_path / "whole")


def test_signals_are_given_back(tmp_path: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    train(quick(epochs=1), tmp_path / "run")
    assert [signal.getsignal(number) for number in numbers] == before
    with pytest.raises(CalibrantError):
        train(quick(lr=1e30), tmp_path / "other")
    assert [signal.getsignal(number) for number in numbers] == before


# A disk that is full


def full_at(call: int) -> Callable[[int], None]:
    fsync, count = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal count
        count += 1
        if count >= call:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    return full


# config, environment, a checkpoint of the first and of the second epoch, weights, predictions, metrics
@pytest.mark.parametrize("call", [1, 2, 3, 12, 17, 18, 20, 21])
def test_a_full_disk(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_at(call))
        with pytest.raises(ResourceError, match=r"cannot be written: No space left on device") as refusal:
            train(small(), run)
    assert "\n" not in str(refusal.value)
    assert str(run) in str(refusal.value)
    assert not (run / "DONE").exists()
    assert list(run.rglob("*.tmp")) == []
    train(small(), run)
    check_equal(run, whole)


def test_a_full_disk_under_the_log(tmp_path: Path, whole: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(whole / "config.json", run)
    (run / "log.jsonl").symlink_to("/dev/full")
    with pytest.raises(ResourceError, match=r"log\.jsonl cannot be written: Not a regular file"):
        train(small(), run)


# A checkpoint that is not one


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:-9],
    "zeroed tail": lambda content: content[:-4096] + bytes(4096),
    "a bit of a tensor": lambda content: content[:-5000] + bytes([content[-5000] ^ 64]) + content[-4999:],
    "a bit of the digest": lambda content: content.replace(b"blake2b:", b"blake2c:", 1),
}


def test_damaged_checkpoints_are_named_and_trained_again(tmp_path: Path) -> None:
    settings, run = small("adam, average, best"), tmp_path / "run"
    whole = train(settings, tmp_path / "whole")
    in_child(at_moment(160, kill, partial(train, settings, run), run))
    for name in ("last", "best"):
        path = run / "checkpoint" / f"{name}.safetensors"
        content = path.read_bytes()
        for damage in DAMAGES.values():
            path.write_bytes(damage(content))
            with pytest.raises(CorruptFileError, match=rf"{name}\.safetensors.*; remove {path.parent}, and") as refusal:
                train(settings, run)
            assert "\n" not in str(refusal.value)
        path.write_bytes(content)
    (run / "checkpoint" / "best.safetensors").unlink()
    with pytest.raises(CorruptFileError, match=r"refers to best\.safetensors, which is missing; remove"):
        train(settings, run)
    shutil.rmtree(run / "checkpoint")
    train(settings, run)
    check_equal(run, whole)
