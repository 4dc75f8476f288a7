"""The replay on the device beside the writers, limits and selectors of the replay that goes through Reverb."""

import collections
import itertools

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from acme_ext.acting.values import ActorValues, first_error
from acme_ext.errors import UsageError
from acme_ext.replay import RateLimit, TransitionReplay
from acme_ext.replay.device import DeviceReplay
from acme_ext.types import PrioritizedExtras

FIRST, MID, LAST = 0, 1, 2
Spec = collections.namedtuple("Spec", "observations actions rewards discounts")
SPEC = Spec(
    specs.Array((3,), np.float32), specs.DiscreteArray(4), specs.Array((), np.float32), specs.Array((), np.float32)
)


class Rows:
    """A sink that keeps what a writer sends."""

    def __init__(self):
        self.rows, self.errors = [], []

    def append(self, rows, errors):
        self.rows.append(rows)
        self.errors.append(errors)

    def flush(self, *_):
        pass

    def has_sent(self, _):
        return True

    def close(self):
        pass


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
        yield timestep, rng.integers(4, size=num_envs).astype(np.int32), extras
        kinds = np.where(ended, FIRST, np.where(rng.random(num_envs) < 0.2, LAST, MID))


def written(replay, num_envs, ticks):
    """The items that the replay's own writer makes of the stream, in their order, with their first errors."""
    sink = Rows()
    writer = replay.writer(sink, num_envs)
    timeline = list(stream(num_envs, ticks))
    writer.add_first(timeline[0][0])
    for (_, action, extras), (timestep, _, _) in itertools.pairwise(timeline):
        writer.add(action, timestep, extras)
    writer.flush()
    errors = [x for x in sink.errors if x is not None]
    return replay.decode(np.concatenate(sink.rows)), np.concatenate(errors) if errors else None


def kept(replay, num_envs, ticks):
    device = DeviceReplay(replay, num_envs)
    timeline = list(stream(num_envs, ticks))
    state = device.init(*timeline[0])
    add = jax.jit(lambda state, happened: device.add(state, *happened, True))
    for happened in timeline:
        state = add(state, happened)
    return device, state


@pytest.fixture(autouse=True)
def sinks_are_rows(monkeypatch):
    monkeypatch.setattr(TransitionReplay, "_sink", lambda self, client: client)


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
    device = DeviceReplay(replay, 2)
    state = None
    for timestep, action, _ in stream(2, 8):
        extras = PrioritizedExtras((), jnp.full(2, 7.0))
        state = device.init(timestep, action, extras) if state is None else state
        state = device.add(state, timestep, action, extras, True)
    filled = np.asarray(state.weight).reshape(-1)[: int(state.inserted)]
    np.testing.assert_allclose(filled, 7.0 + replay.priority_offset, rtol=1e-6)


def test_draws_are_in_proportion_to_priorities():
    replay = TransitionReplay(SPEC, batch_size=20_000, max_size=600, order="prioritized", priority_exponent=0.5)
    device = DeviceReplay(replay, 2)
    state = device.init(*next(stream(2, 1)))
    errors = np.random.default_rng(0).uniform(size=600).astype(np.float32) * (np.arange(600) % 3 > 0)
    state = device.reprioritized(state._replace(inserted=jnp.int32(600)), jnp.arange(600), errors)
    _, drawn = jax.jit(device.draw)(state, jax.random.key(0))
    expected = (errors + replay.priority_offset) ** 0.5
    expected /= expected.sum()
    np.testing.assert_allclose(drawn.probability, expected[drawn.index], rtol=1e-4)
    frequency = np.bincount(drawn.index, minlength=600) / 20_000
    assert np.abs(frequency - expected).max() < 5 * np.sqrt(expected.max() / 20_000)


def test_uniform_draws_are_of_what_is_there():
    _, state = kept(replay := TransitionReplay(SPEC, batch_size=2_000, max_size=100, rows_per_item=1), 3, 12)
    _, drawn = DeviceReplay(replay, 3).draw(state, jax.random.key(1))
    assert set(np.asarray(drawn.index).tolist()) == set(range(int(state.inserted)))
    np.testing.assert_allclose(drawn.probability, 1 / int(state.inserted))


@pytest.mark.parametrize("ratio", [0.25, 2.0, 8.0])
def test_updates_are_due_as_the_rate_limit_has_it(ratio):
    limit = RateLimit(ratio, min_size=11)
    replay = TransitionReplay(SPEC, batch_size=4, max_size=50, limit=limit, rows_per_item=1)
    device, drawn = DeviceReplay(replay, 3), 0
    state = None
    for happened in stream(3, 60):
        state = device.init(*happened) if state is None else state
        state = device.add(state, *happened, True)
        while device.due(state):
            state, _ = device.draw(state, jax.random.key(0))
            drawn += 4
        assert drawn == 4 * (int(replay.samples_allowed(int(state.inserted))) // 4)
    assert drawn


def test_what_is_not_active_changes_nothing():
    replay = TransitionReplay(SPEC, batch_size=4, max_size=30, n_step=2, rows_per_item=1)
    device, state = kept(replay, 3, 20)
    after = device.add(state, *next(stream(3, 1, seed=5)), False)
    jax.tree.map(np.testing.assert_array_equal, after, state)


def test_settings_that_cannot_be_honoured_are_refused():
    with pytest.raises(UsageError, match="rows_per_item is 2"):
        DeviceReplay(TransitionReplay(SPEC, batch_size=4, rows_per_item=2), 1)
    with pytest.raises(UsageError, match="max_size is 8: it must be at least num_envs"):
        DeviceReplay(TransitionReplay(SPEC, batch_size=4, max_size=8), 16)
