"""What follows when a node of a program ends: the rules, without processes."""

import collections
import enum
import math
import signal
import time
from collections.abc import Callable

from acme_ext.launch.hosts import process_tree
from acme_ext.launch.roles import NodeId, role_of

_HOUR_S = 3600.0
_SETTLED_S = 60.0  # a node that ran for longer restarts at once
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class Next(enum.Enum):
    """What to do about a node that has ended."""

    NOTHING = enum.auto()
    RESTART = enum.auto()
    RELAUNCH = enum.auto()  # restart the whole program from its last checkpoint


class RestartLimit:
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


class RestartPolicy:
    """The state of a running program, and the rules that change it.

    Nodes whose role is resumable restart alone (`launch.roles`). If another node dies, the whole program restarts from
    its last checkpoint. Once the program is stopping, only servers still restart: the remaining nodes make a last save,
    or a message says why there is none.

    Args:
        limit: limits the restarts of nodes and of the program.
        say: shows a message to the user.
    """

    def __init__(self, limit: RestartLimit, say: Callable[[str], None]):
        self.limit, self.say = limit, say
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
        self._restarted = self._relaunched = 0

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

    def on_exit(
        self,
        node: NodeId,
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
            node: the node.
            why: how it ended, such as `was killed by SIGKILL`.
            words: returns its last output.
            code: its exit code; 0 if it finished.
            gone: whether its host is lost too, so that a new process can't have the same address.
            place: where it ran, for the message.
            free: whether this restart was already counted, with another node that ended for the same reason.
        """
        role, named = role_of(node.role), f"{node.name}{place} {why}"
        if self.ended or self.at_once or self.relaunching or (code == 0 and not role.server and not gone):
            return Next.NOTHING, 0.0
        if self.stopping and not role.server:
            return Next.NOTHING, 0.0
        lasting = not role.resumable or (role.server and gone)  # it can't restart alone
        pause = None
        if not (lasting and self.stopping):
            pause = 0.0 if free else self.limit.take("the program" if lasting else node.name)
        if pause is None:
            self.failed = True
            self.say(f"{named}{words()}")
            # The learner's state is good: it can be saved if all nodes that the save needs are alive.
            self.ended = not role.resumable
            if self.ended and self.interrupted:
                self.say("so there is no last save, and the last checkpoint stands.")
            return Next.NOTHING, 0.0
        later = f" in {pause:.0f} s" if pause else ""
        if lasting:
            self._relaunched += 1
            self.relaunching = True
            self.say(f"{named}{words()}")
            self.say(f"the program is started again from its last checkpoint{later}.")
            return Next.RELAUNCH, pause
        self._restarted += not free
        follows = ", and is placed anew" if gone else " and is started again"
        self.say(f"{named}{follows}{later}.")
        return Next.RESTART, pause

    def sum_up(self) -> None:
        """Tells the user how often nodes and the program were restarted."""
        if self._restarted:
            self.say(f"restarts of nodes that had died: {self._restarted}.")
        if self._relaunched:
            self.say(f"restarts of the whole program: {self._relaunched}.")
