"""A queue of rows in memory."""

import collections
import pathlib
from typing import Any

import numpy as np

from acme_ext.replay.base import Replay
from acme_ext.replay.embedded.table import EmbeddedTable
from acme_ext.replay.table import RawBatch


class Queue(EmbeddedTable):
    """Rows that are taken once, first in, first out.

    More than `max_size` rows may wait here, as they do in the writer of a full Reverb queue: no row is ever lost.
    """

    def __init__(self, replay: Replay):
        super().__init__(replay)
        self._waiting: collections.deque[np.ndarray] = collections.deque()

    @property
    def size(self) -> int:
        return len(self._waiting)

    def insert(self, rows: np.ndarray, errors: np.ndarray | None) -> None:
        assert errors is None
        self._waiting.extend(rows)
        self._inserted += len(rows)

    def sample(self, count: int) -> RawBatch:
        size = self.size
        rows = np.stack([self._waiting.popleft() for _ in range(count)])
        keys = np.arange(self._sampled, self._sampled + count, dtype=np.uint64)
        self._sampled += count
        return RawBatch(rows, keys, np.ones(count, np.float32), np.full(count, size))

    def update(self, keys: np.ndarray, errors: np.ndarray) -> None:
        """Does nothing: a queue has no priorities."""

    def save(self, folder: pathlib.Path) -> None:
        super().save(folder)
        rows = np.stack(self._waiting) if self._waiting else np.zeros((0, self._replay.nbytes), np.uint8)
        np.save(folder / "rows.npy", rows)

    def _load_contents(self, folder: pathlib.Path, state: dict[str, Any]) -> None:
        self._waiting.extend(np.load(folder / "rows.npy"))
