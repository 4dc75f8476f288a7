"""A program's nodes in the processes that the supervisor forks for them."""

import ctypes
import dataclasses
import os
import pathlib
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from acme_ext.errors import RunError, UsageError

_FAILED = "acme-ext: this node failed."  # before a node's traceback in its log
_LAST_LINES = 40
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class Options:
    """How a program is run.

    Attributes:
        logs: folder for the nodes' output.
        restarts: times that nodes which nobody dials are started again, in all, when they die.
        accelerated: groups of nodes that see accelerators; all others compute on the CPU.
    """

    logs: pathlib.Path
    restarts: int = 0
    accelerated: tuple[str, ...] = ("learner",)

    def log_of(self, name: str) -> pathlib.Path:
        """Returns the file that a node's output goes to."""
        return self.logs / f"{name}.log"


def bind(program: Any, stopper: Callable[..., None], launch_type: str = "LOCAL_MULTI_PROCESSING") -> None:
    """Gives a program's nodes their addresses and what `lp.stop()` calls, as Launchpad's launchers do."""
    from launchpad import context

    for node in program.get_all_nodes():
        node.launch_context.initialize(context.LaunchType[launch_type], None, stopper)
    for label, nodes in program.groups.items():
        for node in nodes:
            for handle in node.input_handles:
                handle.connect(node, label)
    for node in program.get_all_nodes():
        node.bind_addresses()


def die_with(parent: int) -> bool:
    """Has the kernel kill this process when its parent, however it does, ends; returns whether the parent is alive."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def run_node(node: Any, group: str, name: str, supervisor: int, options: Options) -> int:
    """Runs a node in the process that was forked for it; returns its exit code."""
    if not die_with(supervisor):
        return 1
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    terminal = os.dup(2)
    log = os.open(options.log_of(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if group == "coordinator":  # it alone speaks to the user
        sys.stderr = os.fdopen(terminal, "w", buffering=1)
    if group not in options.accelerated:
        import jax

        jax.config.update("jax_platforms", "cpu")
        # Acting is small work: a pool of threads in each process would only make them fight for the cores.
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    from launchpad.launch import worker_manager

    worker_manager.WorkerManager(register_in_thread=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal: the supervisor decides
    try:
        node.function()
    except BaseException as error:
        # A user's mistake, or an environment's state, is said in a sentence.
        said = f"{error}\n" if isinstance(error, UsageError | RunError) else traceback.format_exc()
        sys.stdout.flush()
        os.write(2, f"{_FAILED}\n{said}".encode())
        return 1
    return 0


def last_words(log: pathlib.Path, start: int) -> str:
    """Returns why a node failed by its log from `start` on: its traceback, or the last lines it printed, if any."""
    with log.open("rb") as file:
        file.seek(start)
        _, failed, why = file.read().decode(errors="replace").rpartition(f"{_FAILED}\n")
    lines = why.splitlines() if failed else why.splitlines()[-_LAST_LINES:]
    return ":\n" + "\n".join(lines) if lines else "."
