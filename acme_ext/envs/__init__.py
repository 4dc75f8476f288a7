"""Environments by name, as dm_env: `make` gives a batch of them, `make_single` one. Backends are imported when used."""

from acme_ext.envs.registry import Factory, Family, check, families, make, make_single, make_spec

__all__ = ["Factory", "Family", "check", "families", "make", "make_single", "make_spec"]
