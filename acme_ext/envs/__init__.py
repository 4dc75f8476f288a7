"""Environments by name, as dm_env: `make` gives a batch of them, `make_single` one. Backends are imported when used."""

import importlib
from typing import TYPE_CHECKING, Any

from acme_ext.envs.kinds import kind
from acme_ext.envs.registry import (
    Factory,
    Family,
    check,
    check_factory,
    families,
    make,
    make_functional,
    make_single,
    make_spec,
    name_of,
)

if TYPE_CHECKING:
    from acme_ext.envs.canonical import canonical_actions as canonical_actions

__all__ = [
    "Factory",
    "Family",
    "canonical_actions",
    "check",
    "check_factory",
    "families",
    "kind",
    "make",
    "make_functional",
    "make_single",
    "make_spec",
    "name_of",
]


def __getattr__(name: str) -> Any:
    if name == "canonical_actions":  # which imports dm_env
        return importlib.import_module("acme_ext.envs.canonical").canonical_actions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
