"""The replay on the device beside the writers, limits and selectors of the replay that goes through Reverb."""

import collections
import functools
import itertools

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs
from kept_rows import Rows

from acme_ext import builders
from acme_ext.acting.values import ActorValues, first_error
from acme_ext.agents.muzero import acting as muzero
from acme_ext.agents.ngu import acting as ngu
from acme_ext.agents.r2d2 import acting as r2d2
from acme_ext.errors import UsageError
from acme_ext.replay import RateLimit, SequenceReplay, TransitionReplay, unrolls
from acme_ext.replay.device import Step, device_replay, rows_of
from acme_ext.types import PrioritizedExtras

FIRST, MID, LAST = 0, 1, 2
Spec = collections.namedtuple("Spec", "observations actions rewards discounts")
SPEC = Spec(
    specs.Array((3,), np.float32), specs.DiscreteArray(4), specs.Array((), np.float32), specs.Array((), np.float32)
)


def stream(num_envs, ticks, seed=0):
    """Timesteps `[B]` of episodes of random lengths, some of them truncated, with the actions taken at them."""
    rng, kinds = np.random.default_rng(seed), np.full(num_envs, FIRST)
    for _ in range(ticks):
        ended = kinds == LAST
        discount = np.where(ended & (rng.random(num_envs) < 0.5), 0.0, 1.0).astype(np.float32)
        reward = np.where(kinds == FIRST, 0.0, rng.normal(size=num_envs)).astype(np.float32)
        observation = rng.normal(size=(num_envs, 3)).astype(np.float32)
        extras = ActorValues(*rng.normal(size=(2, num_envs)).astype(np.float32))
        timestep = dm_env.TimeStep(kinds.astype(np.uint8), reward, discount, observation)
        state = {"hidden": rng.normal(size=(num_envs, 2)).astype(np.float32)}
        yield Step(timestep, rng.integers(4, size=num_envs).astype(np.int32), extras, state)
        kinds = np.where(ended, FIRST, np.where(rng.random(num_envs) < 0.2, LAST, MID))


def timeline_of(num_envs, ticks, extras):
    timeline = stream(num_envs, ticks)
    return [step._replace(extras=extras(t)) if extras else step for t, step in enumerate(timeline)]


def written(replay, num_envs, ticks, extras=None):
    """The items that the replay's own writer makes of the stream, in their order, and their first errors."""
    sink = Rows()
    writer = replay.writer(sink, num_envs)
    timeline = timeline_of(num_envs, ticks, extras)
    writer.add_first(timeline[0][0])
    for (_, action, extras, state), (timestep, *_) in itertools.pairwise(timeline):
        writer.add(action, timestep, extras, *([state] if isinstance(replay, SequenceReplay) else []))
    if not isinstance(replay, SequenceReplay):
        writer.flush()
    errors = [x for x in sink.errors if x is not None]
    return replay.decode(np.concatenate(sink.rows)), np.concatenate(errors) if errors else None


def kept(replay, num_envs, ticks, extras=None):
    device = device_replay(replay, num_envs)
    timeline = timeline_of(num_envs, ticks, extras)
    state = device.init(timeline[0])
    add = jax.jit(lambda state, step: device.add(state, step, True))
    for step in timeline:
        state = add(state, step)
    return device, state


@pytest.mark.parametrize(("n_step", "clip"), [(1, None), (3, 0.5), (10, None)])
def test_items_are_those_of_the_writer_in_its_order(n_step, clip):
    replay = TransitionReplay(
        SPEC, batch_size=4, max_size=1_000, n_step=n_step, discount=0.9, max_abs_reward=clip, burst=1, rows_per_item=1
    )
    expected, _ = written(replay, 5, 40)
    _, state = kept(replay, 5, 40)
    count = int(state.inserted)
    # The writer's last ones are those that `flush` cuts short.
    assert 5 * (40 - n_step - 1) * 0.5 < count <= len(expected.reward)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[:count], b[:count], rtol=1e-5, atol=1e-6), state.items, expected
    )


EXTRAS = ActorValues(np.zeros((), np.float32), np.zeros((), np.float32))
STATE = {"hidden": np.zeros(2, np.float32)}


def sequences(length, period, burn_in, *, cross=False, **fields):
    return SequenceReplay(
        spec=SPEC,
        batch_size=4,
        length=length,
        period=period,
        burn_in=burn_in,
        discount=0.9,
        cross_episodes=cross,
        state=STATE,
        **{"max_size": 1_000, **fields},
    )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize(
    ("length", "period", "burn_in"),
    [
        (4, 4, 0),
        (6, 2, 3),
        *(pytest.param(*each, marks=pytest.mark.release) for each in ((5, 1, 2), (1, 1, 0), (7, 3, 1))),
    ],
)
def test_sequences_are_those_of_the_writer_in_its_order(length, period, burn_in, cross, last):
    replay = sequences(length, period, burn_in, cross=cross, extras=EXTRAS, last_extras=last)
    expected, _ = written(replay, 5, 60 + last)
    _, state = kept(replay, 5, 60)
    count = int(state.inserted)
    assert count == expected.mask.shape[1] > 40
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[:count], b, rtol=1e-6),
        state.items,
        unrolls.swap_axes(expected),
    )


def test_a_batch_of_sequences_has_time_first():
    device, state = kept(replay := sequences(6, 3, 2), 3, 40)
    assert not replay.extras
    drawn = device.draw(state, jax.random.key(0))
    assert drawn.items.observation.shape == (7, 4, 3)
    assert drawn.items.mask.shape == (6, 4)
    assert drawn.items.state["hidden"].shape == (4, 2)
    assert drawn.items.extras == ()
    np.testing.assert_array_equal(drawn.items.reward[:, 1], state.items.reward[drawn.index[1]])


def test_replaced_sequences_are_the_oldest():
    expected, _ = written(replay := sequences(4, 2, 1, max_size=16), 3, 60)
    _, state = kept(replay, 3, 60)
    newest = np.roll(np.asarray(expected.reward.T)[-16:], int(state.inserted) % 16, axis=0)
    np.testing.assert_array_equal(state.items.reward, newest)


@pytest.mark.parametrize(
    "agent", ["r2d2", *(pytest.param(name, marks=pytest.mark.release) for name in ("ngu", "muzero"))]
)
def test_first_priorities_of_sequences_are_those_of_the_writer(agent):
    zeros = np.zeros((5, 60), np.float32)
    rng = np.random.default_rng(3)
    values = rng.normal(size=(61, 5)).astype(np.float32)
    extras, priority = {
        "r2d2": (None, functools.partial(r2d2.first_error, config=builders.R2D2().config)),
        "ngu": (
            lambda t: ngu.NGUExtras(values[t], 2 * values[t], zeros[:, 0], np.full(5, t // 5 % 4, np.int32), values[t]),
            functools.partial(ngu.first_error, config=builders.NGU().config),
        ),
        "muzero": (
            lambda t: muzero.Planned(np.zeros((5, 4), np.float32), values[t], values[t] > 0),
            functools.partial(muzero.first_error, config=builders.MuZero().config),
        ),
    }[agent]
    last = agent == "ngu"
    replay = sequences(14, 5, 8, order="prioritized", priority=priority, last_extras=last)
    _, errors = written(replay, 5, 60 + last, extras)
    _, state = kept(replay, 5, 60, extras)
    count = int(state.inserted)
    assert len(errors) == count > 20
    expected = (errors + replay.priority_offset) ** replay.priority_exponent
    np.testing.assert_allclose(np.asarray(state.weight).reshape(-1)[:count], expected, rtol=1e-4)
    assert not np.asarray(state.weight).reshape(-1)[count:].any()


def test_the_oldest_items_go_first():
    replay = TransitionReplay(SPEC, batch_size=4, max_size=20, discount=0.9, rows_per_item=1)
    expected, _ = written(replay, 3, 30)
    _, state = kept(replay, 3, 30)
    count = int(state.inserted)
    newest = np.sort(np.asarray(expected.reward)[count - 20 : count])
    np.testing.assert_allclose(np.sort(state.items.reward), newest, rtol=1e-5)


def test_first_priorities_are_those_of_the_writer():
    replay = TransitionReplay(
        SPEC, batch_size=4, max_size=400, n_step=3, discount=0.9, order="prioritized", priority=first_error
    )
    _, errors = written(replay, 5, 40)
    _, state = kept(replay, 5, 40)
    count = int(state.inserted) - 5  # of the writer's last ones, the extras at the end are not known to it
    expected = (errors[:count] + replay.priority_offset) ** replay.priority_exponent
    np.testing.assert_allclose(np.asarray(state.weight).reshape(-1)[:count], expected, rtol=1e-4)
    assert not np.asarray(state.weight).reshape(-1)[count + 5 :].any()


def test_new_items_may_have_the_largest_error_so_far():
    replay = TransitionReplay(SPEC, batch_size=4, max_size=50, order="prioritized", priority_exponent=1.0)
    device = device_replay(replay, 2)
    state = None
    for step in stream(2, 8):
        step = step._replace(extras=PrioritizedExtras((), jnp.full(2, 7.0)))
        state = device.init(step) if state is None else state
        state = device.add(state, step, True)
    filled = np.asarray(state.weight).reshape(-1)[: int(state.inserted)]
    np.testing.assert_allclose(filled, 7.0 + replay.priority_offset, rtol=1e-6)


def test_draws_are_in_proportion_to_priorities():
    replay = TransitionReplay(SPEC, batch_size=20_000, max_size=600, order="prioritized", priority_exponent=0.5)
    device = device_replay(replay, 2)
    state = device.init(next(stream(2, 1)))
    errors = np.random.default_rng(0).uniform(size=600).astype(np.float32) * (np.arange(600) % 3 > 0)
    state = device.reprioritized(state._replace(inserted=jnp.int32(600)), jnp.arange(600), errors)
    drawn = jax.jit(device.draw)(state, jax.random.key(0))
    expected = (errors + replay.priority_offset) ** 0.5
    expected /= expected.sum()
    np.testing.assert_allclose(drawn.probability, expected[drawn.index], rtol=1e-4)
    frequency = np.bincount(drawn.index, minlength=600) / 20_000
    assert np.abs(frequency - expected).max() < 5 * np.sqrt(expected.max() / 20_000)


@pytest.mark.parametrize("share", [0.0, 1 - 2**-23])
def test_the_least_and_the_largest_draws_are_of_what_is_there(share, monkeypatch):
    """XLA doesn't add in order, so that sums of priorities go on rising after the last of them."""
    size = 2**20
    device = device_replay(TransitionReplay(SPEC, batch_size=1, max_size=size, order="prioritized"), 2)
    state = device.init(next(stream(2, 1)))
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.full(shape, share, jnp.float32))
    draw, rng = jax.jit(device.draw), np.random.default_rng(0)
    weight = rng.random(size).astype(np.float32) ** 2
    weight[::3] = 0
    for count in rng.integers(2, size, 40):
        some = np.where(np.arange(size) < count, weight, 0)
        drawn = draw(state._replace(weight=some.reshape(state.weight.shape)), jax.random.key(0))
        assert drawn.probability[0] > 0
        np.testing.assert_allclose(drawn.probability[0], some[drawn.index[0]] / some.sum(), rtol=1e-4)


@pytest.mark.parametrize(("tables", "indexes"), [(True, True), (True, False), (False, True)])
def test_rows_of_several_seeds_are_those_of_each(tables, indexes):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(3, 50, 2) if tables else (50, 2)).astype(np.float32)
    index = rng.integers(0, 50, (3, 8) if indexes else 8).astype(np.int32)
    rows = jax.jit(jax.vmap(rows_of, (0 if tables else None, 0 if indexes else None)))(table, index)
    for seed in range(3):
        own = table[seed] if tables else table, index[seed] if indexes else index
        np.testing.assert_array_equal(rows[seed], own[0][own[1]])
        np.testing.assert_array_equal(rows_of(*own), own[0][own[1]])


def test_uniform_draws_are_of_what_is_there():
    _, state = kept(replay := TransitionReplay(SPEC, batch_size=2_000, max_size=100, rows_per_item=1), 3, 12)
    drawn = device_replay(replay, 3).draw(state, jax.random.key(1))
    assert set(np.asarray(drawn.index).tolist()) == set(range(int(state.inserted)))
    np.testing.assert_allclose(drawn.probability, 1 / int(state.inserted))


@pytest.mark.release
def test_what_is_not_active_changes_no_sequences():
    device, state = kept(sequences(4, 2, 1), 3, 20)
    after = device.add(state, next(stream(3, 1, seed=5)), False)
    jax.tree.map(np.testing.assert_array_equal, after, state)


@pytest.mark.parametrize("ratio", [0.25, *(pytest.param(ratio, marks=pytest.mark.release) for ratio in (2.0, 8.0))])
def test_updates_are_due_as_the_rate_limit_has_it(ratio):
    limit = RateLimit(ratio, min_size=11)
    replay = TransitionReplay(SPEC, batch_size=4, max_size=50, limit=limit, rows_per_item=1)
    device, drawn = device_replay(replay, 3), 0
    state = None
    for step in stream(3, 60):
        state = device.init(step) if state is None else state
        state = device.add(state, step, True)
        while device.due(state):
            state = device.counted(state)
            drawn += 4
        assert drawn == 4 * (int(replay.samples_allowed(int(state.inserted))) // 4)
    assert drawn


def test_without_a_ratio_one_batch_is_due_in_each_step():
    replay = TransitionReplay(SPEC, batch_size=4, max_size=50, limit=RateLimit(min_size=5), rows_per_item=1)
    device, state = kept(replay, 3, 8)
    assert device.due(state)
    assert not device.due(device.counted(state))


@pytest.mark.parametrize(
    ("fields", "batches"),
    [
        ({"limit": RateLimit(8.0)}, 6),  # three steps allow 24 samples
        ({"limit": RateLimit(1.5)}, 2),
        ({"limit": RateLimit(8.0), "order": "prioritized"}, 1),  # the next batch depends on what the first one taught
        ({"limit": RateLimit()}, 1),
        ({"limit": RateLimit(8.0), "batch_size": 2**17}, 1),
    ],
)
def test_how_many_batches_are_drawn_at_once(fields, batches):
    replay = TransitionReplay(SPEC, **{"batch_size": 4, "max_size": 50, "rows_per_item": 1, **fields})
    device = device_replay(replay, 3)
    assert device.at_once(device.init(next(stream(3, 1)))) == batches


def test_what_is_not_active_changes_nothing():
    replay = TransitionReplay(SPEC, batch_size=4, max_size=30, n_step=2, rows_per_item=1)
    device, state = kept(replay, 3, 20)
    after = device.add(state, next(stream(3, 1, seed=5)), False)
    jax.tree.map(np.testing.assert_array_equal, after, state)


def test_settings_that_cannot_be_honoured_are_refused():
    with pytest.raises(UsageError, match="rows_per_item is 2"):
        device_replay(TransitionReplay(SPEC, batch_size=4, rows_per_item=2), 1)
    with pytest.raises(UsageError, match="max_size is 8: it must be at least num_envs"):
        device_replay(TransitionReplay(SPEC, batch_size=4, max_size=8), 16)
    with pytest.raises(UsageError, match=r"max_size is 10000000000: a replay on the device holds less than 2\*\*31"):
        device_replay(TransitionReplay(SPEC, batch_size=4, max_size=10**10), 1)
