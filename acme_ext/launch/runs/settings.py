"""Converts fields of a config from text, as on the command line, and from JSON."""

import ast
import collections.abc
import dataclasses
import sys
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from acme_ext import builders
from acme_ext.errors import UsageError, nearest
from acme_ext.utils import checks, naming

Config = TypeVar("Config")

_MISFIT = object()


def split(assignments: Iterable[str]) -> dict[str, str]:
    """Splits texts of the form `name=value`; raises UsageError for any other text."""
    values = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{text!r} is not a setting: write name=value.")
        values[name.strip()] = value.strip()
    return values


def replace(config: Config, values: Mapping[str, Any]) -> Config:
    """Returns a frozen dataclass with some fields replaced by values given as text, converted to the fields' types.

    Values that are not text are converted as their text would be. A dotted name sets a field of a nested config. A
    value `module:name` is imported as a function or class.

    Raises:
        UsageError: there is no such field (the message suggests similar names), or the text is not a valid value.
    """
    return dataclasses.replace(config, **_converted(config, values))  # type: ignore[type-var]


def _converted(config: Any, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns converted values for the fields of a dataclass that are given as text; see `replace`.

    Error messages put the prefix before the fields' names.
    """
    hints = checks.hints_of(type(config))
    names = _field_names(config)
    converted: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, text in values.items():
        head, dot, rest = name.partition(".")
        if name not in names:
            raise UsageError(f"{type(config).__name__} has no field {name!r}: {nearest(name, names)}")
        if dot:
            nested.setdefault(head, {})[rest] = text
        else:
            converted[name] = _convert(prefix + name, text, hints[name])
    for head, fields in nested.items():
        inner = getattr(config, head)
        changed = _converted(inner, fields, f"{prefix}{head}.")
        try:
            converted[head] = dataclasses.replace(inner, **changed)
        except UsageError as error:  # the config doesn't know of which field it is the value
            of_field = str(error).partition(" ")[0] in _field_names(inner)
            raise UsageError(f"{prefix}{head}{'.' if of_field else ': '}{error}") from None
    return converted


def configure(builder: Any, values: Mapping[str, Any]) -> Any:
    """Returns a builder with fields of the builder or of its config replaced by values given as text; see `replace`."""
    own = {name for name in _field_names(builder) if name.partition(".")[0] != "config"}
    valid = own | _field_names(builder.config)
    for name in values:
        if name not in valid:
            raise UsageError(f"{type(builder).__name__} has no setting {name!r}: {nearest(name, valid)}")
    fields = _converted(builder, {name: text for name, text in values.items() if name in own})
    if of_config := {name: text for name, text in values.items() if name not in own}:
        fields["config"] = replace(builder.config, of_config)
    return builder.replace(**fields)


def from_json(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """Returns a config from its JSON form, in which tuples are lists, nested configs are dictionaries and functions are
    names.
    """
    return cls(**_fields_from_json(cls, values))


def _fields_from_json(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    hints = checks.hints_of(cls)
    fields = {field.name for field in dataclasses.fields(cls)}
    if unknown := sorted(set(values) - fields):
        raise UsageError(f"{cls.__name__} has no field {unknown[0]!r}: {nearest(unknown[0], fields)}")

    def value_of(name: str, value: Any) -> Any:
        if dataclasses.is_dataclass(hints[name]) and isinstance(value, Mapping):
            return from_json(hints[name], value)
        if isinstance(value, str) and _is_text(_options(hints[name])):
            return value
        return tuple(value) if isinstance(value, list) else naming.restore(value)

    return {name: value_of(name, value) for name, value in values.items()}


def builder_of(described: Mapping[str, Any]) -> Any:
    """Returns the builder that a run's config describes.

    Raises:
        UsageError: a part of it can't be found by name, such as a function defined in a script.
    """
    builder = builders.make(described["agent"])
    config = from_json(type(builder.config), described["config"])
    return builder.replace(config=config, **_fields_from_json(type(builder), described["builder"]))


def _field_names(config: Any) -> set[str]:
    """Returns the names of a config's fields; fields of nested configs have dotted names."""
    names = set()
    for field in dataclasses.fields(config):
        names.add(field.name)
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names |= {f"{field.name}.{inner}" for inner in _field_names(value)}
    return names


def amounts(assignments: Iterable[str]) -> dict[str, dict[str, float]]:
    """Parses texts of the form `group=name:amount,name:amount`; raises UsageError for any other text."""
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
    """Parses a text as a Python literal (also `true`, `false` and `none`); returns any other text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _convert(name: str, text: Any, hint: Any) -> Any:
    options = _options(hint)
    text = text if isinstance(text, str) else repr(text)
    value = literal(text)
    if value is None and type(None) in options:
        return None
    for option in options:
        if (fitted := _fit(option, text, value, options)) is not _MISFIT:
            return fitted
    for option in options:
        if dataclasses.is_dataclass(option):
            field = dataclasses.fields(option)[0].name
            raise UsageError(f"{name} is a group of settings: set one of them, such as {name}.{field}.")
    raise UsageError(f"{name} is {text!r}: it must be {' or '.join(map(checks.say, options))}.")


def _fit(option: Any, text: str, value: Any, options: tuple[Any, ...] = ()) -> Any:
    """Converts a text, or the literal parsed from it, to a type; returns `_MISFIT` if that is not possible."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if option in (object, Any):
        return naming.load(text) if ":" in text and isinstance(value, str) else value
    if option is bool and isinstance(value, bool):
        return value
    if option is int and number and (isinstance(value, int) or value.is_integer()):
        return int(value)
    if option is float and number and abs(value) <= sys.float_info.max:
        return float(value)
    if option is str and (":" not in text or _is_text(options)):
        return text
    if _is_callable(option) and ":" in text:
        return naming.load(text)
    if typing.get_origin(option) is tuple:
        kind = typing.get_args(option)[0]
        items = [_fit(kind, str(item), item) for item in (value if isinstance(value, tuple | list) else (value,))]
        return _MISFIT if _MISFIT in items else tuple(items)
    if typing.get_origin(option) is typing.Literal and text in typing.get_args(option):
        return text
    return _MISFIT


def _options(hint: Any) -> tuple[Any, ...]:
    """Returns the types that a field may have."""
    return typing.get_args(hint) if typing.get_origin(hint) in checks.UNIONS else (hint,)


def _is_text(options: tuple[Any, ...]) -> bool:
    """Returns whether a text with a colon is plain text, and not the name of a function."""
    return str in options and not any(map(_is_callable, options))


def _is_callable(option: Any) -> bool:
    return typing.get_origin(option) is collections.abc.Callable
