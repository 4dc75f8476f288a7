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


class BlockSink:
    """Gathers rows into blocks of equal size for another sink. Rows that do not fill one wait for the next, so that no
    row is in two items; the last `block - 1` at most are never sent.
    """

    def __init__(self, sink: Sink, block: int):
        self._sink, self._block, self._rest = sink, block, np.zeros((0, 0), np.uint8)

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> int:
        rows = np.concatenate([self._rest, rows]) if len(self._rest) else rows
        whole = len(rows) - len(rows) % self._block
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
    most = max(1, min(replay.num_envs, replay.batch_size // _LEAST_BLOCKS))
    return next(size for size in range(most, 0, -1) if replay.batch_size % size == 0)


def limit_of(limit: RateLimit | None, block: int) -> RateLimit:
    """Returns a rate limit counted in items, in both of whose counts a block of rows is one."""
    limit = limit or RateLimit()
    if block == 1:
        return limit
    tolerance = None if limit.samples_per_insert is None else limit.error_buffer
    return dataclasses.replace(limit, tolerance=tolerance).divided(block)
