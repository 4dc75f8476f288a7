"""Functions that the benchmarks' commands share: exit codes, error messages and checks."""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import process_tree


def run(name: str, command: Callable[[], int]) -> int:
    """Runs a command; returns its exit code, 2 for a usage error, or 1 for a failed run.

    It prints an error as one sentence.

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
        raise UsageError("--seeds lists a seed twice.")


def end_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent process ends."""
    if not process_tree.tell_when_orphaned(parent, signal.SIGKILL):
        os._exit(1)
