"""Makes environments by name, as dm_env: `make` a batch, `make_single` a single one. Backends load on first use."""

import importlib
from typing import TYPE_CHECKING, Any

from acme_ext.envs.kinds import kind
from acme_ext.envs.registry import (
    Factory,
    Family,
    check_environment,
    check_factory,
    check_names,
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
    "check_environment",
    "check_factory",
    "check_names",
    "families",
    "kind",
    "make",
    "make_functional",
    "make_single",
    "make_spec",
    "name_of",
]


def __getattr__(name: str) -> Any:
    if name == "canonical_actions":  # imported on first use, because it imports dm_env
        return importlib.import_module("acme_ext.envs.canonical").canonical_actions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
