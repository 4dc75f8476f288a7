"""Runs a program's nodes as threads of this process.

Launchpad's own launcher of threads never restores the process's signal handlers, and ends the process when a node does
not stop in time. This one restores the handlers, and returns when the program has ended.
"""

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from acme_ext.errors import UsageError
from acme_ext.launch.hosts import interrupt
from acme_ext.launch.hosts.node_process import bind
from acme_ext.launch.roles import role_of

GRACE_S = 5.0
"""Seconds that nodes have to end once the program has stopped."""


def check_thread() -> None:
    """Raises UsageError if this is not the main thread, in which a program on threads must be started."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("a program on threads must be started from the main thread.")


def run(program: Any, grace_s: float = GRACE_S) -> int:
    """Runs a program from the main thread to its end.

    SIGINT and SIGTERM stop it after a last save. A second SIGINT ends the process at once. In an interactive session it
    raises KeyboardInterrupt instead: nodes are asked to end but not waited for, since threads can't be killed.

    An error of a node that a last save doesn't need stops the program after a last save; after a signal has stopped it,
    such an error is ignored.

    Args:
        program: the program.
        grace_s: seconds that nodes have to end once the program has stopped; may be infinite.

    Returns:
        The exit code, 0 or 128 + the signal that stopped it.

    Raises:
        Exception: the first error of a node; the other nodes are stopped.
    """
    check_thread()
    from acme_ext.launch.hosts import launchpad

    manager = launchpad.manage_threads()
    bind(
        program,
        lambda mark_as_completed=False: manager.stop_event().set(),
        lambda mark_as_completed=False: os.kill(os.getpid(), signal.SIGTERM),
        "LOCAL_MULTI_THREADING",
    )
    ended: queue.Queue[tuple[str, BaseException | None]] = queue.Queue()
    nodes = [(group, node) for group, nodes in program.groups.items() for node in nodes]
    with interrupt.graceful(
        lambda text: print(f"acme-ext: {text}", file=sys.stderr),
        on_request=lambda: _ask_coordinator(program, manager),
        on_end=manager.stop_event().set,
    ) as request:
        for group, node in nodes:
            manager.thread_worker(group, _reporting(group, node.function, ended))
        failure, left, end = None, len(nodes), float("inf")
        while left and time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                group, error = ended.get(timeout=0.05)
                left -= 1
                if error is not None and not manager.stop_event().is_set():
                    if not role_of(group).resumable:
                        failure = failure or error
                        manager.stop_event().set()
                    elif failure is None and not request.requested:
                        failure = error
                        _ask_coordinator(program, manager)
            if manager.stop_event().is_set():
                end = min(end, time.monotonic() + grace_s)
    if failure is not None:
        raise failure
    return 0 if request.signal is None else 128 + request.signal


def _reporting(group: str, function: Callable[[], Any], ended: queue.Queue) -> Callable[[], None]:
    """Returns the node's function, extended to put its group, and its error or None, in the queue when it ends."""

    def run_node() -> None:
        failure = None
        try:
            function()
        except BaseException as error:
            failure = error
        ended.put((group, failure))

    return run_node


def _ask_coordinator(program: Any, manager: Any) -> None:
    """Asks the program's coordinator to stop it after a last save; doesn't wait for the answer."""

    def ask() -> None:
        (coordinator,) = program.groups["coordinator"]
        with contextlib.suppress(Exception):  # the program has ended without the coordinator
            coordinator.create_handle().dereference().request_stop()

    manager.thread_worker("stop", ask)
