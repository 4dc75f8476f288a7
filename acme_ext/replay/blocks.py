"""Blocks of rows: several rows are stored in one item of a table and sampled together, because Reverb's cost is per
item.
"""

import dataclasses
from typing import Any

import numpy as np

from acme_ext.replay.limits import RateLimit
from acme_ext.replay.rows import OnWait, Sink


class BlockSink:
    """Collects rows into blocks of equal size for another sink.

    Rows that don't fill a block wait for the next rows, so no row is stored twice. At most the last `pool + block - 1`
    rows are never sent.

    Args:
        sink: receives the blocks.
        block: rows in a block.
        pool: rows to hold back. Blocks are drawn at random from these and the new rows, so that their rows are not from
            consecutive steps. With 0, blocks are filled in order.
    """

    def __init__(self, sink: Sink, block: int, pool: int = 0):
        self._sink, self._block, self._pool, self._rest = sink, block, pool, np.zeros((0, 0), np.uint8)
        self._rng = np.random.default_rng(0)

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> int:
        rows = np.concatenate([self._rest, rows]) if len(self._rest) else rows
        whole = max(0, len(rows) - self._pool)
        whole -= whole % self._block
        if self._pool and whole:
            rows = rows[self._rng.permutation(len(rows))]
        rows, self._rest = rows[:whole], rows[whole:]
        if whole:
            self._sink.append(rows.reshape(-1, self._block, rows.shape[1]), errors)
        return whole

    def flush(self, pending: int, on_wait: OnWait) -> None:
        self._sink.flush(pending // self._block, on_wait)

    def has_sent(self, pending: int) -> bool:
        return self._sink.has_sent(pending // self._block)

    def close(self) -> None:
        self._sink.close()


def singly(replay: Any) -> Any:
    """Returns a replay with one row per item, or the replay itself if it has no blocks of rows."""
    return dataclasses.replace(replay, rows_per_item=1) if hasattr(replay, "rows_per_item") else replay


def limit_of(limit: RateLimit | None, block: int) -> RateLimit:
    """Converts a rate limit in rows to one in items, where a block counts as one insert and as one sample."""
    limit = limit or RateLimit()
    if block == 1:
        return limit
    tolerance = None if limit.samples_per_insert is None else limit.error_buffer
    return dataclasses.replace(limit, tolerance=tolerance).divided(block)
