"""The Lightning callback: files and logs are those of the rows, each once and in order, in both packages."""

import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, TensorDataset

import calibrant
from calibrant.errors import InvalidInputError, MissingExtraError, ResourceError, UnknownNameError
from calibrant.predictions import Predictions

lightning = pytest.importorskip("lightning.pytorch", reason="lightning comes with the extra integrations")

from calibrant.integrations.lightning import (  # noqa: E402
    CalibrationCallback,
    ShardRows,
    _callback_classes,
    merge_shards,
    open_shard,
)
from calibrant.integrations.transformers import LOGGED_METRICS  # noqa: E402

PACKAGES = ["lightning.pytorch", "pytorch_lightning"]
pytestmark = [  # of Lightning about itself and small examples
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:Using `DistributedSampler` with the dataloaders:UserWarning"),
]


def rows(n: int, n_classes: int = 3, seed: int = 0) -> Dataset[tuple[Tensor, ...]]:
    """Inputs, labels and the number of each row."""
    draw = torch.Generator().manual_seed(seed)
    return TensorDataset(
        torch.randn(n, 4, generator=draw), torch.randint(n_classes, (n,), generator=draw), torch.arange(n)
    )


def loader(n: int = 23, **options: Any) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(rows(n), batch_size=4, **options)


class Steps:
    """A linear model; ``form`` says what its steps return."""

    def __init__(self, form: str = "dict") -> None:
        super().__init__()
        self.form = form
        self.layer = nn.Linear(4, 3)
        torch.manual_seed(1)
        nn.init.normal_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        self.buffer, self.label_buffer = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        logits, labels = self.layer(batch[0]), batch[1]
        return {
            "dict": {"logits": logits, "labels": labels, "number": batch[2]},
            "pair": (logits, labels),
            "list": [logits, labels],
            "unlabelled": {"logits": logits},
            "half": (logits.bfloat16(), labels),
            "double": (logits.double(), labels),
            "reused": (self.buffer[: len(logits)].copy_(logits), self.label_buffer[: len(labels)].copy_(labels)),
            "dense": (torch.stack([logits, -logits], 2), torch.stack([labels, torch.full_like(labels, -100)], 1)),
            "tensor": logits,
            "loss": {"loss": logits.mean()},
            "nothing": None,
            "swapped": (labels, logits),
        }[self.form]

    test_step = validation_step
    predict_step = validation_step

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.layer.parameters(), lr=0.5)


def model(form: str = "dict", package: str = PACKAGES[0]) -> Any:
    """A module of the package."""
    return type("Model", (Steps, pytest.importorskip(package).LightningModule), {})(form)


def trainer(*callbacks: Any, package: str = PACKAGES[0], **options: Any) -> Any:
    quiet: dict[str, Any] = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pytest.importorskip(package).Trainer(**(quiet | options), callbacks=list(callbacks))


def expected(module: Any, data: Dataset[Any]) -> Predictions:
    inputs, labels, numbers = data.tensors  # type: ignore[attr-defined]
    with torch.no_grad():
        return Predictions.from_logits(module.layer(inputs), labels, columns={"number": numbers})


def assert_rows(found: Predictions, wanted: Predictions) -> None:
    torch.testing.assert_close(found.logits, wanted.logits)
    assert torch.equal(found.labels, wanted.labels)


@pytest.mark.parametrize(
    ("package", "form"), [*((package, "pair") for package in PACKAGES), (PACKAGES[0], "dense"), (PACKAGES[0], "reused")]
)
def test_a_test_epoch_is_written_and_logged(package: str, form: str, tmp_path: Path) -> None:
    """Each position of dense predictions is a row; the buffers of a step may be used again."""
    module, data = model(form, package), loader()
    runner = trainer(CalibrationCallback(tmp_path / "new" / "folder"), package=package)
    [logged] = runner.test(module, data, verbose=False)
    wanted = expected(module, data.dataset)
    found = Predictions.load(tmp_path / "new" / "folder" / "test.parquet")
    assert_rows(found, wanted)
    assert found.metadata == {"stage": "test", "epoch": 0, "step": 0}
    scores = calibrant.score(wanted, metrics=LOGGED_METRICS).values()
    assert logged == pytest.approx({f"test/{name}": value for name, value in scores.items()}, rel=1e-6)


def test_two_callbacks(tmp_path: Path) -> None:
    one = CalibrationCallback(tmp_path, metrics=["ece"], n_bins=5)
    two = CalibrationCallback(tmp_path, metrics=["nll"], name="again-{stage}")
    module, data = model(), loader()
    [logged] = trainer(one, two).validate(module, data, verbose=False)
    assert logged["val/ece"] == pytest.approx(calibrant.score(expected(module, data.dataset), n_bins=5).ece, rel=1e-6)
    assert logged.keys() == {"val/ece", "val/nll"}
    assert {path.name for path in tmp_path.iterdir()} == {"val.parquet", "again-val.parquet"}


def test_checkpoints_and_early_stopping_follow_a_score(tmp_path: Path) -> None:
    best = lightning.callbacks.ModelCheckpoint(tmp_path, monitor="val/kse", filename="best", save_top_k=1)
    stop = lightning.callbacks.EarlyStopping("val/kse", patience=1, check_on_train_epoch_end=False)
    callback = CalibrationCallback(tmp_path, name="{stage}-{epoch}")
    runner = trainer(callback, best, stop, enable_checkpointing=True, max_epochs=2, log_every_n_steps=1)
    module, data = model(), loader()
    runner.fit(module, loader(40), data)
    files = sorted(path.name for path in tmp_path.glob("*.parquet"))
    assert files == ["val-0.parquet", "val-1.parquet"]  # none of the sanity check
    scores = [calibrant.score(Predictions.load(tmp_path / name)).kse for name in files]
    assert scores[0] != scores[1]
    assert float(best.best_model_score) == pytest.approx(min(scores), rel=1e-6)
    assert_rows(Predictions.load(tmp_path / files[1]), expected(module, data.dataset))
    assert Predictions.load(tmp_path / files[1]).metadata["epoch"] == 1


def test_the_sanity_check_is_checked_but_not_written(tmp_path: Path) -> None:
    runner = trainer(CalibrationCallback(tmp_path), max_epochs=1, limit_train_batches=1, check_val_every_n_epoch=2)
    runner.fit(model(), loader(), loader())
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidInputError, match="validation_step must return"):
        trainer(CalibrationCallback(tmp_path), max_epochs=1).fit(model("tensor"), loader(), loader())


def test_a_validation_after_fit_has_its_own_loaders(tmp_path: Path) -> None:
    runner = trainer(CalibrationCallback(tmp_path), max_epochs=1, limit_train_batches=1)
    module = model()
    runner.fit(module, loader(), loader())
    others = [loader(9), loader(5)]
    [*logged] = runner.validate(module, others, verbose=False)
    assert {path.name for path in tmp_path.iterdir()} == {"val.parquet", "val-0.parquet", "val-1.parquet"}
    for number, other in enumerate(others):
        wanted = expected(module, other.dataset)
        assert_rows(Predictions.load(tmp_path / f"val-{number}.parquet"), wanted)
        assert logged[0][f"val-{number}/nll"] == pytest.approx(calibrant.score(wanted).nll, rel=1e-6)


def test_predictions_need_no_labels_and_may_have_columns(tmp_path: Path) -> None:
    module, data = model(), loader()
    runner = trainer(CalibrationCallback(tmp_path, columns=["number"], class_names=["a", "b", "c"]))
    runner.predict(module, data)
    found = Predictions.load(tmp_path / "predict.parquet")
    assert_rows(found, expected(module, data.dataset))
    assert found.column("number").to_pylist() == list(range(23))
    assert found.columns.column_names == ["number"]
    assert found.class_names == ("a", "b", "c")
    trainer(CalibrationCallback(tmp_path)).predict(model("unlabelled"), data)
    assert (Predictions.load(tmp_path / "predict.parquet").labels == -1).all()


@pytest.mark.parametrize("form", ["half", "double"])
def test_rows_are_kept_in_float32_until_the_epoch_ends(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: set[torch.dtype] = set()
    callback = CalibrationCallback()
    finish = callback._finish

    def note(*given: Any) -> None:
        kept.update(part.logits.dtype for part in callback._shards[0].parts)
        finish(*given)

    monkeypatch.setattr(callback, "_finish", note)
    trainer(callback).test(model(form), loader(), verbose=False)
    assert kept == {torch.float32}
    assert not callback._shards


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_an_interrupted_epoch_leaves_no_rows(stage: str, tmp_path: Path) -> None:
    def interrupt(*_: Any) -> None:
        raise RuntimeError("interrupted")

    module, data = model("dict"), loader()
    runner = trainer(CalibrationCallback(tmp_path))
    hook = f"on_{'validation' if stage == 'validate' else stage}_batch_end"
    setattr(module, hook, interrupt)
    with pytest.raises(RuntimeError, match="interrupted"):
        getattr(runner, stage)(module, data)
    delattr(module, hook)
    getattr(runner, stage)(module, data)
    [path] = tmp_path.iterdir()
    assert_rows(Predictions.load(path), expected(module, data.dataset))


def test_an_undefined_metric_is_not_logged() -> None:
    module = model("list")
    inputs = rows(23).tensors[0]  # type: ignore[attr-defined]
    correct = TensorDataset(inputs, module.layer(inputs).argmax(1).detach(), torch.arange(23))
    callback = CalibrationCallback(metrics=["accuracy", "nll_on_errors"])
    [logged] = trainer(callback).test(module, DataLoader(correct, batch_size=4), verbose=False)
    assert logged == {"test/accuracy": 1}


def test_without_a_folder_or_a_stage(tmp_path: Path) -> None:
    trainer(CalibrationCallback()).predict(model("tensor"), loader())
    callback = CalibrationCallback(tmp_path, stages=["val"])
    assert trainer(callback).test(model("tensor"), loader(), verbose=False) == [{}]
    assert not list(tmp_path.iterdir())


def test_files_may_go_to_a_url_or_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module, data = model(), loader()
    for folder, path in ((".", "test.parquet"), ("memory://of/tests", "memory://of/tests/test.parquet")):
        trainer(CalibrationCallback(folder)).test(module, data, verbose=False)
        assert_rows(Predictions.load(path), expected(module, data.dataset))


def test_the_documentation_of_lightning_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```py\n(import lightning.*?)```", page, re.DOTALL)
    exec(compile(block, "<documentation>", "exec"), {"__name__": "__documentation__"})
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"val.parquet", "best.ckpt", "test.parquet"}


# Processes


@pytest.mark.parametrize("n_items", [1, 7, 8])
@pytest.mark.parametrize("n_shards", [1, 2, 3])
@pytest.mark.parametrize("repeats", [True, False])
def test_shards_give_each_row_once_and_in_order(n_items: int, n_shards: int, repeats: bool) -> None:
    data = rows(n_items)
    shards = []
    for rank in reversed(range(n_shards)):
        sampler = DistributedSampler(data, n_shards, rank, shuffle=False)  # type: ignore[arg-type]
        seen = list(sampler) if repeats else list(range(rank, n_items, n_shards))
        collected = ShardRows(rank, n_shards, n_items)
        for start in range(0, len(seen), 2):
            items = torch.tensor(seen[start : start + 2])
            columns = {"number": items, "_position": collected.next_positions(len(items))}
            logits = items[:, None, None].expand(-1, 2, 3).float()  # three rows for each item
            labels = torch.zeros(len(items), 3, dtype=torch.int64)
            collected.parts.append(Predictions.from_logits(logits, labels, columns=columns))
            collected.n_seen += len(items)
        shards += [collected, collected]  # two processes with one shard
    assert merge_shards([]) is merge_shards([ShardRows()]) is None
    found = merge_shards(shards)
    assert found is not None
    assert found.column("number").to_pylist() == [item for item in range(n_items) for _ in range(3)]
    assert found.columns.column_names == ["number"]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch is built without torch.distributed")
def test_two_processes_write_the_file_of_one(tmp_path: Path) -> None:
    module, data = model(), [loader(23), loader(8)]
    fork = lightning.strategies.DDPStrategy(start_method="fork", timeout=timedelta(minutes=10))
    logged = {}
    for devices, strategy in ((1, "auto"), (2, fork)):
        folder = tmp_path / str(devices)
        callback = CalibrationCallback(folder, columns=["number"])
        runner = trainer(callback, devices=devices, strategy=strategy)
        [first, *_] = runner.validate(module, data, verbose=False)
        logged[devices] = first
        runner.predict(module, data, return_predictions=False)
    assert logged[1] == pytest.approx(logged[2], rel=1e-6)
    assert len(logged[1]) == 2 * len(LOGGED_METRICS)
    for name in ("val-0", "val-1", "predict-0", "predict-1"):
        one, two = (Predictions.load(tmp_path / str(devices) / f"{name}.parquet") for devices in (1, 2))
        assert_rows(two, one)
        assert two.column("number").to_pylist() == list(range(len(one)))


# Refusals


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("tensor", {}, r'test_step must return a dict with "logits" and "labels" or such a pair, got Tensor'),
        ("loss", {}, "got a dict with loss; or leave 'test' out of stages"),
        ("nothing", {}, "got NoneType"),
        ("unlabelled", {}, "got a dict with logits"),
        ("pair", {"columns": ["number"]}, 'a dict with "logits" and "labels" and "number", got tuple'),
        ("dict", {"columns": ["id"]}, 'and "id", got a dict with logits, labels, number'),
        ("dict", {"class_names": ["a"]}, "class_names must"),
        ("swapped", {}, r"labels must have a number for each row .* got shape \(4, 3\) for logits \(4,\)"),
        ("dict", {"metrics": ["ece_positive"]}, "ece_positive is for two classes"),
    ],
)
def test_what_steps_must_return(form: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        trainer(CalibrationCallback(**options)).test(model(form), loader(), verbose=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": 3}, r"folder must be a path \| None, got 3"),
        ({"metrics": ["ecee"]}, "unknown metric 'ecee'; did you mean 'ece'"),
        ({"n_bins": 0}, "n_bins must be an integer from 1 to 10000, got 0"),
        ({"name": "{run}"}, "name must be made of {stage}, {epoch} and {step}, got '{run}'"),
        ({"name": "{0}"}, "got '{0}'"),
        ({"stages": ["vall"]}, "unknown stages 'vall'; did you mean 'val'"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidInputError, UnknownNameError), match=message):
        CalibrationCallback(**options)


def test_missing_extra_and_a_folder_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(ResourceError, match="taken cannot be created"):
        trainer(CalibrationCallback(tmp_path / "taken")).test(model(), loader(), verbose=False)
    monkeypatch.setattr("calibrant.integrations.lightning.find_spec", lambda package: None)
    with pytest.raises(MissingExtraError, match=r"calibrant\[integrations\]"):
        _callback_classes()


def test_loaders_that_may_repeat_rows_are_refused() -> None:
    data, process = rows(5), SimpleNamespace(world_size=2, global_rank=1)
    with pytest.raises(InvalidInputError, match=r"of 2 processes must have a DistributedSampler, .* got RandomSampler"):
        open_shard(process, DataLoader(data, sampler=RandomSampler(data)))
    sampler = DistributedSampler(data, 2, 1)  # type: ignore[arg-type]
    for options in ({"sampler": sampler}, {"sampler": sampler, "batch_size": None}):
        assert open_shard(process, DataLoader(data, **options)) == ShardRows(1, 2, 5)
    assert open_shard(process, iter([])) == ShardRows(1, 2)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)], ids=["(n,)", "(n, 1)"])
@pytest.mark.parametrize("flat", [True, False], ids=["labels (n,)", "labels as the logits"])
def test_one_logit_of_two_classes(shape: tuple[int, ...], flat: bool, tmp_path: Path) -> None:
    class Binary(Steps):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            labels = (batch[1] % 2).float()  # as binary cross-entropy takes them
            return self.layer(batch[0])[:, :1].reshape(shape), labels if flat else labels.reshape(shape)

        def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            return self.layer(batch[0])[:, :1].reshape(shape)

    module = type("Model", (Binary, lightning.LightningModule), {})()
    runner, data = trainer(CalibrationCallback(tmp_path)), loader(9)
    runner.validate(module, data, verbose=False)
    runner.predict(module, data)
    inputs, labels, _ = data.dataset.tensors  # type: ignore[attr-defined]
    found = Predictions.load(tmp_path / "val.parquet")
    with torch.no_grad():
        torch.testing.assert_close(found.logits[:, 1], module.layer(inputs)[:, 0])
    assert not found.logits[:, 0].any()
    assert found.labels.tolist() == (labels % 2).tolist()
    assert torch.equal(Predictions.load(tmp_path / "predict.parquet").logits, found.logits)


def test_labels_of_one_logit_that_are_no_classes(tmp_path: Path) -> None:
    class Regression(Steps):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            return self.layer(batch[0])[:, 0], batch[0][:, 0]

    module = type("Model", (Regression, lightning.LightningModule), {})()
    with pytest.raises(InvalidInputError, match="labels must be 0 or 1 for a model with one logit, got"):
        trainer(CalibrationCallback(tmp_path)).validate(module, loader(4), verbose=False)
