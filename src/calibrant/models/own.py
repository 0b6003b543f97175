"""A user's model, by its name in a Python module."""

import sys
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

from torch import Tensor, nn

from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, NoDataError


@checked
def import_model(source: str) -> nn.Module | Callable[[Tensor], Tensor]:
    """Import a model from a Python module.

    Args:
        source: module:name of a torch module, of a function without arguments that returns a model, or of a function
            from images to logits. The current folder is searched first.

    Returns:
        The model.

    Raises:
        InvalidInputError: the source is not module:name, or names something else.
        NoDataError: there is no such module, or no such name in it.
    """
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
    checked: nn.Module | Callable[[Tensor], Tensor] = model
    return checked


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
