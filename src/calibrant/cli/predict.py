"""`calibrant predict`: predictions of a trained run, or of a user's own model, on any split or shifted test."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.cli.options import File, Json, Output, Switch
from calibrant.cli.output import counting_bar
from calibrant.errors import InvalidInputError, NoDataError, printable

if TYPE_CHECKING:
    from calibrant.training.outputs import Model
    from calibrant.training.predicting import Predictor


def predict(
    source: File,
    *splits: str,
    output: Output | None = None,
    data: str | None = None,
    root: File | None = None,
    image_size: int | None = None,
    features: Switch = False,
    device: str = "auto",
    as_json: Json = False,
) -> None:
    """Write Parquet files of predictions, one for each split or shifted test.

    Parameters
    ----------
    source
        The folder of a trained run; or module:name of a model of your own: a torch module, a function that returns one,
        or a function from images (float, n x c x h x w, normalised with mean and std 0.5) to logits.
    splits
        What to predict: test, fog-3, fog for all of its severities, val+fog for the validation split under them; by
        default every split but the training one, and every shifted test.
    output
        The folder to write to, by default that of the run's predictions.
    data
        The data set, for a model of your own.
    root
        The folder of the data sets, by default CALIBRANT_DATA or data.
    image_size
        The side in pixels to which pictures in files are brought, for a model of your own.
    features
        Store the penultimate features.
    device
        Where to compute: auto, cpu, cuda or mps.
    as_json
        Print JSON instead of the names of the files.
    """
    try:
        from calibrant.training.predicting import Predictor, chosen_names, run_output
    except ImportError:
        raise NoDataError("predicting needs the extra train: pip install 'calibrant[train]'") from None

    if ":" not in source or Path(source).exists():
        if data is not None or image_size is not None:
            raise InvalidInputError(f"--data and --image-size are for models of your own; {source} has its config.json")
        predictor = Predictor.of_run(source, root=root, features=features, device=device)
        folder = run_output(source, output)
    else:
        if data is None or output is None:
            raise InvalidInputError("a model of your own needs --data and --output")
        predictor, folder = _own(source, data, root, image_size, features, device), Path(output)
    names = chosen_names(predictor.data, splits)
    with counting_bar("predicting", len(names)) as report:
        files = predictor.write(names, folder, report=lambda _name, number, _total: report(1 if number else 0))
    if as_json:
        print(json.dumps([str(path) for path in files], indent=2))
    else:
        for path in files:
            print(printable(str(path)))


def _own(source: str, data: str, root: str | None, image_size: int | None, features: bool, device: str) -> "Predictor":
    from calibrant.data import open_dataset
    from calibrant.training.engine import new_fabric
    from calibrant.training.predicting import Predictor

    opened = open_dataset(data, root, image_size=image_size)
    return Predictor(own_model(source), opened, new_fabric(device), features, metadata={"model": source})


def own_model(source: str) -> "Model":
    """What module:name is: a torch module, what a function without arguments returns, or a function of images."""
    from torch import nn

    module, _, name = source.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise InvalidInputError(f"a model of your own must be module:name, got {source}")
    sys.path.insert(0, "")
    try:
        found = import_module(module)
    except ImportError as error:
        raise NoDataError(f"{module} cannot be imported: {error}") from None
    finally:
        sys.path.remove("")
    if not hasattr(found, name):
        raise NoDataError(f"{module} has no {name}")
    model: Any = getattr(found, name)
    if not isinstance(model, nn.Module) and callable(model):
        needy = _needs_arguments(model)
        if isinstance(model, type) and needy:
            raise InvalidInputError(f"{source} is a class that needs arguments: name a function that returns a model")
        model = model if needy else model()
    if not callable(model):
        raise InvalidInputError(f"{source} must be a model or a function, got {type(model).__name__}")
    checked: Model = model
    return checked


def _needs_arguments(function: Callable[..., Any]) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except ValueError:  # of some that are not written in Python
        return True
    # torch's modules take *args that they have no use for; a function of *images has
    return any(
        p.default is p.empty
        and p.kind is not p.VAR_KEYWORD
        and not (isinstance(function, type) and p.kind is p.VAR_POSITIONAL)
        for p in parameters
    )
