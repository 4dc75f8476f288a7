"""A node's connection to the coordinator: the node sends reports, and the replies have its orders."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any, NamedTuple

from acme_ext.launch.roles import NodeId

STARTING = "is starting"
"""The state that a node reports first, before it has done anything."""
UNWRITTEN = "unwritten"
"""The count that is 1 from the start of a node that records until it has written all episodes; programs wait for it."""


_LOOK_S = 0.2
_KEEP_S = 2.0  # between the times that a policy's memory is sent


class Orders(NamedTuple):
    """The coordinator's orders to a node."""

    stop: bool  # whether to end (an actor, an evaluator) or to make the last save (the learner)
    environment_steps: int  # environment steps that the whole program has taken
    evaluate: dict[str, Any] | None = None  # an evaluator's next task


def enter(coordinator: Any, role: str, index: int | None = None) -> NodeId:
    """Registers the start of a node with the coordinator; returns the node's identity, with the start."""
    return NodeId(role, index, coordinator.enter(NodeId(role, index).key))


class Reporter:
    """Sends a node's reports to the coordinator, at most one per `period_s` seconds, and keeps the latest orders.

    Reports are asynchronous unless they are sent with `now=True`: the orders are read once the reply has arrived. Log
    rows are kept until the report that contained them is answered.

    Args:
        coordinator: the coordinator's client.
        node: the node, see `enter`.
        period_s: minimum seconds between reports.
    """

    def __init__(self, coordinator: Any, node: NodeId, period_s: float = 0.1):
        self._coordinator, self._node, self._period_s = coordinator, str(node), period_s
        self._lock = threading.RLock()  # several threads of a node may report
        self._rows: list[tuple[int, str, dict[str, Any]]] = []
        self._numbered = 0
        self._under_way: tuple[Any, int] | None = None  # the pending reply, and the number of the last row sent
        self._keep_next: dict[str, float] = {}
        self._next = 0.0
        self.counts: dict[str, float] = {}
        """Totals for the next report."""
        self.reported: dict[str, float] = {}
        """Totals of the latest report."""
        self.orders = Orders(False, 0)
        """The latest orders."""
        self.report(STARTING, now=True)

    def row(self, label: str, row: dict[str, Any]) -> None:
        """Adds a log row to the next report."""
        with self._lock:
            self._numbered += 1
            self._rows.append((self._numbered, label, row))

    def report(self, state: str, *, now: bool = False) -> Orders:
        """Reports if a report is due; with `now`, always reports and waits for the reply. Returns the latest orders."""
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
        """Sends the memory of an `InferenceCore`'s policy to the coordinator, under a name, if that is due.

        Does nothing for a policy without a memory.
        """
        if core is None or not core.has_memory or not (now or time.monotonic() >= self._keep_next.get(name, 0.0)):
            return
        self._coordinator.keep(self._node, name, core.save_memory(), core.shared_statistics())
        self._keep_next[name] = time.monotonic() + _KEEP_S

    def kept(self, core: Any, name: str) -> None:
        """Restores an `InferenceCore`'s memory from the one that was stored under a name."""
        if core is not None and core.has_memory:
            core.restore_memory(self._coordinator.kept(name))

    def done(self, **result: Any) -> None:
        """Reports that the node has ended, or an evaluator's score."""
        self._coordinator.done(self._node, result)


def find(server: Any, on_wait: Callable[[], None] = lambda: None) -> tuple[str, int]:
    """Returns the host and port at which a node answers calls, see `utils.calls`.

    Waits for a node that has not started yet, or is being restarted.

    Args:
        server: the node's Courier client, with a method `port`.
        on_wait: called a few times a second during the wait; it may raise to end the wait.
    """
    host, _, _ = server.address.rpartition(":")
    port = server.futures.port()
    while True:
        with contextlib.suppress(futures.TimeoutError):
            return host, port.result(_LOOK_S)
        on_wait()


def waiting(reporter: Reporter, state: Callable[[], str]) -> Callable[[], None]:
    """Returns an `on_wait` that reports `state()`, and raises StopWaitingError when the node is told to stop.

    `state` may call a server; it is called at most once a second.
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
