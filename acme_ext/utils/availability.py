"""Which kinds of runs this installation supports.

Reverb and Acme have wheels for CPython 3.10 only. Pure functions, recorded data and compiled runs don't need them.
Neither does anything need Launchpad, see `launch.hosts.launchpad`.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

from acme_ext.errors import UsageError
from acme_ext.utils.install import REVERB_PYTHON

_MODULES = ("acme", "reverb")


def has_reverb() -> bool:
    """Whether runs that act are possible, in one process or as programs."""
    return all(importlib.util.find_spec(module) for module in _MODULES)


@contextlib.contextmanager
def hidden_tensorflow() -> Iterator[None]:
    """Hides TensorFlow from imports inside this context.

    TensorFlow Probability doesn't need it for JAX, and can't be imported together with a TensorFlow as old as Reverb's.
    """
    modules: dict[str, Any] = sys.modules
    hidden = modules.get("tensorflow")
    modules["tensorflow"] = None
    try:
        yield
    finally:
        del modules["tensorflow"]
        if hidden is not None:
            modules["tensorflow"] = hidden


def need_reverb(what: str) -> None:
    """Raises UsageError if `what` is not possible because Reverb or Acme is not installed."""
    if has_reverb():
        return
    version = ".".join(map(str, sys.version_info[:2]))
    needed = ".".join(map(str, REVERB_PYTHON))
    other = "see acme-ext doctor." if version == needed else f"which need Python {needed} (this is {version})."
    raise UsageError(
        f"{what} needs Reverb and Acme, {other} Without them, an environment written in JAX (jax:NAME) runs "
        "with --on compiled, and recorded data (data:FOLDER) can be learned from."
    )
