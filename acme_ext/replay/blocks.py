"""Blocks of rows: several rows are stored in one item of a table and sampled together, because Reverb's cost is per
item.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from acme_ext.errors import UsageError
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.rows import OnWait, Sink

_LEAST_BLOCKS = 8  # minimum number of blocks in a batch, so that it has rows from several parts of the table
_SHUFFLED_BLOCK = 8  # rows in a block if there are fewer environments
_POOL_BLOCKS = 16  # size of the shuffling pool, in blocks


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
    return dataclasses.replace(replay, in_blocks=False) if hasattr(replay, "in_blocks") else replay


def check_blocks(rows_per_item: int, batch_size: int, order: str) -> None:
    """Raises UsageError if the user's `rows_per_item` is not possible for a replay of transitions."""
    if rows_per_item > 1 and order != "uniform":
        kind = "prioritized replay" if order == "prioritized" else "queue"
        raise UsageError(f"rows_per_item is {rows_per_item}: a {kind} keeps 1 transition an item, drawn by itself.")
    if batch_size % rows_per_item:
        raise UsageError(
            f"batch_size {batch_size} is not a multiple of rows_per_item {rows_per_item}: a batch is drawn in whole "
            f"items; give rows_per_item {math.gcd(batch_size, rows_per_item)}."
        )


def size(batch_size: int, num_envs: int, limit: RateLimit | None) -> int:
    """Returns a number of rows per block that suits a uniform replay's batch size and environments."""
    few = _SHUFFLED_BLOCK if _can_wait(_SHUFFLED_BLOCK, limit) else 1
    most = max(1, min(max(num_envs, few), batch_size // _LEAST_BLOCKS))
    return next(size for size in range(most, 0, -1) if batch_size % size == 0)


def pool(block: int, num_envs: int, limit: RateLimit | None) -> int:
    """Returns the size of the shuffling pool, in rows.

    It is 0 if a block's rows come from as many environments, because these rows are already nearly independent.
    """
    return _POOL_BLOCKS * block if num_envs < block and _can_wait(block, limit) else 0


def _can_wait(block: int, limit: RateLimit | None) -> bool:
    """Whether the shuffling pool is small compared to the number of rows when learning starts."""
    return limit is not None and 4 * _POOL_BLOCKS * block <= limit.min_size


def limit_of(limit: RateLimit | None, block: int) -> RateLimit:
    """Converts a rate limit in rows to one in items, where a block counts as one insert and as one sample."""
    limit = limit or RateLimit()
    if block == 1:
        return limit
    tolerance = None if limit.samples_per_insert is None else limit.error_buffer
    return dataclasses.replace(limit, tolerance=tolerance).divided(block)
