"""One replay on two servers."""

import numpy as np
import pytest

from acme_ext.learning.priorities import PriorityUpdater
from acme_ext.replay.dataset import RawBatch
from acme_ext.replay.shards import Shards


class Part:
    """A shard's dataset: items count up from `first`, `size` of them at a time."""

    def __init__(self, first, size):
        self.next, self.size, self.closed = first, size, False

    def __next__(self):
        keys = np.arange(self.next, self.next + self.size, dtype=np.uint64)
        self.next += self.size
        rows = np.stack([keys, keys], axis=1).astype(np.uint8)
        return RawBatch(rows, keys, (1 / (1 + keys)).astype(np.float32))

    def close(self):
        self.closed = True


class Table:
    """A client that keeps the priorities it is sent."""

    def __init__(self):
        self.priorities = {}

    def mutate_priorities(self, table, updates):
        assert table == "transitions"
        self.priorities |= updates


@pytest.mark.parametrize("num_batches", [1, 3])
def test_every_batch_has_as_many_items_of_each_shard(num_batches):
    parts = [Part(0, 2 * num_batches), Part(100, 2 * num_batches)]
    raw = next(Shards(parts, num_batches))
    keys = raw.keys.reshape(num_batches, 4)
    for i in range(num_batches):
        assert keys[i].tolist() == [2 * i, 2 * i + 1, 100 + 2 * i, 101 + 2 * i]
    assert raw.keys.dtype == np.uint64
    assert raw.rows.tolist() == [[key, key] for key in raw.keys.tolist()]
    np.testing.assert_array_equal(raw.probability, (1 / (1 + raw.keys)).astype(np.float32))


@pytest.mark.parametrize("num_batches", [1, 3])
def test_priorities_go_back_to_the_shard_their_items_came_from(num_batches):
    raw = next(Shards([Part(0, 2 * num_batches), Part(100, 2 * num_batches)], num_batches))
    tables = [Table(), Table()]
    updater = PriorityUpdater(tables, "transitions")
    priorities = raw.keys.astype(np.float32) + 0.5
    updater.put(raw.keys, priorities.reshape(num_batches, 4))  # as the learner's compiled call gives them
    updater.close()
    for table, first in zip(tables, (0, 100), strict=True):
        assert table.priorities == {first + i: first + i + 0.5 for i in range(2 * num_batches)}


def test_closing_closes_every_shard():
    parts = [Part(0, 1), Part(1, 1)]
    Shards(parts, 1).close()
    assert all(part.closed for part in parts)
