"""Gathering the requests of many callers into batches for one device."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

Request = TypeVar("Request")

_ALIVE_S = 5.0  # without a request before a caller no longer counts as one that another request is awaited from


class _Ticket(NamedTuple):
    caller: Any
    size: int
    request: Any
    arrived: float
    future: Future


class Batcher(Generic[Request]):
    """Runs requests in batches, in a thread of its own, which is the only one that runs them.

    A batch runs when nothing else does and either enough has come (a share of what all callers that are alive have
    between them) or the oldest request has waited long enough. So a caller that dies stalls nobody, and one that is
    alone waits for nobody. Requests are not split, and of those of one batch no two are of the same caller.

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
        self._run_batch, self._most, self._share, self._wait_s = run, most, share, wait_s
        self._pending: list[_Ticket] = []
        self._seen: dict[Any, tuple[float, int]] = {}  # caller -> (latest request, its size)
        self._changed = threading.Condition()
        self._stopped: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, caller: Any, size: int, request: Request) -> Future:
        """Queues a request of a caller, which has none under way; returns the future of its answer."""
        future: Future = Future()
        now = time.monotonic()
        with self._changed:
            if self._stopped is not None:
                future.set_exception(self._stopped)
                return future
            self._seen[caller] = (now, size)
            self._pending.append(_Ticket(caller, size, request, now, future))
            self._changed.notify()
        return future

    def close(self, reason: Exception) -> None:
        """Ends the thread; whoever waits, or asks later, is raised `reason`."""
        with self._changed:
            self._stopped = reason
            pending, self._pending = self._pending, []
            self._changed.notify()
        for ticket in pending:
            ticket.future.set_exception(reason)
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                answers = self._run_batch([ticket.request for ticket in batch])
            except Exception as error:
                for ticket in batch:
                    ticket.future.set_exception(error)
                continue
            for ticket, answer in zip(batch, answers, strict=True):
                ticket.future.set_result(answer)

    def _next(self) -> list[_Ticket] | None:
        """Waits for the next batch and takes it; None once it has been closed."""
        with self._changed:
            while self._stopped is None:
                if not self._pending:
                    self._changed.wait()
                    continue
                now = time.monotonic()
                left = self._pending[0].arrived + self._wait_s - now
                if left <= 0 or sum(ticket.size for ticket in self._pending) >= self._enough(now):
                    return self._take()
                self._changed.wait(left)
            return None

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
