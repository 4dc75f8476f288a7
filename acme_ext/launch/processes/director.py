"""Decides what to do when a node of a program ends, and watches and stops programs.

The supervisor and Ray's driver both use it. Nodes that no other node connects to, and the inference server, restart
alone. If a node with state of the run dies, the whole program restarts from its last checkpoint. Once the
program is stopping, only the inference server still restarts: the remaining nodes make a last save, or a message says
why there is none.
"""

import abc
import collections
import contextlib
import dataclasses
import enum
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import process_tree
from acme_ext.launch.processes.forks import GRACE_S
from acme_ext.launch.roles import NodeId, role_of

_HOUR_S = 3600.0
_SETTLED_S = 60.0  # a node that ran for longer restarts at once
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class Next(enum.Enum):
    """What to do about a node that has ended."""

    NOTHING = enum.auto()
    RESTART = enum.auto()
    RELAUNCH = enum.auto()  # restart the whole program from its last checkpoint


class Restarts:
    """Limits how often and how soon nodes restart.

    The first restart of a node is immediate. If it dies again within a minute of its start, the delay is 1 s, then 2 s,
    4 s and so on, up to 60 s.

    Args:
        per_hour: restarts within any hour, of all nodes together.
        clock: returns the time in seconds.
    """

    def __init__(self, per_hour: int, clock: Callable[[], float] = time.monotonic):
        self._per_hour, self._clock = per_hour, clock
        self._times: collections.deque[float] = collections.deque()
        self._latest: dict[str, tuple[float, float]] = {}  # name -> the time of its last start, and the pause before it

    def take(self, name: str) -> float | None:
        """Returns the delay of a restart in seconds; None if this hour's restarts are used up."""
        now = self._clock()
        while self._times and now - self._times[0] >= _HOUR_S:
            self._times.popleft()
        if len(self._times) >= self._per_hour:
            return None
        self._times.append(now)
        started, pause = self._latest.get(name, (-math.inf, 0.0))
        pause = 0.0 if now - started > _SETTLED_S else min(max(2 * pause, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._latest[name] = now + pause, pause
        return pause


class Director:
    """The state of a running program, and the rules that change it.

    Args:
        servers: groups of nodes that others connect to; they stop in this order, after all other groups.
        restarts: see `Restarts`.
        say: shows a message to the user.
    """

    def __init__(self, servers: tuple[str, ...], restarts: Restarts, say: Callable[[str], None]):
        self.servers, self._restarts, self.say = servers, restarts, say
        self.interrupted = 0
        """The signal that requested the stop, or 0."""
        self.at_once = False
        """Whether to end everything at once, without waiting."""
        self.ended = False
        """Whether to stop the remaining nodes now."""
        self.failed = False
        """Whether a node died and was not restarted."""
        self.relaunching = False
        """Whether the whole program is about to restart."""
        self.restarted = self.relaunched = 0

    @property
    def stopping(self) -> bool:
        """Whether the program should end, after a last save if one is possible."""
        return bool(self.interrupted) or self.failed

    @property
    def exit_code(self) -> int:
        """0, 1, or 128 + the signal that stopped the program."""
        if self.failed:
            return 1
        return 128 + self.interrupted if self.interrupted else 0

    def request_stop(self, number: int) -> None:
        """Handles a stop signal, or the signal that the launcher sends in its place.

        The first one requests a stop after a last save; a later SIGINT requests an immediate end.
        """
        number = {request: stop for stop, request in process_tree.REQUESTS.items()}.get(number, number)
        if not self.interrupted:
            self.interrupted = number
        elif number == signal.SIGINT:
            self.at_once = True

    def no_answer(self) -> None:
        """Handles a stop request that the coordinator did not answer: the program ends without a last save."""
        if not self.ended:
            self.failed = self.ended = True
            self.say("the coordinator did not answer: there is no last save, and the last checkpoint stands.")

    def look_at(
        self,
        group: str,
        name: str,
        why: str,
        words: Callable[[], str],
        *,
        code: int = 1,
        gone: bool = False,
        place: str = "",
        free: bool = False,
    ) -> tuple[Next, float]:
        """Returns what to do about a node that has ended, and after how many seconds; tells the user.

        Args:
            group: its group.
            name: its name.
            why: how it ended, such as `was killed by SIGKILL`.
            words: returns its last output.
            code: its exit code; 0 if it finished.
            gone: whether its host is lost too, so that a new process can't have the same address.
            place: where it ran, for the message.
            free: whether this restart was already counted, with another node that ended for the same reason.
        """
        dialled, essential = group in self.servers, group in self.servers and not role_of(group).resumable
        if self.ended or self.at_once or self.relaunching or (code == 0 and not dialled and not gone):
            return Next.NOTHING, 0.0
        if self.stopping and not dialled:
            return Next.NOTHING, 0.0
        lasting = essential or (dialled and gone)  # it can't restart alone
        possible = not lasting or not self.stopping
        pause = None
        if possible:
            pause = 0.0 if free else self._restarts.take("the program" if lasting else name)
        if pause is None:
            self.failed = True
            self.say(f"{name}{place} {why}{words()}")
            # The learner's state is good: it can be saved if all nodes that the save needs are alive.
            self.ended = essential
            if essential and self.interrupted:
                self.say("so there is no last save, and the last checkpoint stands.")
            return Next.NOTHING, 0.0
        later = f" in {pause:.0f} s" if pause else ""
        if lasting:
            self.relaunched += 1
            self.relaunching = True
            self.say(f"{name}{place} {why}{words()}")
            self.say(f"the program is started again from its last checkpoint{later}.")
            return Next.RELAUNCH, pause
        self.restarted += not free
        follows = ", and is placed anew" if gone else " and is started again"
        self.say(f"{name}{place} {why}{follows}{later}.")
        return Next.RESTART, pause

    def sum_up(self) -> None:
        """Tells the user how often nodes and the program were restarted."""
        if self.restarted:
            self.say(f"restarts of nodes that had died: {self.restarted}.")
        if self.relaunched:
            self.say(f"restarts of the whole program: {self.relaunched}.")


@dataclasses.dataclass(eq=False)
class Member:
    """A node of a running program."""

    id: NodeId
    node: Any = None  # Launchpad's node
    runs: bool = False  # whether it was started and has not ended
    again: float | None = None  # when to restart it

    @property
    def group(self) -> str:
        return self.id.role

    @property
    def name(self) -> str:
        return self.id.name


@contextlib.contextmanager
def starting_again() -> Iterator[None]:
    """Raises RunError in place of UsageError, which would say that the program had not started at all."""
    try:
        yield
    except UsageError as error:
        raise RunError(f"the program could not start again: {error}") from error


class Crew(abc.ABC):
    """The nodes of a program, on any host; watches and stops them as the director decides.

    Args:
        members: all nodes.
        director: the program's director.
        grace_s: see `forks.Options`.
    """

    refuse_s = math.inf
    """Seconds beyond the grace period within which a killed node must be reported as ended."""

    def __init__(self, members: Sequence[Any], director: Director, grace_s: float = GRACE_S):
        self.members, self.director, self._grace_s = members, director, grace_s

    @abc.abstractmethod
    def start(self, member: Any) -> None:
        """Starts or restarts a node."""

    @abc.abstractmethod
    def signal(self, members: Sequence[Any], number: int) -> None:
        """Sends a signal to those nodes that are running."""

    @abc.abstractmethod
    def take_news(self) -> None:
        """Handles new events; returns after a short time even if there are none."""

    @abc.abstractmethod
    def ask(self, coordinator: Any, address: str, died: list[str]) -> None:
        """Asks the coordinator at an address to stop the program; see `Coordinator.request_stop`."""

    def watch(self) -> None:
        """Waits until the program ends or must restart.

        It ends when it is finished, when it is interrupted, or when a node fails.
        """
        said, asked, director = False, False, self.director
        while not director.ended and not director.at_once and not director.relaunching:
            if director.interrupted and not said:
                said = True
                director.say("stopping after a last save; Ctrl-C again stops at once.")
            if director.stopping and not asked:
                asked = True
                self._ask_coordinator()
            self._start_pending()
            self.take_news()

    def stop(self) -> None:
        """Ends the remaining nodes with grace periods: first those that no others connect to, then the servers."""
        director, servers = self.director, self.director.servers
        director.ended = True
        stages = [[member for member in self.members if member.group not in servers]]
        stages += [[member for member in self.members if member.group == group] for group in servers]
        for stage in [self.members] if director.at_once else stages:
            start, killed = time.monotonic(), director.at_once or not self._grace_s
            self.signal(stage, signal.SIGKILL if killed else process_tree.STOP_NODE)
            while any(member.runs for member in stage):
                waited = time.monotonic() - start
                if not killed and (director.at_once or waited > self._grace_s):
                    killed = True
                    self.signal(stage, signal.SIGKILL)
                if waited > (0 if director.at_once else self._grace_s) + self.refuse_s:
                    break
                self.take_news()

    def _start_pending(self) -> None:
        """Restarts the nodes that are due; once the program is stopping, only those that others connect to."""
        stopping = self.director.stopping
        for member in self.members:
            if member.again is not None and (stopping or member.again <= time.monotonic()):
                member.again = None
                if not stopping or member.group in self.director.servers:
                    self.start(member)

    def _ask_coordinator(self) -> None:
        """Asks the coordinator to stop the program with a last save; stops the nodes directly if there is none."""
        coordinator = next((member for member in self.members if member.group == "coordinator" and member.runs), None)
        if coordinator is None:
            self.director.ended = True
            return
        died = [member.name for member in self.members if not member.runs]
        self.ask(coordinator, coordinator.node.courier_address.resolve(), died)
