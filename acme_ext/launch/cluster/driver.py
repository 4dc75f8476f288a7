"""The process that runs a program on Ray: it has nodes placed and started, watches them and stops them.

A process that dies is started again in its place, at its addresses. An actor or evaluator whose host is lost is placed
anew. What others dial can't move, for they have its address: its loss, or the death of a process that holds the run's
state, ends the program, which is then started again as a whole from its last checkpoint.
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
from acme_ext.launch import isolation, processes
from acme_ext.launch.cluster import connection, placement
from acme_ext.launch.cluster.fleet import ANSWER_S, Fleet, Member
from acme_ext.launch.forks import GRACE_S, RESUMABLE, how

_SILENCE_S = 10.0  # of waiting, after which it is said what for
_START_S = 180.0  # for a node's process to begin: libraries are imported on its host first
_NOTICE_S = 90.0  # for Ray to notice that a host is lost
_SAME_LOSS_S = 60.0  # in which agents that are lost were on one host that is
_REFUSE_S = 5.0  # beyond the grace, for a killed node's end to be heard of


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be run, as the launcher hands it over.

    Attributes:
        run: names this start of the program.
        load: makes the program; called with whether it is the first time.
        groups: of the program, with their numbers of nodes.
        resources: that each node of a group asks for.
        servers: groups of nodes that others dial, in the order in which they are stopped, after all others.
        directory: the run's.
        address: of the cluster; None for a Ray of the run's own.
        folder: for such a Ray's files.
        code: the folder that travels to a cluster's hosts.
        path: see `launch.cluster.agent.Visit`.
        restarts: times, in all, that nodes which have died are started again, or the program as a whole.
        wait_s: see `launch.cluster.placement.reserve`.
    """

    run: str
    load: Callable[[bool], Any]
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


class _InterruptedError(Exception):
    """The program is to stop where nothing of it runs that could save anything."""


class Driver:
    """See the module. Ray is connected to.

    Args:
        plan: see there.
    """

    def __init__(self, plan: Plan):
        self._plan = plan
        self._fleet = Fleet(plan.run, plan.groups, plan.resources, plan.directory, plan.path, _say)
        self._members = self._fleet.members
        self._lost_at: dict[str, float] = {}  # of hosts
        self._restarts = self._relaunches = 0
        self._interrupted = 0  # the signal
        self._at_once = False
        self._asked_to_end = self._failed = self._to_relaunch = False
        self._died: list[str] = []

    def run(self) -> int:
        """Runs the program to its end; returns the exit code (0, 1, or 128 + a signal that stopped it)."""
        self._fleet.reserve(self._plan.wait_s)
        with contextlib.suppress(_InterruptedError):
            self._launch(first=True)
            while self._watch():
                self._clear()
                self._launch(first=False)
        self._stop()
        if self._restarts > self._relaunches:
            _say(f"restarts of nodes that had died: {self._restarts - self._relaunches}.")
        if self._relaunches:
            _say(f"restarts of the whole program: {self._relaunches}.")
        if self._failed:
            return 1
        return 128 + self._interrupted if self._interrupted else 0

    def _launch(self, *, first: bool) -> None:
        """Starts the program, once every node has an agent in its place and an address."""
        for member in self._members:
            if member.agent is None:
                self._fleet.send(member)
        program = self._plan.load(True) if first else None
        if first:
            # From here on a wish to stop is granted in good order.
            for number in (*processes.WISHES, *processes.WISHES.values()):
                signal.signal(number, self._on_wish)
        self._settle(lambda member: member.place is not None, ANSWER_S, "to be placed", self._send_again)
        if program is None:
            program = self._plan.load(False)  # by now nobody holds the run directory
        self._fleet.bind(program)
        for member in self._members:
            self._fleet.start(member)

    # Watching ----------------------------------------------------------------------------------------------------

    def _watch(self) -> bool:
        """Waits until the program ends, by itself or because somebody interrupts it or a node fails; returns whether
        it is to be started again.
        """
        said = asked = False
        while not self._asked_to_end and not self._at_once and not self._to_relaunch:
            if self._interrupted and not said:
                said = True
                _say("stopping after a last save; Ctrl-C again stops at once.")
            if (self._interrupted or self._failed) and not asked:
                asked = True
                self._ask_coordinator()
            self._take_events(self._look_at_loss)
            self._look_at_orders()
        return self._to_relaunch and not self._interrupted

    def _take_events(self, lost: Callable[[Member, str], None]) -> None:
        """Takes what agents have to tell, within a moment; `lost` is called for those that can't tell any more."""
        for member, (what, *details) in self._fleet.events():
            if what == "said":
                with contextlib.suppress(OSError):
                    os.write(2, details[0])
            elif what == "arrived":
                if member.node is not None and not self._to_relaunch and not self._asked_to_end:
                    self._fleet.start(member)  # it was placed anew
            elif what == "started":
                member.started = True
            elif what in ("stop", "unanswered"):  # there is no coordinator to save anything
                self._asked_to_end = True
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
        """Decides what follows from a node's end."""
        dialled = member.group in self._plan.servers
        if self._asked_to_end or self._to_relaunch or (not dialled and not gone and code == 0):
            return
        if self._interrupted or self._failed:
            self._died.append(member.name)
            self._asked_to_end = dialled and code != 0  # nobody is there to save anything
            return
        lasting = dialled and (gone or member.group not in RESUMABLE)
        name = member.name if member.place is None else f"{member.name} on {member.place.ip}"
        if not self._may_restart(member, gone):
            self._failed = True
            self._died.append(member.name)
            _say(f"{name} {why}{words}")
            self._asked_to_end = lasting
        elif lasting:
            self._relaunches += 1
            self._to_relaunch = True
            _say(f"{name} {why}{words}")
            _say("the program is started again from its last checkpoint.")
        elif gone:
            _say(f"{name} {why}, and is placed anew.")
            self._fleet.send(member)
        else:
            _say(f"{name} {why} and is started again.")
            self._fleet.start(member)

    def _send_again(self, member: Member, words: str) -> None:
        """Sends an agent for a node whose agent was lost before anything was started."""
        if not self._may_restart(member, gone=True):
            raise RunError(f"{member.name} could not be placed{words}")
        _say(f"{member.name} was lost before it started, and is placed anew.")
        self._fleet.send(member)

    def _may_restart(self, member: Member, gone: bool) -> bool:
        """Whether one more start is allowed; all that was lost with one host counts once."""
        now, host = time.monotonic(), member.place.host if member.place is not None else ""
        if gone and now - self._lost_at.get(host, -math.inf) < _SAME_LOSS_S:
            return True
        if self._restarts >= self._plan.restarts:
            return False
        self._restarts += 1
        if gone:
            self._lost_at[host] = now
        return True

    def _look_at_orders(self) -> None:
        """Speaks of a node that waits for its place, and gives up one whose host doesn't start it."""
        for member in self._members:
            waited = time.monotonic() - member.since
            if member.agent is not None and member.place is None and waited > _SILENCE_S:
                member.since = math.inf
                _say(f"{member.name} waits for {placement.say(self._plan.resources[member.group])} on the cluster.")
            elif member.runs and not member.started and waited > _START_S:
                self._fleet.give_up(member)
                self._look_at(member, f"was not started in {_START_S:.0f} s", ".", gone=True)

    def _ask_coordinator(self) -> None:
        """Has the program stop itself, with a last save; without a coordinator the nodes are stopped as they are."""
        member = next((member for member in self._members if member.group == "coordinator" and member.runs), None)
        if member is None:
            self._asked_to_end = True
            return
        gone = [other.name for other in self._members if not other.runs]
        member.agent.ask.remote(member.node.courier_address.resolve(), sorted({*self._died, *gone}))

    # Stopping ----------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        """Ends what still runs, at once, so that the program can be started again."""
        self._fleet.signal(self._members, signal.SIGKILL)
        self._settle(lambda member: not member.runs, _NOTICE_S, "to end", lambda member, words: None)
        for member in self._members:
            member.node = None
        self._to_relaunch = False

    def _settle(
        self, settled: Callable[[Member], bool], limit_s: float, what: str, lost: Callable[[Member, str], None]
    ) -> None:
        """Waits until something is so for all nodes."""
        start, silent = time.monotonic(), True
        while left := [member for member in self._members if not settled(member)]:
            if self._interrupted:
                raise _InterruptedError
            waited = time.monotonic() - start
            names = ", ".join(member.name for member in left)
            if waited > _SILENCE_S and silent:
                silent = False
                _say(f"waiting for {names} {what}.")
            if waited > limit_s:
                raise RunError(f"waited {limit_s:.0f} s in vain for {names} {what}.")
            self._take_events(lost)

    def _stop(self) -> None:
        """Ends what still runs: those that nobody dials first, then the servers, each with some grace."""
        self._asked_to_end = True
        stages = [[member for member in self._members if member.group not in self._plan.servers]]
        stages += [[member for member in self._members if member.group == group] for group in self._plan.servers]
        if self._at_once:
            stages = [self._members]
        for stage in stages:
            self._fleet.signal(stage, signal.SIGKILL if self._at_once else processes.STOP_NODE)
            start, killed = time.monotonic(), self._at_once
            while any(member.runs for member in stage):
                waited = time.monotonic() - start
                if not killed and (self._at_once or waited > GRACE_S):
                    killed = True
                    self._fleet.signal(stage, signal.SIGKILL)
                if waited > (0 if self._at_once else GRACE_S) + _REFUSE_S:
                    break  # they end when their agents do
                self._take_events(lambda member, words: None)

    def _on_wish(self, number: int, frame: Any) -> None:
        stop = {wish: stop for stop, wish in processes.WISHES.items()}.get(number, number)
        if not self._interrupted:
            self._interrupted = stop
        elif stop == signal.SIGINT:
            self._at_once = True


def _say(text: str) -> None:
    print(f"acme-ext: {text}", file=sys.stderr, flush=True)


def main(descriptor: int, keeper: int) -> int:
    """Runs what `launch.distributed` left in an open file; the entry of the driver's process."""
    import cloudpickle

    # The terminal's signals, and those to everybody, are for the launcher, which passes them on; Ray has none of them.
    os.setpgid(0, 0)
    os.dup2(2, 1)  # what Ray prints is no result
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    processes.end_at_a_wish()
    with open(descriptor, "rb") as file:
        private, plan = cloudpickle.load(file)
    try:
        private = private and isolation.make_private()  # while there is one thread
        if not processes.tell_when_orphaned(keeper, processes.ORPHANED):
            return 1
        processes.take_in_orphans()
        plan = cloudpickle.loads(plan)
        if plan.address is None:
            names = [group for group, count in plan.groups.items() for _ in range(count)]
            connection.start(plan.folder, placement.total(plan.resources[name] for name in names), private=private)
        else:
            connection.connect(plan.address, plan.code, plan.directory)
        signal.signal(processes.ORPHANED, processes.abandon)
        import ray
        from ray.exceptions import RayError

        try:
            code = Driver(plan).run()
        except RayError as error:
            raise RunError(f"Ray failed: {error}") from error
        if plan.address is not None:
            ray.shutdown()  # a Ray of the run's own is the keeper's to end
        return code
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
