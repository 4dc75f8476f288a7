"""Environments by name, as dm_env: `make` gives a batch of them, `make_single` one. Backends are imported when used."""

from acme_ext.envs.canonical import canonical_actions
from acme_ext.envs.kinds import kind
from acme_ext.envs.registry import (
    Factory,
    Family,
    check,
    check_factory,
    families,
    make,
    make_single,
    make_spec,
    name_of,
)

__all__ = [
    "Factory",
    "Family",
    "canonical_actions",
    "check",
    "check_factory",
    "families",
    "kind",
    "make",
    "make_single",
    "make_spec",
    "name_of",
]
