"""A program's nodes in the processes that the supervisor forks for them."""

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

RESUMABLE = ("inference",)
"""Groups of nodes that others dial, and that may be started again in their place."""
IN_ORDER = "in order"
"""Launchpad's configuration of nodes that are told to end one group after the other, see `director.Crew.stop`."""
MAKE_SPEC = "make an environment and see what it is like"
"""A purpose of `in_child`."""
GRACE_S = 1.0
"""That a group of nodes gets to end by itself; when the program ends they have been told before."""

_TRY_S = 3.0  # of asking the coordinator to stop, after which it is said that it does not answer
_ANSWER_S = 60.0  # that it gets in all: its disk may be slow
_FAILED = "acme-ext: this node failed."  # before a node's traceback in its log
_LAST_LINES = 40
_TELLING_S = 0.5  # until a node knows of a SIGTERM that went to the supervisor too


@dataclasses.dataclass(frozen=True)
class Options:
    """How a program is run.

    Attributes:
        logs: folder for the nodes' output.
        restarts: times in an hour that nodes are started again when they die; see `launch.director.Restarts`.
        accelerated: groups of nodes that see accelerators; all others compute on the CPU.
        threads: group -> threads that each of its nodes may compute with on the CPU; others take what there is.
        devices: node -> those of the accelerators that it sees, as `CUDA_VISIBLE_DEVICES` has them; all where none are
            given.
        grace_s: seconds that a group of nodes gets to end by itself when it is told to; infinite for ever.
    """

    logs: pathlib.Path
    restarts: int = 0
    accelerated: tuple[str, ...] = ("learner",)
    threads: Mapping[str, int] = dataclasses.field(default_factory=dict)
    devices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    grace_s: float = GRACE_S

    def log_of(self, name: str) -> pathlib.Path:
        """Returns the file that a node's output goes to."""
        return self.logs / f"{name}.log"


def ask_for_the_end(mark_as_completed: bool = False) -> None:
    """Has the process that forked this one stop the program after a last save."""
    del mark_as_completed
    os.kill(os.getppid(), process_tree.REQUESTS[signal.SIGTERM])


def bind(
    program: Any,
    stopper: Callable[..., None],
    ask: Callable[..., None] = ask_for_the_end,
    launch_type: str = "LOCAL_MULTI_PROCESSING",
    bind_addresses: Callable[[Any], None] = lambda node: node.bind_addresses(),
) -> None:
    """Gives a program's nodes what `lp.stop()` calls, and their addresses, of this machine or by
    `bind_addresses(node)`, as Launchpad's launchers do.

    Args:
        program: the program.
        stopper: what the coordinator calls, when all is done.
        ask: what the others call, who so ask for a last save and the end.
        launch_type: Launchpad's name of it.
        bind_addresses: gives a node's addresses their places.
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
    """Returns the number of a process that is forked to run a function, which returns its exit code; it is 1 where that
    raises. Nothing else of this process is done there, not even what is to be done at its exit.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks: no device or thread of it is there yet
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = function()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    return pid


def run_node(node: Any, group: str, name: str, supervisor: int, interrupted: mmap.mmap, options: Options) -> int:
    """Runs a node in the process that was forked for it; returns its exit code.

    Args:
        interrupted: shared memory, not 0 from when the supervisor was asked to stop the program.
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
    if group == "coordinator":  # it alone speaks to the user
        sys.stderr = os.fdopen(terminal, "w", buffering=1)
    give_devices(group, name, options)
    from absl import flags
    from launchpad.launch import worker_manager

    flags.FLAGS.lp_termination_notice_secs = -1  # who has started this process ends it, at the latest
    worker_manager.WorkerManager(register_in_thread=True)
    # What `lp.make_program_stopper` returns in a node would send it a SIGTERM: a killed node.
    from launchpad.program_stopper import program_stopper

    program_stopper._ask_launcher_for_termination = lambda pid, mark_as_completed=False: (
        ask_for_the_end() if pid == os.getpid() else os.kill(pid, signal.SIGTERM)
    )
    # Launchpad's word for a node to end is SIGTERM. Ours is another, so that this one can be told from a stray one.
    stop: Any = signal.getsignal(signal.SIGTERM)
    signal.signal(process_tree.STOP_NODE, lambda number, frame: stop(signal.SIGTERM, frame))
    signal.signal(signal.SIGTERM, lambda number, frame: _end_unless(interrupted))
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


def give_devices(group: str, name: str, options: Options) -> None:
    """Settles what a node's process, this one, computes on; JAX has been imported and has no device yet."""
    if group in options.accelerated:
        # Of several processes, the first would take nearly all of the memory.
        alone = options.accelerated == ("learner",)
        if (devices := options.devices.get(name)) is not None:
            alone = list(options.devices.values()).count(devices) == 1
            os.environ["CUDA_VISIBLE_DEVICES"] = devices
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "true" if alone else "false")
    else:
        import jax

        jax.config.update("jax_platforms", "cpu")
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # for what an environment brings along, too
    if group in options.threads:
        threads = str(options.threads[group])
        os.environ["NPROC"] = threads  # by which XLA sizes its pool
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, threads)
        if threads == "1":
            os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"


def _end_unless(interrupted: mmap.mmap) -> None:
    """Ends this process by a SIGTERM that it alone was sent; one that everybody was is the supervisor's to answer."""
    end = time.monotonic() + _TELLING_S
    while not interrupted[0]:
        if time.monotonic() > end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def ask_to_stop(address: str, died: list[str]) -> int:
    """Has the coordinator at an address stop the program, with a last save; see `Coordinator.request_stop`.

    It is asked in a child, so that this process never has Courier's threads and can go on forking. Returns the child's
    number; its exit code is 0 if the coordinator answered.
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
    """Returns what a function returns in a process that is forked for it: the threads and devices that it starts are
    not here.

    Args:
        function: what it returns can be pickled.
        purpose: what the process is to do, as an error has it.

    Raises:
        UsageError, RunError: the function did.
        RunError: it raised something else, whose traceback is on stderr then, or its process died.
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
    """Returns how a node ended, by its process's exit code, in words."""
    if code < 0:
        named = -code in signal.valid_signals() and -code < signal.SIGRTMIN  # real-time signals have numbers alone
        return f"was killed by {signal.Signals(-code).name if named else f'signal {-code}'}"
    return f"failed with exit code {code}" if code else "ended before the program did"


def last_words(log: pathlib.Path, start: int) -> str:
    """Returns why a node failed by its log from `start` on: its traceback, or the last lines it printed, if any."""
    with log.open("rb") as file:
        file.seek(start)
        _, failed, why = file.read().decode(errors="replace").rpartition(f"{_FAILED}\n")
    lines = why.splitlines() if failed else why.splitlines()[-_LAST_LINES:]
    return ":\n" + "\n".join(lines) if lines else "."
