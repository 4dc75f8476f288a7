"""The process that runs a program on Ray: it places, starts, watches and stops the nodes.

If the process of a node dies, it restarts on the same host, with the same addresses. An actor or evaluator whose host
is lost moves to another host. Nodes that others connect to can't move, since the others have their addresses. If such a
node's host is lost, or a process with state of the run dies, the whole program restarts from its last checkpoint.
"""

import contextlib
import dataclasses
import math
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.cluster import connection, placement
from acme_ext.launch.cluster.fleet import ANSWER_S, Fleet, Member
from acme_ext.launch.processes import isolation, launcher, process_tree
from acme_ext.launch.processes.director import Crew, Director, Next, Restarts, starting_again
from acme_ext.launch.processes.forks import GRACE_S, MAKE_SPEC, how, in_child
from acme_ext.launch.roles import role_of
from acme_ext.types import EnvironmentSpec

_SILENCE_S = 10.0  # of waiting, before a message says for what
_START_S = 180.0  # for a node's process to start: its host first imports libraries
_NOTICE_S = 90.0  # for Ray to detect that a host is lost
_SAME_LOSS_S = 60.0  # within it, lost agents of the same host count as one loss


@dataclasses.dataclass(frozen=True)
class Plan:
    """The program to run, as the launcher sends it.

    Attributes:
        run: name of this start of the program.
        make_spec: makes an environment and returns its specs.
        load: makes the program; called with `(first, specs)`, where `first` says whether this is the first call.
        groups: group -> number of nodes.
        resources: group -> resources that each of its nodes requests.
        servers: groups of nodes that others connect to; they stop in this order, after all other groups.
        directory: the run directory.
        address: address of the cluster; None to start a Ray only for the run.
        folder: the folder for the files of such a Ray.
        code: the folder that Ray copies to the hosts of a cluster.
        path: see `launch.cluster.agent.Visit`.
        restarts: maximum restarts per hour, of dead nodes and of the whole program.
        wait_s: see `launch.cluster.placement.reserve`.
        runtime_env: Ray's `runtime_env` of the processes on all hosts.
        grace_s: see `launch.processes.forks.Options`.
    """

    run: str
    make_spec: Callable[[], EnvironmentSpec]
    load: Callable[[bool, EnvironmentSpec], Any]
    groups: Mapping[str, int]
    resources: Mapping[str, Mapping[str, float]]
    servers: tuple[str, ...]
    directory: pathlib.Path
    address: str | None
    folder: pathlib.Path
    code: pathlib.Path
    path: Sequence[str]
    restarts: int = 0
    wait_s: float | None = None
    runtime_env: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    grace_s: float = GRACE_S


class _InterruptedError(Exception):
    """A stop was requested while no node runs that could save anything."""


class Driver(Crew):
    """Runs a program on Ray, see the module; it needs a connection to Ray.

    Args:
        plan: see `Plan`.
        spec: the environment's specs.
    """

    refuse_s = 5.0  # nodes that are still alive then end with their agents

    def __init__(self, plan: Plan, spec: EnvironmentSpec):
        self._plan, self._spec = plan, spec
        alone = plan.address is None
        self._fleet = Fleet(plan.run, plan.groups, plan.resources, plan.directory, plan.path, _say, alone=alone)
        self._lost: dict[str, tuple[float, set[str]]] = {}  # host -> time of a loss, and the nodes lost with it
        self._restarts = Restarts(plan.restarts)
        super().__init__(self._fleet.members, Director(plan.servers, self._restarts, _say), plan.grace_s)
        self._relaunch_at = 0.0

    def run(self) -> int:
        """Runs the program to its end; returns the exit code (0, 1, or 128 + the signal that stopped it)."""
        self._fleet.reserve(self._plan.wait_s)
        with contextlib.suppress(_InterruptedError):
            self._launch(first=True)
            self.watch()
            while self.director.relaunching and not self.director.interrupted:
                self._clear()
                with starting_again():
                    self._launch(first=False)
                self.watch()
        self.stop()
        self.director.sum_up()
        return self.director.exit_code

    def _launch(self, *, first: bool) -> None:
        """Starts the program, once every node has an agent on its host and an address.

        When the program restarts, it doesn't wait for hosts for actors and evaluators. They start when they have one.
        """
        for member in self.members:
            if member.agent is None:
                self._fleet.send(member)
        program = self._plan.load(True, self._spec) if first else None
        if first:
            # From here on, a stop request ends the program in an orderly way.
            for number in (*process_tree.REQUESTS, *process_tree.REQUESTS.values()):
                signal.signal(number, self._on_stop_request)
        limit_s = ANSWER_S if first else max(ANSWER_S, self._plan.wait_s or 0)  # a new host may have to be started
        self._settle(
            lambda member: member.place is not None or (not first and role_of(member.group).movable),
            limit_s,
            "to be placed",
            self._send_again,
        )
        if program is None:
            program = self._plan.load(False, self._spec)  # by now no other process uses the run directory
        self._fleet.bind(program)
        for member in self.members:
            if member.place is not None:
                self._fleet.start(member)

    # Watching ----------------------------------------------------------------------------------------------------

    def start(self, member: Member) -> None:
        self._fleet.send(member) if member.anew else self._fleet.start(member)

    def signal(self, members: Sequence[Member], number: int) -> None:
        self._fleet.signal(members, number)

    def take_news(self) -> None:
        self._take_events(self._look_at_loss)
        if not self.director.ended:
            self._look_at_orders()

    def ask(self, coordinator: Member, address: str, died: list[str]) -> None:
        coordinator.agent.ask.remote(address, died)

    def _take_events(self, lost: Callable[[Member, str], None]) -> None:
        """Handles new events of the agents; returns after a short time. Calls `lost` for agents that have ended."""
        for member, (what, *details) in self._fleet.events():
            if what == "said":
                with contextlib.suppress(OSError):
                    os.write(2, details[0])
            elif what == "arrived":
                if member.node is not None and not self.director.relaunching and not self.director.ended:
                    self._fleet.start(member)  # it was moved to another host, or the program has started without it
            elif what == "started":
                member.started = True
            elif what == "stop":
                self.director.ended = True
            elif what == "request":
                self.director.request_stop(signal.SIGTERM)
            elif what == "unanswered":
                self.director.no_answer()
            elif what == "ended":
                member.runs = False
                code, words = details
                self._look_at(member, how(code), words, code=code)
            elif what == "lost":
                self._fleet.give_up(member)
                lost(member, details[0])

    def _look_at_loss(self, member: Member, words: str) -> None:
        self._look_at(member, "was lost, with its host or what stood for it there", words, gone=True)

    def _look_at(self, member: Member, why: str, words: str, *, code: int = 1, gone: bool = False) -> None:
        """Handles the end of a node."""
        what, pause = self.director.look_at(
            member.group,
            member.name,
            why,
            lambda: words,
            code=code,
            gone=gone,
            place="" if member.place is None else f" on {member.place.ip}",
            free=gone and self._was_lost_with_its_host(member),
        )
        if what is Next.RELAUNCH:
            self._relaunch_at = time.monotonic() + pause
        elif what is Next.RESTART:
            member.again, member.anew = time.monotonic() + pause, gone

    def _send_again(self, member: Member, words: str) -> None:
        """Sends a new agent for a node whose agent was lost before the node started."""
        if not self._was_lost_with_its_host(member) and self._restarts.take(member.name) is None:
            raise RunError(f"{member.name} could not be placed{words}")
        _say(f"{member.name} was lost before it started, and is placed anew.")
        self._fleet.send(member)

    def _was_lost_with_its_host(self, member: Member) -> bool:
        """Returns whether the node's host was just lost with another agent; agents lost together count once.

        If the same node is lost twice in this time, that is another loss.
        """
        now, host = time.monotonic(), member.place.host if member.place is not None else ""
        since, names = self._lost.get(host, (-math.inf, set()))
        together = now - since < _SAME_LOSS_S and member.name not in names
        if not together:
            since, names = self._lost[host] = now, set[str]()
        names.add(member.name)
        return together

    def _look_at_orders(self) -> None:
        """Reports nodes that wait for a host, and gives up nodes whose host doesn't start them in time."""
        for member in self.members:
            waited = time.monotonic() - member.since
            if member.agent is not None and member.place is None and waited > _SILENCE_S:
                member.since = math.inf
                _say(f"{member.name} waits for {placement.say(self._plan.resources[member.group])} on the cluster.")
            elif member.runs and not member.started and waited > _START_S:
                self._fleet.give_up(member)
                self._look_at(member, f"was not started in {_START_S:.0f} s", ".", gone=True)

    # Stopping ----------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        """Kills all nodes and waits for the time to restart the program."""
        self._fleet.signal(self.members, signal.SIGKILL)
        self._settle(lambda member: not member.runs, _NOTICE_S, "to end", lambda member, words: None)
        for member in self.members:
            member.node = member.again = None
        self._settle(
            lambda member: time.monotonic() >= self._relaunch_at, math.inf, "to go on", lambda member, words: None
        )
        self.director.relaunching = False

    def _settle(
        self, settled: Callable[[Member], bool], limit_s: float, what: str, lost: Callable[[Member, str], None]
    ) -> None:
        """Waits until `settled` is true for all nodes."""
        start, silent = time.monotonic(), True
        while left := [member for member in self.members if not settled(member)]:
            if self.director.interrupted:
                raise _InterruptedError
            waited = time.monotonic() - start
            names = ", ".join(member.name for member in left)
            if waited > _SILENCE_S and silent:
                silent = False
                _say(f"waiting for {names} {what}.")
            if waited > limit_s:
                raise RunError(f"gave up after waiting {limit_s:.0f} s for {names} {what}.")
            self._take_events(lost)

    def _on_stop_request(self, number: int, frame: Any) -> None:
        self.director.request_stop(number)


def _say(text: str) -> None:
    print(f"acme-ext: {text}", file=sys.stderr, flush=True)


def main(descriptor: int, ready: int, keeper: int, private: bool) -> int:
    """Runs the program from the launcher, see `launcher.receive`; the entry point of the driver's process."""
    # In its own process group, this process and Ray receive no signals from the terminal. The launcher passes them on.
    os.setpgid(0, 0)
    os.dup2(2, 1)  # Ray's output is not a result
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    process_tree.end_at_a_stop_request()
    try:
        why = isolation.enter() if private else None  # requires a single thread
        if not process_tree.tell_when_orphaned(keeper, process_tree.ORPHANED):
            return 1
        process_tree.take_in_orphans()
        plan = launcher.receive(descriptor, ready)
        if plan is None:
            return 1
        isolation.say(why)
        spec = in_child(plan.make_spec, MAKE_SPEC)  # forks, so before Ray's threads start
        if plan.address is None:
            names = [group for group, count in plan.groups.items() for _ in range(count)]
            asked = placement.total(plan.resources[name] for name in names)
            connection.start(plan.folder, asked, plan.runtime_env, private=private and why is None)
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
            ray.shutdown()  # the keeper ends a Ray that was started only for the run
        return code
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
