"""The types of settings: which values a type allows, how a text becomes one, and how messages describe it.

The fields of configs and builders, settings given as text, and the options of environments all use these functions.
"""

import ast
import collections.abc
import contextlib
import dataclasses
import functools
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from acme_ext.config.values import load_object


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

MISFIT: Any = object()
"""What `fit_value` and `parse_value` return for a value that a type doesn't allow."""

_WORDS = {"true": True, "false": False, "none": None}


def options_of(hint: Any) -> tuple[Any, ...]:
    """Returns the types that a type allows: those of a union, or the type itself."""
    # `Literal[...] | None` is still a `typing.Union` in Python 3.10.
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def rules_of(hint: Any) -> list[Rule]:
    """Returns the rules of a type, or of the types that it allows."""
    return [rule for option in (hint, *typing.get_args(hint)) for rule in getattr(option, "__metadata__", ())]


def fit_value(value: Any, hint: Any) -> Any:
    """Returns a value if a type allows it, with NumPy's numbers as plain ones and lists as tuples; else `MISFIT`.

    A whole number is also a `float`. A type that can't be checked, such as a protocol, allows every value.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return fit_value(value, arguments[0])
    if len(options := options_of(hint)) > 1:
        return next((fitted for each in options if (fitted := fit_value(value, each)) is not MISFIT), MISFIT)
    if hint in (int, float, bool) and getattr(value, "shape", None) == ():
        value = value.item()
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return value if isinstance(value, kind) and not isinstance(value, bool) else MISFIT
    if origin is typing.Literal:
        return value if any(isinstance(value, type(each)) and value == each for each in arguments) else MISFIT
    if origin is tuple and arguments[1:] == (...,):
        items = [fit_value(each, arguments[0]) for each in value] if isinstance(value, tuple | list) else [MISFIT]
        return MISFIT if any(each is MISFIT for each in items) else tuple(items)
    if hint is tuple and isinstance(value, tuple | list):  # of any items; lists in it become tuples too
        return tuple(fit_value(each, tuple) if isinstance(each, tuple | list) else each for each in value)
    with contextlib.suppress(TypeError):  # isinstance refuses protocols, for example
        return value if isinstance(value, origin or hint) else MISFIT
    return value


def parse_value(text: Any, hint: Any) -> Any:
    """Returns a text, or the literal that it is, as a type has it; `MISFIT` if the type doesn't allow it.

    `2e3` is a whole number, and `64` are the sizes of one layer. A text `module:name` is imported for a type that
    allows functions. A value that is not a text is converted likewise.
    """
    options = options_of(hint)
    value = parse_literal(text) if isinstance(text, str) else text
    if value is None and types.NoneType in options:
        return None
    parsed = (_parse_as(option, text, value, is_text(hint)) for option in options)
    return next((each for each in parsed if each is not MISFIT), MISFIT)


def _parse_as(option: Any, text: Any, value: Any, plain: bool) -> Any:
    is_name = isinstance(value, str) and ":" in text
    if option in (object, Any) or is_callable(option):
        return load_object(text) if is_name else fit_value(value, option)
    if option is str:
        return text if isinstance(text, str) and (plain or ":" not in text) else MISFIT
    if typing.get_origin(option) is typing.Literal:
        return fit_value(text, option)
    if typing.get_origin(option) is tuple:
        items = value if isinstance(value, tuple | list) else (value,)
        return fit_value([parse_value(each, typing.get_args(option)[0]) for each in items], option)
    if option is int and isinstance(value, float) and isinstance(text, str) and "e" in text.lower():
        return int(value) if value.is_integer() else MISFIT
    fitted = fit_value(value, option) if option in (int, float, bool) else MISFIT
    if option is float and fitted is not MISFIT:
        with contextlib.suppress(OverflowError):
            return float(fitted) if math.isfinite(fitted) else MISFIT
        return MISFIT
    return fitted


def parse_literal(text: str) -> Any:
    """Parses a text as a Python literal (also `true`, `false` and `none`); returns any other text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def is_callable(option: Any) -> bool:
    """Whether a type is that of functions."""
    return typing.get_origin(option) is collections.abc.Callable


def is_text(hint: Any) -> bool:
    """Whether a text with a colon is plain text for a type, and not the name of a function."""
    options = options_of(hint)
    return str in options and not any(map(is_callable, options))


def describe_type(hint: Any) -> str:
    """Returns in words which values a type allows."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return describe_type(arguments[0])
    if len(options := options_of(hint)) > 1:
        return " or ".join(map(describe_type, options))
    if origin is tuple:
        examples = {int: "whole numbers such as 64,64", str: "names such as learner,actor"}
        return examples.get(arguments[0], "numbers such as 0.5,0.5")
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is Mapping:
        return "a dictionary"
    if is_callable(hint):
        return "a function or its module:name"
    if dataclasses.is_dataclass(hint):
        return f"an object of {getattr(hint, '__name__', hint)}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", tuple: "a list"}
    return {**words, types.NoneType: "none"}.get(hint, getattr(hint, "__name__", str(hint)))


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
