"""Runs a program's nodes as processes, forked from one that has imported everything.

Importing Reverb, TensorFlow and JAX costs each process seconds of CPU; a fork of a process that has done it, and has
neither threads nor devices yet, costs none. The supervisor is a process of its own, so that it is such a one whatever
its caller is.
"""

import contextlib
import ctypes
import dataclasses
import os
import pathlib
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from acme_ext.errors import RunError, UsageError

_GRACE_S = 3.0  # that a group of nodes gets to end by itself
_LAST_LINES = 40
_SENTENCE = "acme-ext: "  # before an error that is said in one
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class Options:
    """How a program is run.

    Attributes:
        logs: folder for the nodes' output.
        restarts: times that nodes which nobody dials are started again, in all, when they die.
        private: whether the program's ports are in a network namespace of its own.
        accelerated: groups of nodes that see accelerators; all others compute on the CPU.
    """

    logs: pathlib.Path
    restarts: int = 0
    private: bool = True
    accelerated: tuple[str, ...] = ("learner",)


@dataclasses.dataclass
class _Process:
    group: str
    name: str
    node: Any
    pid: int = 0


class Supervisor:
    """Starts, watches and stops the processes of a program.

    Args:
        program: a `launchpad.Program`.
        servers: groups of nodes that others dial, in the order in which they are to be stopped, after all others.
        options: see there.
    """

    def __init__(self, program: Any, servers: tuple[str, ...], options: Options):
        self._program, self._servers, self._options = program, servers, options
        self._processes: list[_Process] = []
        self._restarts = 0
        self._interrupted = 0
        self._asked_to_end = False
        self._failure: str | None = None

    def run(self) -> int:
        """Runs the program to its end; returns the exit code (0, 1, or 128 + a signal that stopped it)."""
        self._options.logs.mkdir(parents=True, exist_ok=True)
        self._bind()
        signal.signal(signal.SIGINT, self._on_interrupt)
        signal.signal(signal.SIGTERM, self._on_interrupt)
        signal.signal(signal.SIGUSR2, self._on_program_end)
        try:
            for group, nodes in self._program.groups.items():
                for index, node in enumerate(nodes):
                    process = _Process(group, group if len(nodes) == 1 else f"{group}-{index}", node)
                    self._processes.append(process)
                    self._start(process)
            self._watch()
        finally:
            self._stop()
        if self._restarts:
            print(f"acme-ext: {self._restarts} nodes had died and were started again.", file=sys.stderr)
        if self._failure is not None:
            print(f"acme-ext: {self._failure}", file=sys.stderr)
            return 1
        return 128 + self._interrupted if self._interrupted else 0

    def _bind(self) -> None:
        from launchpad import context

        for node in self._program.get_all_nodes():
            node.launch_context.initialize(context.LaunchType.LOCAL_MULTI_PROCESSING, None, _stopper(os.getpid()))
        for label, nodes in self._program.groups.items():
            for node in nodes:
                for handle in node.input_handles:
                    handle.connect(node, label)
        for node in self._program.get_all_nodes():
            node.bind_addresses()

    def _start(self, process: _Process) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        supervisor = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of forks: no device or thread of it is there yet
            process.pid = os.fork()
        if process.pid == 0:
            code = 1
            try:
                code = _run_node(process, supervisor, self._options)
            finally:
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)  # what the supervisor would do at its exit is not the node's to do

    def _watch(self) -> None:
        """Waits until the program ends, somebody interrupts it, or a node fails."""
        asked = False
        while self._processes and not self._asked_to_end and self._failure is None and self._interrupted < 1000:
            if self._interrupted and not asked:
                asked = True
                print("acme-ext: stopping after a last save; Ctrl-C again stops at once.", file=sys.stderr)
                self._ask_coordinator()
            ended = self._reap()
            if ended is None:
                time.sleep(0.02)
                continue
            process, code = ended
            if code == 0:
                continue
            if process.group not in self._servers and self._restarts < self._options.restarts:
                self._restarts += 1
                print(f"acme-ext: {process.name} {_how(code)} and is started again.", file=sys.stderr)
                self._processes.append(process)
                self._start(process)
            elif not self._interrupted:
                self._failure = f"{process.name} {_how(code)}:\n{self._tail(process)}"

    def _stop(self) -> None:
        """Ends what still runs: those that nobody dials first, then the servers, each with some grace."""
        stages = [[p for p in self._processes if p.group not in self._servers]]
        stages += [[p for p in self._processes if p.group == group] for group in self._servers]
        for stage in stages:
            for process in stage:
                if process in self._processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGTERM)
            end = time.monotonic() + (_GRACE_S if self._interrupted < 1000 else 0)
            while any(process in self._processes for process in stage):
                if time.monotonic() > end:
                    for process in stage:
                        if process in self._processes:
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(process.pid, signal.SIGKILL)
                if self._reap() is None:
                    time.sleep(0.01)

    def _reap(self) -> tuple[_Process, int] | None:
        """Returns a process that has ended and its exit code (minus the signal that killed it), or None."""
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        process = next((p for p in self._processes if p.pid == pid), None)
        if process is None:
            return self._reap()
        self._processes.remove(process)
        return process, os.waitstatus_to_exitcode(status)

    def _ask_coordinator(self) -> None:
        """Has the program stop itself, with a last save; without a coordinator the nodes are stopped as they are."""
        node = next((p.node for p in self._processes if p.group == "coordinator"), None)
        if node is None:
            self._asked_to_end = True
            return
        import courier

        # In a child, so that this process never has Courier's threads and can go on forking.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(Exception):
                courier.Client(node.courier_address.resolve(), call_timeout=_GRACE_S).request_stop()
                code = 0
            os._exit(code)

    def _on_interrupt(self, number: int, frame: Any) -> None:
        # A second one stops at once.
        self._interrupted = number if not self._interrupted else 1000 + number
        if self._interrupted >= 1000:
            for process in self._processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    def _on_program_end(self, number: int, frame: Any) -> None:
        self._asked_to_end = True

    def _tail(self, process: _Process) -> str:
        """Returns a node's traceback, or the last lines it printed."""
        lines = log_of(self._options.logs, process.name).read_text(errors="replace").splitlines()
        start = next((i for i in reversed(range(len(lines))) if lines[i].startswith(("Traceback", _SENTENCE))), None)
        return "\n".join(lines[start:] if start is not None else lines[-_LAST_LINES:])


def log_of(logs: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the file that a node's output goes to."""
    return logs / f"{name}.log"


def _how(code: int) -> str:
    return f"failed with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"


def _stopper(pid: int) -> Callable[..., None]:
    """Returns what `lp.stop()` calls in a node."""

    def stop(mark_as_completed: bool = False) -> None:
        del mark_as_completed
        os.kill(pid, signal.SIGUSR2)

    return stop


def _run_node(process: _Process, supervisor: int, options: Options) -> int:
    """Runs a node in the forked process; returns its exit code."""
    # The node dies with the supervisor, however that ends.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        return 1
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    terminal = os.dup(2)
    log = os.open(log_of(options.logs, process.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if process.group == "coordinator":  # it alone speaks to the user
        sys.stderr = os.fdopen(terminal, "w", buffering=1)
    if process.group not in options.accelerated:
        import jax

        jax.config.update("jax_platforms", "cpu")
        # Acting is small work: a pool of threads in each process would only make them fight for the cores.
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    from launchpad.launch import worker_manager

    worker_manager.WorkerManager(register_in_thread=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal: the supervisor decides
    try:
        process.node.function()
    except (UsageError, RunError) as error:
        os.write(2, f"{_SENTENCE}{error}\n".encode())
        return 1
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        return 1
    return 0


def main(path: str) -> int:
    """Runs what `launch.distributed` left in a file; the entry of the supervisor's process."""
    import cloudpickle

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with open(path, "rb") as file:
        private, load = cloudpickle.load(file)
    if private:
        from acme_ext.launch import isolation

        if (why := isolation.enter()) is not None:
            print(f"acme-ext: the program's ports are open to the network ({why}).", file=sys.stderr)
    _warm()
    try:
        program, servers, options = cloudpickle.loads(load)()
        return Supervisor(program, servers, options).run()
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _warm() -> None:
    """Imports what nodes need, and nothing that starts a thread or a device."""
    import gc

    from absl import flags

    flags.FLAGS(["acme-ext"], known_only=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import courier  # noqa: F401

    from acme_ext.launch import local, program  # noqa: F401
    from acme_ext.replay import server

    server.import_libraries()
    gc.freeze()  # forks share what stays as it is


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
