"""What all tests share."""

import gc
import hashlib
import os
import pathlib
import signal
import sys
from collections.abc import Generator, Iterator
from types import ModuleType
from typing import Any

import pytest


def _share_compiled_code() -> None:
    """Lets all processes of the tests, and of later runs, read from a folder what one of them has compiled.

    JAX keeps programs, its own versions and XLA_FLAGS apart there, but not processors.
    """
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    processor = hashlib.sha256(flags.encode()).hexdigest()[:12]
    folder = pathlib.Path(__file__).parents[1] / ".pytest_cache" / f"jax-{processor}"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


_share_compiled_code()

# A garbage collection during the first import of jaxlib 0.5.3 can end the process with a segmentation fault. Pytest has
# made enough garbage by then for one to happen, so no test module is left to be the first.
gc.disable()
import jax  # noqa: E402

gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _compiled_code_is_given_back() -> Iterator[None]:
    """What a module's tests have compiled stays in memory for as long as the process lives, where it isn't dropped."""
    yield
    jax.clear_caches()
    gc.collect()


_limited = pytest.StashKey[bool]()


def _has_time_limit() -> bool:
    """Whether the alarm is set by which pytest-timeout ends a test."""
    handler = signal.getsignal(signal.SIGALRM)
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0 and getattr(handler, "__module__", None) == "pytest_timeout"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_limited] = _has_time_limit()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Fails a test that takes its time limit away, by itself or by a fixture."""
    result = yield
    if pyfuncitem.stash[_limited] and not _has_time_limit():
        pytest.fail("the alarm was taken away by which pytest-timeout would have ended this test")
    return result


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
