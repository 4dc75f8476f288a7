"""Collects the requests of many callers into batches for one device."""

import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

Request = TypeVar("Request")

_ALIVE_S = 5.0  # time since its last request after which a batch no longer waits for a caller


class _Entry(NamedTuple):
    arrived: float
    size: int
    request: Any


class Batcher(Generic[Request]):
    """Holds waiting requests, and decides when they form a batch.

    A batch is due when the waiting requests reach a share of the total size of all live callers, or when the oldest
    request has waited for `wait_s`. So a dead caller doesn't block the others, and a single caller never waits.
    Requests are not split.

    Args:
        most: largest total size of a batch.
        share: fraction of the live callers' total size that makes a batch due, in (0, 1].
        wait_s: longest wait of a request; with 0, any waiting requests form a batch at once.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, *, most: int, share: float = 0.5, wait_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ):
        self._most, self._share, self._wait_s, self._clock = most, share, wait_s, clock
        self._waiting: list[_Entry] = []
        self._seen: dict[Any, tuple[float, int]] = {}  # caller -> (latest request, its size)

    def add(self, caller: Any, size: int, request: Request) -> None:
        """Adds a caller's request of this size; the caller must not have another request waiting."""
        now = self._clock()
        self._seen[caller] = (now, size)
        self._waiting.append(_Entry(now, size, request))

    def due_s(self) -> float | None:
        """Returns the seconds until a batch is due if no further request arrives; None if no request waits."""
        if not self._waiting:
            return None
        if self._wait_s == 0:
            return 0.0
        now = self._clock()
        alive = sum(size for seen, size in self._seen.values() if now - seen < _ALIVE_S)
        if sum(entry.size for entry in self._waiting) >= min(self._share * alive, self._most):
            return 0.0
        return max(0.0, self._waiting[0].arrived + self._wait_s - now)

    def take(self) -> list[Request]:
        """Removes and returns the oldest requests, up to the size of a batch; an empty list if none wait."""
        batch, size = [], 0
        for entry in self._waiting:
            if batch and size + entry.size > self._most:
                break
            batch.append(entry.request)
            size += entry.size
        del self._waiting[: len(batch)]
        return batch
