"""Which ways of running this installation has. Reverb, Launchpad and Acme have wheels for CPython 3.10 alone; what is
pure, recorded data and compiled runs need none of them.
"""

import importlib.util
import sys

from acme_ext.errors import UsageError
from acme_ext.utils.install import REVERB_PYTHON

_MODULES = ("acme", "launchpad", "reverb")


def has_reverb() -> bool:
    """Whether runs in one process and programs can be had."""
    return all(importlib.util.find_spec(module) for module in _MODULES)


def need_reverb(what: str) -> None:
    """Raises UsageError if `what` can't be had because Reverb and what goes with it are not installed."""
    if has_reverb():
        return
    version = ".".join(map(str, sys.version_info[:2]))
    needed = ".".join(map(str, REVERB_PYTHON))
    other = "see acme-ext doctor." if version == needed else f"which need Python {needed} (this is {version})."
    raise UsageError(
        f"{what} needs Reverb, Launchpad and Acme, {other} Without them, an environment written in JAX (jax:NAME) runs "
        "with --on compiled, and recorded data (data:FOLDER) can be learned from."
    )
