import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.agents.td3 import losses


def test_the_smoothing_noise_is_clipped_and_then_the_action():
    a_t = jnp.array([[0.0, 0.2, 0.9, -0.9]])
    noise = jnp.array([[1.0, 9.0, 9.0, -1.5]])
    # 0.2 of the noise, at most 0.5: 0.2; 0.5; 0.5, which leaves the range; -0.3, which does too.
    np.testing.assert_allclose(losses.smoothed_action(a_t, noise, 0.2, 0.5), [[0.2, 0.7, 1.0, -1.0]], rtol=1e-6)


def test_the_critics_error_by_hand():
    q_tm1 = jnp.array([[1.0, 2.0], [0.5, -1.0]])
    arguments = (q_tm1, jnp.array([1.0, -1.0]), jnp.array([0.9, 0.0]), jnp.array([[3.0, 5.0], [2.0, 7.0]]))
    loss, gradients = jax.value_and_grad(lambda *x: losses.critic_loss(losses.td_error(*x), jnp.ones(2)), (0, 1, 2, 3))(
        *arguments
    )
    errors = np.array([[2.8 - 1, -1 - 2], [2.8 - 0.5, -1 + 1]])  # the smaller is bootstrapped from: 1 + 0.9 * 2
    assert loss == pytest.approx(np.sum(errors**2) / 2, rel=1e-6)
    weighed = losses.critic_loss(losses.td_error(*arguments), jnp.array([0.5, 1.0]))
    assert weighed == pytest.approx(np.sum(np.array([0.5, 1.0]) * errors**2) / 2, rel=1e-6)
    np.testing.assert_allclose(gradients[0], -errors, rtol=1e-5, atol=1e-6)
    for other in gradients[1:]:
        assert not np.any(other)


def test_the_policy_climbs():
    loss, slope = jax.value_and_grad(losses.policy_loss)(jnp.array([1.0, 2.0]))
    assert loss == -1.5
    np.testing.assert_allclose(slope, [-0.5, -0.5])
