"""Arguments held against their annotations: at the public border a wrong type is refused in one line."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, Unpack, get_args, get_origin

from calibrant.errors import InvalidInputError

F = TypeVar("F", bound=Callable[..., Any])
SHOWN = (str, int, float, NoneType)
NUMBERS = {int: Integral, float: Real}


def checked(function: F) -> F:
    """The function, or class, with arguments of the annotated types only; their values are its own to check.

    A text is no sequence, a set has no order, a boolean is no number, a path is not empty. Annotations in quotes are
    not checked.

    >>> @checked
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> double("2")
    Traceback (most recent call last):
    calibrant.errors.InvalidInputError: x must be int, got '2'
    """
    if inspect.isclass(function):
        function.__init__ = checked(function.__init__)  # type: ignore[method-assign]
        return function
    signature = inspect.signature(function)
    kinds = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    options = next((p.name for p in signature.parameters.values() if p.kind == p.VAR_KEYWORD), None)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if options is not None and get_origin(kinds[options]) is Unpack:
            (named,) = get_args(kinds[options])
            for name, value in given.pop(options, {}).items():
                _check(name, value, named.__annotations__.get(name, Any))
        for name, value in given.items():
            _check(name, value, kinds[name])
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def _check(name: str, value: object, kind: Any) -> None:
    if not _is(value, kind):
        wanted = re.sub(r"\b(\w+\.)+", "", inspect.formatannotation(kind)).replace("str | PathLike[str]", "a path")
        got = repr(value) if isinstance(value, SHOWN) else type(value).__name__
        raise InvalidInputError(f"{name} must be {wanted}, got {got}")
    if isinstance(value, str | PathLike) and any(get_origin(each) is PathLike for each in get_args(kind)):
        from calibrant._paths import check_path

        check_path(name, value)
    if _from("torch", value) and hasattr(value, "layout"):
        from calibrant._checks import check_tensor

        check_tensor(name, value)


def _from(library: str, value: object) -> bool:
    """Whether a library made the type of a value; the library itself is not loaded."""
    return type(value).__module__.partition(".")[0] == library


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated type."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is(value, part) for part in parts)
    if origin is Annotated:
        return _is(value, parts[0])
    if origin is Literal:
        return isinstance(value, str)
    if kind is bool:
        return isinstance(value, bool) or (_from("numpy", value) and type(value).__name__ in ("bool", "bool_"))
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
    if origin is Callable:
        return callable(value)
    if origin in (Sequence, Iterable, Collection, list, tuple):
        return _is_several(value, origin) and _elements_are(value, parts)
    if origin is type:
        return isinstance(value, type) and issubclass(value, parts)
    if origin in (Mapping, dict):
        return isinstance(value, origin) and _elements_are(list(value.values()), parts[1:])
    plain = NoneType if kind is None else origin or kind
    return not isinstance(plain, type) or plain is inspect.Parameter.empty or _is_instance(value, plain)


def _is_instance(value: object, kind: type) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol
        return callable(value) or "__call__" not in vars(kind)


def _is_several(value: object, kind: Any) -> bool:
    if isinstance(value, str | bytes | Mapping) or (kind is Sequence and isinstance(value, AbstractSet)):
        return False
    array = _from("numpy", value) and kind not in (list, tuple)
    return (array or isinstance(value, kind)) and getattr(value, "ndim", 1) > 0


def _elements_are(value: Any, parts: tuple[Any, ...]) -> bool:
    if _from("torch", value):
        return str not in parts
    value = value.tolist() if _from("numpy", value) else list(value[:1]) if isinstance(value, range) else value
    if not parts or parts[0] is object or not isinstance(value, list | tuple | AbstractSet):  # or it would be used up
        return True
    if len(parts) > 1 and parts[-1] is not Ellipsis:
        return len(value) == len(parts) and all(map(_is, value, parts))
    return all(_is(each, parts[0]) for each in value)
