"""Waiting for a batch that is due, which Reverb may have lost."""

from collections.abc import Callable

from acme_ext.replay.base import Replay

_LOOKS = 50  # that a batch is awaited, at five a second


class LostBatchError(Exception):
    """A batch that is due will not come."""


class Patience:
    """Looks on while a batch is awaited that is due, and ends the wait if it can't come any more.

    Reverb may lose samples. By its source, a reader in the server's own process gives a request up that has waited for
    3 seconds, and drops what was drawn for it in that moment. The limit counts it as sampled, so that a learner waits
    for ever for the rest of its batch, where nothing is inserted meanwhile.

    Args:
        replay: knows the limit.
        counts: how many items the table has had inserted and sampled.
    """

    def __init__(self, replay: Replay, counts: Callable[[], tuple[int, int]]):
        self._replay, self._counts = replay, counts
        self._looks = 0

    def begin(self) -> None:
        """A batch is awaited from now on."""
        self._looks = 0

    def look(self) -> None:
        """Raises LostBatchError if for long no batch has come though all that the limit allows has been drawn."""
        self._looks += 1
        if self._looks % _LOOKS:
            return
        inserted, sampled = self._counts()
        if sampled >= self._replay.samples_allowed(inserted):
            raise LostBatchError
