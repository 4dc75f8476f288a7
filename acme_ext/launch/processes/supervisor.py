"""Runs a program's nodes as processes, forked from one that has imported everything.

Importing Reverb, TensorFlow and JAX costs each process seconds of CPU; a fork of a process that has done it, and has
neither threads nor devices yet, costs none. The supervisor is a process of its own, so that it is such a one whatever
its caller is.
"""

import contextlib
import dataclasses
import mmap
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import isolation, process_tree
from acme_ext.launch.processes.director import Director, Next, Restarts
from acme_ext.launch.processes.forks import GRACE_S, Options, ask_to_stop, bind, how, last_words, run_node


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
        self._director = Director(servers, Restarts(options.restarts), _say)
        self._all: list[_Process] = []
        self._processes: list[_Process] = []  # those that run
        self._pending: list[tuple[float, _Process]] = []  # to be started again, and when
        self._shared = mmap.mmap(-1, 1)  # not 0: interrupted, for the nodes to know
        self._wishes = dict.fromkeys((*process_tree.WISHES, *process_tree.WISHES.values()), 0)
        self._asking = 0  # the process that asks the coordinator to stop

    def run(self) -> int:
        """Runs the program to its end; returns the exit code (0, 1, or 128 + a signal that stopped it)."""
        self._options.logs.mkdir(parents=True, exist_ok=True)
        _refuse_devices()
        bind(self._program, _stopper(os.getpid()))
        signal.signal(process_tree.ORPHANED, process_tree.abandon)
        for number in self._wishes:
            signal.signal(number, self._on_wish)
        signal.signal(signal.SIGUSR2, self._on_program_end)
        try:
            for group, nodes in self._program.groups.items():
                for index, node in enumerate(nodes):
                    self._all.append(_Process(group, group if len(nodes) == 1 else f"{group}-{index}", node))
            for process in self._all:
                self._processes.append(process)
                self._start(process)
            self._watch()
        finally:
            self._stop()
        self._director.sum_up()
        return self._director.exit_code

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
                code = run_node(process.node, process.group, process.name, supervisor, self._shared, self._options)
            finally:
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)  # what the supervisor would do at its exit is not the node's to do

    def _watch(self) -> None:
        """Waits until the program ends, by itself or because somebody interrupts it or a node fails."""
        asked, director = False, self._director
        while (self._processes or self._pending) and not director.ended and not director.at_once:
            if director.interrupted and not asked:
                _say("stopping after a last save; Ctrl-C again stops at once.")
            if director.stopping and not asked:
                asked = True
                self._ask_coordinator()
            self._start_pending()
            ended = self._reap()
            if ended is None:
                time.sleep(0.02)
                continue
            self._look_at(*ended)

    def _look_at(self, process: _Process, code: int) -> None:
        """Does what follows from a node's end."""
        if code == 0 and process.group in self._servers:
            time.sleep(0.05)  # for the coordinator's word that this is the end, if it is
        log = self._options.log_of(process.name)
        what, pause = self._director.look_at(
            process.group, process.name, how(code), lambda: last_words(log, process.log_start), code=code
        )
        if what is Next.RESTART:
            self._pending.append((time.monotonic() + pause, process))

    def _start_pending(self) -> None:
        """Starts the nodes again whose time has come; once the program is to stop, only those that others dial."""
        for entry in list(self._pending):
            due, process = entry
            if self._director.stopping or due <= time.monotonic():
                self._pending.remove(entry)
                if process.group in self._servers or not self._director.stopping:
                    self._processes.append(process)
                    self._start(process)

    def _stop(self) -> None:
        """Ends what still runs: those that nobody dials first, then the servers, each with some grace; then what they
        left behind.
        """
        stages = [[p for p in self._processes if p.group not in self._servers]]
        stages += [[p for p in self._processes if p.group == group] for group in self._servers]
        for stage in stages:
            self._signal(stage, process_tree.STOP_NODE)
            start = time.monotonic()
            while any(process in self._processes for process in stage):
                if self._director.at_once or time.monotonic() - start > GRACE_S:
                    self._signal(stage, signal.SIGKILL)
                if self._reap() is None:
                    time.sleep(0.01)
        process_tree.end_children()  # what an environment had started

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
            self._director.no_answer()
        process = next((p for p in self._processes if p.pid == pid), None)
        if process is None:
            return self._reap()
        self._processes.remove(process)
        return process, os.waitstatus_to_exitcode(status)

    def _ask_coordinator(self) -> None:
        """Has the program stop itself, with a last save; without a coordinator the nodes are stopped as they are."""
        node = next((p.node for p in self._processes if p.group == "coordinator"), None)
        if node is None:
            self._director.ended = True
            return
        running = {process.name for process in self._processes}
        names = [process.name for process in self._all]
        self._asking = ask_to_stop(node.courier_address.resolve(), [name for name in names if name not in running])

    def _on_wish(self, number: int, frame: Any) -> None:
        self._wishes[number] += 1
        director = self._director
        if not director.interrupted:
            director.wish({wish: stop for stop, wish in process_tree.WISHES.items()}.get(number, number))
            self._shared[0] = 1
            return
        # A terminal's Ctrl-C comes from the terminal and from the launcher; what that alone is sent, from it.
        interrupts = max(self._wishes[signal.SIGINT], self._wishes[process_tree.WISHES[signal.SIGINT]])
        if interrupts > (director.interrupted == signal.SIGINT):
            director.at_once = True
            self._signal(self._processes, signal.SIGKILL)

    def _on_program_end(self, number: int, frame: Any) -> None:
        self._director.ended = True


def _say(text: str) -> None:
    print(f"acme-ext: {text}", file=sys.stderr)


def _refuse_devices() -> None:
    """Raises UsageError if JAX has started here: its threads would be missing in the processes that are forked, which
    would wait for them for ever.
    """
    from jax._src import xla_bridge

    if xla_bridge.backends_are_initialized():
        raise UsageError(
            "JAX has computed something where the program's nodes are described, before they are forked. A builder's "
            "make_replay and make_policy must not: give NumPy arrays there, or shapes by jax.eval_shape."
        )


def _stopper(pid: int) -> Callable[..., None]:
    """Returns what `lp.stop()` calls in a node."""

    def stop(mark_as_completed: bool = False) -> None:
        del mark_as_completed
        os.kill(pid, signal.SIGUSR2)

    return stop


def main(descriptor: int, keeper: int) -> int:
    """Runs what `runners.distributed` left in an open file; the entry of the supervisor's process."""
    import cloudpickle

    process_tree.end_at_a_wish()  # until nodes run there is nothing to save
    with open(descriptor, "rb") as file:
        private, load = cloudpickle.load(file)
    try:
        if private:
            isolation.make_private()
        # Not before the namespace: new rights may clear it. Until there are nodes, the signal's default will do.
        if not process_tree.tell_when_orphaned(keeper, process_tree.ORPHANED):
            return 1
        # Of the environments too whose specs are asked for.
        process_tree.take_in_orphans()
        warm()
        program, servers, options = cloudpickle.loads(load)()
        return Supervisor(program, servers, options).run()
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def warm() -> None:
    """Imports what nodes need, and nothing that starts a thread or a device."""
    import gc

    from absl import flags

    flags.FLAGS(["acme-ext"], known_only=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import courier  # noqa: F401

    from acme_ext.launch.runners import local, program  # noqa: F401
    from acme_ext.replay import server

    server.import_libraries()
    gc.freeze()  # forks share what stays as it is
