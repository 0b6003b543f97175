"""The experiment files: each is read, those of the paper have its settings, and on top the numbers that it prints."""

import csv
import inspect
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from calibrant.experiments import read_experiment
from calibrant.losses import LOSSES
from calibrant.report.figures import FIGURES
from calibrant.runs import RunKey
from calibrant.training import Settings

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "experiments").rglob("*.toml"))
PAPER = ROOT / "experiments" / "paper"
FORMS = ("maxent_mean", "maxent_variance", "maxent_mean_variance")
NINE = ("cross_entropy", "focal", "inverse_focal", "avuc", "soft_avuc", "poly", *FORMS)
SEEDS = (0, 1, 2)

# the paper's appendix B; weight decay, crops and flips are those of its published code
SYNTHETIC: dict[str, Any] = {
    "epochs": 100,
    "batch_size": 512,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "crop_padding": 4,
    "flip": True,
}
WILDS: dict[str, Any] = {
    "epochs": 50,
    "batch_size": 256,
    "optimizer": "adam",
    "lr": 2.5e-4,
    "weight_decay": 0.0,
    "schedule": "constant",
    "crop_padding": 0,
    "flip": False,
}
BENCHMARKS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "cifar10": (("resnet18",), SYNTHETIC),
    "cifar100": (("resnet18",), SYNTHETIC),
    "tiny_imagenet": (("resnet50",), SYNTHETIC),
    "camelyon17": (("resnet18", "densenet121"), WILDS),
    "iwildcam": (("resnet18", "densenet121"), WILDS),
    "fmow": (("resnet18", "densenet121"), WILDS),
}
ABLATIONS = ("local_constraints", "label_smoothing")

Key = tuple[str, str, float, str]  # loss, metric, label smoothing, calibrator


read_once = cache(read_experiment)  # each run of a file is checked, and there are hundreds


def runs_of(name: str) -> dict[RunKey, Settings]:
    return read_once(PAPER / f"{name}.toml").runs


def head_of(name: str) -> str:
    """The comment on top."""
    lines = (PAPER / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(lines[:end])


def tables_of(head: str) -> Iterator[tuple[str, list[str], dict[str, list[str]]]]:
    """Of each table in a comment its name, its columns, and its cells by row."""
    for block in re.split(r"^#$", head, flags=re.MULTILINE):
        lines = [re.split(r"  +", line[4:].strip()) for line in block.strip().splitlines()]
        if any("±" in cell for cells in lines for cell in cells[1:]):
            yield lines[0][0], lines[0][1:], {first: cells for first, *cells in lines[1:]}


def printed(head: str) -> dict[tuple[str, Key], tuple[float, float]]:
    """Mean and error of every cell in a comment."""
    found = {}
    for table, columns, rows in tables_of(head):
        for row, cells in rows.items():
            for column, cell in zip(columns, cells, strict=True):
                mean, error = cell.split("±")
                found[_place(table, row, column)] = float(mean), float(error)
    return found


def _place(table: str, row: str, column: str) -> tuple[str, Key]:
    if not table.startswith("Table 2"):
        return table.removeprefix("Table "), (row, column, 0.0, "none")
    smoothing = float(row.split()[1]) if row.startswith("label_smoothing") else 0.0
    return "2", (column, "ece", smoothing, "none" if smoothing else row)


def published(data: str) -> dict[tuple[str, Key], tuple[float, float]]:
    path = ROOT / "src" / "calibrant" / "report" / "published.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["table"], (row["loss"], row["metric"], float(row["label_smoothing"]), row["calibrator"])): (
                float(row["mean"]),
                float(row["standard_error"]),
            )
            for row in csv.DictReader(file)
            if row["data"] == data
        }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_read(path: Path) -> None:
    experiment = read_once(path)
    assert experiment.title
    assert {*experiment.figures} <= {*FIGURES, "all"}
    assert experiment.grid or experiment.figures != ("all",)


def test_every_file_of_the_paper_is_here_and_has_a_folder_of_its_name() -> None:
    outputs = {path.stem: read_once(path).output for path in PAPER.iterdir()}
    assert outputs == {name: f"runs/{name}" for name in (*BENCHMARKS, *ABLATIONS, "gibbs")}


@pytest.mark.parametrize("data", BENCHMARKS)
def test_a_benchmark_has_nine_losses_and_three_smoothed_of_three_seeds(data: str) -> None:
    models, _ = BENCHMARKS[data]
    runs = [(key.model, key.loss, key.label_smoothing) for key in runs_of(data)]
    expected = [(loss, 0.0) for loss in NINE] + [(loss, 0.01) for loss in FORMS]
    assert Counter(runs) == {(model, *rest): len(SEEDS) for model in models for rest in expected}
    assert {(key.data, key.seed) for key in runs_of(data)} == {(data, seed) for seed in SEEDS}


@pytest.mark.parametrize("name", [*BENCHMARKS, *ABLATIONS])
def test_settings_are_those_of_the_paper_and_written_out(name: str) -> None:
    _, expected = BENCHMARKS.get(name, ((), SYNTHETIC))
    written = tomllib.loads((PAPER / f"{name}.toml").read_text(encoding="utf-8"))["settings"]
    assert {key: value for key, value in written.items() if key not in ("data", "model")} == expected
    for key, settings in runs_of(name).items():
        assert {setting: getattr(settings, setting) for setting in expected} == expected
        assert settings.warmup_epochs == (20 if key.loss == "avuc" else 0)
        assert settings.loss_options == ({"local": False} if key.variant == "global" else {})
        assert (settings.keep, settings.precision, settings.shifts) == ("last", "32", ("all",))


def test_losses_are_those_of_the_paper_by_default() -> None:
    defaults: dict[str, dict[str, Any]] = {
        "focal": {"gamma": 1.0},
        "inverse_focal": {"gamma": 2.0},
        "avuc": {"beta": 3.0},
        "soft_avuc": {"beta": 1.0, "temperature": 0.01, "kappa": 0.1, "gamma": 1.0},
        "poly": {"epsilon": 1.0},
        **{form: {"gamma": 1.0, "local": True, "penalty": "absolute"} for form in FORMS},
    }
    for loss, expected in defaults.items():
        made = LOSSES[loss]
        parameters = inspect.signature(made.func if isinstance(made, partial) else made).parameters
        assert {name: parameters[name].default for name in expected} == expected, loss


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("local_constraints", [("", 0.0), ("global", 0.0)]), ("label_smoothing", [("", 0.0), ("", 0.01)])],
)
def test_an_ablation_has_every_form_with_and_without(name: str, kinds: list[tuple[str, float]]) -> None:
    expected = {RunKey("cifar10", "resnet18", form, *kind, seed) for form in FORMS for kind in kinds for seed in SEEDS}
    assert set(runs_of(name)) == expected


def test_gibbs_trains_nothing() -> None:
    experiment = read_once(PAPER / "gibbs.toml")
    assert experiment.runs == {}
    assert experiment.figures == ("gibbs",)


@pytest.mark.parametrize("data", BENCHMARKS)
def test_the_numbers_on_top_are_all_that_is_published(data: str) -> None:
    assert printed(head_of(data)) == published(data)


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_numbers_on_top_of_an_ablation_are_published(name: str) -> None:
    found = printed(head_of(name))
    assert found
    assert found.items() <= published("cifar10").items()


def test_some_numbers_on_top_by_eye() -> None:
    # read off the tables of the paper, not off the file that the test above compares with
    cifar10, fmow = printed(head_of("cifar10")), printed(head_of("fmow"))
    assert cifar10["1", ("cross_entropy", "ece", 0.0, "none")] == (14.5, 0.4)
    assert cifar10["2", ("maxent_variance", "ece", 0.0, "temperature_grid")] == (6.7, 0.2)
    assert cifar10["appendix", ("maxent_mean_variance", "nll_on_errors", 0.0, "none")] == (2.654, 0.1)
    assert fmow["1", ("maxent_variance", "kse", 0.0, "none")] == (4.7, 0.3)
    assert fmow["2", ("maxent_mean_variance", "ece", 0.01, "none")] == (7.6, 2.3)


@pytest.mark.parametrize("name", [*BENCHMARKS, *ABLATIONS, "gibbs"])
def test_the_commands_on_top_name_this_file_and_its_folder(name: str) -> None:
    head = head_of(name)
    assert set(re.findall(r"calibrant run (\S+)", head)) == {f"experiments/paper/{name}.toml"}
    assert set(re.findall(r"runs/\w+", head)) <= {f"runs/{name}"}


@pytest.mark.parametrize("name", [*BENCHMARKS, *ABLATIONS])
def test_as_many_runs_as_are_told(name: str) -> None:
    told = re.search(r"^# (\d+) runs", head_of(name), flags=re.MULTILINE)
    assert told
    assert int(told[1]) == len(runs_of(name))
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert re.search(rf"`{name}\.toml`, {told[1]}\b", page)


def test_the_files_in_the_documentation_are_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        path = tmp_path / "experiment.toml"
        path.write_text(block, encoding="utf-8")
        assert len(read_experiment(path).runs) == 12


def test_the_documentation_names_every_figure() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    section = re.search(r"^## Figures\n(.*?)^## ", page, flags=re.DOTALL | re.MULTILINE)
    assert section
    assert re.findall(r"^\| `(\w+)`", section[1], flags=re.MULTILINE) == [*FIGURES]
