"""Gathering the requests of many callers into batches for one device."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")

_ALIVE_S = 5.0  # without a request before a caller no longer counts as one that another request is awaited from


class _Ticket:
    """A request in the queue, and the thread that waits for it."""

    def __init__(self, size: int, request: Any):
        self.size, self.request = size, request
        self.arrived = time.monotonic()
        self.answer: Any = None
        self.error: Exception | None = None
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def sleep(self) -> None:
        """Waits for `wake`, which may have come before."""
        self._asleep.acquire()

    def wake(self) -> None:
        self._asleep.release()


class Batcher(Generic[Request]):
    """Runs the requests of many threads in batches, one batch at a time.

    A batch runs when nothing else does and either enough has come (a share of what all callers that are alive have
    between them) or the oldest request has waited long enough. So a caller that dies stalls nobody, and one that is
    alone waits for nobody. Requests are not split.

    There is no thread for it: whoever asks first runs the batch that holds its request, and hands on to the oldest of
    those who have come meanwhile. A lone caller's request never changes threads, which would cost more than the call
    of a small network.

    Args:
        run: runs a batch; `requests -> answers`, of the same length. What it raises is raised to all callers of the
            batch.
        most: largest sum of sizes in a batch.
        share: of the sizes of all callers that are alive, what is enough to run, in (0, 1].
        wait_s: longest wait for enough; 0 runs whatever is there as soon as nothing else runs.
    """

    def __init__(
        self, run: Callable[[Sequence[Request]], Sequence[Any]], *, most: int, share: float = 0.5, wait_s: float = 0.0
    ):
        self._run, self._most, self._share, self._wait_s = run, most, share, wait_s
        self._pending: list[_Ticket] = []
        self._seen: dict[Any, tuple[float, int]] = {}  # caller -> (latest request, its size)
        self._leader: _Ticket | None = None  # whose thread runs a batch, or waits until one is due
        self._changed = threading.Condition()
        self._stopped: Exception | None = None

    def ask(self, caller: Any, size: int, request: Request) -> Any:
        """Returns the answer to the request of a caller that has none under way; it takes `size` of a batch."""
        ticket = _Ticket(size, request)
        with self._changed:
            if self._stopped is not None:
                raise self._stopped
            self._seen[caller] = (ticket.arrived, size)
            self._pending.append(ticket)
            if self._leader is None:
                self._leader = ticket
            else:
                self._changed.notify_all()  # it may be enough now
        if self._leader is not ticket:
            ticket.sleep()
        if self._leader is ticket:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        return ticket.answer

    def close(self, reason: Exception) -> None:
        """Whoever waits, or asks later, is raised `reason`; returns when the batch that runs is done."""
        with self._changed:
            self._stopped = reason
            for ticket in self._pending:
                ticket.error = reason
                if ticket is not self._leader:  # which is awake, or told to be
                    ticket.wake()
            self._pending = []
            self._changed.notify_all()
            while self._leader is not None:
                self._changed.wait()

    def _lead(self) -> None:
        """Runs the batch of the oldest request, this thread's own, and hands on."""
        batch = self._next()
        if batch:
            self._run_batch(batch)
        with self._changed:
            self._leader = self._pending[0] if self._pending else None
            if self._leader is not None:
                self._leader.wake()
            self._changed.notify_all()
        for other in batch[1:]:
            other.wake()

    def _run_batch(self, batch: Sequence[_Ticket]) -> None:
        try:
            answers = self._run([ticket.request for ticket in batch])
            for ticket, answer in zip(batch, answers, strict=True):
                ticket.answer = answer
        except Exception as error:
            for ticket in batch:
                ticket.error = error

    def _next(self) -> list[_Ticket]:
        """Waits until a batch is due and takes it; nothing once the batcher is closed."""
        with self._changed:
            while self._stopped is None:
                now = time.monotonic()
                left = self._pending[0].arrived + self._wait_s - now
                if left <= 0 or sum(ticket.size for ticket in self._pending) >= self._enough(now):
                    return self._take()
                self._changed.wait(left)
            return []

    def _enough(self, now: float) -> float:
        alive = sum(size for seen, size in self._seen.values() if now - seen < _ALIVE_S)
        return min(self._share * alive, self._most)

    def _take(self) -> list[_Ticket]:
        batch, size = [], 0
        for ticket in self._pending:
            if batch and size + ticket.size > self._most:
                break
            batch.append(ticket)
            size += ticket.size
        del self._pending[: len(batch)]
        return batch
