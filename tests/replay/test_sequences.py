import dataclasses
import threading
from typing import NamedTuple

import jax
import numpy as np
import pytest
import tree
from hypothesis import given, settings
from hypothesis import strategies as st
from timelines import FIRST, LAST, SPEC, Timeline, timelines

from acme_ext.errors import UsageError
from acme_ext.replay import unrolls
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb.store import ReverbTable
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import PrioritizedExtras, Sequence

NO_LIMIT = RateLimit()
EXTRAS = {"place": np.zeros((), np.float32), "logits": np.zeros(2, np.float32)}


class State(NamedTuple):
    """A recurrent state of two parts."""

    hidden: np.ndarray
    count: np.ndarray


STATE = State(np.zeros(2, np.float32), np.zeros((), np.int32))


def make(**fields) -> SequenceReplay:
    given = {"batch_size": 1, "length": 4, "period": 4, "discount": 0.9, "cross_episodes": False, "order": "queue"}
    return SequenceReplay(spec=SPEC, **{**given, "extras": EXTRAS, "state": STATE, **fields})


def state_at(line: Timeline, t: int) -> State:
    """What the policy's state might be before the timestep at tick t."""
    place = line.extras(t)["place"]
    return State(np.stack([place, -place], axis=1), place.astype(np.int32))


def feed(writer, line: Timeline) -> None:
    writer.add_first(line.timestep(0))
    for t in range(1, line.ticks):
        writer.add(line.actions[t - 1], line.timestep(t), line.extras(t - 1), state=state_at(line, t - 1))


def naive(line: Timeline, b: int, replay: SequenceReplay) -> list[dict]:
    """The sequences of one environment, from whole lists."""
    kinds, newest = line.step_type[:, b], line.ticks - 1
    if replay.cross_episodes:
        stretches = [(0, newest)]
    else:
        begins = [t for t in range(line.ticks) if kinds[t] == FIRST]
        stretches = [(t, min([*np.nonzero(kinds[t:] == LAST)[0][:1] + t, newest])) for t in begins]
    found = []
    for begin, end in stretches:
        held = begin  # no sequence yet holds steps from here on
        for start in range(begin - replay.burn_in, end, replay.period):
            stop = min(start + replay.length, end)
            if any(kinds[t] != LAST for t in range(held, stop)):
                found.append(naive_sequence(line, b, replay, start, begin, stop))
            held = stop
            if stop < start + replay.length:
                break
    return found


def naive_sequence(line: Timeline, b: int, replay: SequenceReplay, start: int, begin: int, stop: int) -> dict:
    """A sequence's fields, step by step, with zeros where it has none: before tick `begin`, and after `stop`."""
    ticks = range(max(start, begin), stop + 1)
    before, after = max(0, begin - start), start + replay.length - stop
    taken = [line.step_type[t, b] != LAST for t in ticks[:-1]]

    def padded(values: list) -> list:
        return [0] * before + values + [0] * after

    extras = [line.extras(t)["place"][b] for t in ticks]
    if not replay.last_extras:
        extras.pop()
    elif ticks[-1] == line.ticks - 1:
        extras[-1] = 0  # the policy has not seen this timestep

    return {
        "env": padded([b] * len(ticks)),
        "tick": padded([t + line.first_tick for t in ticks]),
        "reward": padded([line.reward[t, b] for t in ticks]),
        "first": padded([line.step_type[t, b] == FIRST for t in ticks]),
        "action": padded([line.actions[t, b] for t in ticks[:-1]]),
        "extras": padded(extras),
        "discount": padded(
            [replay.discount * line.discount[t + 1, b] * real for t, real in zip(ticks, taken, strict=False)]
        ),
        "mask": padded([float(real) for real in taken]),
        "state": state_at(line, ticks[0]).count[b],
    }


def read(batch: Sequence) -> list[dict]:
    """The sequences of a batch, as `naive_sequence` has them; checks that its parts agree."""
    np.testing.assert_array_equal(batch.extras["logits"][..., 1], -batch.extras["logits"][..., 0])
    np.testing.assert_array_equal(batch.extras["logits"][..., 0], batch.extras["place"])
    np.testing.assert_array_equal(batch.state.hidden[..., 0], batch.state.count)
    np.testing.assert_array_equal(batch.state.hidden[..., 1], -batch.state.count)
    place = batch.observation["place"]
    expected = 10 * place[..., 0] + place[..., 1] % 7
    np.testing.assert_array_equal(batch.observation["image"][..., 0, 1], expected)
    fields = {
        "env": place[..., 0],
        "tick": place[..., 1],
        "reward": batch.reward,
        "first": batch.first,
        "action": batch.action,
        "extras": batch.extras["place"],
        "discount": batch.discount,
        "mask": batch.mask,
    }
    return [
        {name: leaf[:, i].tolist() for name, leaf in fields.items()} | {"state": batch.state.count[i]}
        for i in range(batch.mask.shape[1])
    ]


def assert_sequences(got: list[dict], expected: list[dict]) -> None:
    """Checks that each environment's sequences are those expected, in their order, none lost and none twice."""
    for b in {max(sequence["env"]) for sequence in [*got, *expected]}:
        mine, wanted = ([s for s in sequences if max(s["env"]) == b] for sequences in (got, expected))
        assert len(mine) == len(wanted)
        for one, other in zip(mine, wanted, strict=True):
            for name in other:
                np.testing.assert_allclose(one[name], other[name], rtol=1e-6, err_msg=name)


def take(replay, server, count) -> tuple[Sequence, list[float]]:
    samples = list(server.client.sample(replay.table, count, emit_timesteps=False)) if count else []
    rows = [np.asarray(sample.data[0]).reshape(1, -1) for sample in samples]
    nothing = np.zeros((0, replay._layout.nbytes), np.uint8)
    return replay.decode(np.concatenate([nothing, *rows])), [sample.info.priority for sample in samples]


@pytest.fixture(scope="module")
def servers():
    """A queue's server for each size of sequences; they end with the module."""
    from acme_ext.replay.reverb.store import ReverbStore

    running = {}

    def of(replay: SequenceReplay):
        kind = replay.length, replay.last_extras
        if kind not in running:
            running[kind] = ReverbStore(replay)
        return running[kind]

    yield of
    for server in running.values():
        server.close()


@settings(max_examples=60, deadline=None)
@given(
    timelines(), st.sampled_from([1, 2, 3, 5, 8]), st.integers(1, 8), st.integers(0, 4), st.booleans(), st.booleans()
)
def test_a_table_gets_what_a_list_would_hold(servers, lines, length, period, burn_in, cross, last):
    replay = make(**sizes(length, period, burn_in), cross_episodes=cross, last_extras=last)
    server = servers(replay)
    writer = replay.writer(server.table.sink(), lines[0].num_envs)
    for line in lines:
        feed(writer, line)
    writer.flush()
    writer.flush()  # changes nothing
    writer.wait()
    before = server.table.counts()[:2][1]
    batch, _ = take(replay, server, writer.inserted)
    writer.close()
    expected = [s for line in lines for b in range(line.num_envs) for s in naive(line, b, replay)]
    assert len(expected) == writer.inserted == server.table.counts()[:2][0] - before
    assert_sequences(read(batch), expected)


@settings(max_examples=40, deadline=None)
@given(timelines(), st.sampled_from([1, 3, 8]), st.integers(1, 8), st.integers(0, 4), st.booleans())
def test_every_step_is_in_a_sequence_and_only_real_ones_count(lines, length, period, burn_in, cross):
    replay = make(**sizes(length, period, burn_in), cross_episodes=cross)
    burn_in = replay.burn_in
    store = replay.store(lines[0].num_envs)
    finished = []
    for line in lines:
        finished.append(store.flush())
        store.begin(line.timestep(0))
        for t in range(1, line.ticks):
            extras, state = line.extras(t - 1), state_at(line, t - 1)
            finished.append(store.step(line.actions[t - 1], line.timestep(t), extras, state))
    finished.append(store.flush())
    counted: dict[tuple[float, float], int] = {}
    for sequence in filter(None, finished):
        assert sequence.mask[:, burn_in:].any(axis=1).all()
        for name in ("discount", "action"):
            nothing = getattr(sequence, name)[~(sequence.mask.astype(bool))]
            assert name == "action" or not nothing.any()
        assert not sequence.reward[:, 1:][sequence.mask == 0].any()
        place = sequence.observation["place"][:, burn_in:-1]
        for b, t in place[sequence.mask[:, burn_in:] == 1].tolist():
            counted[b, t] = counted.get((b, t), 0) + 1
    steps = {
        (b, t + line.first_tick)
        for line in lines
        for b in range(line.num_envs)
        for t in range(line.ticks - 1)
        if line.step_type[t, b] != LAST
    }
    assert set(counted) == steps
    if replay.period == length - burn_in:
        assert set(counted.values()) <= {1}


def sizes(length: int, period: int, burn_in: int) -> dict[str, int]:
    """What of these numbers fits together."""
    burn_in = min(burn_in, length - 1)
    return {"length": length, "period": min(period, length - burn_in), "burn_in": burn_in}


def of_kinds(*kinds: str) -> Timeline:
    """A timeline of one environment; rewards are the ticks, and the environment's discounts 1 on the way."""
    line = Timeline(np.array(kinds)[:, None], 0)
    line.reward = np.where(line.step_type == FIRST, 0, np.arange(len(kinds))[:, None]).astype(np.float32)
    line.discount = np.where(line.discount == 0, 0, 1).astype(np.float32)
    return line


def written(line: Timeline, serve, **fields) -> Sequence:
    replay = make(discount=0.5, **fields)
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 1)
    feed(writer, line)
    writer.flush()
    writer.wait()
    batch, _ = take(replay, server, writer.inserted)
    writer.close()
    return batch


@pytest.mark.parametrize(("end", "discount"), [("truncate", 0.5), ("terminate", 0.0)])
def test_an_unroll_through_an_episodes_end_by_hand(serve, end, discount):
    # Ticks 0 to 2 are an episode of two steps, 3 to 6 the beginning of the next; unrolls of three steps.
    line = of_kinds("go", "go", end, "go", "go", "go", "go")
    batch = written(line, serve, length=3, period=3, cross_episodes=True)
    np.testing.assert_array_equal(batch.observation["place"][..., 1].T, [[0, 1, 2, 3], [3, 4, 5, 6]])
    np.testing.assert_array_equal(batch.first.T, [[1, 0, 0, 1], [1, 0, 0, 0]])
    np.testing.assert_array_equal(batch.reward.T, [[0, 1, 2, 0], [0, 4, 5, 6]])
    # The last observation, at tick 2, is there to bootstrap from; the way on to tick 3 is no step.
    np.testing.assert_array_equal(batch.mask.T, [[1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(batch.discount.T, [[0.5, discount, 0], [0.5, 0.5, 0.5]])


@pytest.mark.parametrize(("end", "discount"), [("truncate", 0.5), ("terminate", 0.0)])
def test_padding_by_hand(serve, end, discount):
    # An episode of four steps in overlapping sequences of three, then a step of the next.
    line = of_kinds("go", "go", "go", "go", end, "go", "go")
    batch = written(line, serve, length=3, period=2)
    np.testing.assert_array_equal(batch.observation["place"][..., 1].T, [[0, 1, 2, 3], [2, 3, 4, 0], [5, 6, 0, 0]])
    np.testing.assert_array_equal(batch.first.T, [[1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(batch.reward.T, [[0, 1, 2, 3], [2, 3, 4, 0], [0, 6, 0, 0]])
    np.testing.assert_array_equal(batch.mask.T, [[1, 1, 1], [1, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(batch.discount.T, [[0.5] * 3, [0.5, discount, 0], [0.5, 0, 0]])
    np.testing.assert_array_equal(batch.state.count, [0, 200, 500])


def test_burn_in_by_hand(serve):
    # An episode of four steps, then one of the next; two steps after two of burn-in.
    line = of_kinds("go", "go", "go", "go", "terminate", "go", "go")
    batch = written(line, serve, length=4, period=2, burn_in=2)
    np.testing.assert_array_equal(
        batch.observation["place"][..., 1].T, [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [0, 0, 5, 6, 0]]
    )
    np.testing.assert_array_equal(batch.first.T, [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0]])
    np.testing.assert_array_equal(batch.mask.T, [[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 0]])
    np.testing.assert_array_equal(batch.discount.T, [[0, 0, 0.5, 0.5], [0.5, 0.5, 0.5, 0], [0, 0, 0.5, 0]])
    np.testing.assert_array_equal(batch.state.count, [0, 0, 500])


def test_nothing_is_stored_that_wasnt_asked_for(serve):
    replay = make(extras=(), state=())
    writer = replay.writer(serve(replay).table.sink(), 1)
    assert not writer.keeps_state
    line = of_kinds(*["go"] * 6)
    line.feed(writer, with_extras=True)
    writer.flush()
    assert replay._layout.nbytes < make()._layout.nbytes
    assert replay.decode(np.zeros((2, replay._layout.nbytes), np.uint8)).extras == ()


def test_a_new_sequence_has_the_largest_error_that_its_steps_know_of():
    """Before the steps of an episode's first sequence there is padding, whose error is 0."""
    errors = np.array([[0, 2], [0, 3], [4, 1]], np.float32)
    sequence = unrolls.sequence_spec(SPEC, 3)._replace(extras=PrioritizedExtras((), errors))
    assert unrolls.largest_error(sequence).tolist() == [4, 3]


def test_priorities_are_of_the_real_steps(serve):
    def priority(sequence: Sequence) -> np.ndarray:
        assert sequence.mask.shape[0] == 3
        assert sequence.extras["logits"].shape == (*sequence.mask.shape, 2)
        # Padding would count, were it not zero.
        return (sequence.mask * np.abs(sequence.reward[1:])).sum(axis=0) + 100 * sequence.mask.sum(axis=0)

    replay = make(
        length=3, period=3, order="prioritized", priority_offset=0.0, priority=priority, limit=NO_LIMIT, extras=()
    )
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 1)
    feed(writer, of_kinds("go", "go", "go", "go", "terminate", "go", "go"))
    writer.flush()
    writer.wait()
    batch, priorities = take(replay, server, 100)
    # Steps that end at ticks 1 to 3, at tick 4, and at tick 6.
    by_start = {0: 306.0, 3: 104.0, 5: 106.0}
    starts = batch.observation["place"][0, :, 1].tolist()
    assert set(starts) == set(by_start)
    assert priorities == [by_start[start] for start in starts]
    assert batch.extras == ()


def test_decodes_inside_a_compiled_step_as_outside(serve):
    replay = make(length=3, period=3)
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 2)
    feed(writer, Timeline(np.full((10, 2), "go"), 0))
    writer.flush()
    dataset = ReverbTable(dataclasses.replace(replay, batch_size=6), server.client).batches()
    raw = next(dataset)
    dataset.close(wake=True)
    expected, got = replay.decode(raw.rows), jax.jit(replay.decode)(raw.rows)
    assert expected.observation["image"].shape == (4, 6, 2, 2)
    assert expected.state.hidden.shape == (6, 2)
    for x, y in zip(tree.flatten(got), tree.flatten(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def test_a_queue_smaller_than_a_batch_gives_each_sequence_once_and_in_order(serve):
    replay = make(batch_size=4, length=3, period=3, max_size=2, cross_episodes=True)
    assert replay.fifo
    assert [replay.samples_allowed(n) for n in (0, 1, 7)] == [0, 1, 7]
    server = serve(replay)
    dataset = server.table.batches(2)
    writer = replay.writer(server.table.sink(), 2)
    line = Timeline(np.full((37, 2), "go"), 0)
    feed(writer, line)
    got = [s for _ in range(3) for s in read(replay.decode(next(dataset).rows))]
    dataset.close(wake=True)
    # The two environments take turns, for their unrolls are finished together.
    assert [(s["env"][0], s["tick"][0]) for s in got] == [(b, 3 * k) for k in range(12) for b in (0, 1)]
    assert_sequences(got, [s for b in (0, 1) for s in naive(line, b, replay)])


def test_the_writer_of_a_queue_waits_for_its_reader(serve):
    replay = make(length=2, period=2, max_size=3)
    server = serve(replay)
    writer = replay.writer(server.table.sink(), 1, max_pending=replay.unconfirmed(1))
    line = Timeline(np.full((41, 1), "go"), 0)
    thread = threading.Thread(target=feed, args=(writer, line), daemon=True)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    assert writer.inserted == 5  # three in the table, one on its way, and one that it waits with
    dataset = server.table.batches()
    got = [s for _ in range(20) for s in read(replay.decode(next(dataset).rows))]
    thread.join()
    dataset.close(wake=True)
    assert_sequences(got, naive(line, 0, replay))


def test_the_writer_of_a_replay_without_an_order_may_be_further_ahead():
    assert make(order="uniform").unconfirmed(2) > make().unconfirmed(2) == 2


def test_a_shards_part():
    replay = make(batch_size=8, order="uniform", limit=RateLimit(2.0, 10, 40.0), max_size=100)
    part = replay.split(2)
    assert (part.batch_size, part.max_size, part.limit) == (4, 50, RateLimit(2.0, 5, 20.0))
    assert (part.length, part.period, part.cross_episodes) == (replay.length, replay.period, replay.cross_episodes)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"length": 0}, "length is 0: it must be at least 1."),
        ({"period": 0}, "period is 0: it must be at least 1."),
        ({"period": 5}, "period is 5: sequences of 4 steps, .*, would leave steps out; give at most 4."),
        ({"period": 4, "burn_in": 1}, "period is 4: sequences of 3 steps, apart from burn_in, would leave steps out"),
        ({"burn_in": 4, "period": 1}, r"burn_in is 4: it must lie in \[0, 3\], below length."),
        ({"burn_in": -1}, "burn_in is -1: it must lie in"),
        ({"discount": 1.5}, r"discount is 1.5: it must lie in \[0, 1\]."),
        ({"batch_size": 0}, "batch_size is 0: it must be at least 1."),
        ({"limit": NO_LIMIT}, r"a queue has its own rate limit \(each sequence is sampled once\)"),
    ],
)
def test_what_could_not_work_is_refused(fields, sentence):
    with pytest.raises(UsageError, match=sentence):
        make(**fields)
