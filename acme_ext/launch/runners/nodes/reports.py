"""A node's side of the coordinator: it reports, and gets its orders in the answer."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any, NamedTuple

STARTING = "is starting"
"""A node's state before any other: it has done nothing yet."""


_LOOK_S = 0.2
_KEEP_S = 2.0  # between the times that what a policy carries is sent


class Orders(NamedTuple):
    """What a node is told."""

    stop: bool  # whether to end (an actor, an evaluator) or to make the last save (the learner)
    environment_steps: int  # that the whole program has taken
    evaluate: dict[str, Any] | None = None  # an evaluator's next task


def node_name(name: str, start: int) -> str:
    """Returns what a node of a name, started for the `start`-th time (from 0), reports as."""
    return f"{name}, start {start}"


def base_name(node: str) -> str:
    """Returns the name of a node, whichever its start."""
    return node.partition(",")[0]


class Reporter:
    """A node's side: reports, when it is made and then a few times a second at most, and keeps the latest orders.

    Nobody waits for the answer to a report but who wants it `now`: the orders in it are taken up when they have come.
    Rows stay here until the report that had them is answered.

    Args:
        coordinator: its client.
        node: the node's name.
    """

    def __init__(self, coordinator: Any, node: str, period_s: float = 0.1):
        self._coordinator, self._node, self._period_s = coordinator, node, period_s
        self._lock = threading.RLock()  # several threads of a node may report
        self._rows: list[tuple[int, str, dict[str, Any]]] = []
        self._numbered = 0
        self._under_way: tuple[Any, int] | None = None  # the answer to come, and the last row that was reported
        self._keep_next: dict[str, float] = {}
        self._next = 0.0
        self.counts: dict[str, float] = {}
        """Totals to report."""
        self.reported: dict[str, float] = {}
        """Those of the latest report."""
        self.orders = Orders(False, 0)
        """The latest."""
        self.report(STARTING, now=True)

    def row(self, label: str, row: dict[str, Any]) -> None:
        """Adds a row to a log, with the next report."""
        with self._lock:
            self._numbered += 1
            self._rows.append((self._numbered, label, row))

    def report(self, state: str, *, now: bool = False) -> Orders:
        """Reports if it is time to; if `now`, in any case, and waits for the answer. Returns the latest orders."""
        with self._lock:
            self._take_answer(wait=now)
            if now or (self._under_way is None and time.monotonic() >= self._next):
                counts = dict(self.counts)
                answer = self._coordinator.futures.report(self._node, state, counts, list(self._rows))
                self._under_way, self.reported = (answer, self._numbered), counts
                self._next = time.monotonic() + self._period_s
                self._take_answer(wait=now)
            return self.orders

    def _take_answer(self, wait: bool) -> None:
        if self._under_way is not None and (wait or self._under_way[0].done()):
            (answer, last), self._under_way = self._under_way, None
            self.orders = Orders(*answer.result())
            self._rows = [row for row in self._rows if row[0] > last]

    def keep(self, core: Any, name: str, *, now: bool = False) -> None:
        """Has the coordinator keep what an `InferenceCore`'s policy carries, under a name, if it is time to; nothing
        for a policy without a carry.
        """
        if core is None or not core.has_carry or not (now or time.monotonic() >= self._keep_next.get(name, 0.0)):
            return
        self._coordinator.keep(name, core.save_carry(), core.standing())
        self._keep_next[name] = time.monotonic() + _KEEP_S

    def kept(self, core: Any, name: str) -> None:
        """Gives an `InferenceCore` back what was kept under a name."""
        if core is not None and core.has_carry:
            core.restore_carry(self._coordinator.kept(name))

    def done(self, **result: Any) -> None:
        """Says the node's last word, or an evaluator's score."""
        self._coordinator.done(self._node, result)


def find(server: Any, on_wait: Callable[[], None] = lambda: None) -> tuple[str, int]:
    """Returns at which host and port a node answers calls, see `utils.calls`; waits for one that is not there yet, or
    not any more.

    Args:
        server: the node's Courier client, with a method `port`.
        on_wait: called a few times a second while it waits; may raise to end the wait.
    """
    host, _, _ = server.address.rpartition(":")
    port = server.futures.port()
    while True:
        with contextlib.suppress(futures.TimeoutError):
            return host, port.result(_LOOK_S)
        on_wait()


def waiting(reporter: Reporter, state: Callable[[], str]) -> Callable[[], None]:
    """Returns an `on_wait` that reports what is waited for, and raises StopWaitingError when told to stop.

    `state` may ask a server: it is called once a second at most.
    """
    next_look, text = 0.0, ""

    def on_wait() -> None:
        nonlocal next_look, text
        if time.monotonic() >= next_look:
            text = state()
            next_look = time.monotonic() + 1
        if reporter.report(text).stop:
            raise StopWaitingError

    return on_wait


class StopWaitingError(Exception):
    """A wait was given up because the node was told to stop."""
