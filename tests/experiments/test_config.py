"""Experiment files: the runs that they name, and one line, with the file and the key, for what is wrong in them."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from calibrant.errors import (
    CalibrantError,
    CorruptFileError,
    InvalidInputError,
    NoDataError,
    ResourceError,
    UnknownNameError,
)
from calibrant.experiments import Experiment, read_experiment
from calibrant.experiments.config import PAPER_METRICS
from calibrant.experiments.files import packaged
from calibrant.runs import RunKey
from calibrant.training import Settings

DEMO = Path(__file__).parents[2] / "experiments" / "demo.toml"

REFUSED: dict[type[CalibrantError], dict[str, tuple[str, str]]] = {}
REFUSED[UnknownNameError] = {
    "a key": ("titel = 'x'", "unknown setting 'titel'; did you mean 'title'?"),
    "a key of a grid": ("[[grid]]\n[[grid]]\nepoch = 3", "unknown setting 'grid[1].epoch'; did you mean 'epochs'?"),
    "a common setting": ("[settings]\nsed = 3", "unknown setting 'settings.sed'; did you mean 'seed'?"),
    "a resource": ("[resources]\ncpu = 2", "unknown setting 'resources.cpu'; did you mean 'cpus'?"),
    "a variant for all": ("[settings]\nvariant = 'x'", "unknown setting 'settings.variant'"),
    "a calibrator": ("calibrators = ['temprature']", "calibrators 'temprature'; did you mean 'temperature'?"),
    "raw predictions": ("calibrators = ['none']", "unknown name in calibrators 'none'"),
    "a metric": ("metrics = ['accuracy', 'ece', 'nlll']", "unknown name in metrics 'nlll'; did you mean 'nll'?"),
    "an interval": ("metrics = ['nll']\nintervals = ['ece']", "unknown name in intervals 'ece'; known: nll"),
    "a corruption": ("calibration_shifts = ['fogg']", "calibration_shifts 'fogg'; did you mean 'fog'?"),
    "a severity": ("calibration_shifts = ['fog-3']", "calibration_shifts 'fog-3'; did you mean 'fog'?"),
    "a loss": ("[[grid]]\nloss = ['focal', 'foccal']", "unknown loss 'foccal'; did you mean 'focal'?"),
    "a data set": ("[[grid]]\ndata = 'cifar-10'", "unknown data 'cifar-10'; did you mean 'cifar10'?"),
    "a model": ("[settings]\nmodel = 'resnet-18'\n[[grid]]", "unknown model 'resnet-18'; did you mean 'resnet18'?"),
    "an option": (
        "[[grid]]\nloss = 'focal'\nloss_options = { gama = 3 }",
        "unknown option 'gama' of the loss focal; did you mean 'gamma'?",
    ),
}
REFUSED[InvalidInputError] = {
    "a value": ("[[grid]]\n[[grid]]\nepochs = 0", "grid[1].epochs must be greater than or equal to 1, got 0"),
    "one of a list": ("[[grid]]\nseed = [0, -1]", "grid[0].seed[1] must be greater than or equal to 0, got -1"),
    "a word": ("[[grid]]\nseed = [0, '1']", "grid[0].seed[1] must be a whole number, got '1'"),
    "a truth": ("[[grid]]\nseed = true", "must be a whole number, got True"),
    "a list of no axis": ("[[grid]]\nepochs = [1, 2]", "grid[0].epochs must be a whole number, got [1, 2]"),
    "a list for all": ("[settings]\nseed = [0, 1]", "settings.seed must be a whole number, got [0, 1]"),
    "a list in a list": ("[[grid]]\nloss = [['focal']]", "grid[0].loss[0] must be a string, got ['focal']"),
    "an empty axis": ("[[grid]]\nseed = []", "grid[0].seed must have at least 1 item, not 0, got []"),
    "no number": ("[[grid]]\nlr = nan", "grid[0].lr must be a finite number, got nan"),
    "a bound": ("[[grid]]\nlabel_smoothing = [0, 1.0]", "label_smoothing[1] must be less than 1, got 1.0"),
    "a choice": ("[settings]\noptimizer = 'sdg'", "settings.optimizer must be 'sgd', 'adam' or 'adamw', got 'sdg'"),
    "a path as variant": ("[[grid]]\nvariant = '../x'", "grid[0].variant must match"),
    "a grid alone": ("[grid]\nepochs = 1", "grid must be a list, got {'epochs': 1}"),
    "a word for a list": ("metrics = 'nll'", "metrics must be a list, got 'nll'"),
    "a resource": ("[resources]\ngpus = -1", "resources.gpus must be greater than or equal to 0, got -1"),
    "an option": ("[[grid]]\nloss = 'focal'\nloss_options = { gamma = -1 }", "loss_options.gamma must be"),
    "two runs in one folder": (
        "[[grid]]\ndata = 'digits'\nseed = [0, 1]\n[[grid]]\ndata = 'digits'\nseed = 1\nepochs = 3",
        "grid[1] has another digits-small_resnet-cross_entropy-1: give one of them a variant",
    ),
    "a variant like a smoothing": (
        "[[grid]]\nvariant = 'smooth0.1'\n[[grid]]\nlabel_smoothing = 0.1",
        "give one of them a variant",
    ),
    "no run and no figure": ("", "grid must name at least one run"),
    "nothing to learn from": (
        "calibrators = ['set_temperature']\ncalibration_shifts = []\n[[grid]]",
        "calibration_shifts must name corruptions to fit set_temperature to, got none",
    ),
    "ensembles of one": ("ensembles = true\n[[grid]]\nloss = ['focal', 'poly']", "ensembles must have two seeds"),
    "a file without a name": ("[[grid]]\nmodel = 'net.py'", "must be file.py:name or module:name, got net.py"),
    "a calibrator twice": ("calibrators = ['temperature', 'temperature']", "calibrators must name each once"),
}
REFUSED[NoDataError] = {"a file of a model": ("[[grid]]\nmodel = 'nowhere/net.py:net'", "nowhere/net.py is not there")}
REFUSED[CorruptFileError] = {
    "open": ("grid = [", "is not TOML"),
    "lines": ("title = 'a\nb'", "is not TOML"),
    "a key twice": ("seed = 1\nseed = 2", "is not TOML"),
}


def read(tmp_path: Path, text: str) -> Experiment:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return read_experiment(path)


def runs(tmp_path: Path, text: str) -> dict[RunKey, Settings]:
    return read(tmp_path, text).runs


def check_line(error: CalibrantError, path: Path) -> None:
    assert str(error).startswith(str(path))
    assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("kind", "case"), [pytest.param(kind, case, id=case) for kind, cases in REFUSED.items() for case in cases]
)
def test_refused_in_one_line_with_the_file_and_the_key(tmp_path: Path, kind: type[CalibrantError], case: str) -> None:
    text, message = REFUSED[kind][case]
    with pytest.raises(kind, match=re.escape(message)) as refused:
        read(tmp_path, text)
    check_line(refused.value, tmp_path / "sweep.toml")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path, error in ((tmp_path / "none.toml", NoDataError), (tmp_path, ResourceError)):
        with pytest.raises(error, match=r"there is no file|cannot be read") as refused:
            read_experiment(path)
        assert str(path) in str(refused.value)


# What is right


def test_defaults(tmp_path: Path) -> None:
    experiment = read(tmp_path, "[[grid]]")
    assert experiment.output == "runs/sweep"
    assert experiment.calibrators == ("temperature",)
    assert experiment.calibration_shifts == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert experiment.metrics == PAPER_METRICS
    assert experiment.intervals == ("accuracy", "ece")
    assert [key.name for key in experiment.runs] == ["fashion_mnist_mini-small_resnet-cross_entropy-0"]
    assert read(tmp_path, "output = 'elsewhere'\n[[grid]]").output == "elsewhere"


def test_without_runs_there_may_be_figures(tmp_path: Path) -> None:
    assert read(tmp_path, "figures = ['gibbs']").runs == {}


def test_the_copy_of_a_file_belongs_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text("[[grid]]")
    assert read_experiment(tmp_path / "experiment.toml").output == str(tmp_path)


def test_metrics_without_those_that_have_an_interval_by_default(tmp_path: Path) -> None:
    """Who names metrics and no intervals has done nothing wrong."""
    assert read(tmp_path, "metrics = ['nll', 'brier']\n[[grid]]").metrics == ("nll", "brier")


def test_lists_may_be_empty_where_nothing_is_needed(tmp_path: Path) -> None:
    experiment = read(tmp_path, "calibrators = []\nmetrics = []\nintervals = []\ncalibration_shifts = []\n[[grid]]")
    assert (experiment.calibrators, experiment.metrics, experiment.intervals) == ((), (), ())


def test_a_grid_is_the_product_of_its_lists(tmp_path: Path) -> None:
    text = """
    [settings]
    data = "digits"
    epochs = 7
    loss = "poly"
    [[grid]]
    model = ["mlp", "small_convnet"]
    label_smoothing = [0, 0.05]
    seed = [3, 1]
    [[grid]]
    variant = "long"
    epochs = 9
    loss = ["focal", "inverse_focal"]
    model = "mlp"
    """
    found = {key.name: (key, settings) for key, settings in runs(tmp_path, text).items()}
    assert list(found) == [
        "digits-mlp-poly-3",
        "digits-mlp-poly-1",
        "digits-mlp-poly-smooth0.05-3",
        "digits-mlp-poly-smooth0.05-1",
        "digits-small_convnet-poly-3",
        "digits-small_convnet-poly-1",
        "digits-small_convnet-poly-smooth0.05-3",
        "digits-small_convnet-poly-smooth0.05-1",
        "digits-mlp-focal-long-0",
        "digits-mlp-inverse_focal-long-0",
    ]
    key, settings = found["digits-small_convnet-poly-smooth0.05-3"]
    assert key == RunKey("digits", "small_convnet", "poly", "", 0.05, 3)
    assert settings == Settings(
        data="digits", model="small_convnet", loss="poly", label_smoothing=0.05, seed=3, epochs=7
    )
    key, settings = found["digits-mlp-focal-long-0"]
    assert (key.variant, settings.epochs, settings.loss) == ("long", 9, "focal")  # the grid over the rest


def test_recipes_stand_under_what_is_given(tmp_path: Path) -> None:
    cifar, digits = runs(
        tmp_path, "[settings]\nepochs = 3\n[[grid]]\ndata = ['cifar10', 'digits']\nmodel = 'mlp'"
    ).values()
    assert (cifar.epochs, digits.epochs) == (3, 3)
    assert cifar.batch_size == Settings(data="cifar10").batch_size
    assert digits.batch_size == Settings(data="digits").batch_size


def test_the_same_run_named_twice_is_one(tmp_path: Path) -> None:
    text = "[[grid]]\nseed = [0, 1, 1]\nepochs = 3\n[[grid]]\nepochs = 3\nlabel_smoothing = [0, 0.0]\nseed = [1, 2]"
    assert [key.seed for key in runs(tmp_path, text)] == [0, 1, 2]


# For editors


def test_the_schema_is_current() -> None:
    """That of the package, which `calibrant schema` prints; python scripts/experiment_schema.py writes it."""
    assert json.loads(packaged("schema.json").read_text()) == Experiment.model_json_schema()


def test_the_schema_has_the_keys_of_the_demo() -> None:
    schema = Experiment.model_json_schema()
    file = tomllib.loads(DEMO.read_text())
    check_keys(file, schema, schema["$defs"])
    with pytest.raises(AssertionError):
        check_keys({**file, "seeds": 1}, schema, schema["$defs"])


def check_keys(table: dict[str, Any], schema: dict[str, Any], known: dict[str, Any]) -> None:
    """By hand: keys that are known, and values of a type that is allowed."""
    assert schema["additionalProperties"] is False
    for key, value in table.items():
        assert key in schema["properties"], key
        about = schema["properties"][key]
        if "$ref" in about:
            check_keys(value, known[about["$ref"].rsplit("/", 1)[1]], known)
        elif "$ref" in about.get("items", {}):
            for item in value:
                check_keys(item, known[about["items"]["$ref"].rsplit("/", 1)[1]], known)
        else:
            assert any(is_of(value, choice) for choice in choices(about)), (key, value, about)


def choices(about: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for choice in about["anyOf"] for one in choices(choice)] if "anyOf" in about else [about]


def is_of(value: Any, about: dict[str, Any]) -> bool:
    types: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict}
    if about["type"] == "array":
        return isinstance(value, list) and all(any(is_of(one, c) for c in choices(about["items"])) for one in value)
    return about["type"] != "null" and isinstance(value, types[about["type"]])
