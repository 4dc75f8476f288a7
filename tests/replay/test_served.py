"""An embedded table, from other threads through real sockets."""

import contextlib
import socket
import threading
import time

import numpy as np
import pytest
from acme import specs
from timelines import SPEC

from acme_ext.errors import RunError
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.served import client as client_module
from acme_ext.replay.served import server as server_module
from acme_ext.replay.served.client import NoAnswerError, ServedTable
from acme_ext.replay.served.server import ServedStore
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.utils import calls
from acme_ext.utils.calls import TOKEN_BYTES, RemoteCall

WAIT_S = 10
TOKEN = bytes(range(TOKEN_BYTES))
LARGE = SPEC._replace(observations=specs.Array((100, 100), np.uint8))


class StoppedError(Exception):
    pass


def settings(order="uniform", *, batch_size=4, max_size=100, limit=None, spec=SPEC, **options):
    limit = RateLimit() if limit is None and order != "queue" else limit
    return TransitionReplay(spec, batch_size=batch_size, max_size=max_size, order=order, limit=limit, **options)


def rows_of(replay, *numbers):
    """Rows of bytes, one for each number."""
    rows = np.zeros((len(numbers), replay.nbytes), np.uint8)
    rows[:, :8] = np.array(numbers, np.int64)[:, None].view(np.uint8)
    return rows


def numbers_of(rows):
    return np.ascontiguousarray(rows[:, :8]).view(np.int64).ravel().tolist()


@pytest.fixture
def serve():
    """Starts stores, which end with the test."""
    with contextlib.ExitStack() as stack:

        def serve(replay, port=0, **options):
            store = ServedStore(replay, "localhost", port, TOKEN, **options)
            stack.callback(store.close)
            return store

        yield serve


@pytest.fixture
def use():
    """Closes sinks and batches at the end."""
    with contextlib.ExitStack() as stack:

        def use(end):
            stack.callback(end.close)
            return end

        yield use


@pytest.fixture
def in_thread():
    """Runs a function in a thread; the returned function waits for it and returns its result."""
    threads = []

    def start(function):
        out = []
        threads.append(threading.Thread(target=lambda: out.append(function()), daemon=True))
        threads[-1].start()

        def join():
            threads[threads.index(thread)].join(WAIT_S)
            (result,) = out
            return result

        thread = threads[-1]
        return join

    yield start
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def wait_for(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def give_up_at_once():
    raise StoppedError


def insert(sink, rows, errors=None):
    assert sink.append(rows, errors) == len(rows)
    deadline = time.monotonic() + WAIT_S

    def on_wait():
        assert time.monotonic() < deadline

    sink.flush(0, on_wait)


def stops_waiting(batches):
    """Whether a batch is not there yet; gives up the wait for it."""
    batches._call._on_wait = give_up_at_once
    try:
        next(batches)
    except StoppedError:
        return True
    finally:
        batches._call._on_wait = lambda: None
    return False


def test_rows_of_many_writers_all_arrive_once(serve, use, in_thread):
    replay = settings("queue", max_size=16, batch_size=10)
    table = serve(replay).table

    def write(writer):
        sink = use(table.sink())
        for step in range(50):
            sink.append(rows_of(replay, 1000 * writer + 2 * step, 1000 * writer + 2 * step + 1), None)
            sink.flush(2, lambda: None)
        sink.flush(0, lambda: None)

    for writer in range(4):
        in_thread(lambda writer=writer: write(writer))
    batches = use(table.batches())
    found = [number for _ in range(40) for number in numbers_of(next(batches).rows)]
    assert sorted(found) == [1000 * writer + row for writer in range(4) for row in range(100)]
    for writer in range(4):
        mine = [number for number in found if number // 1000 == writer]
        assert mine == sorted(mine)  # first in, first out


def test_a_full_queue_holds_its_writers_until_rows_are_taken(serve, use):
    replay = settings("queue", max_size=4, batch_size=4)
    table = serve(replay).table
    one, other = use(table.sink()), use(table.sink())
    one.append(rows_of(replay, *range(6)), None)
    assert one.has_sent(6)
    wait_for(lambda: table.counts().size == 4)  # as much as it has room for
    with pytest.raises(StoppedError):
        one.flush(0, give_up_at_once)
    assert not one.has_sent(5)
    other.append(rows_of(replay, 6, 7), None)
    assert "2 inserts waiting" in wait_and_describe(table, "2 inserts")
    batches = use(table.batches())
    assert numbers_of(next(batches).rows) == [0, 1, 2, 3]
    one.flush(0, lambda: None)
    other.flush(0, lambda: None)
    assert numbers_of(next(batches).rows) == [4, 5, 6, 7]
    assert table.counts() == (8, 8, 0)


def wait_and_describe(table, words):
    wait_for(lambda: words in table.describe())
    return table.describe()


@pytest.mark.parametrize("order", ["uniform", "queue"])
def test_a_batch_larger_than_the_limit_allows_at_once_is_drawn_in_parts(order, serve, use, in_thread):
    limit = RateLimit(samples_per_insert=1.0, min_size=2, tolerance=1.0) if order == "uniform" else None
    replay = settings(order, max_size=4, batch_size=20, limit=limit)
    table = serve(replay).table
    batches = use(table.batches())
    drawn = in_thread(lambda: next(batches))
    sink = use(table.sink())
    insert(sink, rows_of(replay, *range(20)))
    sink.append(rows_of(replay, 20), None)
    batch = drawn()
    assert len(batch.keys) == len(batch.probability) == len(batch.size) == 20
    if order == "queue":
        assert numbers_of(batch.rows) == list(range(20))
    else:
        assert set(numbers_of(batch.rows)) <= set(range(21))


def test_the_limit_holds_readers_and_writers_as_it_says(serve, use, in_thread):
    replay = settings(batch_size=4, limit=RateLimit(samples_per_insert=4.0, min_size=5, tolerance=8.0))
    table = serve(replay).table
    batches, sink = use(table.batches()), use(table.sink())
    insert(sink, rows_of(replay, *range(4)))
    assert stops_waiting(batches)
    insert(sink, rows_of(replay, 4))  # now 8 samples are allowed: a batch, and the one that is kept ready
    next(batches)
    wait_for(lambda: table.counts() == (5, 8, 5))
    next(batches)
    assert stops_waiting(batches)
    assert table.counts() == (5, 8, 5)  # not a part of a batch, as no writer waits
    sink.append(rows_of(replay, *range(10)), None)
    wait_for(lambda: "1 insert waiting" in table.describe())
    assert table.counts() == (9, 8, 9)  # 9 * 4 - 8 samples is as far as it goes
    for _ in range(9):
        next(batches)
    sink.flush(0, lambda: None)
    assert table.counts().inserted == 15


def test_priorities_determine_what_is_drawn(serve, use):
    replay = settings("prioritized", batch_size=500, priority_exponent=0.5, priority_offset=1.0, max_size=4)
    table = serve(replay).table
    insert(use(table.sink()), rows_of(replay, *range(6)), np.array([7.0, 7.0, 0.0, 3.0, np.nan, 8.0]))
    batch = next(use(table.batches()))
    priorities = np.array([0, 0, 1.0, 2.0, 1.0, 3.0])  # of rows 2 .. 5
    np.testing.assert_allclose(batch.probability, priorities[batch.keys] / 7, rtol=1e-6)
    shares = np.bincount(batch.keys.astype(int), minlength=6) / 500
    np.testing.assert_allclose(shares, priorities / 7, atol=0.1)
    # The later of two errors counts; rows 0 and 1 have left, row 9 was never there, and one error is not a number.
    keys = np.array([0, 1, 2, 2, 3, 4, 9], np.uint64)
    table.update(keys, np.array([50.0, 50.0, 50.0, 3.0, 8.0, np.inf, 50.0], np.float32))
    batch = next(use(table.batches()))
    priorities = np.array([0, 0, 2.0, 3.0, 1.0, 3.0])
    np.testing.assert_allclose(batch.probability, priorities[batch.keys] / 9, rtol=1e-6)


def test_large_rows_travel_compressed_and_come_back_as_they_were(serve, use, tmp_path):
    replay = settings(spec=LARGE, batch_size=256)
    assert replay.nbytes > 10_000
    store = serve(replay)
    rows = rows_of(replay, *range(20))
    rows[10:, 8:] = np.random.default_rng(0).integers(0, 256, (10, replay.nbytes - 8))  # these can't be compressed
    sink = use(store.table.sink())
    insert(sink, rows[:7])
    insert(sink, rows[7:])
    batch = next(use(store.table.batches()))
    np.testing.assert_array_equal(batch.rows, rows[batch.keys])
    store.checkpoint(tmp_path / "saved")
    assert 10 * replay.nbytes < (tmp_path / "saved" / "rows.bin").stat().st_size < 11 * replay.nbytes
    batch = next(use(serve(replay, restore=tmp_path / "saved").table.batches()))
    np.testing.assert_array_equal(batch.rows, rows[batch.keys])


def test_a_checkpoint_has_the_rows_their_priorities_and_the_counts(serve, use, tmp_path):
    replay = settings("prioritized", batch_size=100, priority_exponent=1.0, priority_offset=0.0, max_size=4)
    store = serve(replay)
    insert(use(store.table.sink()), rows_of(replay, *range(6)), np.arange(6.0))
    next(use(store.table.batches()))
    wait_for(lambda: store.table.counts().sampled == 200)
    store.table.checkpoint(tmp_path / "saved")
    table = serve(replay, restore=tmp_path / "saved").table
    assert table.counts() == (6, 200, 4)
    batch = next(use(table.batches()))
    np.testing.assert_array_equal(numbers_of(batch.rows), batch.keys)
    np.testing.assert_allclose(batch.probability, batch.keys / 14, rtol=1e-6)
    with pytest.raises(RuntimeError, match="FileExistsError"):
        table.checkpoint(tmp_path / "saved")
    assert table.counts().inserted == 6  # it goes on
    with pytest.raises(RunError, match="max_size is 4 there and 5 here"):
        serve(settings("prioritized", max_size=5), restore=tmp_path / "saved")
    with pytest.raises(RunError, match="not a whole checkpoint"):
        serve(replay, restore=tmp_path / "none")


def test_rows_of_another_size_fail_their_writer_alone(serve, use):
    replay, other = settings(), settings(spec=LARGE)
    store = serve(replay)
    wrong = use(ServedTable(settings("prioritized"), f"localhost:{store.port}", TOKEN).sink())
    with pytest.raises(RuntimeError, match="don't fit a uniform table"):
        insert(wrong, rows_of(replay, 1), np.ones(1))
    wrong = use(ServedTable(settings("queue", spec=LARGE), f"localhost:{store.port}", TOKEN).sink())
    with pytest.raises(RuntimeError, match=f"don't fit a uniform table of {replay.nbytes} bytes a row"):
        insert(wrong, rows_of(other, 1))
    insert(use(store.table.sink()), rows_of(replay, 1))
    assert store.table.counts() == (1, 0, 1)


class Line:
    """A caller that numbers its own calls, and repeats them through new connections."""

    def __init__(self, store, name):
        self.store, self.name = store, name

    def begin(self, number, *arguments):
        call = RemoteCall(lambda: ("localhost", self.store.port), token=TOKEN, first=(self.name,))
        call.begin(number, *arguments)
        return call

    def __call__(self, number, *arguments):
        call = self.begin(number, *arguments)
        try:
            return call.end()
        finally:
            call.close()


def test_a_repeated_call_inserts_nothing_again_and_gets_the_same_batch(serve):
    replay = settings("queue", batch_size=4, max_size=5)
    store = serve(replay)
    writer, reader = Line(store, b"writer"), Line(store, b"reader")
    for _ in range(3):
        writer(1, "insert", rows_of(replay, 0, 1, 2), None)
    assert store.table.counts() == (3, 0, 3)
    # An insert that is held, and of which a part is in the table.
    lost = writer.begin(2, "insert", rows_of(replay, 3, 4, 5, 6), None)
    wait_for(lambda: store.table.counts().inserted == 5)
    lost.close()
    again = writer.begin(2, "insert", rows_of(replay, 3, 4, 5, 6), None)
    found = [numbers_of(reader(1, "sample", 4)[0]) for _ in range(3)]
    assert found == [[0, 1, 2, 3]] * 3
    again.end()
    again.close()
    assert store.table.counts() == (7, 4, 3)
    # A sample that is held.
    lost = reader.begin(2, "sample", 4)
    wait_for(lambda: "1 sample waiting" in store.table.describe())
    lost.close()
    writer(3, "insert", rows_of(replay, 7, 8), None)
    wait_for(lambda: store.table.counts().inserted == 9)
    assert numbers_of(reader(2, "sample", 4)[0]) == [4, 5, 6, 7]


def test_a_reader_that_is_gone_takes_nothing_from_the_next(serve, use):
    replay = settings("queue", batch_size=6, max_size=4)
    store = serve(replay)
    gone = Line(store, b"gone").begin(1, "sample", 6)
    wait_for(lambda: "1 sample waiting" in store.table.describe())
    sink = use(store.table.sink())
    sink.append(rows_of(replay, *range(5)), None)
    # The queue is full and its writer waits, so all that is there is drawn for the reader, which leaves.
    wait_for(lambda: store.table.counts().sampled >= 4)
    gone.close()
    batches = use(store.table.batches())
    sink.append(rows_of(replay, *range(5, 12)), None)
    assert numbers_of(next(batches).rows) == [0, 1, 2, 3, 4, 5]
    assert numbers_of(next(batches).rows) == [6, 7, 8, 9, 10, 11]
    sink.flush(0, lambda: None)


def test_a_store_forgets_callers_that_have_left(serve, monkeypatch):
    monkeypatch.setattr(server_module, "_FORGET_S", 0.0)
    replay = settings()
    store = serve(replay)
    for name in range(20):
        Line(store, bytes([name]))(1, "insert", rows_of(replay, name), None)
        wait_for(lambda: all(caller.call.gone for caller in store._callers.values()))
    assert len(store._callers) == 1
    assert store.table.counts().inserted == 20
    for _ in range(20):
        store.table.describe()
    assert len(store._callers) == 1


def test_everybody_goes_on_with_a_store_that_is_away_and_comes_back(serve, use, in_thread, tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "_INFO_S", 0.3)
    replay = settings(batch_size=4)
    store = serve(replay)
    table = ServedTable(replay, f"localhost:{store.port}", TOKEN)
    sink, batches = use(table.sink()), use(table.batches())
    use(table._update)
    insert(sink, rows_of(replay, *range(5)))
    next(batches)
    table.update(np.zeros(1, np.uint64), np.ones(1))
    store.checkpoint(tmp_path / "saved")
    store.close()
    next(batches)  # was kept ready
    assert table.describe() == "the replay does not answer (NoAnswerError)"
    with pytest.raises(NoAnswerError):
        table.counts()
    assert stops_waiting(batches)
    sink.append(rows_of(replay, 5), None)
    with pytest.raises(StoppedError):
        sink.flush(0, give_up_at_once)
    sink.append(rows_of(replay, 6), None)
    assert not sink.has_sent(1)
    updated = in_thread(lambda: table.update(np.zeros(1, np.uint64), np.ones(1)))
    drawn = in_thread(lambda: next(batches))
    serve(replay, store.port, restore=tmp_path / "saved")
    sink.flush(0, lambda: None)
    assert len(drawn().keys) == 4
    updated()
    assert table.counts().inserted == 7


def test_a_table_is_used_before_its_store_is_there(serve, use):
    replay = settings()
    port = serve(replay).port
    table = ServedTable(replay, f"localhost:{port + 1 if port < 65535 else port - 1}", TOKEN)
    sink = use(table.sink())
    sink.append(rows_of(replay, 1), None)
    assert not sink.has_sent(0)
    serve(replay, table._address[1])
    sink.flush(0, lambda: None)
    assert table.counts().inserted == 1


def test_updates_and_checkpoints_are_given_up_when_nobody_answers_for_long(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "_AWAY_S", 0.3)
    store = serve(settings())
    store.close()
    with pytest.raises(NoAnswerError, match=f"the replay at localhost:{store.port} does not answer"):
        store.table.update(np.zeros(1, np.uint64), np.ones(1))
    with pytest.raises(NoAnswerError):
        store.table.checkpoint(tmp_path / "saved")


def test_a_wrong_token_is_no_writer_and_its_wait_can_be_ended(serve, use):
    replay = settings()
    store = serve(replay)
    sink = use(ServedTable(replay, f"localhost:{store.port}", bytes(TOKEN_BYTES)).sink())
    sink.append(rows_of(replay, 1), None)
    with pytest.raises(StoppedError):
        sink.flush(0, give_up_at_once)
    assert store.table.counts().inserted == 0


def test_a_port_in_use_is_named(serve):
    store = serve(settings())
    with pytest.raises(RunError, match=f"can't listen on localhost:{store.port}"):
        serve(settings(), store.port)


def test_a_slow_reader_gets_its_batch_again(serve, use, monkeypatch):
    """While a learner compiles, nobody reads its next batch, and the store disconnects it."""
    monkeypatch.setattr(calls, "_AWAITED_S", 0.3)
    replay = settings("queue", spec=LARGE, batch_size=800, max_size=2000)
    store = serve(replay)
    sink, batches = use(store.table.sink()), use(store.table.batches())
    batches._request()
    room = batches._call._connection.socket
    room.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)  # less than a batch
    insert(sink, rows_of(replay, *range(1600)))
    assert numbers_of(next(batches).rows) == list(range(800))
    wait_for(lambda: any(caller.answered and caller.call.gone for caller in store._callers.values()))
    assert store.table.counts().sampled == 1600
    insert(sink, rows_of(replay, *range(800)))
    assert numbers_of(next(batches).rows) == list(range(800, 1600))


def test_rows_go_in_bursts_while_a_call_is_under_way(serve, use):
    replay = settings("queue", max_size=2, batch_size=2)
    store = serve(replay)
    sink = use(store.table.sink())
    insert(sink, rows_of(replay, 0, 1))
    for number in range(2, 10):
        sink.append(rows_of(replay, number), None)  # the first is held, and the others wait for it
    assert sink._number == 2
    batches = use(store.table.batches())
    found = [number for _ in range(5) for number in (sink.has_sent(0), numbers_of(next(batches).rows))[1]]
    assert found == list(range(10))
    assert sink._number == 3
