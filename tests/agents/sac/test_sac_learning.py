import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import continuous
from two_steps import BATCH

from acme_ext.acting.continuous import gaussian_policy
from acme_ext.acting.policy import Context
from acme_ext.agents.sac import learning
from acme_ext.agents.sac.config import SACConfig
from acme_ext.agents.sac.networks import make_networks
from acme_ext.errors import UsageError
from acme_ext.networks.continuous import Networks
from acme_ext.ops.gaussian import SquashedGaussian
from acme_ext.types import Sample, Transition

KEY = jax.random.key(0)
SPEC = continuous(1, (2,))
OBSERVATION = np.zeros((1, 2), np.float32)
SAMPLE = Sample(BATCH, np.ones(2, np.float32))
RATE = 0.1


def parameter(name, shape=()):
    return hk.get_parameter(name, shape, init=jnp.zeros)


def linear():
    """A policy whose mean is a parameter and that hardly varies, and critics q = w * a + b."""

    def policy(observation):
        mean = jnp.full((len(observation), 1), parameter("mean"))
        return SquashedGaussian(mean, jnp.full_like(mean, 1e-6))

    def critic(observation, action):
        return parameter("w") * action[:, 0] + parameter("b")

    return Networks(1, hk.transform(policy), hk.transform(critic))


def by_hand():
    """A core and a state of parameters that a hand can compute with, of temperature 1e-6."""
    config = SACConfig(learning_rate=RATE, target_rate=0.25, init_temperature=1e-6)
    core = learning.make_core(linear(), config, OBSERVATION)
    state = core.init(KEY)
    online = {"~": {"w": jnp.array([2.0, 1.0]), "b": jnp.array([0.0, 1.0])}}
    target = {"~": {"w": jnp.array([1.0, 3.0]), "b": jnp.array([2.0, 1.0])}}
    policy = {"~": {"mean": jnp.arctanh(0.8)}}
    return core, state._replace(
        policy=state.policy._replace(params=policy),
        critics=state.critics._replace(params=online),
        target_critics=target,
    )


def test_a_step_by_hand():
    core, state = by_hand()
    after, metrics, given = core.step(state, SAMPLE)
    # The targets say 0.8 + 2 and 2.4 + 1 of the next action, 0.8: y = 1 + 0.5 * 2.8 = 2.4, and -1.
    # The critics say 2 and 2 of the first action, 1, and -1 and 0.5 of the second, -0.5.
    errors = np.array([[2.4 - 2, -1 + 1], [2.4 - 2, -1 - 0.5]])
    np.testing.assert_allclose(given, np.abs(errors).mean(0), rtol=1e-3, atol=1e-5)
    assert metrics["loss"] == pytest.approx(np.sum(errors**2) / 4, rel=1e-3)
    assert metrics["q_mean"] == pytest.approx((2 - 1 + 2 + 0.5) / 4, rel=1e-5)
    # Adam's first step is the learning rate against the gradient's sign: by b the mean of -errors, by w that of
    # -errors * a.
    slope_b, slope_w = -errors.mean(1), -(errors * [1.0, -0.5]).mean(1)
    params = after.critics.params["~"]
    np.testing.assert_allclose(params["b"], [0.0, 1.0] - RATE * np.sign(slope_b), rtol=1e-3)
    np.testing.assert_allclose(params["w"], [2.0, 1.0] - RATE * np.sign(slope_w), rtol=1e-3)
    # The policy follows the smaller of the new critics, 2.1 * 0.8 + 0.1 and 1.1 * 0.8 + 0.9: the first; upwards.
    assert metrics["policy_loss"] == pytest.approx(-(2.1 * 0.8 + 0.1), rel=1e-3)
    assert after.policy.params["~"]["mean"] == pytest.approx(np.arctanh(0.8) + RATE, rel=1e-4)
    by_mean = 2.1 * (1 - 0.8**2)
    # An entropy of some -13 is far below -1, so the temperature rises; its own gradient is of the order of 1e-5.
    assert metrics["entropy"] < -10
    assert metrics["temperature"] == pytest.approx(1e-6, rel=1e-5)
    assert after.log_temperature.params == pytest.approx(np.log(1e-6) + RATE, rel=1e-4)
    norm = np.linalg.norm([*slope_b, *slope_w, by_mean])
    assert metrics["gradient_norm"] == pytest.approx(norm, rel=1e-3)
    # The targets take a quarter of the new critics.
    np.testing.assert_allclose(after.target_critics["~"]["w"], 0.25 * params["w"] + 0.75 * np.array([1, 3]), rtol=1e-5)


def test_the_entropy_of_what_follows_counts_by_the_temperature():
    core, state = by_hand()
    hot = state._replace(log_temperature=state.log_temperature._replace(params=jnp.log(0.5)))
    _, metrics, _ = core.step(hot, SAMPLE)
    # log pi(a) = log N - log(1 - 0.8**2), with log N = -z**2 / 2 + 13.8 - 0.92 of the noise drawn; so y is lower by
    # 0.5 * 0.5 * some 13, and its square error dominates the loss.
    y = 2.4 - 0.25 * 13.4
    assert metrics["loss"] == pytest.approx(((y - 2) ** 2 * 2 + 0 + 1.5**2) / 4, rel=0.5)


def test_states_begin_as_they_should():
    core = learning.make_core(make_networks(SPEC, SACConfig(hidden_sizes=(4,))), SACConfig(), OBSERVATION)
    state = core.init(KEY)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), state.critics.params, state.target_critics))
    assert all((leaf[0] != leaf[1]).any() for leaf in jax.tree.leaves(state.critics.params))
    np.testing.assert_allclose(state.log_temperature.params, np.log(SACConfig().init_temperature), rtol=1e-6)
    other = core.init(jax.random.key(1))
    assert (jax.random.key_data(other.key) != jax.random.key_data(state.key)).any()
    assert core.variables(state)["policy"] is state.policy.params


@pytest.mark.slow
def test_the_entropy_comes_to_its_target():
    # What an action is worth falls with its square, so each temperature has an entropy of its own.
    config = SACConfig(hidden_sizes=(16,), learning_rate=1e-2, target_entropy_per_value=-0.5)
    core = learning.make_core(make_networks(SPEC, config), config, OBSERVATION)
    rng = np.random.default_rng(0)
    size = 128
    action = rng.uniform(-1, 1, (size, 1)).astype(np.float32)
    sample = Sample(
        Transition(
            rng.normal(size=(size, 2)).astype(np.float32),
            action,
            -5 * action[:, 0] ** 2,
            np.zeros(size, np.float32),
            rng.normal(size=(size, 2)).astype(np.float32),
        ),
        np.ones(size, np.float32),
    )

    @jax.jit
    def steps(state):
        return jax.lax.scan(lambda state, _: core.step(state, sample)[:2], state, None, length=1_500)

    _, metrics = steps(core.init(KEY))
    assert np.mean(metrics["entropy"][-500:]) == pytest.approx(-0.5, abs=0.15)
    assert np.isfinite(metrics["gradient_norm"]).all()


def context(steps, count):
    return Context(jax.random.split(KEY, count), jnp.int32(steps), jnp.zeros(count), jnp.zeros(count))


def test_training_is_random_then_sampled_and_evaluation_is_neither():
    networks = Networks(
        1,
        hk.transform(lambda o: SquashedGaussian(jnp.full((len(o), 1), 0.3), jnp.full((len(o), 1), 0.5))),
        linear().critic,
    )
    config = SACConfig(random_steps=10)
    observation = jnp.zeros((4_000, 2))
    policy = gaussian_policy(networks, config, evaluation=False)
    random, _, _ = policy.apply({}, context(9, 4_000), observation, ())
    np.testing.assert_allclose([random.mean(), random.std()], [0, 2 / 12**0.5], atol=0.03)
    sampled, _, extras = policy.apply({}, context(10, 4_000), observation, ())
    assert extras == ()
    pre_image = np.arctanh(np.asarray(sampled))
    np.testing.assert_allclose([pre_image.mean(), pre_image.std()], [0.3, 0.5], atol=0.03)
    evaluated, _, _ = gaussian_policy(networks, config, evaluation=True).apply({}, context(0, 3), jnp.zeros((3, 2)), ())
    np.testing.assert_allclose(evaluated, np.tanh(np.full((3, 1), 0.3)), rtol=1e-6)


def test_a_target_entropy_above_that_of_uniform_actions_is_refused():
    with pytest.raises(UsageError, match=r"^target_entropy_per_value is 0.7"):
        SACConfig(target_entropy_per_value=0.7)
