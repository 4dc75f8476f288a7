"""Forks a program's nodes from one process with all imports, and watches them.

Importing Reverb, TensorFlow and JAX costs each process seconds of CPU time and 400 MB. A fork of a process that has
imported them costs almost nothing, but requires that it has no threads or devices yet.

What happens to a node is told as an event, a tuple: `("ended", code, log)`, with a function that returns the end of its
log, and `("unanswered",)` if the coordinator did not answer. On Ray there are more, see `ray.host_server`.
"""

import contextlib
import functools
import mmap
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.hosts import process_tree
from acme_ext.launch.hosts.node_process import FAILED, RETURNED, Options, run_node
from acme_ext.launch.roles import NodeId
from acme_ext.utils import system

Result = TypeVar("Result")

MAKE_SPEC = "make an environment and see what it is like"
"""A `purpose` for `in_child`."""
EXITED = 256
"""A node's code if something else ended its process with exit code 0; no process has this exit code."""

_TRY_S = 3.0  # time to reach the coordinator, before a message says that it does not answer
_ANSWER_S = 60.0  # total time for its answer: its disk may be slow
_LAST_LINES = 40
_LAST_BYTES = 2**20


class Child(NamedTuple):
    """A running node, and where the output of this start begins in its log."""

    owner: Any
    log: pathlib.Path
    log_start: int


class ForkServer:
    """Forks nodes, signals them and tells how they ended. Each has an owner, who receives its events.

    Args:
        interrupted: see `node_process.run_node`.
    """

    def __init__(self, interrupted: mmap.mmap | None = None):
        self.children: dict[int, Child] = {}
        """The running nodes, by their process."""
        self._interrupted = interrupted
        self._asking: dict[int, Any] = {}  # a process that asks the coordinator to stop -> who has it asked

    def fork(
        self,
        owner: Any,
        function: Callable[[], Any],
        node: NodeId,
        options: Options,
        prepare: Callable[[], None] = lambda: None,
    ) -> int:
        """Starts a node and returns its pid; the new process calls `prepare` and then runs the node's function."""
        log, parent = options.log_of(node.name), os.getpid()
        log.parent.mkdir(parents=True, exist_ok=True)
        log_start = log.stat().st_size if log.exists() else 0

        def run() -> int:
            prepare()
            return run_node(function, node, parent, self._interrupted, options)

        pid = process_tree.fork(run)
        self.children[pid] = Child(owner, log, log_start)
        return pid

    def signal(self, owner: Any, number: int) -> None:
        """Sends a signal to the running node of an owner."""
        for pid, child in self.children.items():
            if child.owner is owner:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def ask(self, owner: Any, coordinator: Any, died: list[str]) -> None:
        """Asks the coordinator to stop the program, see `ask_to_stop`."""
        self._asking[ask_to_stop(coordinator, died)] = owner

    def reap(self) -> list[tuple[Any, tuple]]:
        """Returns the owners and events of nodes that have ended."""
        events: list[tuple[Any, tuple]] = []
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = ended  # it may be a process that a node has left behind; there may be thousands
                if (asked := self._asking.pop(pid, None)) is not None and status:
                    events.append((asked, ("unanswered",)))
                if (child := self.children.pop(pid, None)) is not None:
                    words = functools.partial(log_tail, child.log, child.log_start)
                    events.append((child.owner, ("ended", code_of(status), words)))
        return events


def ask_to_stop(coordinator: Any, died: list[str]) -> int:
    """Asks the coordinator, given its handle, to stop the program with a last save; see `Coordinator.request_stop`.

    A child process asks it, so that this process has no threads of Courier and can still fork. Returns the pid of the
    child; its exit code is 0 if the coordinator answered.
    """

    def ask() -> int:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end, silent = time.monotonic() + _ANSWER_S, True
        coordinator.set_client_kwargs(call_timeout=_TRY_S)
        while time.monotonic() < end:
            with contextlib.suppress(Exception):
                coordinator.dereference().request_stop(died)
                return 0
            if silent:
                silent = False
                os.write(2, b"acme-ext: the coordinator does not answer yet; Ctrl-C again stops at once.\n")
        return 1

    return process_tree.fork(ask)


def in_child(function: Callable[[], Result], purpose: str) -> Result:
    """Calls a function in a forked process and returns its result, so that no threads or devices start in this one.

    Args:
        function: the function; its result must be picklable.
        purpose: what the process does, for error messages.

    Raises:
        UsageError, RunError: the function raised it.
        RunError: the function raised another error, whose traceback is on stderr, or its process died.
    """
    import cloudpickle

    parent = os.getpid()
    with tempfile.TemporaryFile() as file:

        def run() -> int:
            if not system.signal_at_parents_end(parent, signal.SIGKILL):
                return 1
            try:
                outcome = function(), None
            except (UsageError, RunError) as error:
                outcome = None, error
            cloudpickle.dump(outcome, file)
            file.flush()
            return 0

        _, status = os.waitpid(process_tree.fork(run), 0)
        if code := os.waitstatus_to_exitcode(status):
            raise RunError(f"the process that was to {purpose} {describe_exit(code)}.")
        file.seek(0)
        result, error = cloudpickle.load(file)
    if error is not None:
        raise error
    return result


def code_of(status: int) -> int:
    """Returns how a node's process has ended, from `os.waitpid`'s status.

    0 if the node's function has returned, `EXITED` if something else ended the process with exit code 0, otherwise the
    exit code, or minus the signal that killed it.
    """
    code = os.waitstatus_to_exitcode(status)
    return {RETURNED: 0, 0: EXITED}.get(code, code)


def describe_exit(code: int) -> str:
    """Returns a description of how a node ended, from its code, see `code_of`."""
    if code == EXITED:
        return "ended its process with exit code 0, as a library's exit() does"
    if code < 0:
        return f"was killed by {system.signal_name(-code)}"
    return f"failed with exit code {code}" if code else "ended before the program did"


def log_tail(log: pathlib.Path, start: int) -> str:
    """Returns why a node failed, from its log after `start`: its traceback, or else the last lines of its output.

    Of a long log, only the end is read; of one that can't be read, nothing.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            said = file.read().decode(errors="replace")
    except OSError:  # the node could not open it, say because the disk is full
        return "."
    _, failed, why = said.rpartition(f"{FAILED}\n")
    lines = why.splitlines() if failed else why.splitlines()[-_LAST_LINES:]
    return ":\n" + "\n".join(lines) if lines else "."


def import_libraries() -> None:
    """Imports what nodes need, and nothing that starts a thread or a device; before the first fork."""
    import gc

    from absl import flags

    flags.FLAGS(["acme-ext"], known_only=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from acme_ext.launch.engines.program import program  # noqa: F401
    from acme_ext.replay import stores

    stores.import_libraries(stores.kind_of("auto"))  # before it is known which kind the program uses
    gc.freeze()  # unchanged memory is shared by forks


def refuse_devices() -> None:
    """Raises UsageError if JAX has started here.

    Forked processes would not have its threads, and would wait for them forever.
    """
    from jax._src import xla_bridge

    if xla_bridge.backends_are_initialized():
        raise UsageError(
            "JAX has computed something where the program's nodes are described, before they are forked. A builder's "
            "methods, and the functions in its fields, such as a bonus, must compute with JAX only in the functions "
            "that they return: use NumPy elsewhere, or jax.eval_shape."
        )
