"""The process above the supervisor; see `process_tree`. It does nothing else, so that it is unlikely to die."""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from acme_ext.acting import shared
from acme_ext.errors import RunError, UsageError
from acme_ext.launch.hosts import isolation, launcher, process_tree
from acme_ext.utils import system


def guard(function: Callable[[int], int], descriptor: int) -> int:
    """Runs a function in a child process and, when it has ended, ends all that it left; returns its exit code.

    If the code is negative, a signal ended the child. Stop requests from the launcher are passed on to the child, and
    the child is killed when this process is orphaned.

    Args:
        function: it is called with the pid of this process, and returns the exit code.
        descriptor: a file descriptor of the child, which is closed here.
    """
    system.adopt_orphans()
    here = os.getpid()
    child = process_tree.fork(lambda: function(here))
    os.close(descriptor)

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)

    def abandon(number: int, frame: FrameType | None) -> None:
        os.kill(child, signal.SIGKILL)

    signals = {process_tree.ORPHANED: abandon, **dict.fromkeys(process_tree.REQUESTS.values(), pass_on)}
    for number, handler in signals.items():
        signal.signal(number, handler)
    status = system.wait_for_child(child, signals)
    process_tree.end_children()
    shared.remove_left()
    return os.waitstatus_to_exitcode(status)


def supervise(entry: str, reader: int, private: bool, parent: int) -> int:
    """Runs a supervisor in this process; returns the exit code.

    Args:
        entry: the module of `launch.hosts` that has the supervisor: its `prepare()` is called before the input is
            there, and `run(input, private)` returns the exit code.
        reader: see `launcher.receive`.
        private: whether the program gets its own network namespace, if that is possible.
        parent: the process above this one.
    """
    process_tree.end_at_a_stop_request()  # nothing to save before nodes run
    try:
        why = isolation.enter() if private else None  # requires a single thread
        # After entering the namespace, since a change of rights may clear this setting. Until there are nodes, the
        # default action of the signal is right.
        if not system.signal_at_parents_end(parent, process_tree.ORPHANED):
            return 1
        # Also adopts processes of the environment that is made for its specs.
        system.adopt_orphans()
        module = importlib.import_module(f"acme_ext.launch.hosts.{entry}")
        module.prepare()
        given = launcher.receive(reader)
        if given is None:
            return 1
        if why is not None:
            print(f"acme-ext: the program's ports are open to the network ({why}).", file=sys.stderr)
        return module.run(given, private and why is None)
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def main(entry: str, reader: int, parent: int, private: int) -> int:
    """Runs a supervisor for the launcher, whose process is `parent`, in a child; see `supervise`.

    Both processes start with all stop requests blocked. Each unblocks them when it can handle them; this one never
    unblocks those that reach the supervisor too.
    """
    if not system.signal_at_parents_end(parent, process_tree.ORPHANED):
        return 1
    code = guard(lambda here: supervise(entry, reader, bool(private), here), reader)
    if code < 0:  # the launcher learns how the supervisor ended
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
