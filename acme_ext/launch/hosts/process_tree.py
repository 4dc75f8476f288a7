"""Ties the processes of a program together, so that none of them outlives it, even if one is killed.

    launcher -> subreaper -> supervisor -> nodes -> processes of environments

The kernel kills the nodes when the supervisor ends. Processes that nodes have started become children of the nearest
ancestor that adopts orphans; the supervisor and the subreaper both do. The subreaper ends everything when the launcher
or the supervisor has ended, and the supervisor does when the subreaper has ended. `utils.system` has what other systems
than Linux do in place of this; there, processes that a node has started may outlive a node that was killed.
"""

import contextlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable

from acme_ext.utils import system

_INTERRUPT, _TERMINATE, ORPHANED, STOP_NODE = system.private_signals()
# The kernel sends ORPHANED to the subreaper and the supervisor when their parent has ended; the supervisor sends
# STOP_NODE to a node that should end.

REQUESTS = {signal.SIGINT: _INTERRUPT, signal.SIGTERM: _TERMINATE}
"""Signal of a stop request -> the signal that the launcher sends to the subreaper, and the subreaper to the supervisor.

The original signal may reach all processes: a terminal's Ctrl-C does."""


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
    while left := system.children():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
