"""What went wrong once: old files in a folder, a caller's own state, names, models and settings at their edges."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from calibrant._files import _open_temporary
from calibrant._signals import STOP_SIGNALS
from calibrant.data import ImageFiles, open_dataset
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, ResourceError, UnknownNameError
from calibrant.models import MLP, MODELS, read_tensors
from calibrant.training import Settings, predict, predict_run, train
from calibrant.training.batches import read_batches
from calibrant.training.callback import TrainingCallback
from calibrant.training.engine import new_fabric
from calibrant.training.predicting import select_splits
from made.training import log_of, quick, results_of


@pytest.fixture
def run(plain: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(plain, tmp_path / "run"))


def write_images(root: Path, *folders: str, n: int = 12) -> None:
    for folder in folders:
        for number in range(n):
            path = root / folder / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 20 * number + 10 * (number % 2)).save(path)


@pytest.mark.parametrize("left", ["predictions", "DONE"])
def test_old_files_never_pass_for_a_new_run(run: Path, left: str) -> None:
    before = (run / "predictions" / "test.parquet").read_bytes()
    shutil.rmtree(run / "checkpoint")
    (run / "weights.safetensors").unlink()
    if left == "predictions":
        (run / "DONE").unlink()
    with pytest.raises(InvalidInputError, match="was started with seed = 0, not 1"):
        train(quick(seed=1), run)
    (run / "config.json").unlink()
    with pytest.raises(InvalidInputError, match=r"has files of a run, but no config\.json"):
        train(quick(seed=1), run)
    assert (run / "predictions" / "test.parquet").read_bytes() == before


def test_a_log_of_others_stays(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.jsonl").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"run has files of a run, but no config\.json: choose another folder"):
        train(quick(), tmp_path / "run")
    assert (tmp_path / "run" / "log.jsonl").read_text() == "mine"


def test_what_a_killed_process_was_writing_is_removed(run: Path, plain: Path) -> None:
    (run / "DONE").unlink()
    _open_temporary(str(run / "metrics.parquet"))[1].close()
    assert list(run.glob(".*.tmp"))
    train(quick(), run)
    assert not list(run.glob(".*.tmp"))
    assert results_of(run) == results_of(plain)


def test_lost_metrics_are_made_again(run: Path, plain: Path) -> None:
    (run / "metrics.parquet").unlink()
    train(quick(), run)
    assert results_of(run) == results_of(plain)


@pytest.mark.slow
def test_a_finished_run_is_held_against_what_it_recorded(run: Path, plain: Path) -> None:
    """What is missing is made again; what is damaged is one line, and removing it makes it again."""
    whole = results_of(plain)
    for name in ("predictions/test.parquet", "weights.safetensors", "DONE"):
        (run / name).unlink()
        assert results_of(train(quick(), run)) == whole
        assert (run / "DONE").read_bytes() == (plain / "DONE").read_bytes()
    (run / "DONE").write_bytes(b"{")  # is made again
    assert results_of(train(quick(), run)) == whole
    (run / "predictions" / "fog-3.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorruptFileError, match=r"fog-3\.parquet is damaged: it has 4 bytes and had .*; remove it"):
        train(quick(), run)
    (run / "predictions" / "fog-3.parquet").unlink()
    assert results_of(train(quick(), run)) == whole
    for name in ("predictions/fog-3.parquet", "weights.safetensors"):  # damage of the same size
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[:-2000] + bytes([content[-2000] ^ 1]) + content[-1999:])
        with pytest.raises(CorruptFileError, match=rf"{Path(name).name} is damaged: .*; remove it, and the same"):
            train(quick(), run)
        (run / name).write_bytes(content)


def test_predictions_of_others_stay(run: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["mine"]}), tmp_path / "test.parquet")
    with pytest.raises(InvalidInputError, match=r"test\.parquet exists, and is of another kind: choose another name"):
        predict_run(run, ["test"], output=tmp_path)
    assert pq.read_table(tmp_path / "test.parquet").column_names == ["name"]


def test_damaged_weights_predict_nothing(run: Path, plain: Path) -> None:
    path = run / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1000] ^= 16
    path.write_bytes(content)
    (run / "predictions" / "test.parquet").unlink()
    for action in (lambda: train(quick(), run), lambda: predict_run(run, ["test"], output=run.parent / "out")):
        with pytest.raises(CorruptFileError, match=r"weights\.safetensors is damaged: .*; remove it, and") as refusal:
            action()
        assert "\n" not in str(refusal.value)
    path.unlink()
    assert results_of(train(quick(), run)) == results_of(plain)


def test_predictions_with_features_replace_those_of_the_run(run: Path) -> None:
    """They have another size, which is no damage."""
    before = (run / "predictions" / "test.parquet").stat().st_size
    predict_run(run, ["test"], features=True)
    assert (run / "predictions" / "test.parquet").stat().st_size > before
    train(quick(), run)


def test_weights_to_start_from_are_not_needed_to_go_on(plain: Path, tmp_path: Path) -> None:
    weights = Path(shutil.copy(plain / "weights.safetensors", tmp_path / "start.safetensors"))
    settings = quick(weights=str(weights))
    once = results_of(train(settings, tmp_path / "once"))
    train(settings, tmp_path / "again")
    for name in ("weights.safetensors", "DONE"):
        (tmp_path / "again" / name).unlink()
    weights.unlink()
    assert results_of(train(settings, tmp_path / "again")) == once


class Dropping(MLP):
    """A model with dropout, which draws from torch's generator."""

    def embed(self, images: Tensor) -> Tensor:
        return nn.functional.dropout(super().embed(images), 0.5, self.training)


class Stop(TrainingCallback):
    """Ends a run at a look."""

    def __init__(self, at: int) -> None:
        self.left = at

    def on_log(self, **seen: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "augment"), [(0, "augmix"), (1, "cutmix")])
def test_dropout_of_images_goes_on_within_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, augment: str
) -> None:
    monkeypatch.setitem(MODELS, "dropping", Dropping)
    write_images(tmp_path / "images", "train", n=24)
    settings = Settings(
        data="image_folder",
        root=str(tmp_path / "images"),
        image_size=8,
        model="dropping",
        epochs=2,
        batch_size=4,
        augment=augment,
        workers=workers,
        checkpoint_minutes=0.0,
        shifts=("none",),
    )
    whole = train(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "run", callback=Stop(3))
    assert read_tensors(tmp_path / "run" / "checkpoint" / "last.safetensors")[1]["progress"]["step"] == 2
    assert results_of(train(settings, tmp_path / "run")) == results_of(whole)


@pytest.mark.slow
def test_batch_normalisation_goes_on_within_an_epoch(tmp_path: Path) -> None:
    settings = quick(model="small_resnet", epochs=1, batch_size=128, checkpoint_minutes=0.0, ema=0.9)
    whole = train(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "run", callback=Stop(4))
    assert results_of(train(settings, tmp_path / "run")) == results_of(whole)


@pytest.mark.slow
def test_image_files_elsewhere_are_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        write_images(tmp_path / name, "train")
    settings = quick(data="image_folder", image_size=8, batch_size=4, epochs=1, shifts=("none",))
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path / "one"))
    train(settings, tmp_path / "run")
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path / "two"))
    with pytest.raises(InvalidInputError, match=r"was started with root = .*one.*, not .*two"):
        train(settings, tmp_path / "run")


def test_names_of_a_users_own_tests_are_taken_whole(tmp_path: Path) -> None:
    write_images(tmp_path, "train", "day+night", "all", "other")
    data = open_dataset("image_folder", tmp_path, image_size=8)
    assert select_splits(data, ["all"]) == ["all", "day+night", "other"]
    assert select_splits(data, ["day+night"]) == ["day+night"]
    assert len(data.split("day+night")) == 12
    assert select_splits(data, ["val+fog"]) == [f"val+fog-{severity}" for severity in range(1, 6)]
    with pytest.raises(UnknownNameError, match="unknown split 'dya'"):
        select_splits(data, ["dya+fog-1"])


def test_the_watch_ends_also_where_nothing_began(tmp_path: Path) -> None:
    ended = []

    class Heard(TrainingCallback):
        def on_end(self) -> None:
            ended.append(True)

    for wrong in ({"shifts": ("fogg",)}, {"image_size": 16}, {"precision": "16", "device": "cpu"}):
        with pytest.raises(CalibrantError):
            train(quick(**wrong), tmp_path / "run", callback=Heard())
    assert len(ended) == 3


@pytest.mark.parametrize("state", ["float64", "no_grad", "inference_mode"])
def test_a_callers_state_changes_nothing_and_stays(tmp_path: Path, plain: Path, state: str) -> None:
    torch.backends.cudnn.benchmark = True
    try:
        if state == "float64":
            torch.set_default_dtype(torch.float64)
            train(quick(), tmp_path / "run")
            assert torch.get_default_dtype() == torch.float64
        else:
            with getattr(torch, state)():
                train(quick(), tmp_path / "run")
                assert not torch.is_grad_enabled()
        assert torch.backends.cudnn.benchmark
    finally:
        torch.set_default_dtype(torch.float32)
        torch.backends.cudnn.benchmark = False
    assert results_of(tmp_path / "run") == results_of(plain)


def test_a_config_of_another_version_is_one_line(run: Path) -> None:
    record = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(record | {"lr": 0.7}))
    with pytest.raises(CorruptFileError, match=r"config\.json was changed since it was written"):
        predict_run(run)
    del record["digest"]
    (run / "config.json").write_text(json.dumps(record | {"lr_finder": True}))
    with pytest.raises(UnknownNameError, match=r"config\.json: unknown setting 'lr_finder'"):
        predict_run(run)


VARIABLES = [
    *({"WORLD_SIZE": value} for value in ("x", "0", "-1", "1.5", "")),
    *({name: "x"} for name in ("LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT")),
    {"LOCAL_WORLD_SIZE": "0"},
    {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2"},
    {"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "job"},
]


@pytest.mark.parametrize("variables", VARIABLES, ids=str)
def test_impossible_variables_of_a_launcher_are_one_line(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInputError, match=r"WORLD_SIZE|RANK|PORT|ntasks") as refusal:
        new_fabric("cpu")
    assert "\n" not in str(refusal.value)


def test_an_error_of_the_device_is_not_blamed_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(fabric: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr("lightning_fabric.Fabric.launch", launch)
    with pytest.raises(RuntimeError, match=r"^CUDA error: out of memory$"):
        new_fabric("cpu")


def test_unknown_devices_get_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown device 'cudaa'; did you mean 'cuda'"):
        new_fabric("cudaa")


def test_predictions_do_not_meddle_with_a_run_that_goes_on(run: Path, plain: Path, tmp_path: Path) -> None:
    (run / "DONE").unlink()
    with pytest.raises(InvalidInputError, match="is not finished"):
        predict_run(run, ["test"], features=True)
    predict_run(run, ["test"], features=True, output=tmp_path / "elsewhere")
    assert results_of(train(quick(), run)) == results_of(plain)


class Odd(nn.Module):
    """A model whose last layer is made first, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = nn.Linear(32, 10).double(), nn.Linear(64, 32).double()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.last(self.first(images.flatten(1)).relu())
        return logits


def test_features_are_those_of_the_layer_that_is_called_last() -> None:
    torch.manual_seed(0)
    model, data = Odd(), open_dataset("digits")
    found = predict(model, data, "val", features=True, device="cpu")
    images = data.split("val").images
    assert isinstance(images, Tensor)
    expected = model.first((images.double() / 127.5 - 1).flatten(1)).relu()
    assert found.features is not None
    torch.testing.assert_close(found.features.double(), expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda logits: (logits, logits), "got tuple"),
        (lambda logits: {"logits": logits}, "got dict"),
        (lambda logits: logits[:5], r"got \(5, 10\)"),
        (lambda logits: logits[:, :, None], r"got \(200, 10, 1\)"),
        (lambda logits: logits[:, :3], "3 classes, and digits has 10"),
    ],
    ids=["tuple", "dict", "few rows", "three axes", "few classes"],
)
def test_what_a_model_returns_is_checked(returned: Any, message: str) -> None:
    model = MLP(10, image_size=8, channels=1)
    with pytest.raises(InvalidInputError, match=message):
        predict(lambda images: returned(model(images)), open_dataset("digits"), "val", device="cpu")


def test_features_that_are_not_there_are_not_left_out_silently() -> None:
    with pytest.raises(InvalidInputError, match="no features to store"):
        predict(lambda images: images.flatten(1)[:, :10], open_dataset("digits"), "val", features=True, device="cpu")


def test_tensorboard_gets_the_numbers_of_the_log(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = train(quick(logger="tensorboard"), tmp_path / "run")
    events = accumulator.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    written = [(event.step, event.value) for event in events.Scalars("val_nll")]
    assert [step for step, _ in written] == [1, 2]
    assert [value for _, value in written] == pytest.approx([line["val_nll"] for line in log_of(run)], rel=1e-5)


class StruckImages:
    """Images whose reading process gets a signal that was sent to all processes."""

    def __getitem__(self, rows: torch.Tensor) -> torch.Tensor:
        for number in STOP_SIGNALS:
            os.kill(os.getpid(), number)
        return rows


def test_signals_to_all_processes_do_not_end_the_workers() -> None:
    batches = read_batches(StruckImages(), [torch.tensor([row]) for row in range(4)], workers=2)  # type: ignore[arg-type]
    assert [batch.item() for batch in batches] == [0, 1, 2, 3]


def test_files_of_others_stay(tmp_path: Path) -> None:
    notes = tmp_path / "run" / "sub" / ".notes.tmp"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    (tmp_path / "run" / "config.json").write_text('{"my": 1}')
    with pytest.raises(InvalidInputError, match=r"config\.json has no .*: it is not that of a run"):
        train(quick(), tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    train(quick(), tmp_path / "run")
    assert notes.read_text() == "mine"


def pictured(tmp_path: Path, **changes: Any) -> Settings:
    """Settings of a run on images in the folder one."""
    given = {"data": "image_folder", "root": str(tmp_path / "one"), "image_size": 8, "batch_size": 4, "workers": 0}
    return quick(**(given | {"shifts": ("none",)} | changes))


def test_other_classes_are_not_predicted_under_their_names(tmp_path: Path) -> None:
    write_images(tmp_path / "one", "train", "test")
    run = train(pictured(tmp_path), tmp_path / "run")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for part in ("train", "test"):
        (tmp_path / "two" / part / "a").rename(tmp_path / "two" / part / "zebra")
    with pytest.raises(InvalidInputError, match="has other classes than"):
        predict_run(run, ["test"], root=str(tmp_path / "two"), output=tmp_path / "out")


def test_a_run_does_not_go_on_with_other_images(tmp_path: Path) -> None:
    write_images(tmp_path / "one", "train")
    settings = pictured(tmp_path, checkpoint_minutes=0.0)
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "run", callback=Stop(3))
    (tmp_path / "one" / "train" / "a" / "0.png").rename(tmp_path / "one" / "train" / "a" / "other.png")
    with pytest.raises(InvalidInputError, match=r"the training images of image_folder in .* are not those"):
        train(settings, tmp_path / "run")


def test_wrong_tests_are_refused_before_the_training(tmp_path: Path) -> None:
    write_images(tmp_path / "one", "train", "hospital")
    for image in (tmp_path / "one" / "hospital").rglob("*.png"):
        image.unlink()
    with pytest.raises(CalibrantError, match="no image in"):
        train(pictured(tmp_path, shifts=("all",)), tmp_path / "run")
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_worker_that_is_killed_is_one_line(tmp_path: Path) -> None:
    class Deadly(ImageFiles):
        def __getitem__(self, rows: Tensor) -> Tensor:
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

    write_images(tmp_path, "train")
    names = [f"train/a/{number}.png" for number in (0, 2)]
    images = Deadly(tmp_path, ImageFiles.of(tmp_path, names, 8).names, 8)
    with pytest.raises(ResourceError, match=r"a worker that decodes images died \(.*\): try fewer workers"):
        list(read_batches(images, torch.arange(2).split(1), 1))


def test_parts_of_wilds_can_be_put_under_a_corruption() -> None:
    data = open_dataset("camelyon17")
    assert select_splits(data, ["val+fog-3"]) == ["val+fog-3"]
    with pytest.raises(UnknownNameError, match="unknown corruption 'fgo'"):
        select_splits(data, ["val+fgo"])


def test_a_model_of_other_classes_is_refused_at_the_first_step(tmp_path: Path) -> None:
    source = "from torch import nn\ndef net(n, **size):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, n + 1))"
    (tmp_path / "nets.py").write_text(source)
    with pytest.raises(InvalidInputError, match=r"got \(64, 11\) for 64 images and 10 classes"):
        train(quick(model=f"{tmp_path}/nets.py:net"), tmp_path / "run")
