"""Runs a program's nodes in forked processes."""

import contextlib
import dataclasses
import mmap
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import process_tree

Result = TypeVar("Result")

IN_ORDER = "in order"
"""Launchpad's configuration for nodes that are stopped one group after the other, see `director.Crew.stop`."""
MAKE_SPEC = "make an environment and see what it is like"
"""A `purpose` for `in_child`."""
RETURNED = 87
"""The exit code of a node whose function has returned. It isn't 0, because a library may end the process with 0."""
EXITED = 256
"""A node's code if something else ended its process with exit code 0; no process has this exit code."""
GRACE_S = 1.0
"""Seconds that a group of nodes has to end by itself. At a program's end, the nodes know of it before that."""

_TRY_S = 3.0  # time to reach the coordinator, before a message says that it does not answer
_ANSWER_S = 60.0  # total time for its answer: its disk may be slow
_FAILED = "acme-ext: this node failed."  # before a node's traceback in its log
_LAST_LINES = 40
_LAST_BYTES = 2**20
_TELLING_S = 0.5  # until a node knows whether the supervisor received the SIGTERM too


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of running a program.

    Attributes:
        logs: folder for the nodes' output.
        restarts: maximum restarts of dead nodes per hour; see `launch.processes.director.Restarts`.
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


def ask_for_the_end(mark_as_completed: bool = False) -> None:
    """Asks the process that forked this one to stop the program after a last save."""
    del mark_as_completed
    os.kill(os.getppid(), process_tree.REQUESTS[signal.SIGTERM])


def bind(
    program: Any,
    stopper: Callable[..., None],
    ask: Callable[..., None] = ask_for_the_end,
    launch_type: str = "LOCAL_MULTI_PROCESSING",
    bind_addresses: Callable[[Any], None] = lambda node: node.bind_addresses(),
) -> None:
    """Sets the function that `lp.stop()` calls in each node, and the nodes' addresses, as Launchpad's launchers do.

    Args:
        program: the program.
        stopper: the function for the coordinator, called when the program is done.
        ask: the function for other nodes, which requests a last save and the end.
        launch_type: Launchpad's name of this kind of launch.
        bind_addresses: binds the addresses of a node; by default to this machine.
    """
    from launchpad import context

    for label, nodes in program.groups.items():
        for node in nodes:
            stop = stopper if label == "coordinator" else ask
            node.launch_context.initialize(context.LaunchType[launch_type], IN_ORDER, stop)
            for handle in node.input_handles:
                handle.connect(node, label)
    for node in program.get_all_nodes():
        bind_addresses(node)


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


def run_node(node: Any, group: str, name: str, supervisor: int, interrupted: mmap.mmap, options: Options) -> int:
    """Runs a node in its forked process; returns the exit code, which is `RETURNED` if the node's function returns.

    Args:
        interrupted: shared memory, nonzero once the supervisor was asked to stop the program.
    """
    if not process_tree.tell_when_orphaned(supervisor, signal.SIGKILL):
        return 1
    for number in (signal.SIGTERM, signal.SIGUSR2, process_tree.ORPHANED, *process_tree.REQUESTS.values()):
        signal.signal(number, signal.SIG_DFL)
    terminal = os.dup(2)
    log = os.open(options.log_of(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if group == "coordinator":  # only the coordinator writes to the user's terminal
        sys.stderr = os.fdopen(terminal, "w", buffering=1)
    give_devices(group, name, options)
    from absl import flags
    from launchpad.launch import worker_manager

    flags.FLAGS.lp_termination_notice_secs = -1  # no limit: the parent process ends this one
    worker_manager.WorkerManager(register_in_thread=True)
    # By default, the function from `lp.make_program_stopper` would send a SIGTERM, as if the node were killed.
    from launchpad.program_stopper import program_stopper

    program_stopper._ask_launcher_for_termination = lambda pid, mark_as_completed=False: (
        ask_for_the_end() if pid == os.getpid() else os.kill(pid, signal.SIGTERM)
    )
    # Launchpad stops nodes with SIGTERM. Another signal does it here, so that a SIGTERM from elsewhere is noticed.
    stop: Any = signal.getsignal(signal.SIGTERM)
    signal.signal(process_tree.STOP_NODE, lambda number, frame: stop(signal.SIGTERM, frame))
    signal.signal(signal.SIGTERM, lambda number, frame: _end_unless(interrupted))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the supervisor handles it
    try:
        node.function()
    except BaseException as error:
        # These errors have a message for the user: no traceback.
        said = f"{error}\n" if isinstance(error, UsageError | RunError) else traceback.format_exc()
        sys.stdout.flush()
        os.write(2, f"{_FAILED}\n{said}".encode())
        return 1
    return RETURNED


def code_of(status: int) -> int:
    """Returns how a node's process has ended, from `os.waitpid`'s status.

    0 if the node's function has returned, `EXITED` if something else ended the process with exit code 0, otherwise the
    exit code, or minus the signal that killed it.
    """
    code = os.waitstatus_to_exitcode(status)
    return {RETURNED: 0, 0: EXITED}.get(code, code)


def give_devices(group: str, name: str, options: Options) -> None:
    """Sets the devices and CPU threads of this process, a node; JAX is imported but has no devices yet."""
    if group in options.accelerated:
        # With several processes on a device, the first would preallocate most of its memory.
        alone = options.accelerated == ("learner",)
        if (devices := options.devices.get(name)) is not None:
            alone = list(options.devices.values()).count(devices) == 1
            os.environ["CUDA_VISIBLE_DEVICES"] = devices
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "true" if alone else "false")
    else:
        import jax

        jax.config.update("jax_platforms", "cpu")
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # also for other libraries that environments use
    if group in options.threads:
        threads = str(options.threads[group])
        os.environ["NPROC"] = threads  # sets the size of XLA's thread pool
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, threads)
        if threads == "1":
            os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"


def _end_unless(interrupted: mmap.mmap) -> None:
    """Ends this process after a SIGTERM, unless the supervisor received one too and so stops the program itself."""
    end = time.monotonic() + _TELLING_S
    while not interrupted[0]:
        if time.monotonic() > end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def ask_to_stop(address: str, died: list[str]) -> int:
    """Asks the coordinator at an address to stop the program with a last save; see `Coordinator.request_stop`.

    A child process asks it, so that this process has no threads of Courier and can still fork. Returns the pid of the
    child; its exit code is 0 if the coordinator answered.
    """
    import courier

    def ask() -> int:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end, silent = time.monotonic() + _ANSWER_S, True
        while time.monotonic() < end:
            with contextlib.suppress(Exception):
                courier.Client(address, call_timeout=_TRY_S).request_stop(died)
                return 0
            if silent:
                silent = False
                os.write(2, b"acme-ext: the coordinator does not answer yet; Ctrl-C again stops at once.\n")
        return 1

    return fork(ask)


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
            if not process_tree.tell_when_orphaned(parent, signal.SIGKILL):
                return 1
            try:
                try:
                    outcome = function(), None
                except (UsageError, RunError) as error:
                    outcome = None, error
                cloudpickle.dump(outcome, file)
                file.flush()
            except BaseException:
                traceback.print_exc()
                return 1
            return 0

        _, status = os.waitpid(fork(run), 0)
        if code := os.waitstatus_to_exitcode(status):
            raise RunError(f"the process that was to {purpose} {how(code)}.")
        file.seek(0)
        result, error = cloudpickle.load(file)
    if error is not None:
        raise error
    return result


def how(code: int) -> str:
    """Returns a description of how a node ended, from its code, see `code_of`."""
    if code == EXITED:
        return "ended its process with exit code 0, as a library's exit() does"
    if code < 0:
        named = -code in signal.valid_signals() and -code < signal.SIGRTMIN  # real-time signals have no names
        return f"was killed by {signal.Signals(-code).name if named else f'signal {-code}'}"
    return f"failed with exit code {code}" if code else "ended before the program did"


def last_words(log: pathlib.Path, start: int) -> str:
    """Returns why a node failed, from its log after `start`: its traceback, or else the last lines of its output.

    Of a long log, only the end is read; of one that can't be read, nothing.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            said = file.read().decode(errors="replace")
    except OSError:  # the node could not open it, say because the disk is full
        return "."
    _, failed, why = said.rpartition(f"{_FAILED}\n")
    lines = why.splitlines() if failed else why.splitlines()[-_LAST_LINES:]
    return ":\n" + "\n".join(lines) if lines else "."


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
