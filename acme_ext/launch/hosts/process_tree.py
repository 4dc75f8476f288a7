"""Ties the processes of a program together, so that none of them outlives it, even if one is killed.

    launcher -> subreaper -> supervisor -> nodes -> processes of environments

The kernel kills the nodes when the supervisor ends. Processes that nodes have started become children of the nearest
ancestor that adopts orphans; the supervisor and the subreaper both do. The subreaper ends everything when the launcher
or the supervisor has ended, and the supervisor does when the subreaper has ended.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import sys
import traceback
import warnings
from collections.abc import Callable

# Real-time signals are queued, and nothing else uses them.
REQUESTS = {signal.SIGINT: signal.SIGRTMIN + 1, signal.SIGTERM: signal.SIGRTMIN + 2}
"""Signal of a stop request -> the signal that the launcher sends to the subreaper, and the subreaper to the supervisor.

The original signal may reach all processes: a terminal's Ctrl-C does."""
ORPHANED = signal.SIGRTMIN + 3
"""The kernel sends this to the subreaper and the supervisor when their parent has ended."""
STOP_NODE = signal.SIGRTMIN + 4
"""The supervisor sends this to a node that should end."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def fork(function: Callable[[], int]) -> int:
    """Forks a process that runs a function, and returns its pid.

    The function returns the exit code, which is 1 if it raises; the traceback is then printed. The process runs nothing
    else, not even the exit handlers of this one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns about forks, but has no devices or threads yet
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = function()
        except BaseException:
            with contextlib.suppress(Exception):
                traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    return pid


def tell_when_orphaned(parent: int, number: int) -> bool:
    """Makes the kernel send a signal to this process when its parent ends; returns whether the parent is alive."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def take_in_orphans() -> None:
    """Makes this process adopt all its descendants whose parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_at_a_stop_request() -> None:
    """Ends this process at any stop request, including one that was blocked until now."""
    for stop, request in REQUESTS.items():
        for number in (stop, request):
            signal.signal(number, lambda number, frame, code=128 + stop: os._exit(code))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*REQUESTS, *REQUESTS.values()])


def abandon(number: int, frame: object) -> None:
    """Ends everything without any message; a handler of `ORPHANED`."""
    end_children()
    os._exit(1)


def end_children() -> None:
    """Kills the remaining children of this process, and theirs once this process has adopted them."""
    while left := _children():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _children() -> list[int]:
    """Returns the children of this process, including zombies."""
    children = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children += [int(entry.name)] if int(parent) == os.getpid() else []
    return children
