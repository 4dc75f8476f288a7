"""Checks the fields of configs, and raises UsageErrors that name them."""

import contextlib
import dataclasses
import functools
import inspect
import numbers
import types as python_types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from acme_ext.errors import UsageError
from acme_ext.utils.naming import Named

UNIONS = (python_types.UnionType, typing.Union)  # `Literal[...] | None` is still of the second in Python 3.10


class Rule(NamedTuple):
    """A condition on a field's value, in addition to its type; it is metadata of an `Annotated` type."""

    holds: Callable[[Any], bool]
    wanted: str


_POSITIVE = Rule(lambda value: value > 0, "it must be greater than 0")
_NOT_NEGATIVE = Rule(lambda value: value >= 0, "it must not be negative")
_SHARE = Rule(lambda value: 0 <= value <= 1, "it must lie in [0, 1]")
AT_LEAST_TWO = Rule(lambda value: value >= 2, "it must be at least 2")
AT_LEAST_ONE = Rule(lambda value: value >= 1, "it must be at least 1")
_SIZES = Rule(lambda sizes: min(sizes, default=1) >= 1, "every layer needs at least 1 unit")
_LAYERS = Rule(lambda sizes: min(sizes, default=0) >= 1, "there must be a layer, and each needs at least 1 unit")

PositiveInt = Annotated[int, AT_LEAST_ONE]
Positive = Annotated[float, _POSITIVE]
NonNegativeInt = Annotated[int, _NOT_NEGATIVE]
NonNegative = Annotated[float, _NOT_NEGATIVE]
Share = Annotated[float, _SHARE]
PositiveShare = Annotated[float, _POSITIVE, _SHARE]
Sizes = Annotated[tuple[int, ...], _SIZES]
"""The units of a network's layers; there may be no layers."""
LayerSizes = Annotated[tuple[int, ...], _LAYERS]
"""The units of a network's layers; there must be at least one layer."""


class Checked:
    """A dataclass that checks its values at creation: by their types, and by the rules of types such as `PositiveInt`.

    None is valid if the type allows it. A field that a subclass declares again keeps its rules.
    """

    def __post_init__(self):
        fields(self)


def seed(value: int) -> None:
    """Raises UsageError if a run's or a command's seed is out of range."""
    if not 0 <= value < 2**31:
        raise UsageError(f"seed is {value}: it must lie in [0, 2**31).")


def fields(config: Any) -> None:
    """Raises UsageError if a field of a dataclass doesn't have its declared type, or violates a rule of it."""
    types(config)
    for name, rule, optional in _rules(type(config)):
        value = getattr(config, name)
        if not (value is None and optional) and not rule.holds(value):
            raise UsageError(f"{name} is {value}: {rule.wanted}.")


@functools.cache
def _rules(cls: type) -> list[tuple[str, Rule, bool]]:
    """Returns the rules of a class, with their fields and whether the field may be None."""
    found: dict[tuple[str, Rule], None] = {}
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        hints |= hints_of(base, include_extras=True)
        for name, hint in hints.items():
            for option in (hint, *typing.get_args(hint)):
                found |= {(name, rule): None for rule in getattr(option, "__metadata__", ())}
    return [(name, rule, type(None) in typing.get_args(hints[name])) for name, rule in found]


def types(config: Any, prefix: str = "") -> None:
    """Raises UsageError if a field of a dataclass, or of a nested one, doesn't have its declared type."""
    hints = hints_of(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints.get(field.name, Any)
        if not _is(value, hint):
            shown = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
            raise UsageError(f"{prefix}{field.name} is {shown}: it must be {say(hint)}.")
        if dataclasses.is_dataclass(value) and not callable(value):  # a function of the user's has its own rules
            types(value, f"{prefix}{field.name}.")


@functools.cache
def hints_of(cls: type, *, include_extras: bool = False) -> dict[str, Any]:
    """Returns the types of a class's fields; Any for one that names something that its module doesn't have."""
    with contextlib.suppress(NameError):
        return typing.get_type_hints(cls, include_extras=include_extras)
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, hint in inspect.get_annotations(base).items():
            one_field = type(base.__name__, (), {"__annotations__": {name: hint}, "__module__": base.__module__})
            try:
                hints |= typing.get_type_hints(one_field, include_extras=include_extras)
            except NameError:
                hints[name] = Any
    return hints


def accepts(what: str, function: Callable[..., Any], *arguments: str, **options: Any) -> None:
    """Raises UsageError if a function can't be called with these positional arguments and keyword options.

    Args:
        what: what the function is, for the message.
        function: the user's function.
        arguments: names of the positional arguments.
        options: keyword arguments.
    """
    try:
        inspect.signature(function.function if isinstance(function, Named) else function).bind(*arguments, **options)
    except TypeError as error:
        called = ", ".join([*arguments, *options])
        raise UsageError(f"{what} is {name_of(function)}, which can't be called with ({called}): {error}.") from None


def make(what: str, function: Callable[..., Any], kind: Any, **arguments: Any) -> Any:
    """Calls a user's function with positional arguments and returns the result.

    Raises:
        UsageError: the function can't be called with them, or returns an object that is not a `kind`.
    """
    accepts(what, function, *arguments)
    return made(f"{what} is {name_of(function)}, which", function(*arguments.values()), kind)


def made(what: str, value: Any, kind: Any) -> Any:
    """Returns what a user's function has made; raises UsageError if it is not a `kind`."""
    if isinstance(kind, type) and kind is not Any and not isinstance(value, kind):
        raise UsageError(f"{what} makes {value!r}: it must make {_one(kind)}.")
    return value


def _one(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def declared(cls: type) -> None:
    """Raises UsageError if a subclass of a dataclass sets a field in a way that dataclasses ignore."""
    for base in cls.__mro__:
        if not dataclasses.is_dataclass(base):
            continue
        defaults = {field.name: field.default for field in dataclasses.fields(base)}
        undecorated = "__dataclass_fields__" not in vars(base)
        hints = vars(base).get("__annotations__", {}) if undecorated else {}
        given = [name for name, hint in hints.items() if "ClassVar" not in str(hint)]
        given += [
            name
            for name, value in vars(base).items()
            if value is not defaults.get(name, value) and not inspect.isdatadescriptor(value)  # a slot
        ]
        if given:
            raise UsageError(
                f"{base.__name__}.{given[0]} is no field: give it a type, and the class the decorator "
                "@dataclasses.dataclass(frozen=True)."
            )


def name_of(function: Any) -> str:
    """Returns a function's name for a message."""
    return function.name if isinstance(function, Named) else getattr(function, "__qualname__", repr(function))


def _is(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS:
        return any(_is(value, option) for option in arguments)
    if origin is typing.Literal:
        return any(isinstance(value, type(each)) and value == each for each in arguments)
    if origin is tuple and arguments[1:] == (...,):
        return isinstance(value, tuple | list) and all(_is(item, arguments[0]) for item in value)
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    with contextlib.suppress(TypeError):  # isinstance refuses protocols, for example
        return isinstance(value, origin or hint)
    return True


def say(hint: Any) -> str:
    """Returns in words which values a type allows."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS:
        return " or ".join(map(say, arguments))
    if origin is tuple:
        return "whole numbers such as 64,64" if arguments[0] is int else "numbers such as 0.5,0.5"
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is Mapping:
        return "a dictionary"
    if origin is Callable:
        return "a function or its module:name"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "none"}
    if dataclasses.is_dataclass(hint):
        return f"an object of {getattr(hint, '__name__', hint)}"
    return words.get(hint, getattr(hint, "__name__", str(hint)))
