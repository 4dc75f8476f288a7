"""When a single process may learn: the replay's rate limit, counted where both sides of it are known."""

import math
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


class SampleMeter:
    """Tells how many learner calls the rate limit allows, from the counts of inserts and of samples the learner took.

    Reverb's own readers run ahead of the learner, until they hold a batch or the limit stops them. So a call that is
    due by these counts finds its batch, at the latest when inserts that are under way have arrived; and while none is
    due the readers are not full, so that inserts go through. That is why acting and learning in turn, each when its
    turn has come by the counts, can't block for any valid limit, and why it doesn't depend on the readers' timing.

    Args:
        replay: knows the limit.
        items_per_call: items that a learner call takes.
        inserts, samples: what the table had seen before, in a resumed run.
        ahead: calls that are held back so that their batches are fetched while the actor acts: at most one, which the
            readers have room for beside the next. None for data that should be learned from as soon as it is there.
    """

    def __init__(self, replay: Replay, items_per_call: int, inserts: int = 0, samples: int = 0, *, ahead: int = 0):
        self._replay, self._items_per_call, self._ahead = replay, items_per_call, ahead
        self._inserts, self._samples = inserts, samples

    def due(self, inserted: int, *, last: bool = False) -> int:
        """Returns the learner calls to make now that this run has inserted `inserted` items, and counts them as made.

        Without a ratio in the limit, it is one call for each time it is asked. With `last` nothing is held back.
        """
        allowed = self._replay.samples_allowed(self._inserts + inserted)
        if math.isinf(allowed):
            return 1
        calls = int(allowed - self._samples) // self._items_per_call
        calls = max(0, calls if last else calls - self._ahead)
        self._samples += calls * self._items_per_call
        return calls
