import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.learning import priorities
from acme_ext.learning.priorities import DirectUpdater, Errors, ThreadedUpdater


class Table:
    """In the place of a table: keeps the errors that it is given."""

    def __init__(self, *, threaded=True):
        self.calls: list[dict[int, float]] = []
        self.error: Exception | None = None
        self.open = threading.Event()
        self.open.set()
        self.threaded = threaded

    def update(self, keys, errors):
        self.open.wait()
        if self.error is not None:
            raise self.error
        self.calls.append(dict(zip(keys.tolist(), errors.tolist(), strict=True)))


def keys(*numbers):
    return np.array(numbers, np.uint64)


def put(updater, *given):
    updater.put(Errors(*given))


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def updater(table):
    updater = ThreadedUpdater([table], {})
    yield updater
    table.open.set()
    table.error = None
    updater._error = None
    updater.close()


@pytest.mark.parametrize("threaded", [True, False])
def test_the_table_chooses_the_updater(threaded):
    updater = priorities.make_updater([Table(threaded=threaded)])
    assert isinstance(updater, ThreadedUpdater if threaded else DirectUpdater)
    updater.close()


def test_a_direct_updater_applies_errors_in_this_thread_when_it_is_told_to():
    table = Table(threaded=False)
    updater = DirectUpdater([table], {})
    put(updater, keys(1, 2), np.array([0.5, 1.5], np.float32))
    assert table.calls == []
    updater.settle()
    assert table.calls == [{1: 0.5, 2: 1.5}]
    put(updater, keys(3), np.array([2.5], np.float32))
    updater.close()
    assert table.calls == [{1: 0.5, 2: 1.5}, {3: 2.5}]


def test_sends_each_priority_with_its_key(table, updater):
    put(updater, keys(3, 2**64 - 1), np.array([0.5, 1.5], np.float32))
    updater.close()
    assert table.calls == [{3: 0.5, 2**64 - 1: 1.5}]


def test_a_key_that_comes_twice_takes_the_later_priority(table, updater):
    # Of two fused steps: the item 7 was in both, and the item 8 twice in the second.
    put(updater, keys(7, 1, 8, 2, 7, 8, 3, 8), jnp.array([[1.0, 2, 3, 4], [5, 6, 7, 8]]))
    updater.close()
    assert table.calls == [{7: 5.0, 1: 2.0, 8: 8.0, 2: 4.0, 3: 7.0}]


def test_errors_that_are_no_numbers_are_not_sent(table, updater):
    put(updater, keys(1, 2), np.array([0.5, np.nan], np.float32))
    put(updater, keys(3), np.array([np.inf], np.float32))
    put(updater, keys(1, 2), np.array([2.5, 3.5], np.float32))
    updater.close()
    assert table.calls == [{1: 2.5, 2: 3.5}]


def test_priorities_may_be_under_computation(table, updater):
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda i, y: y + 1, x))
    put(updater, keys(1, 2), slow(jnp.zeros(2)))
    updater.close()
    assert table.calls == [{1: 1000.0, 2: 1000.0}]


def test_closing_sends_what_is_queued_in_its_order(table, updater):
    table.open.clear()
    for i in range(4):
        put(updater, keys(i), np.array([float(i)]))
    table.open.set()
    updater.close()
    assert table.calls == [{i: float(i)} for i in range(4)]
    assert not updater._thread.is_alive()


def test_waits_for_a_server_that_does_not_follow(table, updater):
    table.open.clear()
    sent = []

    def learn():
        for i in range(20):
            put(updater, keys(i), np.ones(1))
            sent.append(i)

    thread = threading.Thread(target=learn, daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert len(sent) < 10  # a few learner calls ahead
    table.open.set()
    thread.join()
    updater.close()
    assert [next(iter(updates)) for updates in table.calls] == list(range(20))


@pytest.mark.parametrize("where", ["put", "close"])
def test_errors_surface(table, updater, where):
    def put_often():
        for _ in range(1000):
            put(updater, keys(1), np.ones(1))

    table.error = OSError("no server")
    put(updater, keys(1), np.ones(1))
    with pytest.raises(RuntimeError, match="priorities could not be written to the replay") as caught:
        updater.close() if where == "close" else put_often()
    assert caught.value.__cause__ is table.error


def test_priorities_that_do_not_fit_the_keys_are_an_error(updater):
    put(updater, keys(1, 2, 3), np.ones(2))
    with pytest.raises(RuntimeError, match="priorities could not be written"):
        updater.close()


def test_shards_get_their_own_items():
    # Two steps with batches of 4, of which each shard gave two, side by side.
    tables = [Table(), Table()]
    updater = ThreadedUpdater(tables, {})
    put(updater, keys(1, 2, 11, 12, 3, 4, 13, 14), np.arange(8.0).reshape(2, 4))
    updater.close()
    assert tables[0].calls == [{1: 0.0, 2: 1.0, 3: 4.0, 4: 5.0}]
    assert tables[1].calls == [{11: 2.0, 12: 3.0, 13: 6.0, 14: 7.0}]


def test_shards_are_told_at_the_same_time():
    together = threading.Barrier(2, timeout=30)
    tables = [Table(), Table()]
    for each in tables:
        each.open.wait = together.wait  # each waits for the other
    updater = ThreadedUpdater(tables, {})
    put(updater, keys(1, 2, 3, 4), np.array([0.5, 1.5, 2.5, 3.5], np.float32))
    updater.close()
    assert [table.calls for table in tables] == [[{1: 0.5, 2: 1.5}], [{3: 2.5, 4: 3.5}]]
