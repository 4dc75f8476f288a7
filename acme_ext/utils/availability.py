"""What is installed of Reverb, which has wheels for CPython 3.10 on x86-64 Linux only.

So have Launchpad and Acme, see `launch.hosts.launchpad` and `interfaces`. No run needs any of them.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any


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
