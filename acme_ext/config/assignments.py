"""Settings given as text, as on the command line, and configs from their JSON."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from acme_ext.config.types import MISFIT, describe_type, hints_of, is_text, options_of, parse_value
from acme_ext.config.values import restore_value
from acme_ext.errors import UsageError, nearest

Config = TypeVar("Config")


def split_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Splits texts of the form `name=value`; raises UsageError for any other text."""
    values = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{text!r} is not a setting: write name=value.")
        values[name.strip()] = value.strip()
    return values


def parse_amounts(assignments: Iterable[str]) -> dict[str, dict[str, float]]:
    """Parses texts of the form `group=name:amount,name:amount`; raises UsageError for any other text."""
    found: dict[str, dict[str, float]] = {}
    for group, text in split_assignments(assignments).items():
        for part in text.split(","):
            name, _, amount = part.rpartition(":")
            try:
                found.setdefault(group, {})[name.strip()] = float(amount)
            except ValueError:
                raise UsageError(f"{group}={text} says no amounts: write {group}=GPU:1,CPU:4.") from None
    return found


def replace_fields(config: Config, values: Mapping[str, Any]) -> Config:
    """Returns a frozen dataclass with some fields replaced by values given as text, converted to the fields' types.

    Values that are not text are converted as their text would be. A dotted name sets a field of a nested config. A
    value `module:name` is imported as a function or class.

    Raises:
        UsageError: there is no such field (the message suggests similar names), or the text is not a valid value.
    """
    return dataclasses.replace(config, **_parsed(config, values))  # type: ignore[type-var]


def configure_builder(builder: Any, values: Mapping[str, Any]) -> Any:
    """Returns a builder with fields of the builder or of its config replaced by texts; see `replace_fields`."""
    own = {name for name in _field_names(builder) if name.partition(".")[0] != "config"}
    _check_names(values, own | _field_names(builder.config), f"{type(builder).__name__} has no setting")
    fields = _parsed(builder, {name: text for name, text in values.items() if name in own})
    if of_config := {name: text for name, text in values.items() if name not in own}:
        fields["config"] = replace_fields(builder.config, of_config)
    return builder.replace(**fields)


def _parsed(config: Any, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the values of a dataclass's fields that are given as text; see `replace_fields`.

    Error messages put the prefix before the fields' names.
    """
    _check_names(values, _field_names(config), f"{type(config).__name__} has no field")
    hints, nested = hints_of(type(config)), {name.partition(".")[0] for name in values if "." in name}
    parsed = {name: _parse(prefix + name, text, hints[name]) for name, text in values.items() if "." not in name}
    for head in nested:
        inner = getattr(config, head)
        of_inner = {n.partition(".")[2]: text for n, text in values.items() if n.startswith(f"{head}.")}
        changed = _parsed(inner, of_inner, f"{prefix}{head}.")
        try:
            parsed[head] = dataclasses.replace(inner, **changed)
        except UsageError as error:  # the config doesn't know of which field it is the value
            of_field = str(error).partition(" ")[0] in _field_names(inner)
            raise UsageError(f"{prefix}{head}{'.' if of_field else ': '}{error}") from None
    return parsed


def _parse(name: str, text: Any, hint: Any) -> Any:
    if (value := parse_value(text, hint)) is not MISFIT:
        return value
    for option in options_of(hint):
        if dataclasses.is_dataclass(option):
            field = dataclasses.fields(option)[0].name
            raise UsageError(f"{name} is a group of settings: set one of them, such as {name}.{field}.")
    raise UsageError(f"{name} is {text!r}: it must be {describe_type(hint)}.")


def _check_names(names: Iterable[str], valid: set[str], refusal: str) -> None:
    for name in names:
        if name not in valid:
            raise UsageError(f"{refusal} {name!r}: {nearest(name, valid)}")


def _field_names(config: Any) -> set[str]:
    """Returns the names of a config's fields; fields of nested configs have dotted names."""
    names = set()
    for field in dataclasses.fields(config):
        names.add(field.name)
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names |= {f"{field.name}.{inner}" for inner in _field_names(value)}
    return names


def restore_config(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """Returns a config from its JSON form, in which tuples are lists, nested configs are dictionaries and functions are
    names.
    """
    return cls(**restore_fields(cls, values))


def restore_fields(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a dataclass's fields from their JSON form; see `restore_config`."""
    hints = hints_of(cls)
    _check_names(sorted(values), {field.name for field in dataclasses.fields(cls)}, f"{cls.__name__} has no field")

    def restored(hint: Any, value: Any) -> Any:
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            return restore_config(hint, value)  # type: ignore[type-var]
        if isinstance(value, str) and is_text(hint):
            return value
        return tuple(value) if isinstance(value, list) else restore_value(value)

    return {name: restored(hints[name], value) for name, value in values.items()}
