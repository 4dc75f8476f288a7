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


def test_real_servers_get_the_priorities_of_their_own_items():
    import reverb
    import tensorflow as tf

    from acme_ext.replay.dataset import Dataset
    from acme_ext.replay.prioritized import PrioritySink
    from acme_ext.replay.server import ReplayServer

    servers = []
    for _ in range(2):
        table = reverb.Table(
            name="transitions",
            sampler=reverb.selectors.Prioritized(1.0),
            remover=reverb.selectors.Fifo(),
            max_size=100,
            rate_limiter=reverb.rate_limiters.MinSize(20),
            signature=tf.TensorSpec((1,), tf.uint8),
        )
        servers.append(ReplayServer([table]))
    for number, server in enumerate(servers):
        sink = PrioritySink(server.client, "transitions", 0.0)
        sink.append(np.full((20, 1), number, np.uint8), np.ones(20))
        sink.flush(0, lambda: None)
        sink.close()
    shards = Shards([Dataset(server.client, "transitions", (1,), 4) for server in servers], 2)
    raw = next(shards)
    assert raw.rows.reshape(2, 2, 2).tolist() == [[[0, 0], [1, 1]]] * 2
    updater = PriorityUpdater([server.client for server in servers], "transitions")
    updater.put(raw.keys, np.full((2, 4), 50, np.float32))
    updater.close()
    for number, server in enumerate(servers):
        renewed = set(raw.keys.reshape(2, 2, 2)[:, number].ravel().tolist())
        seen = {}
        for (sample,) in server.client.sample("transitions", 60):
            seen[sample.info.key] = sample.info.priority
        assert renewed <= seen.keys()
        assert all(priority == (50 if key in renewed else 1) for key, priority in seen.items())
    shards.close()
    for server in servers:
        server.close()
