"""What the commands of the benchmarks share: how they end, and what they refuse."""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import process_tree


def run(name: str, command: Callable[[], int]) -> int:
    """Runs a command; returns its exit code, 2 for a usage error, or 1 for a failed run.

    For an error, it prints one sentence.

    Args:
        name: name of the module, such as `benchmarks.learning`.
        command: runs the command, and returns its exit code.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported
    try:
        return command()
    except (UsageError, RunError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises UsageError if a seed is listed twice."""
    if len(set(seeds)) < len(seeds):
        raise UsageError("--seeds names a seed twice.")


def end_with(parent: int) -> None:
    """Makes the kernel end this process, and the processes that it started, when the parent process ends."""
    if not process_tree.tell_when_orphaned(parent, signal.SIGKILL):
        os._exit(1)
