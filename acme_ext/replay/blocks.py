"""Blocks of rows, which lie in one item of a table and are drawn together: Reverb's cost is per item."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from acme_ext.errors import UsageError
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.rows import OnWait, Sink

if TYPE_CHECKING:
    from acme_ext.replay.transitions import TransitionReplay

_LEAST_BLOCKS = 8  # in a batch, so that it is drawn from at least as many places of the table
_SHUFFLED_BLOCK = 8  # rows of a block, where environments are fewer
_POOL_BLOCKS = 16  # that wait to be shuffled


class BlockSink:
    """Gathers rows into blocks of equal size for another sink. Rows that do not fill one wait for the next, so that no
    row is in two items; the last `pool + block - 1` at most are never sent.

    Args:
        sink: takes the blocks.
        block: rows in one.
        pool: rows that wait. A block is drawn at random from them and from those that have just come, so that its rows
            are not of steps that follow each other. With 0 blocks are filled in order.
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
    """Raises UsageError if the rows that the user wants in an item can't be."""
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


def size(replay: "TransitionReplay") -> int:
    """Returns how many rows a block of a replay has: what the user wants, or what suits its batch and environments."""
    if replay.rows_per_item is not None:
        return replay.rows_per_item
    if replay.order != "uniform":
        return 1
    few = _SHUFFLED_BLOCK if _can_wait(replay, _SHUFFLED_BLOCK) else 1
    most = max(1, min(max(replay.num_envs, few), replay.batch_size // _LEAST_BLOCKS))
    return next(size for size in range(most, 0, -1) if replay.batch_size % size == 0)


def pool(replay: "TransitionReplay") -> int:
    """Returns how many rows wait to be shuffled: none where a block has rows of as many environments, which are nearly
    independent of each other.
    """
    shuffled = replay.num_envs < replay.block and _can_wait(replay, replay.block)
    return _POOL_BLOCKS * replay.block if shuffled else 0


def _can_wait(replay: "TransitionReplay", block: int) -> bool:
    """Whether the rows that wait to be shuffled are few beside those that are there when learning starts."""
    return replay.limit is not None and 4 * _POOL_BLOCKS * block <= replay.limit.min_size


def limit_of(limit: RateLimit | None, block: int) -> RateLimit:
    """Returns a rate limit counted in items, in both of whose counts a block of rows is one."""
    limit = limit or RateLimit()
    if block == 1:
        return limit
    tolerance = None if limit.samples_per_insert is None else limit.error_buffer
    return dataclasses.replace(limit, tolerance=tolerance).divided(block)
