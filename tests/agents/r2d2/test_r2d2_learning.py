import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs
from spec_of import discrete

from acme_ext.acting.policy import Context
from acme_ext.acting.values import ActorValues
from acme_ext.agents.r2d2 import acting, learning, losses, networks
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.builders import R2D2
from acme_ext.interfaces import EnvironmentSpec
from acme_ext.networks.recurrent import NO_ACTION, Inputs
from acme_ext.replay.config import SequenceConfig
from acme_ext.types import Sample, Sequence

SPEC = EnvironmentSpec(
    observations=specs.Array((3,), np.float32),
    actions=specs.DiscreteArray(2),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0, 1),
)
REPLAY = SequenceConfig(length=4, burn_in=2, period=2, prioritized=True)
CONFIG = R2D2Config(replay=REPLAY, hidden_sizes=(8,), core_size=6, n_step=2)
NETWORK = networks.make_network(SPEC, CONFIG)


@functools.cache
def core():
    return R2D2(CONFIG, average_rate=None).make_agent(SPEC).core


@functools.cache
def compiled_step():
    return jax.jit(core().step)


@functools.partial(jax.jit, static_argnames="burn_in")
def values(params, inputs, state, burn_in):
    return learning.values(NETWORK, params, inputs, state, burn_in)


def batch(size: int = 3, *, steps: int = 6, first: int = 0, seed: int = 0) -> Sequence:
    """Sequences whose episodes begin at timestep `first`, or before if it is negative, and have `steps` steps there."""
    rng = np.random.default_rng(seed)
    there = np.arange(6)[:, None]
    mask = ((there >= first) & (there < max(0, first) + steps)).astype(np.float32) * np.ones((6, size), np.float32)
    begins = np.zeros((7, size), bool)
    if first >= 0:
        begins[first] = True
    return Sequence(
        observation=rng.normal(size=(7, size, 3)).astype(np.float32),
        reward=rng.normal(size=(7, size)).astype(np.float32),
        first=begins,
        action=rng.integers(0, 2, (6, size)).astype(np.int32),
        discount=0.9 * mask,
        mask=mask,
        state=jax.tree.map(
            lambda x: (rng.normal(size=x.shape) if x.dtype == np.float32 else x + 2).astype(x.dtype),
            NETWORK.init_memory(size),
        ),
    )


def step(data: Sequence, weight=None):
    state = core().init(jax.random.key(0))
    return compiled_step()(state, Sample(data, np.ones(data.mask.shape[1], np.float32)))


def test_the_network_is_given_in_learning_what_the_policy_was_given_in_acting():
    """The values of the policy, step by step over an episode's end, are those of one pass over the sequence."""
    params = core().init(jax.random.key(0)).params
    policy = acting.policy_of(NETWORK, lambda context: jnp.float32(0.5))
    rng = np.random.default_rng(1)
    observation, reward = rng.normal(size=(7, 3, 3)).astype(np.float32), rng.normal(size=(7, 3)).astype(np.float32)
    first = np.zeros((7, 3), bool)
    first[0, 0] = first[4, 1] = True
    initial = policy.init_state(3)
    start = state = jax.tree.map(lambda x: jnp.asarray(x) + 1, initial)
    actions, taken, best = [], [], []
    act = jax.jit(policy.apply)
    for t in range(7):
        for b in np.nonzero(first[t])[0]:
            state = jax.tree.map(lambda now, new, b=b: now.at[b].set(new[b]), state, initial)
        context = Context(jax.random.split(jax.random.key(t), 3), jnp.int32(0), jnp.zeros(3), reward[t])
        action, state, extras = act(params, context, observation[t], state)
        actions.append(action)
        taken.append(extras.taken)
        best.append(extras.best)
    assert len({int(a) for a in np.concatenate(actions)}) == 2
    sequence = Sequence(observation, reward, first, jnp.stack(actions[:-1]), (), (), state=start)
    inputs = NETWORK.inputs_of(sequence)
    np.testing.assert_array_equal(inputs.action[0], [NO_ACTION, start.action[1], start.action[2]])
    assert inputs.action[4, 1] == NO_ACTION
    for burn_in in (0, 2):
        q = values(params, inputs, start.core, burn_in)
        assert q.shape == (7 - burn_in, 3, 2)
        np.testing.assert_allclose(jnp.max(q, axis=-1), best[burn_in:], rtol=1e-4, atol=1e-6)
        q_taken = jnp.take_along_axis(q, jnp.stack(actions)[burn_in:, :, None], axis=-1)[..., 0]
        np.testing.assert_allclose(q_taken, taken[burn_in:], rtol=1e-4, atol=1e-6)


def test_burn_in_gives_values_and_no_gradient():
    params, data = core().init(jax.random.key(0)).params, batch(first=-1)
    inputs = NETWORK.inputs_of(data)

    def total(observation, core_state):
        return jnp.sum(learning.values(NETWORK, params, inputs._replace(observation=observation), core_state, 2))

    of_observation, of_state = jax.jit(jax.grad(total, (0, 1)))(data.observation, data.state.core)
    assert not of_observation[:2].any()
    assert not of_state.cell.any()
    assert of_observation[2:].any()
    # Its values matter all the same.
    other = inputs._replace(observation=data.observation + np.eye(7)[0][:, None, None])
    before, after = (values(params, x, data.state.core, 2) for x in (inputs, other))
    assert (jnp.abs(before - after) > 1e-5).any()


@pytest.mark.parametrize(("first", "steps"), [(2, 2), (-1, 4), (0, 3)])
def test_what_is_no_step_changes_nothing(first, steps):
    data = batch(first=first, steps=steps)
    noise = batch(seed=7)
    real = data.mask == 1
    # All that is seen of real steps is their two ends.
    seen = np.zeros((7, 3), bool)
    seen[:-1] |= real
    seen[1:] |= real

    def mix(mine, others, keep):
        return np.where(keep.reshape(*keep.shape, *[1] * (mine.ndim - 2)), mine, others)

    # Before an episode's first timestep and after its last, observations, rewards and actions may be anything.
    other = data._replace(
        observation=mix(data.observation, noise.observation, seen),
        reward=mix(data.reward, noise.reward, seen),
        action=mix(data.action, 1 - data.action, real),
    )
    assert (other.observation != data.observation).any()
    (state, metrics, error), (others, other_metrics, other_error) = step(data), step(other)
    np.testing.assert_allclose(error, other_error, rtol=1e-4)
    for name in metrics:
        np.testing.assert_allclose(metrics[name], other_metrics[name], rtol=1e-3, err_msg=name)
    for mine, theirs in zip(jax.tree.leaves(state.params), jax.tree.leaves(others.params), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_a_step_counts_the_same_whatever_it_is_padded_with():
    short = batch(first=2, steps=2)
    _, metrics, error = step(short)
    params = core().init(jax.random.key(0)).params
    q = values(params, NETWORK.inputs_of(short), short.state.core, 2)
    errors = losses.td_error(
        q, short.action[2:], short.reward[3:], short.discount[2:], q, short.mask[2:], 2, CONFIG.rescaling_epsilon
    )[:2]
    np.testing.assert_allclose(metrics["loss"], np.mean(np.sum(errors**2, axis=0) / 2), rtol=1e-4)
    np.testing.assert_allclose(metrics["td_error_abs"], np.mean(np.abs(errors)), rtol=1e-4)
    np.testing.assert_allclose(metrics["q_mean"], np.mean(q[:2]), rtol=1e-4)
    expected = 0.9 * np.max(np.abs(errors), axis=0) + 0.1 * np.mean(np.abs(errors), axis=0)
    np.testing.assert_allclose(error, expected, rtol=1e-4)


def test_sequences_are_weighed():
    data, weight = batch(), np.array([1.0, 0.5, 0.25], np.float32)
    loss_of = lambda weight: compiled_step()(core().init(jax.random.key(0)), Sample(data, weight))[1]["loss"]  # noqa: E731
    parts = [loss_of(row) for row in np.eye(3, dtype=np.float32)]
    np.testing.assert_allclose(loss_of(weight), np.dot(weight, parts), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("core", ["lstm", pytest.param("gru", marks=pytest.mark.release)])
def test_learns_to_remember(core):
    """A cue at the first timestep tells which action is worth 1 at the last of five; in between all looks the same."""
    replay = SequenceConfig(length=5, burn_in=0, period=5, prioritized=True)
    config = R2D2Config(replay=replay, hidden_sizes=(16,), core_size=16, n_step=2, learning_rate=1e-2, target_period=10)
    network = networks.make_network(SPEC, config, core=core)
    made = learning.make_core(network, config, np.zeros((1, 3), np.float32))
    rng = np.random.default_rng(0)
    size = 32
    cue = rng.integers(0, 2, size)
    observation = np.zeros((6, size, 3), np.float32)
    observation[0, np.arange(size), cue] = 1
    observation[:, :, 2] = np.arange(6)[:, None] / 5
    action = rng.integers(0, 2, (5, size)).astype(np.int32)
    reward = np.zeros((6, size), np.float32)
    reward[5] = action[4] == cue
    discount = np.full((5, size), 0.9, np.float32)
    discount[4] = 0
    first = np.zeros((6, size), bool)
    first[0] = True
    state = network.init_memory(size)
    mask = np.ones((5, size), np.float32)
    sample = Sample(
        Sequence(observation, reward, first, action, discount, mask, state=state), np.ones(size, np.float32)
    )
    learned, update = made.init(jax.random.key(0)), jax.jit(made.step)
    for _ in range(400):
        learned, _, _ = update(learned, sample)
    q = learning.values(network, learned.params, network.inputs_of(sample.data), state.core, 0)
    assert np.mean(np.argmax(q[4], axis=-1) == cue) > 0.95
    # The values before it are known too, two discounts from the end: h(0.81) there.
    assert np.mean(np.max(q[2], axis=-1)) == pytest.approx(np.sqrt(1.81) - 1 + 0.00081, abs=0.05)


def test_first_priorities_by_hand():
    replay = SequenceConfig(length=3, burn_in=1, period=3)
    config = R2D2Config(replay=replay, n_step=2, rescaling_epsilon=None)
    column = lambda *x: np.array(x, np.float32)[:, None]  # noqa: E731
    data = Sequence(
        observation=(),
        reward=column(0, 9, 1, 2, 4),
        first=np.zeros((5, 1), bool),
        action=np.zeros((4, 1), np.int32),
        discount=column(0.5, 0.5, 0.5, 0.5),
        mask=column(1, 1, 1, 1),
        extras=ActorValues(taken=column(50, 2, 3, 4), best=column(70, 10, 20, 30)),
    )
    # After the burn-in: 1 + 0.5 (2 + 0.5 * 30) - 2; 2 + 0.5 (4 + 0.5 * 30) - 3, with the last known value in the place
    # of the one at the end; 4 + 0.5 * 30 - 4 likewise.
    expected = 0.9 * 15 + 0.1 * (7.5 + 8.5 + 15) / 3
    np.testing.assert_allclose(acting.first_error(data, config), [expected], rtol=1e-6)
    # A termination after the second of them: 1 + 0.5 * 2 - 2, and 2 - 3; the third is no step.
    ended = data._replace(mask=column(1, 1, 1, 0), discount=column(0.5, 0.5, 0, 0))
    np.testing.assert_allclose(acting.first_error(ended, config), [0.9 * 1 + 0.1 * 0.5], rtol=1e-6)


def test_the_networks_parts():
    spec = discrete(5, (36, 36, 2), np.uint8)
    inputs = Inputs(
        np.zeros((2, 3, 36, 36, 2), np.uint8), np.zeros((2, 3), np.int32), np.zeros((2, 3)), np.ones((2, 3), bool)
    )
    for dueling in (False, True):
        config = R2D2Config(core_size=6, image_features=7, dueling=dueling)
        network = networks.make_network(spec, config)
        params = network.init(jax.random.key(0), np.zeros((1, 36, 36, 2), np.uint8))
        q, after = network.unroll(params, inputs, network.init_memory(3).core)
        assert q.shape == (2, 3, 5)
        assert after.hidden.shape == (3, 6)
        assert any("dueling" in name for name in params) == dueling


def test_inputs_of_action_and_reward_matter():
    params = core().init(jax.random.key(0)).params
    data = batch()
    inputs = NETWORK.inputs_of(data)
    base, _ = NETWORK.unroll(params, inputs, data.state.core)
    for other in (inputs._replace(action=1 - inputs.action), inputs._replace(reward=inputs.reward + 1)):
        assert (NETWORK.unroll(params, other, data.state.core)[0] != base).any()
