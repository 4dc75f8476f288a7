"""When a single process may learn: the replay's rate limit, counted where both sides of it are known."""

import math

from acme_ext.builders.base import Replay


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
