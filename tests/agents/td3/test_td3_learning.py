import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import continuous
from two_steps import BATCH

from acme_ext.acting.policy import Context
from acme_ext.agents.td3 import acting, learning
from acme_ext.agents.td3.config import TD3Config
from acme_ext.agents.td3.networks import make_networks
from acme_ext.networks.continuous import Networks
from acme_ext.types import Sample

KEY = jax.random.key(0)
SPEC = continuous(1, (2,))
OBSERVATION = np.zeros((1, 2), np.float32)
SAMPLE = Sample(BATCH, np.ones(2, np.float32))
RATE = 0.1


def parameter(name):
    return hk.get_parameter(name, (), init=jnp.zeros)


def linear():
    """A policy that is a parameter, and critics q = w * a + b."""
    return Networks(
        1,
        hk.transform(lambda observation: jnp.full((len(observation), 1), parameter("a"))),
        hk.transform(lambda observation, action: parameter("w") * action[:, 0] + parameter("b")),
    )


def by_hand(**fields):
    """A core and a state of parameters that a hand can compute with."""
    config = TD3Config(**{"learning_rate": RATE, "target_rate": 0.25, "target_noise_stddev": 0.0, **fields})
    core = learning.make_core(linear(), config, OBSERVATION)
    state = core.init(KEY)
    return core, state._replace(
        policy=state.policy._replace(params={"~": {"a": jnp.float32(0.3)}}),
        critics=state.critics._replace(params={"~": {"w": jnp.array([2.0, 1.0]), "b": jnp.array([0.0, 1.0])}}),
        target_policy={"~": {"a": jnp.float32(0.8)}},
        target_critics={"~": {"w": jnp.array([1.0, 3.0]), "b": jnp.array([2.0, 1.0])}},
    )


def test_two_steps_by_hand():
    core, state = by_hand()
    after, metrics, given = core.step(state, SAMPLE)
    # The targets say 0.8 + 2 and 2.4 + 1 of the target policy's action: y = 1 + 0.5 * 2.8 = 2.4, and -1.
    # The critics say 2 and 2 of the first action, 1, and -1 and 0.5 of the second, -0.5.
    errors = np.array([[2.4 - 2, -1 + 1], [2.4 - 2, -1 - 0.5]])
    np.testing.assert_allclose(given, np.abs(errors).mean(0), rtol=1e-3, atol=1e-5)
    assert metrics["loss"] == pytest.approx(np.sum(errors**2) / 2, rel=1e-5)
    assert metrics["q_mean"] == pytest.approx((2 - 1 + 2 + 0.5) / 4, rel=1e-5)
    slope_b, slope_w = -2 * errors.mean(1), -2 * (errors * [1.0, -0.5]).mean(1)
    assert metrics["gradient_norm"] == pytest.approx(np.linalg.norm([*slope_b, *slope_w]), rel=1e-5)
    params = after.critics.params["~"]
    np.testing.assert_allclose(params["b"], [0.0, 1.0] - RATE * np.sign(slope_b), rtol=1e-5)
    np.testing.assert_allclose(params["w"], [2.0, 1.0] - RATE * np.sign(slope_w), rtol=1e-5)
    # Policy and targets wait for the second step.
    for name in ("policy", "target_policy", "target_critics"):
        assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), getattr(after, name), getattr(state, name)))

    later, metrics, _ = core.step(after, SAMPLE)
    assert later.steps == 2
    # The first of the new critics is what the policy climbs, and its targets follow by a quarter.
    assert later.policy.params["~"]["a"] == pytest.approx(0.3 + RATE, rel=1e-5)
    assert later.target_policy["~"]["a"] == pytest.approx(0.25 * 0.4 + 0.75 * 0.8, rel=1e-5)
    new = later.critics.params["~"]
    np.testing.assert_allclose(later.target_critics["~"]["b"], 0.25 * new["b"] + 0.75 * np.array([2, 1]), rtol=1e-5)
    w = np.asarray(new["w"])
    critics_only = learning.make_core(
        linear(),
        TD3Config(learning_rate=RATE, target_rate=0.25, target_noise_stddev=0.0, policy_period=99),
        OBSERVATION,
    )
    _, without, _ = critics_only.step(after, SAMPLE)
    assert metrics["gradient_norm"] == pytest.approx(np.hypot(without["gradient_norm"], w[0]), rel=1e-4)


@pytest.mark.parametrize("period", [1, 3])
def test_the_policy_is_updated_every_period(period):
    core, state = by_hand(policy_period=period)
    moved = []
    for _ in range(6):
        before = state
        state, _, _ = core.step(state, SAMPLE)
        moved.append(bool(state.policy.params["~"]["a"] != before.policy.params["~"]["a"]))
    assert moved == [(step + 1) % period == 0 for step in range(6)]


def test_both_critics_are_asked_about_the_same_noisy_action():
    # With critics that are the same but for their start, targets that are equal leave both the same error.
    core, state = by_hand(target_noise_stddev=10.0, max_target_noise=0.1)
    same = {"~": {"w": jnp.array([1.0, 1.0]), "b": jnp.array([0.0, 0.0])}}
    state = state._replace(critics=state.critics._replace(params=same), target_critics=same)
    after, metrics, _ = core.step(state, SAMPLE)
    optimizer = jax.tree.leaves(after.critics.optimizer)
    for leaf in (leaf for leaf in optimizer if jnp.ndim(leaf)):
        assert leaf[0] == leaf[1] != 0
    # The noise is clipped to 0.1 either way: the first target is 1 + 0.5 * (0.8 +- 0.1), its prediction 1.
    possible = [2 * ((0.5 * (0.8 + noise)) ** 2 + (-1 + 0.5) ** 2) / 2 for noise in (-0.1, 0.1)]
    assert min(abs(metrics["loss"] - loss) for loss in possible) < 1e-5


def test_states_begin_as_they_should():
    core = learning.make_core(make_networks(SPEC, TD3Config(hidden_sizes=(4,))), TD3Config(), OBSERVATION)
    state = core.init(KEY)
    online = (state.policy.params, state.critics.params)
    targets = (state.target_policy, state.target_critics)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), online, targets))
    assert all((leaf[0] != leaf[1]).any() for leaf in jax.tree.leaves(state.critics.params))
    other = core.init(jax.random.key(1))
    assert (jax.random.key_data(other.key) != jax.random.key_data(state.key)).any()
    assert core.variables(state)["policy"] is state.policy.params


def context(steps, count):
    return Context(jax.random.split(KEY, count), jnp.int32(steps), jnp.zeros(count), jnp.zeros(count))


def test_training_is_random_then_noisy_and_evaluation_is_neither():
    params, observation = {"~": {"a": jnp.float32(0.2)}}, jnp.zeros((4_000, 2))
    policy = acting.make_policy(linear(), TD3Config(random_steps=10, noise_stddev=0.05), evaluation=False)
    random, _, _ = policy.apply(params, context(9, 4_000), observation, ())
    np.testing.assert_allclose([random.mean(), random.std()], [0, 2 / 12**0.5], atol=0.03)
    noisy, _, extras = policy.apply(params, context(10, 4_000), observation, ())
    assert extras == ()
    np.testing.assert_allclose([noisy.mean(), noisy.std()], [0.2, 0.05], rtol=0.05)
    policy = acting.make_policy(linear(), TD3Config(random_steps=10), evaluation=True)
    evaluated, _, _ = policy.apply(params, context(0, 3), jnp.zeros((3, 2)), ())
    np.testing.assert_allclose(evaluated, np.full((3, 1), 0.2), rtol=1e-6)


def test_the_critics_are_weighed():
    core, state = by_hand()
    _, metrics, _ = core.step(state, SAMPLE._replace(weight=np.float32([0.5, 0.25])))
    errors = np.array([[2.4 - 2, -1 + 1], [2.4 - 2, -1 - 0.5]])
    assert metrics["loss"] == pytest.approx(np.sum(np.mean([0.5, 0.25] * errors**2, axis=1)), rel=1e-5)
