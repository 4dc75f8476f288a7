"""Which kinds of runs this installation supports.

Reverb has wheels for CPython 3.10 only, and so have Launchpad and Acme, which nothing needs: see
`launch.hosts.launchpad` and `interfaces`.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

from acme_ext.errors import UsageError
from acme_ext.utils.install import REVERB_PYTHON


def has_reverb() -> bool:
    """Whether replays can be stored in Reverb."""
    return importlib.util.find_spec("reverb") is not None


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
    """Raises UsageError if `what` is not possible because Reverb is not installed."""
    if has_reverb():
        return
    version = ".".join(map(str, sys.version_info[:2]))
    needed = ".".join(map(str, REVERB_PYTHON))
    other = "see acme-ext doctor." if version == needed else f"which needs Python {needed} (this is {version})."
    raise UsageError(
        f"{what} needs Reverb, {other} Without it, an environment written in JAX (jax:NAME) runs "
        "with --on compiled, and recorded data (data:FOLDER) can be learned from."
    )
