"""Fields of a config from text and back."""

import ast
import dataclasses
import sys
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from acme_ext.errors import UsageError, nearest
from acme_ext.utils import checks

Config = TypeVar("Config")

_MISFIT = object()


def split(assignments: Iterable[str]) -> dict[str, str]:
    """Splits `name=value` texts; raises UsageError for one that isn't."""
    values = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{text!r} is no setting: write name=value.")
        values[name.strip()] = value.strip()
    return values


def replace(config: Config, values: Mapping[str, str]) -> Config:
    """Returns a frozen dataclass with fields replaced by values given as text, each converted to its field's type.

    Raises:
        UsageError: there is no such field (with the nearest names), or the text is no value of its type.
    """
    hints = typing.get_type_hints(type(config))
    fields = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    converted = {}
    for name, text in values.items():
        if name not in fields:
            raise UsageError(f"{type(config).__name__} has no field {name!r}: {nearest(name, fields)}")
        converted[name] = _convert(name, text, hints[name])
    return dataclasses.replace(config, **converted)  # type: ignore[type-var]


def from_json(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """Returns a config from what JSON made of it: tuples come back as lists."""
    fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(values) - fields):
        raise UsageError(f"{cls.__name__} has no field {unknown[0]!r}: {nearest(unknown[0], fields)}")
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def amounts(assignments: Iterable[str]) -> dict[str, dict[str, float]]:
    """Returns what `group=name:amount,name:amount` texts say; raises UsageError for one that is none."""
    found: dict[str, dict[str, float]] = {}
    for group, text in split(assignments).items():
        for part in text.split(","):
            name, _, amount = part.rpartition(":")
            try:
                found.setdefault(group, {})[name.strip()] = float(amount)
            except ValueError:
                raise UsageError(f"{group}={text} says no amounts: write {group}=GPU:1,CPU:4.") from None
    return found


def literal(text: str) -> Any:
    """Returns the Python literal that a text writes (`true` and `false` too), or else the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _convert(name: str, text: str, hint: Any) -> Any:
    options = typing.get_args(hint) if typing.get_origin(hint) in checks.UNIONS else (hint,)
    value = None if text.lower() == "none" else literal(text)
    for option in options:
        if (fitted := _fit(option, text, value)) is not _MISFIT:
            return fitted
    raise UsageError(f"{name} is {text!r}: it must be {' or '.join(map(checks.say, options))}.")


def _fit(option: Any, text: str, value: Any) -> Any:
    """Returns what a text, or the literal it writes, is as a value of a type; `_MISFIT` if it is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if option is type(None) and value is None:
        return None
    if option is bool and isinstance(value, bool):
        return value
    if option is int and number and (isinstance(value, int) or value.is_integer()):
        return int(value)
    if option is float and number and abs(value) <= sys.float_info.max:
        return float(value)
    if option is str:
        return text
    if typing.get_origin(option) is tuple:
        kind = typing.get_args(option)[0]
        items = [_fit(kind, str(item), item) for item in (value if isinstance(value, tuple | list) else (value,))]
        return _MISFIT if _MISFIT in items else tuple(items)
    if typing.get_origin(option) is typing.Literal and text in typing.get_args(option):
        return text
    return _MISFIT
