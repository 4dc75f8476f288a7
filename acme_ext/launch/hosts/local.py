"""Runs a program's nodes as processes of this machine, forked from one with all imports."""

import mmap
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from acme_ext.launch.hosts import process_tree
from acme_ext.launch.hosts.fork_server import ForkServer, import_libraries, refuse_devices
from acme_ext.launch.hosts.node_process import Options, bind
from acme_ext.launch.hosts.restart_policy import Next
from acme_ext.launch.hosts.supervisor import Member, Supervisor, say
from acme_ext.launch.roles import SERVERS, nodes_of

_LOOK_S = 0.01


class LocalSupervisor(Supervisor):
    """Runs a program on this machine.

    Args:
        make: makes a `launchpad.Program`; its argument says whether this is the first call.
        options: see `Options`.
    """

    def __init__(self, make: Callable[[bool], Any], options: Options):
        program = make(True)
        nodes = nodes_of({group: len(nodes) for group, nodes in program.groups.items()})
        super().__init__([Member(node) for node in nodes], options.restarts, say, options.grace_s)
        self._program, self._make, self._options = program, make, options
        self._interrupted = mmap.mmap(-1, 1)  # nonzero once interrupted; the nodes read it
        self._server = ForkServer(self._interrupted)
        self._requests = dict.fromkeys((*process_tree.REQUESTS, *process_tree.REQUESTS.values()), 0)

    def run(self) -> int:
        signal.signal(process_tree.ORPHANED, process_tree.abandon)
        for number in self._requests:
            signal.signal(number, self._on_stop_request)
        signal.signal(signal.SIGUSR2, self._on_program_end)
        try:
            return super().run()
        finally:
            process_tree.end_children()  # processes of environments

    def launch(self, *, first: bool) -> None:
        if not first:
            process_tree.end_children()  # processes of environments
            self._program = self._make(False)
        nodes = [node for nodes in self._program.groups.values() for node in nodes]
        for member, node in zip(self.members, nodes, strict=True):
            member.node = node
        refuse_devices()
        bind(self._program)
        for member in self.members:
            self.start(member)

    def start(self, member: Member) -> None:
        self._server.fork(member, lambda: member.node.function(), member.id, self._options)
        member.runs = True

    def signal(self, members: Sequence[Member], number: int) -> None:
        for member in members:
            self._server.signal(member, number)

    def poll_events(self) -> None:
        for member, event in self._server.reap():
            self.on_event(member, event)
        if any(member.runs or member.again is not None for member in self.members):
            time.sleep(_LOOK_S)
        else:
            self.policy.ended = True

    def ask(self, coordinator: Member, died: list[str]) -> None:
        self._server.ask(coordinator, coordinator.node.create_handle(), died)

    def on_exit(self, member: Member, why: str, words: Callable[[], str], **how: Any) -> Next:
        if how["code"] == 0 and member.group in SERVERS and not self.policy.ended:
            time.sleep(0.05)  # for a possible message of the coordinator that the program has finished
        return super().on_exit(member, why, words, **how)

    def _on_stop_request(self, number: int, frame: Any) -> None:
        self._requests[number] += 1
        policy = self.policy
        if not policy.interrupted:
            policy.request_stop(number)
            self._interrupted[0] = 1
            return
        # A terminal's Ctrl-C arrives twice, from the terminal and the launcher. A signal to the launcher arrives once.
        interrupts = max(self._requests[signal.SIGINT], self._requests[process_tree.REQUESTS[signal.SIGINT]])
        if interrupts > (policy.interrupted == signal.SIGINT):
            policy.at_once = True
            self.signal(self.members, signal.SIGKILL)

    def _on_program_end(self, number: int, frame: Any) -> None:
        self.policy.ended = True


def prepare() -> None:
    """Imports what nodes need; called before the program is there, see `subreaper`."""
    import_libraries()


def run(load: Callable[[], tuple[Callable[[bool], Any], Options]], private: bool) -> int:
    """Runs a program; returns the exit code. `load` returns the arguments of `LocalSupervisor`."""
    del private
    return LocalSupervisor(*load()).run()
