"""One step by hand with linear networks, and a problem whose solution is known."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import continuous

from acme_ext.agents.mpo import learning, losses, networks
from acme_ext.agents.mpo.config import DMPOConfig, MPOConfig
from acme_ext.learning.core import TrainState
from acme_ext.ops import critics
from acme_ext.ops.gaussian import Gaussian
from acme_ext.types import Sample, Transition

KEY = jax.random.key(0)
OBSERVATION = np.zeros((1, 1), np.float32)

# The mean is w times the observation in both dimensions, the standard deviation exp(s).
POLICY = {"w": [0.1, 0.2], "s": [-0.7, -0.4]}
TARGET = {"w": [0.3, 0.1], "s": [-0.5, -0.2]}
# A critic's number times the observation plus the others times the action.
CRITIC, TARGET_CRITIC = [1.0, 3.0, 0.0], [2.0, 4.0, -1.0]

BATCH = Transition(
    observation=np.array([[1.0], [2.0]], np.float32),
    action=np.array([[1.0, 0.0], [-0.5, 0.0]], np.float32),
    reward=np.array([1.0, -1.0], np.float32),
    discount=np.array([0.5, 0.0], np.float32),  # the second is a termination
    next_observation=np.array([[0.5], [9.0]], np.float32),
)
SAMPLE = Sample(BATCH, np.ones(2, np.float32))


def linear() -> networks.Networks:
    def policy(observation):
        w, s = (hk.get_parameter(name, (2,), init=jnp.zeros) for name in "ws")
        return Gaussian(observation * w, jnp.exp(s) * jnp.ones_like(observation))

    def critic(observation, action):
        w = hk.get_parameter("w", (3,), init=jnp.zeros)
        return w[0] * observation[:, 0] + action @ w[1:]

    return networks.Networks(2, hk.transform(policy), hk.transform(critic), critics.expected_value())


def params(value):
    return {"~": jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), value, is_leaf=lambda x: isinstance(x, list))}


def started(**fields):
    config = MPOConfig(**{"num_samples": 50, "init_temperature": 2.0, "max_gradient_norm": None, **fields})
    core = learning.make_core(linear(), config, OBSERVATION)
    state = core.init(KEY)
    return core, state._replace(
        policy=TrainState(params(POLICY), state.policy.optimizer),
        critic=TrainState(params({"w": CRITIC}), state.critic.optimizer),
        target_policy=params(TARGET),
        target_critic=params({"w": TARGET_CRITIC}),
    )


def gaussian(policy, observation):
    w, s = np.array(policy["w"]), np.array(policy["s"])
    return Gaussian(observation * w, np.exp(s) * np.ones_like(observation))


@pytest.mark.parametrize("epsilon_penalty", [None, 1e-3])
def test_a_step_by_hand(epsilon_penalty):
    core, state = started(epsilon_penalty=epsilon_penalty)
    after, metrics, errors = jax.jit(core.step)(state, SAMPLE)

    # The actions are the target policy's, at the transitions' ends, and so are the values the target critic's.
    _, noise_key = jax.random.split(state.key)
    target, online = (gaussian(p, BATCH.next_observation) for p in (TARGET, POLICY))
    actions = np.asarray(target.sample(jax.random.normal(noise_key, (50, 2, 2))))
    q = TARGET_CRITIC[0] * BATCH.next_observation[:, 0] + actions @ np.array(TARGET_CRITIC[1:])
    error = BATCH.reward + BATCH.discount * q.mean(0) - np.array([1 + 3, 2 - 1.5])
    assert error[1] == -1.5  # a termination: nothing of the 18 that the critic sees after it
    np.testing.assert_allclose(errors, np.abs(error), rtol=1e-4)
    np.testing.assert_allclose(metrics["critic_loss"], np.mean(error**2 / 2), rtol=1e-4)
    np.testing.assert_allclose(metrics["td_error_abs"], np.mean(np.abs(error)), rtol=1e-4)

    weights = losses.improved_weights(q, 2.0)
    np.testing.assert_allclose(metrics["e_step_kl_used"], losses.weights_kl(weights) / 0.1, rtol=1e-3)
    temperatures = [losses.temperature_loss(q, 2.0, 0.1)]
    if epsilon_penalty is not None:
        cost = -np.linalg.norm(actions - np.clip(actions, -1, 1), axis=-1)
        weights += losses.improved_weights(cost, 2.0)
        temperatures.append(losses.temperature_loss(cost, 2.0, epsilon_penalty))
    mean_kl = np.mean((online.mean - target.mean) ** 2 / target.stddev**2 / 2, axis=0)
    ratio = target.stddev / online.stddev
    stddev_kl = np.mean((ratio**2 - 1) / 2 - np.log(ratio), axis=0)
    fit = losses.weighted_log_likelihood(Gaussian(online.mean, target.stddev), actions, weights)
    fit += losses.weighted_log_likelihood(Gaussian(target.mean, online.stddev), actions, weights)
    policy_loss = 10 * mean_kl.sum() + 1_000 * stddev_kl.sum() - fit
    np.testing.assert_allclose(metrics["policy_loss"], policy_loss, rtol=1e-4)
    dual_loss = sum(temperatures) + 10 * (2.5e-3 - mean_kl).sum() + 1_000 * (1e-6 - stddev_kl).sum()
    np.testing.assert_allclose(metrics["loss"], np.mean(error**2 / 2) + policy_loss + dual_loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["mean_kl_used"], mean_kl.mean() / 2.5e-3, rtol=1e-4)
    np.testing.assert_allclose(metrics["stddev_kl_used"], stddev_kl.mean() / 1e-6, rtol=1e-4)

    # Both bounds are broken in both dimensions, so all multipliers rise, by Adam's first step of the learning rate.
    raw, started_raw = after.duals.params, state.duals.params
    np.testing.assert_allclose(raw.alpha_mean - started_raw.alpha_mean, 1e-2, rtol=1e-2)
    np.testing.assert_allclose(raw.alpha_stddev - started_raw.alpha_stddev, 1e-2, rtol=1e-2)
    assert abs(raw.temperature - started_raw.temperature) == pytest.approx(1e-2, rel=1e-2)
    moved = abs(raw.penalty_temperature - started_raw.penalty_temperature)
    assert moved == pytest.approx(0 if epsilon_penalty is None else 1e-2, rel=1e-2)


def test_the_cost_of_leaving_the_bounds_has_a_temperature_of_its_own():
    core, state = started(epsilon_penalty=1e-3)
    duals, step = state.duals.params, jax.jit(core.step)
    duals = duals._replace(penalty_temperature=duals.temperature - 1.5)
    _, even, _ = step(state, SAMPLE)
    _, cold, _ = step(state._replace(duals=TrainState(duals, state.duals.optimizer)), SAMPLE)
    assert cold["e_step_kl_used"] == even["e_step_kl_used"]
    assert abs(cold["policy_loss"] - even["policy_loss"]) > 1e-3


def test_the_critic_is_weighed_and_the_policy_is_not():
    core, state = started()
    _, even, errors = jax.jit(core.step)(state, SAMPLE)
    _, weighed, _ = jax.jit(core.step)(state, SAMPLE._replace(weight=np.array([0.5, 1.0], np.float32)))
    np.testing.assert_allclose(weighed["critic_loss"], np.mean([0.5, 1.0] * np.square(errors)) / 2, rtol=1e-4)
    np.testing.assert_allclose(weighed["policy_loss"], even["policy_loss"], rtol=1e-6)


def test_each_dimension_has_a_bound_of_its_own():
    # The mean of the first dimension alone has left its target's.
    policy = {"w": [0.9, TARGET["w"][1]], "s": TARGET["s"]}
    core, state = started()
    state = state._replace(policy=TrainState(params(policy), state.policy.optimizer))
    after, _, _ = jax.jit(core.step)(state, SAMPLE)
    moved = after.duals.params.alpha_mean - state.duals.params.alpha_mean
    assert moved[0] > 0 > moved[1]
    moved = after.duals.params.alpha_stddev - state.duals.params.alpha_stddev
    assert (moved < 0).all()


def test_dual_variables_are_projected_before_they_are_used():
    core, state = started()
    low = jax.tree.map(lambda raw: jnp.full_like(raw, -400.0), state.duals.params)
    after, metrics, _ = jax.jit(core.step)(state._replace(duals=TrainState(low, state.duals.optimizer)), SAMPLE)
    assert metrics["temperature"] > 0
    assert np.isfinite(metrics["loss"])
    for raw in jax.tree.leaves(after.duals.params):
        assert np.all(np.asarray(raw) >= -18.1)


def test_every_step_draws_other_actions():
    core, state = started()
    first, _, _ = jax.jit(core.step)(state, SAMPLE)
    assert not jnp.array_equal(jax.random.key_data(first.key), jax.random.key_data(state.key))
    step = jax.jit(core.step)
    q = [float(step(state._replace(key=key), SAMPLE)[1]["q_mean"]) for key in (state.key, first.key, state.key)]
    assert q[0] == q[2] != q[1]


def test_both_targets_start_as_copies_and_follow():
    config = MPOConfig(target_period=2, policy_learning_rate=0.1, critic_learning_rate=0.1)
    core = learning.make_core(linear(), config, OBSERVATION)
    state = core.init(KEY)
    for name in ("policy", "critic"):
        start = getattr(state, name).params["~"]["w"]
        np.testing.assert_array_equal(getattr(state, f"target_{name}")["~"]["w"], start)
        following = state
        for step in range(1, 5):
            following, _, _ = jax.jit(core.step)(following, SAMPLE)
            online = getattr(following, name).params["~"]["w"]
            expected = online if step % 2 == 0 else start
            np.testing.assert_array_equal(getattr(following, f"target_{name}")["~"]["w"], expected)
            start = expected
        assert start.any()


def test_actors_are_given_the_online_policy():
    core, state = started()
    assert core.variables(state) == {"policy": state.policy.params}


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [pytest.param(MPOConfig(), marks=pytest.mark.release), DMPOConfig(v_min=-3.0, v_max=0.0)]
)
def test_learns_the_best_action_of_each_observation(config):
    # One step, worth minus the squared distance from an action that depends on the observation: in [-1, 1], the first
    # value is best at 0.5 or -0.5, the second at -0.25.
    rng = np.random.default_rng(0)
    observation = rng.choice(np.array([-1.0, 1.0], np.float32), (256, 1))
    canonical = rng.uniform(-1, 1, (256, 2)).astype(np.float32)
    best = np.concatenate([0.5 * observation, np.full_like(observation, -0.25)], axis=1)
    reward = -np.sum((canonical - best) ** 2, axis=1)
    batch = Transition(observation, canonical, reward, np.zeros(256, np.float32), observation)
    changed = {"policy_sizes": (32,), "critic_sizes": (32, 32), "target_period": 10, "init_temperature": 1.0}
    changed |= {"policy_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "init_alpha_mean": 1.0}
    # Of a wide distribution's actions many would be clipped, and the best mean for those is another.
    changed |= {"init_stddev": 0.2, "epsilon_mean": 1e-2}
    config = type(config)(**{**vars(config), **changed})
    made = networks.make_networks(continuous(2, (1,)), config)
    core = learning.make_core(made, config, observation[:1])
    state, step = core.init(KEY), jax.jit(core.step)
    for _ in range(500):
        state, metrics, _ = step(state, Sample(batch, np.ones(256, np.float32)))
    policy = made.policy.apply(state.policy.params, None, np.array([[-1.0], [1.0]], np.float32))
    np.testing.assert_allclose(policy.mean, [[-0.5, -0.25], [0.5, -0.25]], atol=0.15)
    # The bound on the standard deviation is tight: it is still near where it started.
    np.testing.assert_allclose(policy.stddev, config.init_stddev, rtol=0.5)
    assert np.isfinite(metrics["loss"])
