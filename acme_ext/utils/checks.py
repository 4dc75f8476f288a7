"""What configs ask of their fields; each raises UsageError by the field's name."""

from typing import Any

from acme_ext.errors import UsageError


def positive(config: Any, *names: str) -> None:
    """Fields that must be greater than 0, or None."""
    for name in names:
        if (value := getattr(config, name)) is not None and not value > 0:
            raise UsageError(f"{name} is {value}: it must be greater than 0.")


def not_negative(config: Any, *names: str) -> None:
    """Fields that must be 0 or greater."""
    for name in names:
        if not (value := getattr(config, name)) >= 0:
            raise UsageError(f"{name} is {value}: it must not be negative.")


def share(config: Any, *names: str) -> None:
    """Fields that must lie in [0, 1]."""
    for name in names:
        if not 0 <= (value := getattr(config, name)) <= 1:
            raise UsageError(f"{name} is {value}: it must lie in [0, 1].")


def layer_sizes(config: Any, *names: str) -> None:
    """Fields that are the units of a network's layers, of which there must be one."""
    for name in names:
        if not (sizes := getattr(config, name)) or any(size < 1 for size in sizes):
            raise UsageError(f"{name} is {sizes}: there must be a layer, and each needs at least 1 unit.")
