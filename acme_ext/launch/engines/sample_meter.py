"""How many learner calls are due in a run in one process."""

import math

from acme_ext.replay.base import Replay


class SampleMeter:
    """Computes how many learner calls the rate limit allows, from the numbers of inserted and sampled items.

    Acting and learning in turn by these numbers can't block for any valid limit, whatever the timing of Reverb's
    readers. The readers prefetch samples until they hold a batch or the limit stops them. So a call that is due gets
    its batch, at the latest when all pending inserts have arrived. While no call is due, the readers are not full, so
    inserts are not blocked.

    Args:
        replay: the replay, which has the limit.
        items_per_call: items that one learner call takes.
        inserts, samples: the table's counts from before the run was resumed.
        ahead: number of calls to delay, so that their batches are fetched while the actor acts, see `Table.ahead`.
            0 for data to learn from as soon as it arrives.
    """

    def __init__(self, replay: Replay, items_per_call: int, inserts: int = 0, samples: int = 0, *, ahead: int = 0):
        self._replay, self._items_per_call, self._ahead = replay, items_per_call, ahead
        self._inserts, self._samples = inserts, samples
        self._seen = -1  # the inserted items of the latest call of `due`, after which none is due until there are more

    def due(self, inserted: int, *, last: bool = False) -> int:
        """Returns how many learner calls to make after `inserted` inserted items, and counts them as made.

        If the limit has no ratio, this is always 1. With `last`, no call is delayed.
        """
        if inserted == self._seen and not last:
            return 0
        allowed = self._replay.samples_allowed(self._inserts + inserted)
        if math.isinf(allowed):
            return 1
        self._seen = inserted
        calls = int(allowed - self._samples) // self._items_per_call
        calls = max(0, calls if last else calls - self._ahead)
        self._samples += calls * self._items_per_call
        return calls
