"""What follows from the end of a program's node, for whoever keeps the processes: the supervisor, or Ray's driver; and
how both watch and stop a program.

A node that nobody dials, and the inference server, can be started again where they were. The death of a node that
holds the run's state ends the program, which is then started again as a whole from its last checkpoint. Once the
program is to stop, nothing of that happens: what is left makes a last save, or it is said why there was none.
"""

import abc
import collections
import dataclasses
import enum
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acme_ext.launch.processes import process_tree
from acme_ext.launch.processes.forks import GRACE_S, RESUMABLE

_HOUR_S = 3600.0
_SETTLED_S = 60.0  # a node that has run for so long is started again at once
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class Next(enum.Enum):
    """What is to be done about a node that has ended."""

    NOTHING = enum.auto()
    RESTART = enum.auto()
    RELAUNCH = enum.auto()  # of the whole program, from its last checkpoint


class Restarts:
    """How often, and how soon, what has died is started again.

    The first restart of a node is made at once. One that dies again within a minute of its start waits 1 s, then 2, 4
    and so on, up to 60 s.

    Args:
        per_hour: restarts in any hour, of all nodes together.
        clock: gives seconds.
    """

    def __init__(self, per_hour: int, clock: Callable[[], float] = time.monotonic):
        self._per_hour, self._clock = per_hour, clock
        self._times: collections.deque[float] = collections.deque()
        self._latest: dict[str, tuple[float, float]] = {}  # of each name, when it was to start, and the pause before

    def take(self, name: str) -> float | None:
        """Returns the seconds until something may be started again; None where this hour's restarts are used up."""
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
    """The state of a program that runs, and the rules by which it changes.

    Args:
        servers: groups of nodes that others dial, in the order in which they are stopped, after all others.
        restarts: see there.
        say: tells the user something.
    """

    def __init__(self, servers: tuple[str, ...], restarts: Restarts, say: Callable[[str], None]):
        self.servers, self._restarts, self.say = servers, restarts, say
        self.interrupted = 0
        """The signal that asked for a stop."""
        self.at_once = False
        """Whether nothing is to be waited for any more."""
        self.ended = False
        """Whether the nodes that are left are to be stopped now."""
        self.failed = False
        """Whether something died that was not started again."""
        self.relaunching = False
        """Whether the program is about to be started again as a whole."""
        self.restarted = self.relaunched = 0

    @property
    def stopping(self) -> bool:
        """Whether the program is to end, after a last save where one can be made."""
        return bool(self.interrupted) or self.failed

    @property
    def exit_code(self) -> int:
        """0, 1, or 128 + the signal that stopped the program."""
        if self.failed:
            return 1
        return 128 + self.interrupted if self.interrupted else 0

    def request_stop(self, number: int) -> None:
        """Takes a signal that asks for a stop, or what the launcher passes it on as: the first asks for a last save, a
        later SIGINT for an end at once.
        """
        number = {request: stop for stop, request in process_tree.REQUESTS.items()}.get(number, number)
        if not self.interrupted:
            self.interrupted = number
        elif number == signal.SIGINT:
            self.at_once = True

    def no_answer(self) -> None:
        """Takes it that the coordinator did not hear that the program is to stop."""
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
        """Returns what is to be done about a node that has ended, and after how many seconds; tells the user of it.

        Args:
            group: its group.
            name: its name.
            why: how it ended, as `was killed by SIGKILL`.
            words: gives what it said last.
            code: its exit code, 0 for one that ended by itself.
            gone: whether its place is gone too, so that who dials it would not find it again.
            place: where it ran, in words.
            free: whether this restart is counted already, with that of something else that the same event ended.
        """
        dialled, essential = group in self.servers, group in self.servers and group not in RESUMABLE
        if self.ended or self.at_once or self.relaunching or (code == 0 and not dialled and not gone):
            return Next.NOTHING, 0.0
        if self.stopping and not dialled:
            return Next.NOTHING, 0.0
        lasting = essential or (dialled and gone)  # it can't be started again by itself
        possible = not lasting or not self.stopping
        pause = None
        if possible:
            pause = 0.0 if free else self._restarts.take("the program" if lasting else name)
        if pause is None:
            self.failed = True
            self.say(f"{name}{place} {why}{words()}")
            # What was learned is good, and is saved, where all that takes part in it is still there.
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
        """Tells the user how often something was started again."""
        if self.restarted:
            self.say(f"restarts of nodes that had died: {self.restarted}.")
        if self.relaunched:
            self.say(f"restarts of the whole program: {self.relaunched}.")


@dataclasses.dataclass(eq=False)
class Member:
    """A node of a program that runs."""

    group: str
    name: str
    node: Any = None  # Launchpad's
    runs: bool = False  # has been started, and has not ended
    again: float | None = None  # when it is to be started again


def names_of(groups: Mapping[str, int]) -> list[tuple[str, str]]:
    """Returns the group and the name of each node, by the groups' numbers of nodes."""
    return [(group, name_of(group, index, count)) for group, count in groups.items() for index in range(count)]


def name_of(group: str, index: int, count: int) -> str:
    """Returns the name of a node, by its number among those of its group."""
    return group if count == 1 else f"{group}-{index}"


class Crew(abc.ABC):
    """The nodes of a program, wherever they run, watched and stopped as a director has it.

    Args:
        members: all of them.
        director: of the program.
        grace_s: see `forks.Options`.
    """

    refuse_s = math.inf
    """Seconds beyond the grace in which a killed node's end must be heard of."""

    def __init__(self, members: Sequence[Any], director: Director, grace_s: float = GRACE_S):
        self.members, self.director, self._grace_s = members, director, grace_s

    @abc.abstractmethod
    def start(self, member: Any) -> None:
        """Starts a node, for the first time or again."""

    @abc.abstractmethod
    def signal(self, members: Sequence[Any], number: int) -> None:
        """Sends nodes a signal, those that run."""

    @abc.abstractmethod
    def take_news(self) -> None:
        """Takes what has happened, within a moment."""

    @abc.abstractmethod
    def ask(self, coordinator: Any, address: str, died: list[str]) -> None:
        """Has the coordinator at an address stop the program, see `Coordinator.request_stop`."""

    def watch(self) -> None:
        """Waits until the program ends, by itself or because somebody interrupts it or a node fails, or until it is to
        be started again.
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
        """Ends what still runs: those that nobody dials first, then the servers, each with some grace."""
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
        """Starts the nodes again whose time has come; once the program is to stop, only those that others dial."""
        stopping = self.director.stopping
        for member in self.members:
            if member.again is not None and (stopping or member.again <= time.monotonic()):
                member.again = None
                if not stopping or member.group in self.director.servers:
                    self.start(member)

    def _ask_coordinator(self) -> None:
        """Has the program stop itself, with a last save; without a coordinator the nodes are stopped as they are."""
        coordinator = next((member for member in self.members if member.group == "coordinator" and member.runs), None)
        if coordinator is None:
            self.director.ended = True
            return
        died = [member.name for member in self.members if not member.runs]
        self.ask(coordinator, coordinator.node.courier_address.resolve(), died)
