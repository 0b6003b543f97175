"""A user's model, by its name in a Python file or module: a trained one to predict with, or one to train."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from calibrant._paths import first_line
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.models.base import check_sizes


@checked
def import_model(source: str) -> nn.Module | Callable[[Tensor], Tensor]:
    """Import a model from a Python module.

    Args:
        source: file.py:name or module:name of a torch module, of a function without arguments that returns a model, or
            of a function from images to logits. The current folder is searched first.

    Returns:
        The model.

    Raises:
        InvalidInputError: the source is not file.py:name or module:name, or names something else.
        NoDataError: there is no such file or module, or no such name in it.
    """
    model = _find(source)
    if not isinstance(model, nn.Module) and callable(model):
        needy = _needs_arguments(model)
        if isinstance(model, type) and needy:
            raise InvalidInputError(f"{source} is a class that needs arguments: name a function that returns a model")
        model = model if needy else model()
    if not callable(model):
        raise InvalidInputError(f"{source} must be a model or a function, got {type(model).__name__}")
    checked: nn.Module | Callable[[Tensor], Tensor] = model
    return checked


def find_builder(source: str) -> Callable[..., Any]:
    """The class or function of a model to train, by file.py:name or module:name.

    Raises:
        InvalidInputError: it cannot be called with n_classes, image_size and channels.
        NoDataError: there is no such file or module, or no such name in it.
    """
    build = _find(source)
    try:
        if isinstance(build, nn.Module):  # which can be called, with images
            raise TypeError
        signature(build).bind(2, image_size=32, channels=3)
    except (TypeError, ValueError):
        call = "(n_classes, image_size=..., channels=...)"
        raise InvalidInputError(f"{source} must be a class or function to call with {call}") from None
    builder: Callable[..., Any] = build
    return builder


def build_own(source: str, n_classes: int, *, image_size: int, channels: int = 3) -> nn.Module:
    """A user's model to train, built by `find_builder`."""
    check_sizes(n_classes, image_size, channels)
    model = find_builder(source)(n_classes, image_size=image_size, channels=channels)
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"{source} must return a torch module, got {type(model).__name__}")
    return model


def _find(source: str) -> Any:
    """What file.py:name or module:name stands for."""
    where, _, name = source.rpartition(":")
    is_file = where.endswith(".py")
    if not all(part.isidentifier() for part in (*([] if is_file else where.split(".")), name)):
        raise InvalidInputError(f"a model of your own must be file.py:name or module:name, got {source}")
    found = _import_file(Path(where)) if is_file else _import_module(where)
    if not hasattr(found, name):
        raise NoDataError(f"{where} has no {name}")
    return getattr(found, name)


def _import_module(name: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return import_module(name)
    except ImportError as error:
        raise NoDataError(f"{name} cannot be imported: {error}") from None
    finally:
        sys.path.remove("")


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise NoDataError(f"{path} is not there")
    name = f"own model {path.absolute()}"  # no name that a module can have
    spec = spec_from_file_location(name, path)
    assert spec is not None  # of a name that ends in .py
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)  # where dataclasses look for their module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise NoDataError(f"{path} cannot be imported: {first_line(error)}") from None
    finally:
        sys.path.remove(str(path.parent))
    return module


def _needs_arguments(function: Callable[..., Any]) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except ValueError:  # of some that are not written in Python
        return True
    # torch's modules accept *args that they ignore; a function of *images needs them
    return any(
        p.default is p.empty
        and p.kind is not p.VAR_KEYWORD
        and not (isinstance(function, type) and p.kind is p.VAR_POSITIONAL)
        for p in parameters
    )
