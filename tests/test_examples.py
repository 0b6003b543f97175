"""The examples on public networks: published weights load, photographs are selected, predictions resume."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import calibrant as cb
from calibrant.data import DataSet, open_dataset
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.models import n_parameters, write_tensors
from calibrant.training import read_settings, train

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def _search_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def example(name: str) -> ModuleType:
    return import_module(name)


def published(folder: Path, build: str) -> tuple[Path, nn.Module]:
    """Random weights in a file as the repository publishes them, and their network."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(example("public_resnet"), build)().eval()
    state = {f"module.{name}": tensor for name, tensor in model.state_dict().items() if "num_batches" not in name}
    torch.save({"state_dict": state, "best_prec1": 91.73}, folder / f"{build}.th")
    return folder / f"{build}.th", model


@pytest.mark.parametrize(("build", "parameters"), [("resnet20", 269_722), ("resnet44", 658_586)])
def test_published_weights_load(tmp_path: Path, build: str, parameters: int) -> None:
    load = example("public_resnet").load
    path, model = published(tmp_path, build)
    assert n_parameters(model) == parameters
    write_tensors(tmp_path / "same.safetensors", model.state_dict(), {})
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for file in (path, tmp_path / "same.safetensors"):
        assert torch.equal(load(file)(images), model(images))
    write_tensors(tmp_path / "other.safetensors", nn.Linear(2, 2).state_dict(), {})
    for name in ("none.th", "none.safetensors", "other.safetensors"):
        with pytest.raises(InvalidInputError, match=f"{name} is not there, or no file of weights of a CIFAR ResNet"):
            load(tmp_path / name)


def test_shortcut_drops_pixels_and_pads_channels_on_both_sides() -> None:
    block = example("public_resnet").Block(16, 32).eval()
    nn.init.zeros_(block.bn2.weight)  # only the shortcut is left
    values = torch.rand(1, 16, 4, 4, generator=torch.Generator().manual_seed(0))
    expected = torch.zeros(1, 32, 2, 2)
    expected[:, 8:24] = values[:, :, ::2, ::2]
    assert torch.equal(block(values), expected)


def made_cifar(root: Path, monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """40 test images, shifted only by fog."""
    (root / "cifar-10-batches-bin").mkdir()
    rows = np.random.default_rng(0).integers(0, 256, (40, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    rows.tofile(root / "cifar-10-batches-bin" / "test_batch.bin")
    data = open_dataset("cifar10", root)
    monkeypatch.setattr(type(data), "shifts", ("fog-1", "fog-2"))
    return data


def test_predictions_are_halved_resumed_and_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("public_resnet_shift")
    monkeypatch.setattr(module, "N_CALIBRATION", 20)
    (weights, model), data, folder = (
        published(tmp_path, "resnet20"),
        made_cifar(tmp_path, monkeypatch),
        tmp_path / "out",
    )
    validation, test = module.predict(weights, model, data, folder, 30)
    assert len(validation) + len(test) == 40 + 2 * 30
    assert max(validation.column("image").to_pylist()) < 20 <= min(test.column("image").to_pylist())
    kept = (folder / "fog-1.parquet").stat().st_mtime_ns
    (folder / "fog-2.parquet").unlink()
    again, _ = module.predict(weights, model, data, folder, 30)
    assert (folder / "fog-1.parquet").stat().st_mtime_ns == kept
    assert torch.equal(again.logits, validation.logits)
    with pytest.raises(InvalidInputError, match="other weights or another sample"):
        module.predict(weights, model, data, folder, 20)


def made_predictions(n_rows: int, seed: int) -> cb.Predictions:
    """Three types of corruption, the more overconfident the more severe, and clean rows."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for kind, severity in [
        ("none", 0),
        *((kind, s) for kind in ("fog", "contrast", "shot_noise") for s in range(1, 6)),
    ]:
        labels = torch.randint(0, 10, (n_rows,), generator=generator)
        logits = 3 * nn.functional.one_hot(labels, 10) / (1 + 0.3 * severity)
        logits = 3 * (logits + torch.randn(n_rows, 10, generator=generator))
        columns = {
            "corruption": [kind] * n_rows,
            "severity": [severity] * n_rows,
            "split": [f"{kind}-{severity}"] * n_rows,
        }
        parts.append(cb.Predictions.from_logits(logits, labels, columns=columns, features=logits))
    return cb.Predictions.concat(parts)


@pytest.mark.slow
def test_fits_have_not_seen_the_type_and_tables_show_their_means(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("public_resnet_shift")
    monkeypatch.setattr(
        cb,
        "CALIBRATORS",
        {name: cb.CALIBRATORS[name] for name in ("identity", "temperature", "platt", "set_temperature")},
    )
    seen = []

    def fit(rows: cb.Predictions) -> cb.TemperatureScaling:
        seen.append(sorted(set(rows.column("corruption").to_pylist())))
        return cb.TemperatureScaling.fit(rows)

    by_type = module._leave_out(made_predictions(50, 0), fit)
    by_family = module._leave_out(made_predictions(50, 0), fit, ("contrast fog", "shot_noise"))
    test = made_predictions(200, 1)
    for split in ("fog-1", "fog-3", "none-0"):
        by_type(test.where(split=split))
    by_family(test.where(split="fog-1"))
    assert seen == [
        ["contrast", "none", "shot_noise"],
        ["contrast", "fog", "none", "shot_noise"],
        ["none", "shot_noise"],
    ]
    scores = list(module.measure("made", made_predictions(200, 0), test))
    assert [score["method"] for score in scores if "failure" in score] == ["platt"]
    nll = {
        name: [s["nll"] for s in scores if s["method"] == name]
        for name in (module.BEST, "identity", module.NO_FEATURES)
    }
    assert all(best <= other for name in nll for best, other in zip(nll[module.BEST], nll[name], strict=True))
    every, by_severity, by_type = module.tables("made", scores)
    assert every.notes == ["platt has no row: platt is for two classes, validation has 10"]
    mean = np.mean([score["ece"] for score in scores if score["method"] == "identity" and score["severity"]])
    assert by_severity.rows[-1][1].text.startswith(f"{100 * mean:.1f} ± ")
    assert [row[0].text for row in by_type.rows] == ["contrast", "fog", "shot_noise"]
    assert module.figure(scores).to_dict(validate=True)["vconcat"]


def made_tiny_imagenet(folder: Path, synsets: dict[str, str], n: int) -> None:
    for synset in " ".join(synsets.values()).split():
        (folder / "train" / synset / "images").mkdir(parents=True)
        for number in range(n):
            pixels = np.full((64, 64, 3), 10 * number, dtype=np.uint8)
            pixels[::2] += 40  # BOX gives the mean of the two
            Image.fromarray(pixels).save(folder / "train" / synset / "images" / f"{synset}_{number}.JPEG", quality=100)


def test_photographs_of_each_synset_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("natural_shift")
    monkeypatch.setattr(module, "SYNSETS", {"cat": "n1 n2 n3", "frog": "n4"})
    monkeypatch.setattr(module, "N_PHOTOGRAPHS", 4)
    made_tiny_imagenet(tmp_path / "part", module.SYNSETS, 5)
    monkeypatch.setattr(sys, "argv", ["natural_shift.py", str(tmp_path / "part"), "--output", str(tmp_path / "out")])
    module.main()
    found = sorted(path.relative_to(tmp_path / "out" / "photographs").as_posix() for path in tmp_path.rglob("*.png"))
    assert found == [f"cat/{name}.png" for name in ("n1_0", "n1_1", "n2_0", "n3_0")] + [
        f"frog/n4_{number}.png" for number in range(4)
    ]
    with Image.open(tmp_path / "out" / "photographs" / "cat" / "n1_1.png") as image:
        assert image.size == (32, 32)
        assert np.abs(np.asarray(image).astype(int) - 30).max() <= 3
    model, data = published(tmp_path, "resnet20")[1], made_cifar(tmp_path, monkeypatch)
    rows = module.predict_photographs(model, data, tmp_path / "out" / "photographs")
    assert rows.labels.tolist() == [3] * 4 + [6] * 4
    table, _ = module.tables("made", {"as trained": lambda rows: rows}, rows)
    assert [row[0].text for row in table.rows] == ["all 8", "cat alone", "frog alone"]
    assert table.rows[1][-1].text.startswith(f"{cb.score(rows[:4]).accuracy:.3f} (")
    monkeypatch.setattr(module, "SYNSETS", {"cat": "n5"})
    with pytest.raises(NoDataError, match="n5/images has no photographs"):
        module.main()


@pytest.mark.slow
def test_images_of_another_data_set_are_scored_by_published_weights_and_by_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("ood")
    monkeypatch.setattr(module, "N_REFERENCE", 20)
    made_cifar(tmp_path, monkeypatch)
    weights = published(tmp_path, "resnet20")[0]
    grey = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2) * 80
    assert torch.equal(module.resized(grey, 2, 3), grey.expand(1, 3, 2, 2))
    assert module.resized(grey, 8, 1).shape == (1, 1, 8, 8)
    assert abs(float(module.resized(grey, 8, 1).float().mean()) - 120) < 1
    monkeypatch.setattr(
        sys, "argv", ["ood.py", str(weights), "digits", f"--root={tmp_path}", f"--output={tmp_path / 'out'}"]
    )
    module.main()
    assert "cifar10 against digits" in capsys.readouterr().out
    inside, reference, digits = (
        cb.Predictions.load(tmp_path / "out" / f"{name}.parquet") for name in ("inside", "reference", "digits")
    )
    assert (len(inside), len(reference), len(digits), digits.n_classes) == (20, 20, 600, 10)
    assert (digits.labels == -1).all()
    found = cb.detection(inside, digits, "mahalanobis", reference=reference)
    assert f"{found.auroc:.4f}" in (tmp_path / "out" / "tables.md").read_text()
    settings = read_settings(data="digits", model="mlp", epochs=1, shifts=(), device="cpu")
    train(settings, tmp_path / "run")
    predictor, reference, inside = module.open_model(tmp_path / "run", None)
    assert (len(reference), len(inside)) == (200, 600)
    assert module.predict_other(predictor, "fashion_mnist_mini", None).features.shape == (
        2000,
        inside.features.shape[1],
    )
