"""Environments by name, as dm_env: `make` gives a batch of them, `make_single` one. Backends are imported when used."""

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
    "check",
    "check_factory",
    "families",
    "make",
    "make_single",
    "make_spec",
    "name_of",
]
