"""One step by hand with linear networks, and a problem whose solution is known."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from spec_of import continuous

from acme_ext.agents.d4pg import learning, networks
from acme_ext.agents.d4pg.config import ApexDPGConfig, D4PGConfig, DPGConfig
from acme_ext.learning.core import TrainState
from acme_ext.ops import critics
from acme_ext.replay.config import TransitionConfig
from acme_ext.types import Sample, Transition

KEY = jax.random.key(0)
OBSERVATION = np.zeros((1, 1), np.float32)

# Each a number times the observation, and for the critic a number times the action besides.
POLICY, TARGET_POLICY = 0.2, 0.5
CRITIC, TARGET_CRITIC = (1.0, 3.0), (2.0, 4.0)

BATCH = Transition(
    observation=np.array([[1.0], [2.0]], np.float32),
    action=np.array([[1.0], [-0.5]], np.float32),
    reward=np.array([1.0, -1.0], np.float32),
    discount=np.array([0.5, 0.0], np.float32),  # the second is a termination
    next_observation=np.array([[0.5], [9.0]], np.float32),
)
WEIGHT = np.array([0.25, 1.0], np.float32)
SAMPLE = Sample(BATCH, WEIGHT)
# The target policy's action at 0.5 is 0.25, which the target critic says is worth 2 * 0.5 + 4 * 0.25 = 2. The critic
# says 1 * 1 + 3 * 1 = 4 and 1 * 2 + 3 * -0.5 = 0.5. So the errors are 1 + 0.5 * 2 - 4 and -1 - 0.5.
ERRORS = np.array([-2.0, -1.5])


def linear() -> networks.Networks:
    def policy(observation):
        return observation * hk.get_parameter("w", (), init=jnp.zeros)

    def critic(observation, action):
        w = hk.get_parameter("w", (2,), init=jnp.zeros)
        return (w[0] * observation + w[1] * action)[:, 0]

    return networks.Networks(1, hk.transform(policy), hk.transform(critic), critics.expected_value())


def params(value):
    return {"~": {"w": jnp.asarray(value, jnp.float32)}}


def started(config: DPGConfig):
    core = learning.make_core(linear(), config, OBSERVATION)
    state = core.init(KEY)
    return core, state._replace(
        policy=TrainState(params(POLICY), state.policy.optimizer),
        critic=TrainState(params(CRITIC), state.critic.optimizer),
        target_policy=params(TARGET_POLICY),
        target_critic=params(TARGET_CRITIC),
    )


@pytest.mark.parametrize("weight", [np.ones(2, np.float32), WEIGHT])
def test_a_step_by_hand(weight):
    config = ApexDPGConfig(max_policy_gradient=None, policy_learning_rate=0.1, critic_learning_rate=0.01)
    core, state = started(config)
    after, metrics, errors = core.step(state, Sample(BATCH, weight))
    np.testing.assert_allclose(metrics["loss"], np.mean(weight * ERRORS**2 / 2), rtol=1e-5)
    np.testing.assert_allclose(metrics["td_error_abs"], 1.75, rtol=1e-5)
    np.testing.assert_allclose(errors, np.abs(ERRORS), rtol=1e-5)
    # The critic before the step has dq/da = 3; the policy's gradient is minus that times the observation's mean.
    of_policy = -3.0 * 1.5
    of_critic = np.mean(-1.0 * (weight * ERRORS)[:, None] * np.array([[1.0, 1.0], [2.0, -0.5]]), axis=0)
    np.testing.assert_allclose(metrics["policy_loss"], 4.5, rtol=1e-5)
    np.testing.assert_allclose(metrics["gradient_norm"], np.linalg.norm([*of_critic, of_policy]), rtol=1e-5)
    # q of the policy's own actions 0.2 and 0.4: 1 + 0.6 and 2 + 1.2.
    np.testing.assert_allclose(metrics["q_mean"], 2.4, rtol=1e-5)
    # Adam's first step is the gradient's sign.
    np.testing.assert_allclose(after.policy.params["~"]["w"], POLICY + 0.1, rtol=1e-5)
    np.testing.assert_allclose(after.critic.params["~"]["w"], CRITIC - 0.01 * np.sign(of_critic), rtol=1e-5)
    assert after.steps == 1


@pytest.mark.parametrize(("period", "rate"), [(2, 1.0), (1, 0.25)])
def test_both_targets_start_as_copies_and_follow_as_the_config_says(period, rate):
    config = ApexDPGConfig(target_period=period, target_rate=rate, policy_learning_rate=0.1, critic_learning_rate=0.1)
    core = learning.make_core(linear(), config, OBSERVATION)
    state = core.init(KEY)
    state = state._replace(critic=TrainState(params(CRITIC), state.critic.optimizer), target_critic=params(CRITIC))
    np.testing.assert_array_equal(state.target_policy["~"]["w"], state.policy.params["~"]["w"])
    target = {"policy": np.zeros(()), "critic": np.array(CRITIC)}
    for step in range(1, 5):
        state, _, _ = core.step(state, SAMPLE)
        for name in target:
            if step % period == 0:
                target[name] = rate * getattr(state, name).params["~"]["w"] + (1 - rate) * target[name]
            np.testing.assert_allclose(getattr(state, f"target_{name}")["~"]["w"], target[name], rtol=1e-5)
    assert target["policy"] != 0


@pytest.mark.parametrize(
    ("bounds", "policy_norm", "critic_norm"),
    [
        # The gradients are -4.5, and that of the test above without weights, (2.5, 0.625).
        ({"max_gradient_norm": None}, 4.5, np.hypot(2.5, 0.625)),
        ({"max_gradient_norm": 2.0}, 2.0, 2.0),
        ({"max_gradient_norm": None, "max_policy_gradient": 0.5}, 0.5, np.hypot(2.5, 0.625)),
    ],
)
def test_gradients_are_bounded(bounds, policy_norm, critic_norm):
    config = ApexDPGConfig(**{"max_policy_gradient": None, **bounds})
    core, state = started(config)
    after, metrics, _ = core.step(state, Sample(BATCH, np.ones(2, np.float32)))
    # As they were before.
    np.testing.assert_allclose(metrics["gradient_norm"], np.linalg.norm([4.5, 2.5, 0.625]), rtol=1e-5)

    def moments(trained):
        is_adam = lambda s: isinstance(s, optax.ScaleByAdamState)  # noqa: E731
        return next(s for s in jax.tree.leaves(trained.optimizer, is_leaf=is_adam) if is_adam(s)).mu["~"]["w"]

    # Adam's first average holds a tenth of the gradient.
    np.testing.assert_allclose(10 * np.linalg.norm(moments(after.policy)), policy_norm, rtol=1e-5)
    np.testing.assert_allclose(10 * np.linalg.norm(moments(after.critic)), critic_norm, rtol=1e-5)


def test_the_critic_goes_to_actors_that_need_it():
    for prioritized in (False, True):
        core, state = started(ApexDPGConfig(replay=TransitionConfig(prioritized=prioritized)))
        variables = core.variables(state)
        assert list(variables) == ["policy"]
        assert variables["policy"].policy is state.policy.params
        assert variables["policy"].critic == (state.critic.params if prioritized else ())


@pytest.mark.slow
def test_the_metrics_of_d4pg_tell_a_support_that_is_too_narrow():
    config = D4PGConfig(v_min=0.0, v_max=1.0, policy_sizes=(8,), critic_sizes=(8,))
    core = learning.make_core(networks.make_networks(continuous(1, (1,)), config), config, OBSERVATION)
    state, step = core.init(KEY), jax.jit(core.step)
    for reward, expected in ((0.0, 0.0), (5.0, 1.0), (-5.0, 1.0)):
        batch = BATCH._replace(reward=np.full(2, reward, np.float32))
        _, metrics, _ = step(state, Sample(batch, np.ones(2, np.float32)))
        np.testing.assert_allclose(metrics["clipped_mass"], expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [D4PGConfig(v_min=-2.0, v_max=0.0), pytest.param(ApexDPGConfig(), marks=pytest.mark.release)]
)
def test_learns_the_best_action_of_each_observation(config):
    # One step, worth minus the squared distance from an action that depends on the observation: 0.5 or -0.5 in [-1, 1].
    rng = np.random.default_rng(0)
    observation = rng.choice(np.array([-1.0, 1.0], np.float32), (256, 1))
    canonical = rng.uniform(-1, 1, (256, 1)).astype(np.float32)
    reward = -((canonical - 0.5 * observation) ** 2)[:, 0]
    batch = Transition(observation, canonical, reward, np.zeros(256, np.float32), observation)
    changed = {"policy_sizes": (32,), "critic_sizes": (32, 32), "policy_learning_rate": 3e-3}
    config = type(config)(**{**vars(config), **changed, "critic_learning_rate": 3e-3})
    made = networks.make_networks(continuous(1, (1,)), config)
    core = learning.make_core(made, config, observation[:1])
    state, step = core.init(KEY), jax.jit(core.step)
    for _ in range(400):
        state, metrics, _ = step(state, Sample(batch, np.ones(256, np.float32)))
    action = made.policy.apply(state.policy.params, None, np.array([[-1.0], [1.0]], np.float32))
    np.testing.assert_allclose(action, [[-0.5], [0.5]], atol=0.1)
    assert np.isfinite(metrics["loss"])
