"""What all tests share."""

import ctypes
import gc
import hashlib
import importlib.util
import os
import pathlib
import platform
import resource
import signal
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest


def _share_compiled_code() -> None:
    """Lets all processes of the tests, and of later runs, read from a folder what one of them has compiled.

    JAX keeps programs, its own versions and XLA_FLAGS apart there, but not processors.
    """
    cpuinfo = pathlib.Path("/proc/cpuinfo")  # only Linux has it
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    flags = next((line for line in lines if line.startswith("flags")), platform.machine())
    processor = hashlib.sha256(flags.encode()).hexdigest()[:12]
    folder = pathlib.Path(__file__).parents[1] / ".pytest_cache" / f"jax-{processor}"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def _compile_quickly() -> None:
    """Leaves out what makes compiled code quick and compiling slow: a test runs a program a few times."""
    quick = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
    os.environ["XLA_FLAGS"] = f"{quick} {os.environ.get('XLA_FLAGS', '')}"


def _hear_interrupts() -> None:
    """Restores Python's handler of SIGINT. A shell has commands in the background ignore it, and so what they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_share_compiled_code()
_compile_quickly()
_hear_interrupts()

import acme_ext  # noqa: E402, F401  # before JAX, see acme_ext/utils/xla.py
from acme_ext.errors import UsageError  # noqa: E402

import jax  # noqa: E402, isort: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the tests with a time limit of their own first: they take longest, and none should run alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


STACK = ("reverb", "launchpad", "courier", "acme", "tensorflow")
"""What has wheels for CPython 3.10 on x86-64 Linux only. Elsewhere, the tests that import it are skipped."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--none-without-reverb", action="store_true", help="fail what is skipped because it needs Reverb")


def _lacks(error: BaseException | None) -> str | None:
    """Returns the part of the stack whose absence an error tells; None for any other error."""
    if importlib.util.find_spec("reverb") is not None:
        return None
    if isinstance(error, ModuleNotFoundError) and (name := (error.name or "").partition(".")[0]) in STACK:
        return name
    return "reverb" if isinstance(error, UsageError) and "table is 'reverb', which is not" in str(error) else None


def _skip(report: pytest.CollectReport | pytest.TestReport, path: str, error: BaseException | None) -> None:
    if (name := _lacks(error)) is not None:
        report.outcome = "skipped"
        report.longrepr = (path, 0, f"Skipped: needs {name}, which has wheels for CPython 3.10 on x86-64 Linux only")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    report = yield
    excinfo = getattr(report, "call", None) and report.call.excinfo
    error = excinfo.value if excinfo else None
    if report.failed and not collector.config.getoption("none_without_reverb"):
        _skip(report, str(collector.path), error.__cause__ or error if error else None)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if report.failed and call.excinfo and not item.config.getoption("none_without_reverb"):
        _skip(report, str(item.path), call.excinfo.value)
    return report


_UNCACHED = ("alphazero", "board", "tests/ops/test_search.py", "thompson")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what is about Reverb where it is not installed.

    Compiles searches and draws of Beta variables anew: read back from the folder, a program of jaxlib 0.5.3's newer
    CPU runtime loses its constants, and computes something else.
    """
    from jax.experimental.compilation_cache import compilation_cache

    if item.get_closest_marker("reverb") and importlib.util.find_spec("reverb") is None:
        pytest.skip("is about Reverb or Launchpad, which have wheels for CPython 3.10 on x86-64 Linux only")
    wanted = not any(word in item.nodeid for word in _UNCACHED)
    if jax.config.jax_enable_compilation_cache != wanted:
        jax.config.update("jax_enable_compilation_cache", wanted)
        compilation_cache.reset_cache()


_kept = 0.0  # GB that this process took when compiled code was last dropped


def _memory() -> float:
    """Returns the GB of memory that this process takes, or has taken at most where the system tells no more."""
    statm = pathlib.Path("/proc/self/statm")
    if not statm.is_file():
        return _peak()
    return int(statm.read_text().split()[1]) * resource.getpagesize() / 2**30


def _peak() -> float:
    """Returns the GB of memory that this process has taken at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)


@pytest.fixture(autouse=True)
def _compiled_code_is_given_back() -> Iterator[None]:
    """Drops what was compiled when the process has grown: it would stay for as long as the process lives."""
    global _kept
    yield
    if _memory() > max(1.2, _kept + 0.3):
        jax.clear_caches()
        gc.collect()
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            libc.malloc_trim(0)  # what was freed goes back to the system
        _kept = _memory()


def pytest_collection_finish() -> None:
    """What has been imported stays: the collector need not look at it after each module."""
    gc.collect()
    gc.freeze()


_peaks: dict[str, float] = {}  # GB of memory that each process of the tests has taken at most


def pytest_sessionfinish(session: pytest.Session) -> None:
    peak = _peak()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = peak
    elif not _peaks:
        _peaks["the tests' process"] = peak


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _peaks[node.gateway.id] = getattr(node, "workeroutput", {}).get("peak", float("nan"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    said = ", ".join(f"{name} {peak:.2f} GB" for name, peak in sorted(_peaks.items()))
    terminalreporter.write_line(f"peak memory: {said}")


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the figure at a run's end out, which takes a second, for tests that don't look at it."""
    from acme_ext.utils import plots

    monkeypatch.setattr(plots, "learning_curves", lambda runs, out, *rest: out)


@pytest.fixture(scope="session")
def rlax() -> ModuleType:
    """The library whose functions ours are compared with; it imports TensorFlow Probability."""
    from acme_ext.utils.availability import hidden_tensorflow

    with hidden_tensorflow():
        import rlax
    return rlax
