"""Presets: an agent's settings for a kind of environment, which replace the defaults of fields the user hasn't set."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from acme_ext import envs

Self = TypeVar("Self", bound="HasPresets")


@dataclasses.dataclass(frozen=True)
class Preset:
    """Settings for a kind of environment, for which the defaults don't work well.

    Attributes:
        fields: values of the builder's fields, by name.
        environment: options of the environment, by family, because families name the same option differently.
    """

    fields: Mapping[str, Any]
    environment: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class HasPresets:
    """A dataclass that records which of its fields the user has set, and can take the others from a preset."""

    presets: ClassVar[Mapping[str, Preset]] = {}
    """The presets, by the environment's kind; see `envs.kind`."""

    def __post_init__(self):
        unset = frozenset(f.name for f in dataclasses.fields(self) if getattr(self, f.name) is f.default)
        object.__setattr__(self, "_unset", unset)

    def for_environment(self: Self, environment: str | Callable[..., Any]) -> Self:
        """Returns the builder with every field that the user has not set taken from the environment's preset.

        A subclass with a config of its own gets the values of the config's fields in which the preset differs from the
        defaults.
        """
        unset: frozenset[str] = self._unset  # type: ignore[attr-defined]
        preset = self.preset_for(environment).fields
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        fitted = {name: _fitted(preset.get(name, default), default) for name, default in defaults.items()}
        return self._with({name: fitted[name] for name in unset}, unset)

    def replace(self: Self, **fields: Any) -> Self:
        """Returns the builder with these fields set by the user.

        No preset changes them afterwards, even if they are set to their default values.
        """
        unset: frozenset[str] = self._unset  # type: ignore[attr-defined]
        return self._with(fields, unset - fields.keys())

    def _with(self: Self, fields: Mapping[str, Any], unset: frozenset[str]) -> Self:
        builder = dataclasses.replace(self, **fields)
        object.__setattr__(builder, "_unset", unset)
        return builder

    @classmethod
    def preset_for(cls, environment: str | Callable[..., Any]) -> Preset:
        """Returns the preset for an environment, or an empty one."""
        return cls.presets.get(envs.kind(environment) or "", Preset({}))


def _fitted(value: Any, default: Any) -> Any:
    """Returns a preset's value of a field as the field's own type, which a subclass may have derived or replaced."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type) or type(value) is type(default):
        return value
    if not isinstance(default, type(value)):
        return default
    usual, changes = type(value)(), {}
    for field in dataclasses.fields(value):
        preset, own = getattr(value, field.name), getattr(default, field.name)
        if preset != getattr(usual, field.name):
            changes[field.name] = _fitted(preset, own) if dataclasses.is_dataclass(own) else preset
    return dataclasses.replace(default, **changes)
