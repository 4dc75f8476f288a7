"""Gathering the requests of many callers into batches for one device."""

import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

Request = TypeVar("Request")

_ALIVE_S = 5.0  # without a request before a caller no longer counts as one that another request is awaited from


class _Entry(NamedTuple):
    arrived: float
    size: int
    request: Any


class Batcher(Generic[Request]):
    """The requests that wait, and when they are a batch.

    A batch is due when either enough has come (a share of what all callers that are alive have between them) or the
    oldest request has waited long enough. So a caller that dies stalls nobody, and one that is alone waits for nobody.
    Requests are not split.

    Args:
        most: largest sum of sizes in a batch.
        share: of the sizes of all callers that are alive, what is enough, in (0, 1].
        wait_s: longest wait for enough; with 0 whatever is there is a batch.
        clock: seconds that only grow.
    """

    def __init__(
        self, *, most: int, share: float = 0.5, wait_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ):
        self._most, self._share, self._wait_s, self._clock = most, share, wait_s, clock
        self._waiting: list[_Entry] = []
        self._seen: dict[Any, tuple[float, int]] = {}  # caller -> (latest request, its size)

    def add(self, caller: Any, size: int, request: Request) -> None:
        """Takes the request of a caller that has none here; it takes `size` of a batch."""
        now = self._clock()
        self._seen[caller] = (now, size)
        self._waiting.append(_Entry(now, size, request))

    def due_s(self) -> float | None:
        """Returns in how many seconds a batch is due if nothing comes meanwhile; None if nothing waits."""
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
        """Returns the oldest requests, as many as a batch holds; none if none wait."""
        batch, size = [], 0
        for entry in self._waiting:
            if batch and size + entry.size > self._most:
                break
            batch.append(entry.request)
            size += entry.size
        del self._waiting[: len(batch)]
        return batch
