"""The process that runs a program on Ray: it places, starts, watches and stops the nodes.

If the process of a node dies, it restarts on the same host, with the same addresses. An actor or evaluator whose host
is lost moves to another host. Nodes that others connect to can't move, since the others have their addresses. If such a
node's host is lost, or a process with state of the run dies, the whole program restarts from its last checkpoint.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from acme_ext.errors import RunError
from acme_ext.launch.hosts import process_tree
from acme_ext.launch.hosts.fork_server import MAKE_SPEC, in_child
from acme_ext.launch.hosts.ray import connection, placement
from acme_ext.launch.hosts.ray.fleet import ANSWER_S, Fleet, Member, Plan
from acme_ext.launch.hosts.restart_policy import Next
from acme_ext.launch.hosts.supervisor import Supervisor, say
from acme_ext.launch.roles import role_of
from acme_ext.types import EnvironmentSpec

_SILENCE_S = 10.0  # of waiting, before a message says for what
_START_S = 180.0  # for a node's process to start: its host first imports libraries
_SAME_LOSS_S = 60.0  # within it, lost proxies of the same host count as one loss


class Driver(Supervisor):
    """Runs a program on Ray, see the module; it needs a connection to Ray.

    Args:
        plan: see `Plan`.
        spec: the environment's specs.
    """

    notice_s = 90.0  # for Ray to detect that a host is lost
    refuse_s = 5.0  # nodes that are still alive then end with their proxies

    def __init__(self, plan: Plan, spec: EnvironmentSpec):
        self._plan, self._spec = plan, spec
        self._fleet = Fleet(plan, say)
        self._lost: dict[str, tuple[float, set[str]]] = {}  # host -> time of a loss, and the nodes lost with it
        super().__init__(self._fleet.members, plan.restarts, say, plan.grace_s)

    def run(self) -> int:
        self._fleet.reserve(self._plan.wait_s)
        return super().run()

    def launch(self, *, first: bool) -> None:
        """Starts the program, once every node has a proxy on its host and an address.

        When the program restarts, it doesn't wait for hosts for movable nodes. They start when they have one.
        """
        for member in self.members:
            if member.proxy is None:
                self._fleet.send(member)
        program = self._plan.load(True, self._spec) if first else None
        if first:
            # From here on, a stop request ends the program in an orderly way.
            for number in (*process_tree.REQUESTS, *process_tree.REQUESTS.values()):
                signal.signal(number, lambda number, frame: self.policy.request_stop(number))
        self.settle(
            lambda member: member.place is not None or (not first and role_of(member.group).movable),
            ANSWER_S if first else max(ANSWER_S, self._plan.wait_s or 0),  # a new host may have to be started
            "to be placed",
        )
        if program is None:
            program = self._plan.load(False, self._spec)  # by now no other process uses the run directory
        self._fleet.bind(program)
        for member in self.members:
            if member.place is not None:
                self._fleet.start(member)

    def start(self, member: Member) -> None:
        self._fleet.send(member) if member.moves else self._fleet.start(member)

    def signal(self, members: Sequence[Member], number: int) -> None:
        for member in members:
            if member.runs:
                member.proxy.send.remote("signal", int(number))

    def ask(self, coordinator: Member, died: list[str]) -> None:
        self._fleet.ask(coordinator, died)

    def start_due(self) -> None:
        super().start_due()
        self._check_starts()

    def poll_events(self) -> None:
        for member, event in self._fleet.events():
            self.on_event(member, event)

    def on_event(self, member: Member, event: Iterable) -> None:
        what, *details = event
        if what == "said":
            with contextlib.suppress(OSError):
                os.write(2, details[0])
        elif what == "arrived":
            if member.node is not None and not self.policy.relaunching and not self.policy.ended:
                self._fleet.start(member)  # it was moved to another host, or the program has started without it
        elif what == "started":
            member.started = True
        elif what == "ended":
            super().on_event(member, (what, details[0], lambda: details[1]))
        elif what == "lost":
            self._fleet.give_up(member)
            if self.policy.relaunching:
                return  # all that have no proxy get one
            if member.node is None:
                self._send_again(member, details[0])
            else:
                why = "was lost, with its host or what stood for it there"
                self.on_exit(member, why, lambda: details[0], gone=True)
        else:
            super().on_event(member, event)

    def on_exit(self, member: Member, why: str, words: Callable[[], str], **how: Any) -> Next:
        member.moves = how.get("gone", False)
        free = member.moves and self._was_lost_with_its_host(member)
        place = "" if member.place is None else f" on {member.place.ip}"
        return super().on_exit(member, why, words, place=place, free=free, **how)

    def _send_again(self, member: Member, words: str) -> None:
        """Sends a new proxy for a node whose proxy was lost before the node started."""
        if not self._was_lost_with_its_host(member) and self.policy.limit.take(member.name) is None:
            raise RunError(f"{member.name} could not be placed{words}")
        say(f"{member.name} was lost before it started, and is placed anew.")
        self._fleet.send(member)

    def _was_lost_with_its_host(self, member: Member) -> bool:
        """Returns whether the node's host was just lost with another proxy; proxies lost together count once.

        If the same node is lost twice in this time, that is another loss.
        """
        now, host = time.monotonic(), member.place.host if member.place is not None else ""
        since, names = self._lost.get(host, (-math.inf, set()))
        together = now - since < _SAME_LOSS_S and member.name not in names
        if not together:
            since, names = self._lost[host] = now, set[str]()
        names.add(member.name)
        return together

    def _check_starts(self) -> None:
        """Reports nodes that wait for a host, and gives up nodes whose host doesn't start them in time."""
        for member in self.members:
            waited = time.monotonic() - member.since
            if member.proxy is not None and member.place is None and waited > _SILENCE_S:
                member.since = math.inf
                asked = placement.describe_resources(self._plan.resources[member.group])
                say(f"{member.name} waits for {asked} on the cluster.")
            elif member.runs and not member.started and waited > _START_S:
                self._fleet.give_up(member)
                self.on_exit(member, f"was not started in {_START_S:.0f} s", lambda: ".", gone=True)


def prepare() -> None:
    """Leaves the terminal's process group: the launcher passes its signals on, and Ray receives none."""
    os.setpgid(0, 0)
    os.dup2(2, 1)  # Ray's output is not a result
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)


def run(plan: Plan, private: bool) -> int:
    """Runs a program; returns the exit code. `private`: whether this process is in its own network namespace."""
    spec = in_child(plan.make_spec, MAKE_SPEC)  # forks, so before Ray's threads start
    if plan.address is None:
        names = [group for group, count in plan.groups.items() for _ in range(count)]
        asked = placement.total(plan.resources[name] for name in names)
        connection.start(plan.folder, asked, plan.runtime_env, private=private)
    else:
        connection.connect(plan.address, plan.code, plan.directory, plan.runtime_env)
    process_tree.end_at_a_stop_request()  # until nodes run; Ray has set a handler of SIGTERM that raises SystemExit
    signal.signal(process_tree.ORPHANED, process_tree.abandon)
    import ray
    from ray.exceptions import RayError

    try:
        code = Driver(plan, spec).run()
    except RayError as error:
        raise RunError(f"Ray failed: {error}") from error
    if plan.address is not None:
        ray.shutdown()  # the subreaper ends a Ray that was started only for the run
    return code
