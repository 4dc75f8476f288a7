"""What the commands of the benchmarks share: how they end, and what they refuse."""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import process_tree


def run(name: str, command: Callable[[], int]) -> int:
    """Runs a command that returns its exit code; returns that, or 2 for what can't be asked for, or 1 for a failed run,
    of which it prints one sentence.

    Args:
        name: of the module, as `benchmarks.learning`.
        command: what it does.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported
    try:
        return command()
    except (UsageError, RunError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises UsageError for a seed that is there twice."""
    if len(set(seeds)) < len(seeds):
        raise UsageError("--seeds names a seed twice.")


def end_with(parent: int) -> None:
    """Has the kernel end this process with its parent of that number, and what this one has started likewise."""
    if not process_tree.tell_when_orphaned(parent, signal.SIGKILL):
        os._exit(1)
