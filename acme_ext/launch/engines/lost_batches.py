"""Detects that Reverb has lost a batch, so that nobody waits for it."""

from collections.abc import Callable

from acme_ext.replay.base import Replay

_POLLS = 50  # calls of `poll` between checks; it is called five times a second


class LostBatchError(Exception):
    """A batch that is due will never arrive."""


class LostBatchDetector:
    """Ends the wait for a batch that is due if it can't arrive any more.

    Reverb may lose samples. According to its source, a reader in the server's own process cancels a request after 3
    seconds, and drops the items that were sampled for it at that moment. The rate limiter counts them as sampled. If
    nothing is inserted in the meantime, the learner would wait forever for the rest of its batch.

    Args:
        replay: the replay, which has the limit.
        counts: a function that returns the numbers of items that were inserted into and sampled from the table.
    """

    def __init__(self, replay: Replay, counts: Callable[[], tuple[int, int]]):
        self._replay, self._counts = replay, counts
        self._polls = 0

    def begin(self) -> None:
        """Starts the wait for a batch."""
        self._polls = 0

    def poll(self) -> None:
        """Raises LostBatchError after a long wait if all samples that the limit allows have been taken."""
        self._polls += 1
        if self._polls % _POLLS:
            return
        inserted, sampled = self._counts()
        if sampled >= self._replay.samples_allowed(inserted):
            raise LostBatchError
