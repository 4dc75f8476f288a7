"""Writes new priorities back to the replay."""

import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from acme_ext.types import Array

if TYPE_CHECKING:
    from acme_ext.replay.fixed import FixedRows
    from acme_ext.replay.table import Table


class Errors(NamedTuple):
    """The |TD errors| of a learner call."""

    keys: np.ndarray  # uint64 [N] the items' keys
    errors: Array  # [N], or [steps, batch]; they may still be being computed
    source: np.ndarray | None = None  # [N] 0 for items of the table, and a recorded source's number for its items


class PriorityUpdater(Protocol):
    """Sends a learner's |TD errors| to the tables that its batches came from."""

    def put(self, errors: Errors) -> None:
        """Takes the errors of a learner call."""

    def settle(self) -> None:
        """Applies the errors so far, if that must happen before the next batch is drawn or the table is saved."""

    def close(self) -> None:
        """Sends all errors that were put."""


def make_updater(tables: "Sequence[Table]", fixed: "Mapping[int, FixedRows] | None" = None) -> PriorityUpdater:
    """Returns the updater that suits a replay's tables.

    Args:
        tables: the replay's shards. Each gave an equal part of every batch, in this order.
        fixed: recorded sources of a `Mixed`, by number. They receive the errors of their own items.
    """
    threaded = any(table.threaded for table in tables)
    return (ThreadedUpdater if threaded else DirectUpdater)(tables, fixed or {})


class DirectUpdater:
    """Applies errors in the learner's thread, before the next batch is drawn.

    So every batch is drawn by the priorities of all batches before it.
    """

    def __init__(self, tables: "Sequence[Table]", fixed: "Mapping[int, FixedRows]"):
        self._tables, self._fixed = tables, fixed
        self._pending: list[Errors] = []

    def put(self, errors: Errors) -> None:
        self._pending.append(errors)

    def settle(self) -> None:
        pending, self._pending = self._pending, []
        for each in pending:
            for table, keys, errors in _of_tables(each, self._tables, self._fixed):
                table.update(keys, errors)

    def close(self) -> None:
        self.settle()


class ThreadedUpdater:
    """Sends errors to their tables in its own thread, all tables in parallel.

    If a server is too slow, `put` waits, so priorities are never older than a few learner calls.
    """

    def __init__(self, tables: "Sequence[Table]", fixed: "Mapping[int, FixedRows]"):
        self._tables, self._fixed = tables, fixed
        self._queue: queue.Queue[Errors | None] = queue.Queue(maxsize=4)
        self._error: Exception | None = None
        self._pool = futures.ThreadPoolExecutor(len(self._tables), "priorities")
        self._thread = threading.Thread(target=self._run, name="priorities", daemon=True)
        self._thread.start()

    def put(self, errors: Errors) -> None:
        self._raise()
        self._queue.put(errors)

    def settle(self) -> None:
        pass

    def close(self) -> None:
        """Sends all queued errors and ends the thread."""
        self._queue.put(None)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise RuntimeError("priorities could not be written to the replay") from self._error

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            if self._error is not None:
                continue  # keep emptying the queue, so that `put` can raise the error
            try:
                parts = _of_tables(job, self._tables, self._fixed)
                each = self._pool.map if len(parts) > 1 else map  # a single table needs no further thread
                list(each(lambda part: part[0].update(*part[1:]), parts))
            except Exception as error:
                self._error = error
        self._pool.shutdown()


def _of_tables(
    given: Errors, tables: "Sequence[Table]", fixed: "Mapping[int, FixedRows]"
) -> "list[tuple[Table, np.ndarray, np.ndarray]]":
    """Returns the keys and errors of each table's items, and gives recorded sources those of their own items."""
    keys, source, errors = given.keys, given.source, np.asarray(given.errors)
    if not np.isfinite(errors).all():
        return []  # the learner's check ends the run
    if source is not None:
        for number, rows in fixed.items():
            chosen = source == number
            rows.update(keys[chosen].astype(np.int64), errors.ravel()[chosen])
    if source is None and len(tables) == 1:
        return [(tables[0], keys, errors.reshape(keys.shape))]
    # Each shard gave B / shards consecutive items of a batch of B items.
    parts = (*errors.shape[:-1], len(tables), -1)
    keys, errors = keys.reshape(parts), errors.reshape(parts)
    own = np.ones(keys.shape, bool) if source is None else source.reshape(parts) == 0
    return [
        (table, keys[..., shard, :][own[..., shard, :]], errors[..., shard, :][own[..., shard, :]])
        for shard, table in enumerate(tables)
    ]
