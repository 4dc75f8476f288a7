"""What configs ask of their fields; each raises UsageError by the field's name."""

import dataclasses
import numbers
import types as python_types
import typing
from collections.abc import Callable
from typing import Any

from acme_ext.errors import UsageError

UNIONS = (python_types.UnionType, typing.Union)  # `Literal[...] | None` is still of the second in Python 3.10


def positive(config: Any, *names: str) -> None:
    """Fields that must be greater than 0, or None."""
    _each(config, names, lambda value: value is None or value > 0, "it must be greater than 0")


def at_least_one(config: Any, *names: str) -> None:
    """Fields that must be 1 or greater."""
    _each(config, names, lambda value: value >= 1, "it must be at least 1")


def not_negative(config: Any, *names: str) -> None:
    """Fields that must be 0 or greater."""
    _each(config, names, lambda value: value >= 0, "it must not be negative")


def share(config: Any, *names: str) -> None:
    """Fields that must lie in [0, 1]."""
    _each(config, names, lambda value: 0 <= value <= 1, "it must lie in [0, 1]")


def layer_sizes(config: Any, *names: str) -> None:
    """Fields that are the units of a network's layers, of which there must be one."""
    wanted = "there must be a layer, and each needs at least 1 unit"
    _each(config, names, lambda sizes: bool(sizes) and not any(size < 1 for size in sizes), wanted)


def _each(config: Any, names: tuple[str, ...], holds: Callable[[Any], bool], wanted: str) -> None:
    for name in names:
        value = getattr(config, name)
        try:
            fine = holds(value)
        except TypeError:
            types(config)
            raise
        if not fine:
            raise UsageError(f"{name} is {value}: {wanted}.")


def types(config: Any, prefix: str = "") -> None:
    """All fields of a dataclass, and of those it holds: each must be of the type that it is declared with."""
    try:
        hints = typing.get_type_hints(type(config))
    except NameError:  # of a user's class, whose names are a function's own
        return
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if not _is(value, hint):
            shown = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
            raise UsageError(f"{prefix}{field.name} is {shown}: it must be {say(hint)}.")
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            types(value, f"{prefix}{field.name}.")


def _is(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS:
        return any(_is(value, option) for option in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple and arguments[1:] == (...,):
        return isinstance(value, tuple | list) and all(_is(item, arguments[0]) for item in value)
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    kind = origin or hint
    return isinstance(value, kind) if isinstance(kind, type) else True


def say(hint: Any) -> str:
    """Returns in words what a type wants."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS:
        return " or ".join(map(say, arguments))
    if origin is tuple:
        return "whole numbers such as 64,64" if arguments[0] is int else "numbers such as 0.5,0.5"
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is Callable:
        return "a function or its module:name"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "none"}
    if dataclasses.is_dataclass(hint):
        return f"an object of {getattr(hint, '__name__', hint)}"
    return words.get(hint, getattr(hint, "__name__", str(hint)))
