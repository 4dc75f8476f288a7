import numpy as np
import pytest
import tree
from hypothesis import given, settings
from hypothesis import strategies as st
from timelines import FIRST, LAST, MID, SPEC, Timeline, assert_items, read, timelines

from acme_ext.replay.blocks import BlockSink
from acme_ext.replay.rows import Layout
from acme_ext.replay.transitions import NStepWriter, TransitionReplay
from acme_ext.types import Transition


class FakeSink:
    """Keeps what it is sent."""

    def __init__(self):
        self.bursts: list[np.ndarray] = []
        self.priorities: list[np.ndarray | None] = []
        self.flushes: list[int] = []
        self.closed = False

    def append(self, rows, errors):
        assert len(rows)
        self.bursts.append(rows.copy())
        self.priorities.append(errors)
        return len(rows)

    def flush(self, pending, on_wait):
        self.flushes.append(pending)

    def close(self):
        self.closed = True


def make(sink, num_envs, *, max_pending=None, **options):
    settings = {"n_step": 3, "discount": 0.9, "burst": 8, **options}
    replay = TransitionReplay(SPEC, batch_size=1, **settings)
    return replay._layout, NStepWriter(replay, sink, num_envs, max_pending=max_pending)


def transitions(layout: Layout, sink: FakeSink) -> Transition:
    return layout.unpack(np.concatenate([np.zeros((0, layout.nbytes), np.uint8), *sink.bursts]))


@settings(max_examples=150, deadline=None)
@given(
    timelines(),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3, 16, 64]),
    st.sampled_from([None, 0.5]),
    st.sampled_from([0.9, 1.0, 0.0]),
)
def test_equals_a_list(lines, n, burst, clip, gamma):
    sink = FakeSink()
    options = {"n_step": n, "burst": burst, "max_abs_reward": clip, "discount": gamma}
    layout, writer = make(sink, lines[0].num_envs, **options)
    for line in lines:
        line.feed(writer)
    writer.flush()
    expected = [item for line in lines for item in line.items(n, gamma, clip)]
    assert_items(read(transitions(layout, sink)), expected)
    assert writer.inserted == len(expected)


@settings(max_examples=50, deadline=None)
@given(timelines(), st.integers(1, 3), st.sampled_from([1, 3, 16]), st.integers(2, 5))
def test_blocks_hold_all_rows_in_their_order_but_those_that_fill_none(lines, n, burst, block):
    sink = FakeSink()
    layout, writer = make(BlockSink(sink, block), lines[0].num_envs, n_step=n, burst=burst)
    for line in lines:
        line.feed(writer)
    writer.flush()
    assert all(burst.shape[1:] == (block, layout.nbytes) for burst in sink.bursts)
    sink.bursts = [burst.reshape(-1, layout.nbytes) for burst in sink.bursts]
    single = FakeSink()
    _, plain = make(single, lines[0].num_envs, n_step=n, burst=burst)
    for line in lines:
        line.feed(plain)
    plain.flush()
    got, expected = read(transitions(layout, sink)), read(transitions(layout, single))
    assert writer.inserted == len(got) == len(expected) // block * block
    assert got == expected[: len(got)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.sampled_from([1, 3, 8]), st.sampled_from([5, 32]))
def test_shuffled_blocks_hold_every_row_once_but_those_that_wait(bursts, block, pool):
    sink = FakeSink()
    blocks = BlockSink(sink, block, pool)
    rows = np.arange(sum(bursts), dtype=np.uint32)[:, None].view(np.uint8)
    sent = 0
    for burst in np.split(rows, np.cumsum(bursts)):
        sent += blocks.append(burst, None)
    got = np.concatenate([rows[:0], *(items.reshape(-1, 4) for items in sink.bursts)]).view(np.uint32).ravel()
    assert sent == len(got) == max(0, len(rows) - pool) // block * block
    assert len(set(got)) == len(got)
    assert set(got) <= set(range(len(rows)))


def test_rows_of_a_shuffled_block_are_of_steps_far_apart():
    sink, block, pool = FakeSink(), 8, 128
    blocks = BlockSink(sink, block, pool)
    for start in range(0, 32_000, 32):
        blocks.append(np.arange(start, start + 32, dtype=np.uint32)[:, None].view(np.uint8), None)
    times = np.concatenate(sink.bursts).view(np.uint32)[..., 0].astype(int)  # [items, block]
    gaps = np.diff(np.sort(times, axis=1), axis=1)
    assert np.mean(gaps == 1) < 0.1, "neighbours in one block"
    assert np.mean(np.ptp(times, axis=1)) > pool
    ages = np.arange(len(times))[:, None] * block + pool + block - times  # about how many rows came since
    assert np.mean(ages) < 2 * pool


@settings(max_examples=50, deadline=None)
@given(timelines(max_ticks=15), st.integers(1, 5), st.sampled_from([1, 4, 64]))
def test_a_second_flush_changes_nothing(lines, n, burst):
    sink = FakeSink()
    layout, writer = make(sink, lines[0].num_envs, n_step=n, burst=burst)
    writer.flush()
    for line in lines:
        line.feed(writer)
        writer.flush()
        writer.flush()
    expected = [item for line in lines for item in line.items(n, 0.9)]
    assert_items(read(transitions(layout, sink)), expected)


@settings(max_examples=50, deadline=None)
@given(timelines(), st.integers(1, 5), st.sampled_from([1, 4, 64]), st.booleans())
def test_extras_and_priorities(lines, n, burst, stored):
    def priority(reward, discount, extras_tm1, extras_t):
        assert extras_tm1["logits"].shape == extras_t["logits"].shape == (len(reward), 2)
        np.testing.assert_array_equal(extras_t["logits"][:, 1], -extras_t["place"])
        return np.abs(reward) + 10 * discount + extras_tm1["place"] + 1000 * extras_t["place"]

    sink = FakeSink()
    spec = {"place": np.zeros((), np.float32), "logits": np.zeros(2, np.float32)} if stored else ()
    options = {"n_step": n, "burst": burst, "order": "prioritized", "priority": priority, "extras": spec}
    layout, writer = make(sink, lines[0].num_envs, **options)
    for line in lines:
        line.feed(writer, with_extras=True)
    writer.flush()
    batch = transitions(layout, sink)
    got = read(batch)
    assert_items(got, [item for line in lines for item in line.items(n, 0.9)])
    given = np.concatenate([np.zeros(0), *sink.priorities])
    newest = {line.first_tick + line.ticks - 1 for line in lines}
    for i, item in enumerate(got):
        place = 100 * item.start + item.env
        # No action was taken at a timeline's newest timestep: what the policy gave one tick before stands in.
        end = 100 * (item.end - (item.end in newest)) + item.env
        assert given[i] == pytest.approx(abs(item.reward) + 10 * item.discount + place + 1000 * end)
        if stored:
            assert batch.extras["place"][i] == place
            np.testing.assert_array_equal(batch.extras["logits"][i], [place, -place])


def one_env(step_types, rewards, discounts):
    """A timeline of one environment, by hand."""
    line = Timeline(np.full((len(step_types), 1), "go"), 0)
    line.step_type = np.array(step_types, np.uint8)[:, None]
    line.reward = np.array(rewards, np.float32)[:, None]
    line.discount = np.array(discounts, np.float32)[:, None]
    return line


def written(line: Timeline, **options):
    sink = FakeSink()
    layout, writer = make(sink, 1, **options)
    line.feed(writer)
    writer.flush()
    return read(transitions(layout, sink))


def test_truncation_is_not_termination():
    # Three steps with rewards 1, 2, 4, n = 2, gamma = 0.5. From the start on:
    #   1 + 0.5 * 2 = 2 and 0.5**2;  2 + 0.5 * 4 = 4;  4 alone, for the episode is over.
    # The last two bootstrap from the last observation: with 0.5**2 and 0.5 if it was cut short, not at all if it ended.
    kinds, rewards = [FIRST, MID, MID, LAST], [0, 1, 2, 4]
    options = {"n_step": 2, "discount": 0.5}
    cut_short = written(one_env(kinds, rewards, [1, 1, 1, 1]), **options)
    ended = written(one_env(kinds, rewards, [1, 1, 1, 0]), **options)
    for items in (cut_short, ended):
        assert [(item.start, item.end, item.reward) for item in items] == [(0, 2, 2.0), (1, 3, 4.0), (2, 3, 4.0)]
    assert [item.discount for item in cut_short] == [0.25, 0.25, 0.5]
    assert [item.discount for item in ended] == [0.25, 0.0, 0.0]


def test_rewards_are_clipped_before_they_are_summed():
    # 3 and -2, clipped to 1: 1 + 0.5 * -1 = 0.5. Of the sum, 3 - 0.5 * 2 = 2, it would be 1.
    items = written(one_env([FIRST, MID, MID], [0, 3, -2], [1, 1, 1]), n_step=2, discount=0.5, max_abs_reward=1.0)
    assert [item.reward for item in items] == [0.5, -1.0]


def test_rows_leave_in_bursts():
    sink = FakeSink()
    _, writer = make(sink, 2, n_step=1, burst=6)
    Timeline(np.full((21, 2), "go"), 0).feed(writer)
    # 20 steps of 2 environments, 3 steps a burst; the newest steps wait for company.
    assert [len(rows) for rows in sink.bursts] == [6] * 6
    assert writer.inserted == 36
    writer.flush()
    assert writer.inserted == 40


def test_the_environments_buffers_may_be_reused():
    # The rule of BatchedEnvironment: the arrays of a timestep are overwritten by the next.
    line = Timeline(np.full((12, 2), "go"), 3)
    buffers = tree.map_structure(np.copy, (line.actions[0], line.timestep(0)))

    def overwrite(t):
        new = (line.actions[t - 1], line.timestep(t))
        tree.map_structure(lambda old, value: np.copyto(old, value), buffers, new)

    sink = FakeSink()
    layout, writer = make(sink, 2)
    writer.add_first(buffers[1])
    for t in range(1, line.ticks):
        overwrite(t)
        writer.add(*buffers)
    writer.flush()
    assert_items(read(transitions(layout, sink)), line.items(3, 0.9))


def test_waiting_is_the_sinks():
    sink = FakeSink()
    _, writer = make(sink, 1, n_step=1, burst=4, max_pending=7)
    Timeline(np.full((10, 1), "go"), 0).feed(writer)
    assert sink.flushes == [7, 7]  # after each burst
    writer.wait()
    assert sink.flushes == [7, 7, 0]
    writer.close()
    assert sink.closed

    sink = FakeSink()
    _, writer = make(sink, 1, n_step=1, burst=4)
    Timeline(np.full((10, 1), "go"), 0).feed(writer)
    assert sink.flushes == []


def test_extras_that_were_promised_must_come():
    _, writer = make(FakeSink(), 1, extras={"place": np.zeros((), np.float32)}, n_step=1, burst=1)
    with pytest.raises(ValueError, match="shorter"):
        Timeline(np.full((4, 1), "go"), 0).feed(writer)


@settings(max_examples=30, deadline=None)
@given(timelines(), st.integers(1, 5), st.sampled_from([None, 0.5]))
def test_the_first_step_beside_n(lines, n, clip):
    """It is what a writer of single steps would write."""
    found = []
    for steps, kept in ((n, True), (1, False)):
        sink = FakeSink()
        layout, writer = make(sink, lines[0].num_envs, n_step=steps, max_abs_reward=clip, keeps_one_step=kept)
        for line in lines:
            line.feed(writer)
        writer.flush()
        found.append(transitions(layout, sink))
    both, single = found
    order = lambda leaves: sorted(tuple(np.ravel(leaf).tolist() for leaf in row) for row in zip(*leaves, strict=True))  # noqa: E731
    first = both._replace(**both.one_step._asdict(), one_step=())
    assert order(tree.flatten(first)) == order(tree.flatten(single))
