"""What happens in the forked process of a node, and before the fork to the program."""

import dataclasses
import mmap
import os
import pathlib
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.hosts import process_tree
from acme_ext.launch.roles import NodeId
from acme_ext.utils import system

IN_ORDER = "in order"
"""Launchpad's configuration for nodes that are stopped one group after the other, see `supervisor.Supervisor.stop`."""
RETURNED = 87
"""The exit code of a node whose function has returned. It isn't 0, because a library may end the process with 0."""
FAILED = "acme-ext: this node failed."
"""The line before a node's traceback in its log."""
GRACE_S = 1.0
"""Seconds that a group of nodes has to end by itself. At a program's end, the nodes know of it before that."""

_TELLING_S = 0.5  # until a node knows whether the supervisor received the SIGTERM too


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of running a program.

    Attributes:
        logs: folder for the nodes' output.
        restarts: maximum restarts of dead nodes per hour; see `launch.hosts.restart_policy.RestartLimit`.
        accelerated: groups of nodes that see accelerators; all others compute on the CPU.
        threads: group -> CPU threads for each of its nodes; other groups use all CPUs.
        devices: node -> the accelerators that it sees, as a value of `CUDA_VISIBLE_DEVICES`; other nodes see all.
        grace_s: seconds that a group of nodes has to end by itself before it is killed; may be infinite.
    """

    logs: pathlib.Path
    restarts: int = 0
    accelerated: tuple[str, ...] = ("learner",)
    threads: Mapping[str, int] = dataclasses.field(default_factory=dict)
    devices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    grace_s: float = GRACE_S

    def log_of(self, name: str) -> pathlib.Path:
        """Returns the file of a node's output."""
        return self.logs / f"{name}.log"


def end_program(mark_as_completed: bool = False) -> None:
    """Tells the process that forked this one, the coordinator, that the program has ended."""
    del mark_as_completed
    os.kill(os.getppid(), signal.SIGUSR2)


def request_end(mark_as_completed: bool = False) -> None:
    """Asks the process that forked this one to stop the program after a last save."""
    del mark_as_completed
    os.kill(os.getppid(), process_tree.REQUESTS[signal.SIGTERM])


def bind(
    program: Any,
    end: Callable[..., None] = end_program,
    request: Callable[..., None] = request_end,
    launch_type: str = "LOCAL_MULTI_PROCESSING",
    bind_addresses: Callable[[Any], None] = lambda node: node.bind_addresses(),
) -> None:
    """Sets the function that `lp.stop()` calls in each node, and the nodes' addresses, as Launchpad's launchers do.

    Args:
        program: the program.
        end: the function for the coordinator, called when the program is done.
        request: the function for other nodes, which requests a last save and the end.
        launch_type: Launchpad's name of this kind of launch.
        bind_addresses: binds the addresses of a node; by default to this machine.
    """
    from acme_ext.launch.hosts import launchpad

    for label, nodes in program.groups.items():
        for node in nodes:
            stop = end if label == "coordinator" else request
            node.launch_context.initialize(launchpad.LaunchType[launch_type], IN_ORDER, stop)
            for handle in node.input_handles:
                handle.connect(node, label)
    for node in program.get_all_nodes():
        bind_addresses(node)


def run_node(
    function: Callable[[], Any], node: NodeId, parent: int, interrupted: mmap.mmap | None, options: Options
) -> int:
    """Runs a node in its forked process; returns the exit code, which is `RETURNED` if the node's function returns.

    Args:
        function: the node's function.
        node: the node.
        parent: the process that forked this one; the node ends with it.
        interrupted: shared memory, nonzero once the parent was asked to stop the program; None if it never is.
        options: see `Options`.
    """
    if not system.signal_at_parents_end(parent, signal.SIGKILL):
        return 1
    for number in (signal.SIGTERM, signal.SIGUSR2, process_tree.ORPHANED, *process_tree.REQUESTS.values()):
        signal.signal(number, signal.SIG_DFL)
    terminal = os.dup(2)
    log = os.open(options.log_of(node.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if node.role == "coordinator":  # only the coordinator writes to the user's terminal
        sys.stderr = os.fdopen(terminal, "w", buffering=1)
    give_devices(node, options)
    from acme_ext.launch.hosts import launchpad

    stop = launchpad.manage_process(request_end)
    # Launchpad stops nodes with SIGTERM. Another signal does it here, so that a SIGTERM from elsewhere is noticed.
    signal.signal(process_tree.STOP_NODE, lambda number, frame: stop())
    signal.signal(signal.SIGTERM, lambda number, frame: _end_unless(interrupted))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the supervisor handles it
    try:
        function()
    except BaseException as error:
        # These errors have a message for the user: no traceback.
        said = f"{error}\n" if isinstance(error, UsageError | RunError) else traceback.format_exc()
        sys.stdout.flush()
        os.write(2, f"{FAILED}\n{said}".encode())
        return 1
    return RETURNED


def give_devices(node: NodeId, options: Options) -> None:
    """Sets the devices and CPU threads of this process, a node; JAX is imported but has no devices yet."""
    if node.role in options.accelerated:
        # With several processes on a device, the first would preallocate most of its memory.
        alone = options.accelerated == ("learner",)
        if (devices := options.devices.get(node.name)) is not None:
            alone = list(options.devices.values()).count(devices) == 1
            os.environ["CUDA_VISIBLE_DEVICES"] = devices
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "true" if alone else "false")
    else:
        import jax

        jax.config.update("jax_platforms", "cpu")
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # also for other libraries that environments use
    if node.role in options.threads:
        threads = str(options.threads[node.role])
        os.environ["NPROC"] = threads  # sets the size of XLA's thread pool
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, threads)
        if threads == "1":
            os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"


def _end_unless(interrupted: mmap.mmap | None) -> None:
    """Ends this process after a SIGTERM, unless its parent received one too and so stops the program itself."""
    end = time.monotonic() + _TELLING_S
    while interrupted is None or not interrupted[0]:
        if time.monotonic() > end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
