"""One replay on two servers."""

import numpy as np
import pytest
from timelines import SPEC

from acme_ext.learning.priorities import Errors, make_updater
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.shards import Shards
from acme_ext.replay.table import RawBatch
from acme_ext.replay.transitions import TransitionReplay


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
    """A table that keeps the errors it is sent."""

    threaded = True

    def __init__(self):
        self.priorities = {}

    def update(self, keys, errors):
        self.priorities |= dict(zip(keys.tolist(), errors.tolist(), strict=True))


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
    updater = make_updater(tables)
    priorities = raw.keys.astype(np.float32) + 0.5
    updater.put(Errors(raw.keys, priorities.reshape(num_batches, 4)))  # as the learner's compiled call gives them
    updater.close()
    for table, first in zip(tables, (0, 100), strict=True):
        assert table.priorities == {first + i: first + i + 0.5 for i in range(2 * num_batches)}


def test_closing_closes_every_shard():
    parts = [Part(0, 1), Part(1, 1)]
    Shards(parts, 1).close()
    assert all(part.closed for part in parts)


def test_real_servers_get_the_priorities_of_their_own_items(serve):
    replay = TransitionReplay(
        SPEC, batch_size=4, order="prioritized", priority_offset=0.0, limit=RateLimit(min_size=20)
    )
    servers = [serve(replay) for _ in range(2)]
    for number, server in enumerate(servers):
        sink = server.table.sink()
        sink.append(np.full((20, replay.nbytes), number, np.uint8), np.ones(20))
        sink.flush(0, lambda: None)
        sink.close()
    shards = Shards([server.table.batches(2) for server in servers], 2)
    raw = next(shards)
    assert raw.rows[:, 0].reshape(2, 2, 4).tolist() == [[[0] * 4, [1] * 4]] * 2
    updater = make_updater([server.table for server in servers])
    updater.put(Errors(raw.keys, np.full((2, 8), 50, np.float32)))
    updater.close()
    for number, server in enumerate(servers):
        renewed = set(raw.keys.reshape(2, 2, 4)[:, number].ravel().tolist())
        seen = {}
        for sample in server.client.sample("transitions", 200, emit_timesteps=False):
            seen[sample.info.key] = sample.info.priority
        assert renewed <= seen.keys()
        assert all(priority == (50 if key in renewed else 1) for key, priority in seen.items())
    shards.close()
