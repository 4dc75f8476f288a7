"""How the processes of a program are tied together, so that nothing of it outlives it, whichever of them is killed.

    launcher -> keeper -> supervisor -> nodes -> whatever an environment starts

Nodes are killed by the kernel when the supervisor ends. What they have started becomes the child of the nearest
ancestor that takes in orphans, which the supervisor and the keeper both do. The keeper ends everything when the
launcher or the supervisor is gone, the supervisor when the keeper is.
"""

import contextlib
import ctypes
import os
import pathlib
import signal

# Real-time signals, which are queued, and mean nothing to anybody else.
REQUESTS = {signal.SIGINT: signal.SIGRTMIN + 1, signal.SIGTERM: signal.SIGRTMIN + 2}
"""Stop requests, to the launcher or to everybody (a terminal's Ctrl-C reaches every process of a program), and what
the launcher passes them on as to the keeper, and that to the supervisor."""
ORPHANED = signal.SIGRTMIN + 3
"""To the keeper and the supervisor from the kernel: the parent is gone."""
STOP_NODE = signal.SIGRTMIN + 4
"""To a node from the supervisor: it is to end."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def tell_when_orphaned(parent: int, number: int) -> bool:
    """Has the kernel send this process a signal when its parent, however it does, ends; returns whether the parent is
    alive.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def take_in_orphans() -> None:
    """Makes this process the parent of all its descendants whose parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_at_a_stop_request() -> None:
    """Ends this process at any stop request, also one that was held back until now."""
    for stop, request in REQUESTS.items():
        for number in (stop, request):
            signal.signal(number, lambda number, frame, code=128 + stop: os._exit(code))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*REQUESTS, *REQUESTS.values()])


def abandon(number: int, frame: object) -> None:
    """Ends everything: nobody is left to hear of it. A handler of `ORPHANED`."""
    end_children()
    os._exit(1)


def end_children() -> None:
    """Kills the children of this process that are left, and theirs as they come to it."""
    while left := _children():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _children() -> list[int]:
    """Returns the children of this process, dead ones that nobody has waited for included."""
    children = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children += [int(entry.name)] if int(parent) == os.getpid() else []
    return children
