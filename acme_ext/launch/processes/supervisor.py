"""Runs a program's nodes as processes that are forked from one with all imports.

Importing Reverb, TensorFlow and JAX costs each process seconds of CPU time. A fork of a process that has imported them
costs almost nothing, but requires that it has no threads or devices yet. So the supervisor is a separate process.
"""

import contextlib
import dataclasses
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import isolation, launcher, process_tree
from acme_ext.launch.processes.director import Crew, Director, Member, Next, Restarts, starting_again
from acme_ext.launch.processes.forks import (
    Options,
    ask_to_stop,
    bind,
    code_of,
    fork,
    how,
    last_words,
    refuse_devices,
    run_node,
)
from acme_ext.launch.roles import nodes_of


@dataclasses.dataclass(eq=False)
class _Process(Member):
    pid: int = 0
    log_start: int = 0  # where its output starts in its log; earlier parts of the run come before


class Supervisor(Crew):
    """Starts, watches and stops the processes of a program.

    Args:
        make: makes a `launchpad.Program`; its argument says whether this is the first call.
        servers: groups of nodes that others connect to; they stop in this order, after all other groups.
        options: see `Options`.
    """

    def __init__(self, make: Callable[[bool], Any], servers: tuple[str, ...], options: Options):
        super().__init__([], Director(servers, Restarts(options.restarts), _say), options.grace_s)
        self._make, self._options = make, options
        self._program = make(True)
        self._relaunch_at = 0.0
        self._shared = mmap.mmap(-1, 1)  # nonzero once interrupted; the nodes read it
        self._requests = dict.fromkeys((*process_tree.REQUESTS, *process_tree.REQUESTS.values()), 0)
        self._asking = 0  # the process that asks the coordinator to stop

    def run(self) -> int:
        """Runs the program to its end; returns the exit code (0, 1, or 128 + the signal that stopped it)."""
        self._options.logs.mkdir(parents=True, exist_ok=True)
        signal.signal(process_tree.ORPHANED, process_tree.abandon)
        for number in self._requests:
            signal.signal(number, self._on_stop_request)
        signal.signal(signal.SIGUSR2, self._on_program_end)
        try:
            self._launch()
            self.watch()
            while self.director.relaunching and self._clear():
                with starting_again():
                    self._program = self._make(False)
                    self._launch()
                self.watch()
        finally:
            self.stop()
            process_tree.end_children()  # processes of environments
        self.director.sum_up()
        return self.director.exit_code

    def _launch(self) -> None:
        """Starts the program's nodes."""
        groups = self._program.groups
        ids = nodes_of({group: len(nodes) for group, nodes in groups.items()})
        nodes = [node for nodes in groups.values() for node in nodes]
        self.members = [_Process(*pair) for pair in zip(ids, nodes, strict=True)]
        refuse_devices()
        bind(self._program, _stopper(os.getpid()))
        for process in self.members:
            self.start(process)

    def _clear(self) -> bool:
        """Kills all nodes and waits for the time to restart the program; returns whether to restart."""
        director = self.director
        self.signal(self.members, signal.SIGKILL)
        while not director.stopping and (
            any(process.runs for process in self.members) or time.monotonic() < self._relaunch_at
        ):
            self._reap()
            time.sleep(0.01)
        if director.stopping:
            return False
        process_tree.end_children()  # processes of environments
        director.relaunching = director.ended = False
        return True

    def start(self, member: _Process) -> None:
        log = self._options.log_of(member.name)
        member.log_start = log.stat().st_size if log.exists() else 0
        node = (member.node, member.group, member.name, os.getpid(), self._shared, self._options)
        member.pid, member.runs = fork(lambda: run_node(*node)), True

    def signal(self, members: Sequence[_Process], number: int) -> None:
        for process in members:
            if process.runs:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def take_news(self) -> None:
        if (ended := self._reap()) is not None:
            self._look_at(*ended)
        elif any(process.runs or process.again is not None for process in self.members):
            time.sleep(0.01)
        else:
            self.director.ended = True

    def ask(self, coordinator: _Process, address: str, died: list[str]) -> None:
        self._asking = ask_to_stop(address, died)

    def _look_at(self, process: _Process, code: int) -> None:
        """Handles the end of a node."""
        director = self.director
        if code == 0 and process.group in director.servers and not director.ended:
            time.sleep(0.05)  # for a possible message of the coordinator that the program has finished
        log = self._options.log_of(process.name)
        what, pause = director.look_at(
            process.group, process.name, how(code), lambda: last_words(log, process.log_start), code=code
        )
        if what is Next.RESTART:
            process.again = time.monotonic() + pause
        elif what is Next.RELAUNCH:
            self._relaunch_at = time.monotonic() + pause

    def _reap(self) -> tuple[_Process, int] | None:
        """Returns a process that has ended and its code, see `forks.code_of`; or None."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == 0:
                return None
            if pid == self._asking and status:
                self.director.no_answer()
            for process in self.members:
                if process.runs and process.pid == pid:
                    process.runs = False
                    return process, code_of(status)
            # Otherwise it is a process that a node has started and left behind; there may be thousands.

    def _on_stop_request(self, number: int, frame: Any) -> None:
        self._requests[number] += 1
        director = self.director
        if not director.interrupted:
            director.request_stop(number)
            self._shared[0] = 1
            return
        # A terminal's Ctrl-C arrives twice, from the terminal and the launcher. A signal to the launcher arrives once.
        interrupts = max(self._requests[signal.SIGINT], self._requests[process_tree.REQUESTS[signal.SIGINT]])
        if interrupts > (director.interrupted == signal.SIGINT):
            director.at_once = True
            self.signal(self.members, signal.SIGKILL)

    def _on_program_end(self, number: int, frame: Any) -> None:
        self.director.ended = True


def _say(text: str) -> None:
    print(f"acme-ext: {text}", file=sys.stderr)


def _stopper(pid: int) -> Callable[..., None]:
    """Returns the function that `lp.stop()` calls in a node."""

    def stop(mark_as_completed: bool = False) -> None:
        del mark_as_completed
        os.kill(pid, signal.SIGUSR2)

    return stop


def main(descriptor: int, ready: int, keeper: int, private: bool) -> int:
    """Runs the program from the launcher, see `launcher.receive`; the entry point of the supervisor's process."""
    process_tree.end_at_a_stop_request()  # nothing to save before nodes run
    try:
        why = isolation.enter() if private else None
        # After entering the namespace, since a change of rights may clear this setting. Until there are nodes, the
        # default action of the signal is right.
        if not process_tree.tell_when_orphaned(keeper, process_tree.ORPHANED):
            return 1
        # Also adopts processes of the environment that is made for its specs.
        process_tree.take_in_orphans()
        warm()
        load = launcher.receive(descriptor, ready)
        if load is None:
            return 1
        isolation.say(why)
        return Supervisor(*load()).run()
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def warm() -> None:
    """Imports the libraries that nodes need, and nothing that starts a thread or a device."""
    import gc

    from absl import flags

    flags.FLAGS(["acme-ext"], known_only=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import courier  # noqa: F401

    from acme_ext.launch.engines.program import program  # noqa: F401
    from acme_ext.replay import server

    server.import_libraries()
    gc.freeze()  # unchanged memory is shared by forks
