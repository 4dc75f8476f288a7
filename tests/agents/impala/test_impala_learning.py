import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from spec_of import discrete

from acme_ext.acting import stochastic
from acme_ext.acting.policy import Context
from acme_ext.acting.stochastic import Behaviour
from acme_ext.agents.impala import learning, networks
from acme_ext.agents.impala.config import IMPALAConfig
from acme_ext.networks.recurrent import Inputs, LSTMState, Memory
from acme_ext.replay.config import UnrollConfig
from acme_ext.types import Sample, Sequence

KEY = jax.random.key(0)
SPEC = discrete(2, (2,))
CONFIG = IMPALAConfig(
    hidden_sizes=(8,), core_size=5, replay=UnrollConfig(length=4), batch_size=3, reward_clipping="abs_one"
)


def unrolls(length=4, batch=3, core="lstm", **fields):
    rng = np.random.default_rng(0)
    state = ()
    if core is not None:
        state = Memory(
            LSTMState(*rng.normal(size=(2, batch, 5)).astype(np.float32)),
            np.array([-1, 1, 0], np.int32),
        )
    made = Sequence(
        observation=rng.normal(size=(length + 1, batch, 2)).astype(np.float32),
        reward=3 * rng.normal(size=(length + 1, batch)).astype(np.float32),
        first=np.zeros((length + 1, batch), np.bool_),
        action=rng.integers(0, 2, (length, batch)).astype(np.int32),
        discount=np.full((length, batch), 0.9, np.float32),
        mask=np.ones((length, batch), np.float32),
        extras=Behaviour(np.full((length, batch), np.log(0.5), np.float32), np.full((length, batch), 3, np.int32)),
        state=state,
    )
    return made._replace(**fields)


def core_of(core="lstm", **fields):
    config = dataclasses.replace(CONFIG, **fields)
    network = networks.make_network(SPEC, config, None, core)
    return network, learning.make_core(network, config, np.zeros((1, 2), np.float32))


def test_all_actions_are_about_equally_likely_at_first():
    network, core = core_of(None, hidden_sizes=(64, 64))
    output = network.outputs(core.init(KEY).trained.params, unrolls(batch=50, core=None))
    np.testing.assert_allclose(jax.nn.softmax(output.policy.logits), 0.5, atol=0.02)


@pytest.mark.parametrize("core", [None, "lstm"])
def test_a_step_learns(core):
    sample = Sample(unrolls(core=core), np.ones(3, np.float32))
    _, core = core_of(core)
    state = core.init(KEY)
    after, metrics, errors = jax.jit(core.step)(state, sample)
    assert errors is None
    assert after.steps == 1
    for before, now in zip(jax.tree.leaves(state.trained.params), jax.tree.leaves(after.trained.params), strict=True):
        assert np.any(before != now)
    steps = 12
    value, entropy = CONFIG.value_coef * metrics["value_loss"], CONFIG.entropy_coef * metrics["entropy"]
    total = steps * (metrics["policy_loss"] + value - entropy)
    np.testing.assert_allclose(metrics["loss"], total, rtol=1e-4)


def test_the_unit_of_rewards_makes_no_difference_from_the_first_step_on():
    _, core = core_of(None, reward_clipping="none")
    step, batch = jax.jit(core.step), unrolls(core=None)
    found = [
        step(core.init(KEY), Sample(batch._replace(reward=scale * batch.reward), np.ones(3, np.float32)))[:2]
        for scale in (1.0, 1e-1, 1e3)
    ]
    for state, metrics in found[1:]:
        for name in ("policy_loss", "value_loss", "gradient_norm"):
            np.testing.assert_allclose(metrics[name], found[0][1][name], rtol=1e-2)
        assert state.values.variance > 0


@pytest.mark.release
def test_the_learning_rate_falls_to_0():
    _, core = core_of(learning_rate_decay_steps=2)
    sample, moved = Sample(unrolls(), np.ones(3, np.float32)), []
    state = core.init(KEY)
    for _ in range(3):
        before, (state, _, _) = state, core.step(state, sample)
        moved.append(optax.tree.norm(jax.tree.map(jnp.subtract, state.trained.params, before.trained.params)))
    assert moved[0] > moved[1] > moved[2] == 0


def test_the_lag_is_the_learners_steps_since_the_policy_that_acted():
    _, core = core_of()
    mask = np.ones((4, 3), np.float32)
    mask[0] = 0
    batch = unrolls(mask=mask)
    batch.extras.learner_steps[0] = -99  # at what was no step
    batch.extras.learner_steps[1, 0] = 1
    _, metrics, _ = core.step(core.init(KEY)._replace(steps=jnp.int32(5)), Sample(batch, np.ones(3, np.float32)))
    np.testing.assert_allclose(metrics["lag"], (8 * 2 + 4) / 9, rtol=1e-6)
    assert metrics["lag_max"] == 4


def test_the_learner_sees_what_the_actor_saw():
    """Step by step with the policy's own memory, or in one go from the state stored with the unroll: the same."""
    network, core = core_of()
    variables = core.variables(core.init(KEY))["policy"]
    first = np.zeros((5, 3), np.bool_)
    first[2, 1] = True
    reward = unrolls().reward.copy()
    reward[2, 1] = 0
    batch = unrolls(first=first, reward=reward)
    policy = stochastic.network_policy(network, CONFIG, evaluation=False)
    state, initial = batch.state, policy.init_state(3)
    inputs = network.inputs_of(batch)
    np.testing.assert_array_equal(inputs.reward, np.clip(reward, -1, 1))
    output, _ = network.unroll(variables.params, inputs, network.core_state_of(batch))
    for t in range(4):
        columns = first[t]
        state = jax.tree.map(
            lambda new, old, columns=columns: jnp.where(columns.reshape((3,) + (1,) * (old.ndim - 1)), new, old),
            initial,
            state,
        )
        context = Context(jax.random.split(jax.random.key(t), 3), jnp.int32(0), jnp.zeros(3), reward[t])
        action, state, extras = policy.apply(variables, context, batch.observation[t], state)
        expected = jax.tree.map(lambda x, t=t: x[t], output.policy).log_prob(action)
        np.testing.assert_allclose(extras.log_prob, expected, rtol=1e-5)
        np.testing.assert_array_equal(state.action, action)
        state = state._replace(action=batch.action[t])  # what the unroll says was done


def test_what_was_remembered_before_an_episode_is_forgotten():
    network, core = core_of()
    params = core.init(KEY).trained.params
    first = np.zeros((5, 3), np.bool_)
    first[2] = True
    found = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        observation = unrolls().observation.copy()
        observation[:2] = rng.normal(size=(2, 3, 2))
        action = unrolls().action.copy()
        action[:2] = rng.integers(0, 2, (2, 3))
        batch = unrolls(observation=observation, action=action, first=first)
        output, _ = network.unroll(params, network.inputs_of(batch), network.core_state_of(batch))
        found.append(output.value)
    assert np.any(found[0][:2] != found[1][:2])
    np.testing.assert_array_equal(found[0][2:], found[1][2:])


def test_evaluation_is_greedy_and_remembers_too():
    network, core = core_of()
    variables = core.variables(core.init(KEY))["policy"]
    policy = stochastic.network_policy(network, CONFIG, evaluation=True)
    context = Context(jax.random.split(KEY, 3), jnp.int32(0), jnp.zeros(3), jnp.zeros(3))
    observation, state = unrolls().observation[0], policy.init_state(3)
    np.testing.assert_array_equal(state.action, [-1] * 3)
    action, after, extras = policy.apply(variables, context, observation, state)
    assert extras == ()
    np.testing.assert_array_equal(after.action, action)
    assert np.any(after.core.hidden != state.core.hidden)
    again, _, _ = policy.apply(
        variables, context._replace(key=jax.random.split(jax.random.key(9), 3)), observation, state
    )
    np.testing.assert_array_equal(action, again)


@pytest.mark.parametrize("torso", [None, "residual"])
@pytest.mark.parametrize("shape", [(10, 10, 4), (84, 84, 4)])
def test_images_go_through_the_torso_that_was_chosen(torso, shape):
    network = networks.make_network(discrete(3, shape, np.uint8), IMPALAConfig(image_features=7), torso)
    inputs = Inputs(
        jnp.ones((2, 1, *shape), jnp.uint8),
        jnp.zeros((2, 1), jnp.int32),
        jnp.zeros((2, 1)),
        jnp.zeros((2, 1), jnp.bool_),
    )
    params = jax.eval_shape(lambda: network.init(KEY, np.ones((1, *shape), np.uint8)))
    output, _ = jax.eval_shape(lambda params: network.unroll(params, inputs, ()), params)
    assert output.policy.logits.shape == (2, 1, 3)
    convolutions = sum(leaf.ndim == 4 for leaf in jax.tree.leaves(params))
    assert convolutions == 15 if torso else 1 if shape[0] == 10 else 3
