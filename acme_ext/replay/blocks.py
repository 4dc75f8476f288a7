"""Blocks of rows: several rows are stored in one item of a table and sampled together, because Reverb's cost is per
item.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from acme_ext.errors import UsageError
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.rows import OnWait, Sink

if TYPE_CHECKING:
    from acme_ext.replay.transitions import TransitionReplay

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


def check(replay: "TransitionReplay") -> None:
    """Raises UsageError if the user's `rows_per_item` is not possible for this replay."""
    if replay.rows_per_item is None:
        return
    if replay.rows_per_item > 1 and replay.order != "uniform":
        kind = "prioritized replay" if replay.prioritized else "queue"
        raise UsageError(
            f"rows_per_item is {replay.rows_per_item}: a {kind} keeps 1 transition an item, drawn by itself."
        )
    if replay.batch_size % replay.rows_per_item:
        raise UsageError(
            f"batch_size {replay.batch_size} is not a multiple of rows_per_item {replay.rows_per_item}: a batch is "
            f"drawn in whole items; give rows_per_item {math.gcd(replay.batch_size, replay.rows_per_item)}."
        )


def singly(replay: Any) -> Any:
    """Returns a replay with one row per item, or the replay itself if it has no blocks of rows."""
    return dataclasses.replace(replay, rows_per_item=1) if hasattr(replay, "rows_per_item") else replay


def size(replay: "TransitionReplay") -> int:
    """Returns a replay's number of rows per block: the user's, or one that suits its batch size and environments."""
    if replay.rows_per_item is not None:
        return replay.rows_per_item
    if replay.order != "uniform":
        return 1
    few = _SHUFFLED_BLOCK if _can_wait(replay, _SHUFFLED_BLOCK) else 1
    most = max(1, min(max(replay.num_envs, few), replay.batch_size // _LEAST_BLOCKS))
    return next(size for size in range(most, 0, -1) if replay.batch_size % size == 0)


def pool(replay: "TransitionReplay") -> int:
    """Returns the size of the shuffling pool, in rows.

    It is 0 if a block's rows come from as many environments, because these rows are already nearly independent.
    """
    shuffled = replay.num_envs < replay.block and _can_wait(replay, replay.block)
    return _POOL_BLOCKS * replay.block if shuffled else 0


def _can_wait(replay: "TransitionReplay", block: int) -> bool:
    """Whether the shuffling pool is small compared to the number of rows when learning starts."""
    return replay.limit is not None and 4 * _POOL_BLOCKS * block <= replay.limit.min_size


def limit_of(limit: RateLimit | None, block: int) -> RateLimit:
    """Converts a rate limit in rows to one in items, where a block counts as one insert and as one sample."""
    limit = limit or RateLimit()
    if block == 1:
        return limit
    tolerance = None if limit.samples_per_insert is None else limit.error_buffer
    return dataclasses.replace(limit, tolerance=tolerance).divided(block)
