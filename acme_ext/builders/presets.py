"""Settings that an agent takes from the kind of its environment, where the user leaves them alone."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from acme_ext import envs

Self = TypeVar("Self", bound="HasPresets")


@dataclasses.dataclass(frozen=True)
class Preset:
    """Settings for a kind of environment, where the defaults don't serve.

    Attributes:
        fields: of the builder.
        environment: options of the environment, by its family, as options of one meaning have other names in each.
    """

    fields: Mapping[str, Any]
    environment: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class HasPresets:
    """A dataclass that knows which of its fields the user has set, and fills in the others by the environment."""

    presets: ClassVar[Mapping[str, Preset]] = {}
    """By the kind of an environment, see `envs.kind`."""

    def __post_init__(self):
        unset = frozenset(f.name for f in dataclasses.fields(self) if getattr(self, f.name) is f.default)
        object.__setattr__(self, "_unset", unset)

    def for_environment(self: Self, environment: str | Callable[..., Any]) -> Self:
        """Returns the builder with the preset for an environment's kind, in all fields that the user has not set."""
        unset: frozenset[str] = self._unset  # type: ignore[attr-defined]
        preset = self.preset_for(environment).fields
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        return self._with({name: preset.get(name, defaults[name]) for name in unset}, unset)

    def replace(self: Self, **fields: Any) -> Self:
        """Returns the builder with fields that the user sets: no preset changes them, not even those that are set to
        their defaults.
        """
        unset: frozenset[str] = self._unset  # type: ignore[attr-defined]
        return self._with(fields, unset - fields.keys())

    def _with(self: Self, fields: Mapping[str, Any], unset: frozenset[str]) -> Self:
        builder = dataclasses.replace(self, **fields)
        object.__setattr__(builder, "_unset", unset)
        return builder

    @classmethod
    def preset_for(cls, environment: str | Callable[..., Any]) -> Preset:
        """Returns the preset for an environment, which is empty where there is none."""
        return cls.presets.get(envs.kind(environment) or "", Preset({}))
