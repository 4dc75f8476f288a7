"""Environment steps a second of a loop, past its start; imports nothing that a peer might lack."""

import time


class Clock:
    """Told of the steps that were taken, says when to stop.

    Args:
        warm_up: steps that are not counted: compilation, and filling the replay.
        seconds: to count for.
    """

    def __init__(self, warm_up: int, seconds: float):
        self._warm_up, self._seconds = warm_up, seconds
        self._first: tuple[int, float] | None = None
        self.rate = 0.0
        """Steps a second, once `ended` has returned true."""

    def ended(self, steps: int) -> bool:
        """Takes the total of the steps; returns whether the time is over."""
        now = time.perf_counter()
        if self._first is None:
            if steps >= self._warm_up:
                self._first = steps, now
            return False
        first, start = self._first
        if now - start < self._seconds:
            return False
        self.rate = (steps - first) / (now - start)
        return True
