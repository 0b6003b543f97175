"""Several processes: the parts of one run, which give what one gives, and strangers in the same folder."""

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import calibrant as cb
from calibrant.data import open_dataset
from calibrant.errors import ResourceError
from calibrant.training import Settings, train
from made.training import (
    Ended,
    at_moment,
    command,
    flags,
    log_of,
    quick,
    results_of,
    start,
    times_of,
    weights_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

N_PROCESSES = 2
SCORES = ("train_loss", "train_accuracy", "val_accuracy", "val_ece", "val_nll")


def free_port() -> int:
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        return int(port.getsockname()[1])


def together(settings: Settings, run: Path, n: int = N_PROCESSES) -> list[Ended]:
    """Forked processes that are told of each other as torchrun tells them."""
    port = free_port()
    children = [
        start(
            command("train", *flags(settings), "-o", run),
            RANK=rank,
            LOCAL_RANK=rank,
            GROUP_RANK=0,
            WORLD_SIZE=n,
            LOCAL_WORLD_SIZE=n,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            TORCHELASTIC_RUN_ID="test",
            OMP_NUM_THREADS=1,
        )
        for rank in range(n)
    ]
    return [child.wait() for child in children]


def check_same(run: Path, alone: Path, atol: float = 1e-9) -> None:
    """The scores of the log, the predictions row by row, which are kept in float32, and the weights."""
    ours, theirs = log_of(run), log_of(alone)
    assert [line["epoch"] for line in ours] == [line["epoch"] for line in theirs]
    for line, other in zip(ours, theirs, strict=True):
        for name in SCORES:
            assert line[name] == pytest.approx(other[name], abs=max(atol, 1e-6)), name
    assert results_of(run).keys() == results_of(alone).keys()
    for name in results_of(alone):
        if name.startswith("predictions"):
            got, wanted = cb.Predictions.load(run / name), cb.Predictions.load(alone / name)
            assert got.labels.tolist() == wanted.labels.tolist()
            torch.testing.assert_close(got.logits, wanted.logits, atol=max(atol, 1e-6), rtol=1e-6)
            assert got.columns.schema == wanted.columns.schema
    for layer, tensor in weights_of(alone).items():
        torch.testing.assert_close(weights_of(run)[layer], tensor, atol=atol, rtol=0)


# Parts of one run


def test_torchrun(tmp_path: Path, plain: Path) -> None:
    run = tmp_path / "run"
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(N_PROCESSES)]
    arguments = ["-m", "calibrant", "train", *flags(quick()), "-o", str(run)]
    done = subprocess.run(
        [sys.executable, *launch, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    check_same(run, plain, atol=1e-4)  # in float32: these processes are not told otherwise
    assert done.stdout.count("epoch 1/2") == 1  # one of them speaks


VARIANTS: dict[str, dict[str, Any]] = {
    "features, cutmix": {"features": True, "augment": "cutmix"},
    "parts, clip, augmix": {"accumulate": 2, "clip": 0.1, "augment": "augmix"},
    "adam, average, best": {"optimizer": "adam", "lr": 0.003, "ema": 0.9, "keep": "nll"},
}


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("name", VARIANTS)
def test_two_processes_give_what_one_gives(tmp_path: Path, name: str) -> None:
    settings = quick(**VARIANTS[name])
    train(settings, tmp_path / "alone")
    for ended in together(settings, tmp_path / "run"):
        assert ended.code == 0, ended.err
    check_same(tmp_path / "run", tmp_path / "alone")


@pytest.mark.parametrize("ema", [None, 0.5], ids=["weights", "average"])
def test_what_is_validated_is_what_is_saved(tmp_path: Path, ema: float | None) -> None:
    """Each process has its own statistics of batch normalisation; those of the first one count."""
    settings = quick(model="small_resnet", epochs=1, ema=ema)
    for ended in together(settings, tmp_path / "run"):
        assert ended.code == 0, ended.err
    predictions = cb.Predictions.load(tmp_path / "run" / "predictions" / "val.parquet")
    assert log_of(tmp_path / "run")[0]["val_nll"] == pytest.approx(cb.score(predictions).nll, abs=1e-6)


@pytest.mark.usefixtures("in_float64")
def test_three_processes_share_rows_that_do_not_divide(tmp_path: Path) -> None:
    """200 and 600 rows, 63 images a step: no row is lost or doubled."""
    settings = quick(batch_size=63, epochs=1)
    train(settings, tmp_path / "alone")
    for ended in together(settings, tmp_path / "run", 3):
        assert ended.code == 0, ended.err
    check_same(tmp_path / "run", tmp_path / "alone")
    for split in ("val", "test"):
        labels = cb.Predictions.load(tmp_path / "run" / "predictions" / f"{split}.parquet").labels
        assert labels.tolist() == open_dataset("digits").split(split).labels.tolist()


def test_one_process_speaks_and_both_give_the_same_bytes_again(tmp_path: Path) -> None:
    first, second = together(quick(epochs=1), tmp_path / "run")
    assert "epoch 1/1" in first.out
    assert (first.code, second.code, second.out, first.err, second.err) == (0, 0, "", "", "")
    assert [ended.code for ended in together(quick(epochs=1), tmp_path / "again")] == [0, 0]
    assert results_of(tmp_path / "again") == results_of(tmp_path / "run")
    before = times_of(tmp_path / "run")
    assert [ended.code for ended in together(quick(epochs=1), tmp_path / "run")] == [0, 0]  # a finished run stays
    assert times_of(tmp_path / "run") == before


def test_batches_that_cannot_be_shared(tmp_path: Path) -> None:
    first, second = together(quick(batch_size=63), tmp_path / "run")
    assert (first.code, second.code) == (2, 2), (first.err, second.err)
    assert "batch_size" in first.err
    assert "63" in first.err
    assert len((first.err + second.err).strip().splitlines()) == 1


def test_all_processes_end_when_the_folder_is_refused(plain: Path) -> None:
    """Only one of them looks at the folder; the other must not wait for ever."""
    before = times_of(plain)
    first, second = together(quick(seed=1), plain)
    assert first.code == 2, first.err
    assert second.code == 2, second.err  # and not waiting until it was ended
    assert second.err == ""
    assert "seed" in first.err
    assert times_of(plain) == before


def test_a_loss_that_is_not_finite_ends_all(tmp_path: Path) -> None:
    first, second = together(quick(lr=1e30), tmp_path / "run")
    assert (first.code, second.code) == (2, 2), (first.err, second.err)
    assert "epoch 1" in first.err


# Strangers in the same folder


def test_a_folder_in_use(tmp_path: Path, plain: Path) -> None:
    """The second comes while the first is in the middle of its run, and does not disturb it."""
    run, settings = tmp_path / "run", quick()
    here_in, here_out = os.pipe()
    go_in, go_out = os.pipe()

    def wait() -> None:
        os.write(here_out, b".")
        os.read(go_in, 1)

    first = start(at_moment(60, wait, partial(train, settings, run), run))
    os.close(here_out)
    assert os.read(here_in, 1) == b"."
    try:
        before = times_of(run)
        with pytest.raises(ResourceError, match=r"run.* is in use") as refusal:
            train(settings, run)
        assert "\n" not in str(refusal.value)
        assert times_of(run) == before
    finally:
        os.write(go_out, b".")
        for handle in (here_in, go_in, go_out):
            os.close(handle)
    ended = first.wait()
    assert ended.code == 0, ended.err
    assert results_of(run) == results_of(plain)
    train(settings, run)  # and the folder is free again
