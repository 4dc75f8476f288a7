"""What configs ask of their fields, which UsageErrors tell by their names."""

import contextlib
import dataclasses
import functools
import inspect
import numbers
import types as python_types
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from acme_ext.errors import UsageError

UNIONS = (python_types.UnionType, typing.Union)  # `Literal[...] | None` is still of the second in Python 3.10


class Rule(NamedTuple):
    """What is asked of a field's value beside its type: metadata of an `Annotated` type."""

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
"""The units of a network's layers, of which there may be none."""
LayerSizes = Annotated[tuple[int, ...], _LAYERS]
"""The units of one's that must have a layer."""


class Checked:
    """A dataclass whose values are checked when it is made, by the rules of their types, such as `PositiveInt`; None is
    as good as any where the type allows it. A field that a subclass declares anew keeps its rules.
    """

    def __post_init__(self):
        values(self)


def values(config: Any) -> None:
    """All fields of a dataclass: each value must be as the rules of its type ask."""
    for name, rule, optional in _rules(type(config)):
        value = getattr(config, name)
        if value is None and optional:
            continue
        try:
            holds = rule.holds(value)
        except TypeError:
            types(config)
            raise
        if not holds:
            raise UsageError(f"{name} is {value}: {rule.wanted}.")


@functools.cache
def _rules(cls: type) -> list[tuple[str, Rule, bool]]:
    """Returns the rules of a class by their fields, and whether each field may be None."""
    found: dict[tuple[str, Rule], None] = {}
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        hints |= hints_of(base, include_extras=True)
        for name, hint in hints.items():
            for option in (hint, *typing.get_args(hint)):
                found |= {(name, rule): None for rule in getattr(option, "__metadata__", ())}
    return [(name, rule, type(None) in typing.get_args(hints[name])) for name, rule in found]


def types(config: Any, prefix: str = "") -> None:
    """All fields of a dataclass, and of those it holds: each must be of the type that it is declared with."""
    hints = hints_of(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints.get(field.name, Any)
        if not _is(value, hint):
            shown = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
            raise UsageError(f"{prefix}{field.name} is {shown}: it must be {say(hint)}.")
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            types(value, f"{prefix}{field.name}.")


def hints_of(cls: type, *, include_extras: bool = False) -> dict[str, Any]:
    """Returns the types of a class's fields; none if they can't be resolved, because a function defines the class."""
    with contextlib.suppress(NameError):
        return typing.get_type_hints(cls, include_extras=include_extras)
    return {}


def accepts(what: str, function: Callable[..., Any], *arguments: str, **options: Any) -> None:
    """Raises UsageError if a function can't be called with arguments of these names, all but the options by position.

    Args:
        what: the function is for.
        function: of the user's.
        arguments: their names.
        options: of the call, by keyword.
    """
    try:
        inspect.signature(function).bind(*arguments, **options)
    except TypeError as error:
        called = ", ".join([*arguments, *options])
        raise UsageError(f"{what} is {name_of(function)}, which can't be called with ({called}): {error}.") from None


def make(what: str, function: Callable[..., Any], kind: Any, **arguments: Any) -> Any:
    """Returns what a function of the user's makes of arguments, given by position; raises UsageError if it can't be
    called with so many, or makes another kind of object.
    """
    accepts(what, function, *arguments)
    made = function(*arguments.values())
    if isinstance(kind, type) and kind is not Any and not isinstance(made, kind):
        raise UsageError(f"{what} is {name_of(function)}, which makes {made!r}: it must make a {kind.__name__}.")
    return made


def declared(cls: type) -> None:
    """Raises UsageError if a subclass of a dataclass gives a field in a way that dataclasses ignore."""
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
    return getattr(function, "__qualname__", repr(function))


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
