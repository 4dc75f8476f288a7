import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.learning.priorities import PriorityUpdater


class Client:
    """In the place of a Reverb client."""

    def __init__(self):
        self.calls: list[tuple[str, dict[int, float]]] = []
        self.error: Exception | None = None
        self.open = threading.Event()
        self.open.set()

    def mutate_priorities(self, table, updates):
        self.open.wait()
        if self.error is not None:
            raise self.error
        self.calls.append((table, dict(updates)))


def keys(*numbers):
    return np.array(numbers, np.uint64)


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def updater(client):
    updater = PriorityUpdater([client], "t")
    yield updater
    client.open.set()
    client.error = None
    updater._error = None
    updater.close()


def test_sends_each_priority_with_its_key(client, updater):
    updater.put(keys(3, 2**64 - 1), np.array([0.5, 1.5], np.float32))
    updater.close()
    assert client.calls == [("t", {3: 0.5, 2**64 - 1: 1.5})]


def test_a_key_that_comes_twice_takes_the_later_priority(client, updater):
    # Of two fused steps: the item 7 was in both, and the item 8 twice in the second.
    updater.put(keys(7, 1, 8, 2, 7, 8, 3, 8), jnp.array([[1.0, 2, 3, 4], [5, 6, 7, 8]]))
    updater.close()
    assert client.calls == [("t", {7: 5.0, 1: 2.0, 8: 8.0, 2: 4.0, 3: 7.0})]


def test_errors_that_are_no_numbers_are_not_sent(client, updater):
    updater.put(keys(1, 2), np.array([0.5, np.nan], np.float32))
    updater.put(keys(3), np.array([np.inf], np.float32))
    updater.put(keys(1, 2), np.array([2.5, 3.5], np.float32))
    updater.close()
    assert client.calls == [("t", {1: 2.5, 2: 3.5})]


def test_priorities_may_be_under_computation(client, updater):
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda i, y: y + 1, x))
    updater.put(keys(1, 2), slow(jnp.zeros(2)))
    updater.close()
    assert client.calls == [("t", {1: 1000.0, 2: 1000.0})]


def test_closing_sends_what_is_queued_in_its_order(client, updater):
    client.open.clear()
    for i in range(4):
        updater.put(keys(i), np.array([float(i)]))
    client.open.set()
    updater.close()
    assert client.calls == [("t", {i: float(i)}) for i in range(4)]
    assert not updater._thread.is_alive()


def test_waits_for_a_server_that_does_not_follow(client, updater):
    client.open.clear()
    put = []

    def learn():
        for i in range(20):
            updater.put(keys(i), np.ones(1))
            put.append(i)

    thread = threading.Thread(target=learn, daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert len(put) < 10  # a few learner calls ahead
    client.open.set()
    thread.join()
    updater.close()
    assert [next(iter(updates)) for _, updates in client.calls] == list(range(20))


@pytest.mark.parametrize("where", ["put", "close"])
def test_errors_surface(client, updater, where):
    def put_often():
        for _ in range(1000):
            updater.put(keys(1), np.ones(1))

    client.error = OSError("no server")
    updater.put(keys(1), np.ones(1))
    with pytest.raises(RuntimeError, match="priorities could not be written to table 't'") as caught:
        updater.close() if where == "close" else put_often()
    assert caught.value.__cause__ is client.error


def test_priorities_that_do_not_fit_the_keys_are_an_error(updater):
    updater.put(keys(1, 2, 3), np.ones(2))
    with pytest.raises(RuntimeError, match="priorities could not be written"):
        updater.close()


def test_shards_get_their_own_items():
    # Two steps with batches of 4, of which each shard gave two, side by side.
    clients = [Client(), Client()]
    updater = PriorityUpdater(clients, "t")
    updater.put(keys(1, 2, 11, 12, 3, 4, 13, 14), np.arange(8.0).reshape(2, 4))
    updater.close()
    assert clients[0].calls == [("t", {1: 0.0, 2: 1.0, 3: 4.0, 4: 5.0})]
    assert clients[1].calls == [("t", {11: 2.0, 12: 3.0, 13: 6.0, 14: 7.0})]


def test_a_real_table_takes_them():
    import reverb

    from acme_ext.replay.server import ReplayServer

    selector = reverb.selectors.Prioritized(1.0)
    table = reverb.Table("t", selector, reverb.selectors.Fifo(), 10, reverb.rate_limiters.MinSize(1))
    server = ReplayServer([table])
    for i in range(3):
        server.client.insert(np.float32(i), {"t": 1.0})
    key_of = {int(s[0].data[0].item()): s[0].info.key for s in server.client.sample("t", 60)}
    updater = PriorityUpdater([server.client], "t")
    # An item that has left the table meanwhile is nobody's error.
    updater.put(keys(key_of[0], key_of[1], key_of[2], 12345), np.array([2.0, 0.0, 6.0, 9.0], np.float32))
    updater.close()
    drawn = [s[0] for s in server.client.sample("t", 200)]
    assert {int(s.data[0].item()) for s in drawn} == {0, 2}
    for s in drawn:
        assert s.info.priority == {0: 2.0, 2: 6.0}[int(s.data[0].item())]
        assert s.info.probability == pytest.approx(s.info.priority / 8)
    server.close()


def test_shards_are_told_at_the_same_time():
    together = threading.Barrier(2, timeout=30)
    clients = [Client(), Client()]
    for each in clients:
        each.open.wait = together.wait  # each waits for the other
    updater = PriorityUpdater(clients, "t")
    updater.put(keys(1, 2, 3, 4), np.array([0.5, 1.5, 2.5, 3.5], np.float32))
    updater.close()
    assert [client.calls for client in clients] == [[("t", {1: 0.5, 2: 1.5})], [("t", {3: 2.5, 4: 3.5})]]
