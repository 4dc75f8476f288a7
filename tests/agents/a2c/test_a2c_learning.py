"""A2C's own part: the plain policy gradient and RMSProp, in one step for a batch."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.stochastic import Behaviour
from acme_ext.agents.a2c import learning, losses
from acme_ext.agents.a2c.config import A2CConfig
from acme_ext.agents.ppo.networks import Output
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.ops.policy import Categorical
from acme_ext.replay.config import UnrollConfig
from acme_ext.types import Sample, Sequence


def linear(inputs, state):
    """Logits `x * w` of 2 actions and the value `x * v`."""
    x = inputs.observation[..., 0]
    output = Output(
        Categorical(x[..., None] * hk.get_parameter("w", (2,), init=jnp.zeros)),
        x * hk.get_parameter("v", (), init=jnp.ones),
    )
    return output, state


NETWORK = RecurrentNetwork(hk.transform(linear), None, np.array(-1, np.int32), lambda reward: reward)


def unrolls(behaviour=0.5):
    """One unroll of two steps: values 1, 2, -1, rewards 3 and -1, actions 0 and 1, discount 0.9."""
    return Sequence(
        observation=np.array([[[1.0]], [[2.0]], [[-1.0]]], np.float32),
        reward=np.array([[0.0], [3.0], [-1.0]], np.float32),
        first=np.zeros((3, 1), np.bool_),
        action=np.array([[0], [1]], np.int32),
        discount=np.full((2, 1), 0.9, np.float32),
        mask=np.ones((2, 1), np.float32),
        extras=Behaviour(np.full((2, 1), np.log(behaviour), np.float32), np.zeros((2, 1), np.int32)),
    )


def core_of(**fields):
    config = A2CConfig(batch_size=1, replay=UnrollConfig(length=2), max_gradient_norm=None, entropy_coef=0.0, **fields)
    return learning.make_core(NETWORK, config, np.ones((1, 1), np.float32))


def step(behaviour=0.5, scale=1.0, **fields):
    core = core_of(**fields)
    state = core.init(jax.random.key(0))
    batch = unrolls(behaviour)
    return core.step(state, Sample(batch._replace(reward=scale * batch.reward), np.ones(1, np.float32)))


def test_the_policy_gradient_by_hand():
    """The first action has become rarer since, and counts half; the second more likely, and counts as it is."""
    log_prob, behaviour = jnp.log(jnp.array([0.5, 0.25])), jnp.log(jnp.array([1.0, 0.1]))
    advantage = jnp.array([2.0, -1.0])
    np.testing.assert_allclose(
        losses.policy_gradient_loss(log_prob, behaviour, advantage), [0.5 * 2 * np.log(2), -np.log(4)], rtol=1e-6
    )
    gradient = jax.grad(lambda x: losses.policy_gradient_loss(x, behaviour, advantage).sum())(log_prob)
    np.testing.assert_allclose(gradient, [-0.5 * 2, 1.0], rtol=1e-6)  # none through the weight


def test_a_step_by_hand():
    # With a lambda of 1 the targets are the returns: -1 + 0.9 * -1 and 3 + 0.9 * that.
    advantage = np.array([3 + 0.9 * -1.9 - 1, -1.9 - 2])
    state, metrics, priorities = step(
        rmsprop_epsilon=1e-12, rmsprop_decay=0.75, learning_rate=0.1, normalize_values=False
    )
    assert priorities is None
    np.testing.assert_allclose(metrics["policy_loss"], np.log(2) * np.mean(advantage), rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], np.mean(advantage**2), rtol=1e-5)
    # -mean A_t x_t (1(a_t) - 1/2), and 0.5 * mean 2 (V - target) x.
    x = np.array([1.0, 2.0])
    by_w = -np.mean((advantage * x)[:, None] * (np.eye(2) - 0.5), axis=0)
    by_v = -np.mean(advantage * x)
    np.testing.assert_allclose(metrics["gradient_norm"], np.sqrt(np.sum(by_w**2) + by_v**2), rtol=1e-5)
    ((_, params),) = state.trained.params.items()
    # RMSProp's first average, corrected, is the gradient's square.
    np.testing.assert_allclose(params["w"], -0.1 * np.sign(by_w), rtol=1e-4)
    np.testing.assert_allclose(params["v"], 1 - 0.1 * np.sign(by_v), rtol=1e-4)


def test_with_normalised_values_the_unit_of_rewards_makes_no_difference():
    plain, metrics, _ = step(normalize_values=True)
    # Values begin as good as 0, so that targets and advantages are the returns: -1 and 3 + 0.9 * -1.
    returns = np.array([2.1, -1.0])
    np.testing.assert_allclose(plain.values.mean, returns.mean(), rtol=1e-3)
    np.testing.assert_allclose(plain.values.variance, returns.var(), rtol=1e-3)
    np.testing.assert_allclose(metrics["policy_loss"], np.log(2) * np.mean(returns) / returns.std(), rtol=1e-3)
    for scale in (1e-1, 1e3):
        scaled, of_scaled, _ = step(scale=scale, normalize_values=True)
        np.testing.assert_allclose(scaled.values.mean, scale * returns.mean(), rtol=1e-2)
        for name in ("policy_loss", "value_loss", "gradient_norm"):
            np.testing.assert_allclose(of_scaled[name], metrics[name], rtol=1e-2)


def test_the_learning_rate_falls_to_0():
    first, _, _ = step(learning_rate_decay_steps=1)
    again, _, _ = core_of(learning_rate_decay_steps=1).step(first, Sample(unrolls(0.5), np.ones(1, np.float32)))
    jax.tree.map(np.testing.assert_array_equal, again.trained.params, first.trained.params)


def test_data_of_an_older_policy_is_weighed_by_a_weight_of_at_most_one():
    """The policy has 0.5 for each action."""
    own, rarer, likelier = (step(behaviour)[1] for behaviour in (0.5, 0.01, 1.0))
    np.testing.assert_array_equal(own["policy_loss"], rarer["policy_loss"])
    np.testing.assert_allclose(likelier["policy_loss"], own["policy_loss"] / 2, rtol=1e-6)
    np.testing.assert_array_equal(likelier["value_loss"], own["value_loss"])
