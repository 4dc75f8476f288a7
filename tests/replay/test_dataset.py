import threading
import time

import numpy as np
import pytest

from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb import dataset as dataset_module
from acme_ext.replay.reverb import server as server_module
from acme_ext.replay.reverb.dataset import Dataset
from acme_ext.replay.reverb.store import rate_limiter

BYTES = 8


def table(limit=None, max_size=1000, name="t"):
    import reverb
    import tensorflow as tf

    signature = tf.TensorSpec((BYTES,), tf.uint8)
    if limit is None:
        return reverb.Table.queue(name, max_size, signature=signature)
    uniform, fifo = reverb.selectors.Uniform(), reverb.selectors.Fifo()
    return reverb.Table(name, uniform, fifo, max_size, rate_limiter(limit), signature=signature)


def insert(server, numbers):
    with server.client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for number in numbers:
            writer.append(np.full(BYTES, number, np.uint8))
            writer.create_item("t", 1.0 + number, writer.history[-1])
        writer.flush()


def alive():
    return [thread.name for thread in threading.enumerate() if thread.name == "dataset-t"]


LIMITS = {
    "queue": None,
    "size": RateLimit(min_size=500),
    "ratio": RateLimit(1.0, 10, 1.0),
    "many": RateLimit(64.0, 10, 64.0),
    "none": RateLimit(min_size=1),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("inserted", [0, 3, 40])
@pytest.mark.parametrize("limit", LIMITS)
def test_closing_ends_the_thread_whatever_it_waits_for(serve, limit, inserted, workers):
    server = serve([table(LIMITS[limit])])
    dataset = Dataset(server.client, "t", (BYTES,), 32, workers=workers)
    insert(server, range(min(inserted, 10 if limit == "many" else 40)))
    assert len(alive()) == 1
    dataset.close(wake=True)
    assert not alive()


@pytest.mark.parametrize(("limit", "inserted", "sampled", "workers"), [("queue", 3, 3, 1), ("ratio", 10, 1, 2)])
def test_closing_wakes_a_reader_that_would_sleep_for_3_seconds(serve, limit, inserted, sampled, workers):
    woken = []
    for _ in range(4):  # a reader may have looked up by itself in the very moment
        server = serve([table(LIMITS[limit])])
        dataset = Dataset(server.client, "t", (BYTES,), 32, workers=workers)
        insert(server, range(inserted))
        while server.counts("t") != (inserted, sampled):  # then it waits for more
            time.sleep(0.01)
        dataset.close(wake=True)
        woken.append(server.counts("t")[1] > sampled)  # an item came for it
    assert any(woken)


def test_a_reader_is_not_woken_by_millions_of_items(serve):
    for limit in (RateLimit(1e-4, 10, 1.0), RateLimit(1.0, 900_000, 1.0)):
        server = serve([table(limit, max_size=10**6)])
        assert server_module.pay_for_samples(server.client, "t", (BYTES,)) is None
        assert server.counts("t") == (0, 0)


def test_closing_at_once(serve):
    for _ in range(5):
        server = serve([table()])
        Dataset(server.client, "t", (BYTES,), 4).close(wake=True)
        assert not alive()


@pytest.mark.parametrize("workers", [1, 2])
def test_reads_ahead_by_a_few_batches_and_no_more(serve, workers):
    server = serve([table(RateLimit(min_size=1))])
    dataset = Dataset(server.client, "t", (BYTES,), 4, workers=workers)
    insert(server, [1])
    taken = 0
    for _ in range(3):
        while server.counts("t")[1] < taken + 4:
            time.sleep(0.01)
        before = -1
        while (sampled := server.counts("t")[1]) != before:  # it goes on until it has enough
            before = sampled
            time.sleep(0.1)
        assert sampled <= taken + 4 * 4
        next(dataset)
        taken += 4
    dataset.close(wake=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_comes_as_soon_as_the_limit_allows_it(serve, workers):
    # A sample for each insert, 10 to begin with and one ahead: the 13th insert allows the 4th sample.
    server = serve([table(RateLimit(1.0, 10, 1.0))])
    dataset = Dataset(server.client, "t", (BYTES,), 4, workers=workers)
    insert(server, range(12))
    got: list = []
    thread = threading.Thread(target=lambda: got.append(next(dataset)), daemon=True)
    thread.start()
    while server.counts("t")[1] < 3:
        time.sleep(0.01)
    assert not got
    insert(server, [12])
    thread.join()
    assert len(got[0].rows) == 4
    dataset.close(wake=True)


def test_batches_keep_their_memory(serve):
    server = serve([table()])
    dataset = Dataset(server.client, "t", (BYTES,), 5)
    insert(server, range(100))
    batches = [next(dataset) for _ in range(20)]
    dataset.close(wake=True)
    rows = np.concatenate([batch.rows for batch in batches])
    np.testing.assert_array_equal(rows, np.repeat(np.arange(100, dtype=np.uint8)[:, None], BYTES, axis=1))


def test_an_item_of_another_shape_is_told_again_and_again(serve):
    server = serve([table()])
    dataset = Dataset(server.client, "t", (BYTES + 1,), 2)
    insert(server, range(10))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="table 't' could not be sampled") as caught:
            next(dataset)
        assert "incompatible" in str(caught.value.__cause__)
    dataset.close()


def test_a_table_that_is_not_there_is_told(serve):
    server = serve([table(name="another")])
    dataset = Dataset(server.client, "t", (BYTES,), 2)
    with pytest.raises(RuntimeError, match="table 't' could not be sampled") as caught:
        next(dataset)
    assert "t was not found" in str(caught.value.__cause__)
    dataset.close()


def test_a_server_that_is_gone_is_told(serve, monkeypatch):
    monkeypatch.setattr(dataset_module, "_WAITS_A_LOOK", 1)
    monkeypatch.setattr(server_module, "_ANSWER_S", 1)
    server = serve([table()])
    dataset = Dataset(server.client, "t", (BYTES,), 2)
    insert(server, [1, 2])
    next(dataset)
    server.close()
    with pytest.raises(RuntimeError, match="its server does not answer"):
        next(dataset)
    dataset.close()
    assert not alive()


def test_a_wait_may_be_ended(serve):
    class EnoughError(Exception):
        pass

    def enough():
        calls.append(len(calls))
        if len(calls) == 2:
            raise EnoughError

    calls: list[int] = []
    server = serve([table()])
    dataset = Dataset(server.client, "t", (BYTES,), 2, on_wait=enough)
    with pytest.raises(EnoughError):
        next(dataset)
    assert calls == [0, 1]
    insert(server, [1, 2])
    assert len(next(dataset).rows) == 2  # it goes on
    dataset.close(wake=True)
