"""Reads from a replay that is split over several servers."""

from collections.abc import Sequence

import numpy as np

from acme_ext.replay.table import Batches, RawBatch


class Shards:
    """A dataset that takes an equal part of every batch from each of several datasets.

    In a batch of B items, those of shard i start at i * B / shards. `PriorityUpdater` relies on this order.

    Args:
        datasets: one dataset for each shard, whose items hold parts of `num_batches` batches.
        num_batches: batches in an item.
    """

    def __init__(self, datasets: Sequence[Batches], num_batches: int):
        self._datasets, self._num_batches = datasets, num_batches

    def __iter__(self) -> "Shards":
        return self

    def __next__(self) -> RawBatch:
        parts = [next(dataset) for dataset in self._datasets]
        rows, keys, probability, size, _ = zip(*parts, strict=True)
        size = None if size[0] is None else self._join(size)
        return RawBatch(self._join(rows), self._join(keys), self._join(probability), size)

    def close(self) -> None:
        """Closes every shard's dataset."""
        for dataset in self._datasets:
            dataset.close()

    def _join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        batches = [part.reshape(self._num_batches, -1, *part.shape[1:]) for part in parts]
        joined = np.concatenate(batches, axis=1)
        return joined.reshape(-1, *joined.shape[2:])
