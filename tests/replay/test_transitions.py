import dataclasses
import math
import re
import threading
import time

import jax
import numpy as np
import pytest
import tree
from hypothesis import given, settings
from hypothesis import strategies as st
from timelines import SPEC, Timeline, assert_items, read, timelines

from acme_ext.errors import UsageError
from acme_ext.replay.fixed import MemorySink
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb.store import ReverbTable
from acme_ext.replay.transitions import TransitionReplay

NO_LIMIT = RateLimit()


def first_priority(reward, discount, extras_tm1, extras_t):
    return extras_tm1["place"]


def steps(count, num_envs=1, seed=0):
    """A timeline of `count` steps of each environment, without an end."""
    return Timeline(np.full((count + 1, num_envs), "go"), seed)


@pytest.fixture(scope="module")
def queue():
    """A queue of transitions with the policy's extras, and its server."""
    from acme_ext.replay.reverb.store import ReverbStore

    extras = {"place": np.zeros((), np.float32), "logits": np.zeros(2, np.float32)}
    replay = TransitionReplay(SPEC, batch_size=1, order="queue", extras=extras)
    server = ReverbStore(replay)
    yield replay, server
    server.close()


def take(replay, server, count):
    """Samples `count` items, one after the other; returns their transitions and priorities."""
    samples = list(server.client.sample(replay.table, count, emit_timesteps=False)) if count else []
    rows = [np.asarray(sample.data[0]).reshape(1, -1) for sample in samples]
    nothing = np.zeros((0, replay.writer(server.table.sink(), 1)._layout.nbytes), np.uint8)
    return replay.decode(np.concatenate([nothing, *rows])), [sample.info.priority for sample in samples]


@settings(max_examples=25, deadline=None)
@given(timelines(), st.integers(1, 5), st.sampled_from([1, 3, 64]), st.sampled_from([None, 0.5]))
def test_a_table_gets_what_a_list_would_hold(queue, lines, n, burst, clip):
    replay, server = queue
    replay = dataclasses.replace(replay, n_step=n, burst=burst, max_abs_reward=clip, discount=0.9)
    writer = replay.writer(server.table.sink(), lines[0].num_envs)
    for line in lines:
        line.feed(writer, with_extras=True)
    writer.flush()
    writer.wait()
    before = server.table.counts()[:2][1]
    batch, _ = take(replay, server, writer.inserted)
    writer.close()
    items = read(batch)
    assert_items(items, [item for line in lines for item in line.items(n, 0.9, clip)])
    assert server.table.counts()[:2] == (before + len(items), before + len(items))  # nothing is left
    place = np.array([100.0 * item.start + item.env for item in items], np.float32)
    np.testing.assert_array_equal(batch.extras["place"], place)
    np.testing.assert_array_equal(batch.extras["logits"], np.stack([place, -place], axis=1))


def test_priorities_reach_the_table(serve):
    replay = TransitionReplay(
        SPEC, batch_size=32, order="prioritized", priority_offset=0.0, priority=first_priority, limit=NO_LIMIT
    )
    assert replay.prioritized
    assert not replay.fifo
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 2)
    line = steps(6, num_envs=2)
    line.feed(writer, with_extras=True)
    writer.flush()
    writer.wait()
    expected = {100.0 * item.start + item.env for item in line.items(1, 0.99)}
    assert len(expected) == 12
    total = sum(place**0.6 for place in expected)

    batch, priorities = take(replay, server, 200)
    assert set(priorities) <= expected
    place = [100.0 * item.start + item.env for item in read(batch)]
    np.testing.assert_allclose(priorities, place)  # each item has its own

    dataset = server.table.batches()
    try:
        for _ in range(5):
            raw = next(dataset)
            place = np.array([100.0 * item.start + item.env for item in read(replay.decode(raw.rows))])
            np.testing.assert_allclose(raw.probability, place**0.6 / total, rtol=1e-5)

        # The learner's priorities take their place, by the items' keys.
        new = {int(key): 1.0 + p for key, p in zip(raw.keys, place, strict=True)}
        server.client.mutate_priorities(replay.table, new)
        for sample in server.client.sample(replay.table, 50):
            info = sample[0].info
            if info.key in new:
                assert info.priority == new[info.key]
    finally:
        dataset.close(wake=True)


def test_a_first_priority_that_is_no_number_leaves_a_table_that_works(serve):
    def priority(reward, discount, extras_tm1, extras_t):
        return np.where(extras_tm1["place"] > 300, np.nan, 1.0)

    fields = {"order": "prioritized", "priority": priority, "priority_exponent": 0.0}
    replay = TransitionReplay(SPEC, batch_size=4, limit=NO_LIMIT, burst=1, **fields)
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 2)
    steps(6, num_envs=2).feed(writer, with_extras=True)
    writer.flush()
    writer.wait()
    writer.close()
    assert server.table.counts()[:2][0] == 12
    found = {sample[0].info.priority for sample in server.client.sample(replay.table, 100)}
    np.testing.assert_allclose(sorted(found), [0.001, 1.001], rtol=1e-5)


@pytest.mark.parametrize("order", ["uniform", "prioritized"])
def test_asking_whether_rows_are_sent_does_not_wait(serve, order):
    priority = first_priority if order == "prioritized" else None
    replay = TransitionReplay(
        SPEC, batch_size=1, order=order, priority=priority, limit=RateLimit(1.0, 1, 1.0), burst=1, rows_per_item=1
    )
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 2)
    steps(20, num_envs=2).feed(writer, with_extras=True)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(writer.has_sent(0)), daemon=True)
    thread.start()
    thread.join(30)
    assert answers == [False]
    for table in server.client.server_info():
        server.client.reset(table)
    writer.close()


def test_extras_may_be_one_array():
    replay = TransitionReplay(SPEC, batch_size=1, extras=np.zeros(2, np.float32), burst=1)
    sink = MemorySink()
    writer, line = replay.writer(sink, 1), steps(1)
    writer.add_first(line.timestep(0))
    writer.add(line.actions[0], line.timestep(1), np.array([[7.0, 8.0]], np.float32))
    writer.flush()
    np.testing.assert_array_equal(replay.decode(np.concatenate(sink.rows)).extras, [[7, 8]])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("order", "prioritised", "order is 'prioritised': it must be one of uniform, prioritized, queue"),
        ("priority_exponent", -1.0, "priority_exponent is -1.0: it must not be negative"),
        ("importance_anneal_steps", 0, "importance_anneal_steps is 0: it must be at least 1"),
        ("max_abs_reward", -1.0, "max_abs_reward is -1.0: it must be greater than 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(field, value, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        TransitionReplay(SPEC, batch_size=4, **{field: value})


@pytest.mark.parametrize("num_batches", [1, 3])
def test_uniform_batches(serve, num_batches):
    replay = TransitionReplay(SPEC, batch_size=4, limit=NO_LIMIT, n_step=2)
    assert not replay.prioritized
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 2)
    line = steps(25, num_envs=2)
    line.feed(writer)
    writer.flush()
    writer.wait()
    items = {(item.env, item.start): item for item in line.items(2, 0.99)}
    dataset = server.table.batches(num_batches)
    key_of: dict[tuple[int, int], int] = {}
    try:
        for _ in range(40):
            raw = next(dataset)
            assert (raw.rows.dtype, raw.keys.dtype, raw.probability.dtype) == (np.uint8, np.uint64, np.float32)
            assert raw.rows.shape == (4 * num_batches, replay.writer(server.table.sink(), 1)._layout.nbytes)
            assert raw.keys.shape == raw.probability.shape == (4 * num_batches,)
            np.testing.assert_allclose(raw.probability, 1 / 50)
            got = read(replay.decode(raw.rows))
            assert_items(got, [items[item[:2]] for item in got])
            for item, key in zip(got, raw.keys.tolist(), strict=True):
                assert key_of.setdefault(item[:2], key) == key
    finally:
        dataset.close(wake=True)
    assert len(set(key_of.values())) == len(key_of)
    assert len(key_of) > 25  # of 50 items, in at least 160 draws


def test_a_batch_of_blocks(serve):
    replay = TransitionReplay(SPEC, batch_size=12, limit=RateLimit(2.0, 10, 64.0), rows_per_item=4, max_size=22)
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 4)
    steps(8, num_envs=4).feed(writer)
    writer.flush()
    writer.wait()
    assert writer.inserted == server.table.counts()[:2][0] == 32  # transitions, not items
    assert "6 of 6 items of 4 transitions" in server.table.describe()  # 24: whole blocks
    dataset = server.table.batches(2)
    try:
        for call in range(1, 3):
            raw = next(dataset)
            assert raw.rows.shape == (24, replay.writer(server.table.sink(), 1)._layout.nbytes)
            np.testing.assert_allclose(raw.probability, 1 / 24)
            got = read(replay.decode(raw.rows))
            keys = raw.keys.reshape(6, 4)
            for block, start in enumerate(range(0, 24, 4)):
                # Every environment's transition of one step, of the newest six.
                assert {item.env for item in got[start : start + 4]} == {0, 1, 2, 3}
                assert len({item.start for item in got[start : start + 4]}) == 1
                assert got[start].start >= 2
                assert len(set(keys[block])) == 1
            assert server.table.counts()[:2][1] >= 24 * call
    finally:
        dataset.close(wake=True)


@pytest.mark.parametrize("block", [1, 3, 8])
@pytest.mark.parametrize("limit", [RateLimit(0.5, 5), RateLimit(4.0, 16, 10.0), RateLimit(1.0, 1, 1.0)])
def test_a_table_of_blocks_allows_the_samples_that_the_replay_says(serve, block, limit):
    replay = TransitionReplay(SPEC, batch_size=24, limit=limit, rows_per_item=block)
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 2)
    steps(24, num_envs=2).feed(writer)
    writer.flush()
    deadline = time.monotonic() + 5
    while not writer.has_sent(0) and time.monotonic() < deadline:  # as far as the limit lets it
        time.sleep(0.02)
        inserted, sampled = server.table.counts()[:2]
        if (allowed := replay.samples_allowed(inserted) - sampled) > 0:
            assert allowed % block == 0
            got = list(server.client.sample(replay.table, int(allowed) // block, emit_timesteps=False))
            assert len(got) == allowed // block
    assert server.table.counts()[:2][0] == writer.inserted == 48


@pytest.mark.parametrize(
    ("fields", "num_envs", "block"),
    [
        ({}, 1, 1),
        ({}, 8, 8),
        ({}, 5, 4),  # divides the batch
        ({}, 64, 16),  # at least 8 blocks a batch
        ({"batch_size": 4}, 8, 1),
        ({"limit": RateLimit(32.0, 1_000)}, 1, 8),  # shuffled
        ({"limit": RateLimit(32.0, 1_000)}, 16, 16),
        ({"limit": RateLimit(32.0, 500)}, 1, 1),  # what waits to be shuffled would be much of what learning starts with
        ({"rows_per_item": 1}, 8, 1),
        ({"rows_per_item": 32}, 8, 32),
        ({"order": "prioritized"}, 8, 1),
        ({"order": "queue", "limit": None}, 8, 1),
    ],
)
def test_how_many_transitions_an_item_has(fields, num_envs, block):
    replay = TransitionReplay(SPEC, **{"batch_size": 128, "limit": NO_LIMIT, **fields})
    replay = replay.for_envs(num_envs)
    assert replay.block == block
    half = replay.split(2) if replay.batch_size % 2 == 0 else replay
    assert half.batch_size % half.block == 0


def test_decodes_inside_a_compiled_step_as_outside(queue):
    replay, server = queue
    writer = replay.writer(server.table.sink(), 2)
    steps(5, num_envs=2).feed(writer, with_extras=True)
    writer.flush()
    writer.wait()
    dataset = ReverbTable(dataclasses.replace(replay, batch_size=10), server.client).batches()
    raw = next(dataset)
    dataset.close(wake=True)
    expected, got = replay.decode(raw.rows), jax.jit(replay.decode)(raw.rows)
    assert expected.observation["image"].shape == (10, 2, 2)
    for x, y in zip(tree.flatten(got), tree.flatten(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def test_the_oldest_leave_first(serve):
    replay = TransitionReplay(SPEC, batch_size=4, limit=NO_LIMIT, max_size=10)
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 1)
    steps(50).feed(writer)
    writer.flush()
    writer.wait()
    batch, _ = take(replay, server, 300)
    assert {item.start for item in read(batch)} == set(range(40, 50))


def test_a_queue_gives_each_item_once_and_in_order(serve):
    # Smaller than a batch: writers wait for the reader, and it for them.
    replay = TransitionReplay(SPEC, batch_size=4, order="queue", max_size=3, burst=5)
    assert replay.fifo
    server = serve(replay)
    dataset = server.table.batches(2)
    writer = replay.writer(server.table.sink(), 1)
    line = steps(80)
    line.feed(writer)
    writer.flush()
    got = [item for _ in range(10) for item in read(replay.decode(next(dataset).rows))]
    dataset.close(wake=True)
    assert_items(got, line.items(1, 0.99))


def test_a_queue_allows_a_sample_for_each_insert(serve):
    replay = TransitionReplay(SPEC, batch_size=4, order="queue", max_size=100)
    assert [replay.samples_allowed(n) for n in (0, 1, 7)] == [0, 1, 7]
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 1)
    steps(7).feed(writer)
    writer.flush()
    writer.wait()
    list(server.client.sample(replay.table, 7))
    assert server.table.counts()[:2] == (7, 7)


def test_other_replays_allow_what_their_limit_does():
    replay = TransitionReplay(SPEC, batch_size=4, limit=RateLimit(8.0, 10, 20.0))
    assert [replay.samples_allowed(n) for n in (9, 10, 11)] == [0, 20, 28]
    unlimited = TransitionReplay(SPEC, batch_size=4)
    assert [unlimited.samples_allowed(n) for n in (0, 1)] == [0, math.inf]


def test_a_writer_waits_for_its_reader_if_told_to(serve):
    replay = TransitionReplay(SPEC, batch_size=1, order="queue", max_size=3, burst=1)
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 1, max_pending=6)
    line = steps(40)
    thread = threading.Thread(target=line.feed, args=(writer,), daemon=True)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    assert writer.inserted == 10  # three in the table, six on their way, and one that it waits with
    dataset = server.table.batches()
    got = [item for _ in range(39) for item in read(replay.decode(next(dataset).rows))]
    thread.join()
    dataset.close(wake=True)
    assert_items(got, line.items(1, 0.99)[:39])


@pytest.mark.parametrize("order", ["queue", "prioritized"])
def test_a_writer_that_is_held_back_can_be_closed(serve, order):
    limited = {"limit": RateLimit(1.0, 1, 3.0), "priority": first_priority} if order == "prioritized" else {}
    replay = TransitionReplay(SPEC, batch_size=1, order=order, max_size=3, burst=1, **limited)
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 1)
    line = steps(20)
    line.feed(writer, with_extras=True)
    writer.flush()
    while server.table.counts()[:2][0] < 3:  # it takes few more
        time.sleep(0.01)
    writer.close()
    assert server.table.counts()[:2][0] < writer.inserted
    # The table isn't blocked by it.
    dataset = server.table.batches()
    (item,) = read(replay.decode(next(dataset).rows))
    assert item[:4] == line.items(1, 0.99)[item.start][:4]
    dataset.close(wake=True)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"batch_size": 0}, "batch_size is 0: it must be at least 1."),
        ({"n_step": 0}, "n_step is 0: it must be at least 1."),
        ({"max_size": -1}, "max_size is -1: it must be at least 1."),
        ({"burst": 0}, "burst is 0: it must be at least 1."),
        ({"discount": 1.01}, r"discount is 1.01: it must lie in \[0, 1\]."),
        ({"discount": -0.1}, r"discount is -0.1: it must lie in \[0, 1\]."),
        ({"priority": first_priority}, "only a prioritized replay takes first priorities of new transitions"),
        ({"order": "queue"}, r"a queue has its own rate limit \(each transition is sampled once\)"),
        ({"rows_per_item": 0}, "rows_per_item is 0: it must be at least 1."),
        ({"rows_per_item": 3}, "batch_size 4 is not a multiple of rows_per_item 3: .* give rows_per_item 1"),
        ({"rows_per_item": 2, "order": "prioritized"}, "rows_per_item is 2: a prioritized replay keeps 1 transition"),
        ({"rows_per_item": 2, "order": "queue", "limit": None}, "rows_per_item is 2: a queue keeps 1 transition"),
        ({"limit": RateLimit(min_size=11), "max_size": 10}, "at most 10 items .* min_size = 11"),
    ],
)
def test_what_could_not_work_is_refused(fields, sentence):
    with pytest.raises(UsageError, match=sentence):
        TransitionReplay(SPEC, **{"batch_size": 4, "limit": NO_LIMIT, **fields})
