"""What all tests share."""

import gc
import sys
from types import ModuleType
from typing import Any

import pytest

# A garbage collection during the first import of jaxlib 0.5.3 can end the process with a segmentation fault. Pytest has
# made enough garbage by then for one to happen, so no test module is left to be the first.
gc.disable()
import jax  # noqa: E402, F401

gc.enable()


@pytest.fixture(scope="session")
def rlax() -> ModuleType:
    """The library whose functions ours are compared with.

    TensorFlow Probability, which it imports, refuses to be imported where TensorFlow 2.8 has been, though no TensorFlow
    is needed for it: so it is hidden meanwhile.
    """
    modules: dict[str, Any] = sys.modules
    hidden = modules.get("tensorflow")
    modules["tensorflow"] = None
    try:
        import rlax
    finally:
        del modules["tensorflow"]
        if hidden is not None:
            modules["tensorflow"] = hidden
    return rlax
