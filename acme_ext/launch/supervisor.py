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
import warnings
from collections.abc import Callable
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.forks import Options, bind, die_with, last_words, run_node

_GRACE_S = 3.0  # that a group of nodes gets to end by itself
_SHORT_GRACE_S = 1.0  # that it gets when the program was interrupted (it has been asked before), or failed
_SAME_INTERRUPT_S = 0.25  # a terminal's Ctrl-C comes from the terminal and from the launcher
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Wishes to stop. The supervisor's process is started with them blocked, and takes them when it can answer."""

_PR_SET_CHILD_SUBREAPER = 36


@dataclasses.dataclass
class _Process:
    group: str
    name: str
    node: Any
    pid: int = 0
    log_start: int = 0  # where in its log what it prints begins; earlier parts of a run are before


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
        self._interrupted = 0  # the signal
        self._interrupted_at = 0.0
        self._at_once = False
        self._asked_to_end = False
        self._asking = 0  # the process that asks the coordinator to stop
        self._failed = False

    def run(self) -> int:
        """Runs the program to its end; returns the exit code (0, 1, or 128 + a signal that stopped it)."""
        self._options.logs.mkdir(parents=True, exist_ok=True)
        # What a node that was killed leaves behind comes to this process, which ends it.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        bind(self._program, _stopper(os.getpid()))
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_interrupt)
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
            print(f"acme-ext: restarts of nodes that had died: {self._restarts}.", file=sys.stderr)
        if self._failed:
            return 1
        return 128 + self._interrupted if self._interrupted else 0

    def _start(self, process: _Process) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        supervisor = os.getpid()
        log = self._options.log_of(process.name)
        process.log_start = log.stat().st_size if log.exists() else 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of forks: no device or thread of it is there yet
            process.pid = os.fork()
        if process.pid == 0:
            code = 1
            try:
                code = run_node(process.node, process.group, process.name, supervisor, self._options)
            finally:
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)  # what the supervisor would do at its exit is not the node's to do

    def _watch(self) -> None:
        """Waits until the program ends, by itself or because somebody interrupts it or a node fails."""
        asked = False
        while self._processes and not self._asked_to_end and not self._at_once:
            if self._interrupted and not asked:
                print("acme-ext: stopping after a last save; Ctrl-C again stops at once.", file=sys.stderr)
            if (self._interrupted or self._failed) and not asked:
                asked = True
                self._ask_coordinator()
            ended = self._reap()
            if ended is None:
                time.sleep(0.02)
                continue
            self._look_at(*ended)

    def _look_at(self, process: _Process, code: int) -> None:
        """Decides what follows from a node's end."""
        dialled = process.group in self._servers
        if not dialled and (code == 0 or self._interrupted or self._failed):
            return
        if code == 0:
            time.sleep(0.05)  # for the coordinator's word that this is the end, if it is
            if self._asked_to_end:
                return
        if dialled or self._restarts >= self._options.restarts:
            self._failed = True
            log = self._options.log_of(process.name)
            print(f"acme-ext: {process.name} {_how(code)}{last_words(log, process.log_start)}", file=sys.stderr)
            # What was learned is good, and is saved, where all that takes part in it is still there.
            self._asked_to_end = dialled
            return
        self._restarts += 1
        print(f"acme-ext: {process.name} {_how(code)} and is started again.", file=sys.stderr)
        self._processes.append(process)
        self._start(process)

    def _stop(self) -> None:
        """Ends what still runs: those that nobody dials first, then the servers, each with some grace; then what they
        left behind.
        """
        stages = [[p for p in self._processes if p.group not in self._servers]]
        stages += [[p for p in self._processes if p.group == group] for group in self._servers]
        for stage in stages:
            self._signal(stage, signal.SIGTERM)
            start = time.monotonic()
            while any(process in self._processes for process in stage):
                grace = 0 if self._at_once else _SHORT_GRACE_S if self._interrupted or self._failed else _GRACE_S
                if time.monotonic() - start > grace:
                    self._signal(stage, signal.SIGKILL)
                if self._reap() is None:
                    time.sleep(0.01)
        # What a node's environment had started becomes this process's child when the node ends.
        while left := _children():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)

    def _signal(self, processes: list[_Process], number: int) -> None:
        for process in processes:
            if process in self._processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def _reap(self) -> tuple[_Process, int] | None:
        """Returns a process that has ended and its exit code (minus the signal that killed it), or None."""
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == self._asking and status:
            self._asked_to_end = True  # there is no coordinator to save anything
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
            self._asking = os.fork()
        if self._asking == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            code = 1
            with contextlib.suppress(Exception):
                courier.Client(node.courier_address.resolve(), call_timeout=_GRACE_S).request_stop()
                code = 0
            os._exit(code)

    def _on_interrupt(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if not self._interrupted:
            self._interrupted, self._interrupted_at = number, now
        elif now - self._interrupted_at > _SAME_INTERRUPT_S:
            self._at_once = True
            self._signal(self._processes, signal.SIGKILL)

    def _on_program_end(self, number: int, frame: Any) -> None:
        self._asked_to_end = True


def _children() -> list[int]:
    """Returns the children of this process, dead ones that nobody has waited for included."""
    children = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children += [int(entry.name)] if int(parent) == os.getpid() else []
    return children


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"failed with exit code {code}" if code else "ended before the program did"


def _stopper(pid: int) -> Callable[..., None]:
    """Returns what `lp.stop()` calls in a node."""

    def stop(mark_as_completed: bool = False) -> None:
        del mark_as_completed
        os.kill(pid, signal.SIGUSR2)

    return stop


def main(descriptor: int, launcher: int) -> int:
    """Runs what `launch.distributed` left in an open file; the entry of the supervisor's process."""
    import cloudpickle

    # Until nodes run there is nothing to save.
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, frame: os._exit(128 + number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    with open(descriptor, "rb") as file:
        private, load = cloudpickle.load(file)
    try:
        if private:
            _make_private()
        # This process dies with the launcher, however that ends. Not before the namespace: new rights may clear it.
        if not die_with(launcher):
            return 1
        _warm()
        program, servers, options = cloudpickle.loads(load)()
        return Supervisor(program, servers, options).run()
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _make_private() -> None:
    from acme_ext.launch import isolation

    if (why := isolation.enter()) is not None:
        print(f"acme-ext: the program's ports are open to the network ({why}).", file=sys.stderr)


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
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
