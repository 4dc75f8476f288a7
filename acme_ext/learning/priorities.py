"""Writes new priorities back to the replay, outside the learner's thread."""

import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import TYPE_CHECKING, Any

import numpy as np

from acme_ext.types import Array

if TYPE_CHECKING:
    from acme_ext.replay.fixed import FixedRows


class PriorityUpdater:
    """Sends a learner's new priorities, |TD error| + `offset`, to their table, in its own thread.

    All shards are updated in parallel. If a key occurs twice in a batch, the later priority counts. If the server is
    too slow, `put` waits, so priorities are never older than a few learner calls.

    Args:
        clients: Reverb clients, one for each shard. Each shard gave an equal part of every batch, in this order.
        table: the table that the items came from.
        offset: added to every error.
        fixed: recorded sources of a `Mixed`, by number. They receive the errors of their own items.
    """

    def __init__(
        self,
        clients: Sequence[Any],
        table: str,
        offset: float = 0.0,
        fixed: "Mapping[int, FixedRows] | None" = None,
    ):
        self._clients, self._table, self._offset, self._fixed = clients, table, offset, fixed or {}
        self._queue: queue.Queue[tuple[np.ndarray, Array, np.ndarray | None] | None] = queue.Queue(maxsize=4)
        self._error: Exception | None = None
        self._pool = futures.ThreadPoolExecutor(len(self._clients), "priorities")
        self._thread = threading.Thread(target=self._run, name="priorities", daemon=True)
        self._thread.start()

    def put(self, keys: np.ndarray, errors: Array, source: np.ndarray | None = None) -> None:
        """Queues the |TD errors| `[N]` of the items `keys` `[N]`; the errors may still be being computed.

        `source` `[N]` is 0 for items of the table, and a recorded source's number for its items.
        """
        self._raise()
        self._queue.put((keys, errors, source))

    def close(self) -> None:
        """Sends all queued priorities and ends the thread."""
        self._queue.put(None)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise RuntimeError(f"priorities could not be written to table {self._table!r}") from self._error

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            if self._error is not None:
                continue  # keep emptying the queue, so that `put` can raise the error
            try:
                keys, errors, source = job
                errors = np.asarray(errors)
                if not np.isfinite(errors).all():
                    continue  # the learner's check ends the run, and Reverb's table would stop working
                source = np.zeros(len(keys), np.uint8) if source is None else source
                for number, rows in self._fixed.items():
                    chosen = source == number
                    rows.update(keys[chosen].astype(np.int64), errors.ravel()[chosen])
                # Each shard gave B / shards consecutive items of a batch of B items.
                parts = (*errors.shape[:-1], len(self._clients), -1)
                keys, own = keys.reshape(parts), source.reshape(parts) == 0
                values = errors.reshape(parts) + np.float32(self._offset)

                def send(shard: int, client: Any, keys=keys, values=values, own=own) -> None:
                    mine = own[..., shard, :]
                    pairs = zip(keys[..., shard, :][mine].tolist(), values[..., shard, :][mine].tolist(), strict=True)
                    client.mutate_priorities(self._table, dict(pairs))

                list(self._pool.map(send, range(len(self._clients)), self._clients))
            except Exception as error:
                self._error = error
        self._pool.shutdown()
