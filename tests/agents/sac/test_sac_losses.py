import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.agents.sac import losses

Q_TM1 = jnp.array([[1.0, 2.0], [0.5, -1.0]])
R_T = jnp.array([1.0, -1.0])
DISCOUNT_T = jnp.array([0.9, 0.0])  # the second ended
Q_T = jnp.array([[3.0, 5.0], [2.0, 7.0]])
LOG_PROB_T = jnp.array([-1.5, 2.0])
# The smaller of the critics, and 0.2 * 1.5 more for its entropy: 1 + 0.9 * (2 + 0.3) = 3.07; and -1.
TARGET = np.array([3.07, -1.0])


def test_the_critics_error_by_hand():
    errors = losses.td_error(Q_TM1, R_T, DISCOUNT_T, Q_T, LOG_PROB_T, jnp.float32(0.2))
    np.testing.assert_allclose(errors, [[2.07, -3.0], [2.57, 0.0]], atol=1e-6)
    loss = losses.critic_loss(errors, jnp.array([1.0, 0.5]))
    assert loss == pytest.approx((2.07**2 + 0.5 * 9 + 2.57**2) / 4, rel=1e-6)


def test_the_critics_gradient_flows_through_their_predictions_alone():
    gradients = jax.grad(lambda *x: losses.critic_loss(losses.td_error(*x), jnp.ones(2)), (0, 1, 2, 3, 4, 5))(
        Q_TM1, R_T, DISCOUNT_T, Q_T, LOG_PROB_T, jnp.float32(0.2)
    )
    np.testing.assert_allclose(gradients[0], (np.asarray(Q_TM1) - TARGET) / 2, rtol=1e-6)
    for other in gradients[1:]:
        assert not np.any(other)


def test_the_policys_loss_by_hand():
    q = jnp.array([[1.0, 4.0], [3.0, 2.0]])
    loss, (by_q, by_log_prob) = jax.value_and_grad(losses.policy_loss, (0, 1))(q, LOG_PROB_T, jnp.float32(0.2))
    # 0.2 * -1.5 - 1 and 0.2 * 2 - 2
    assert loss == pytest.approx((-1.3 - 1.6) / 2, rel=1e-6)
    np.testing.assert_allclose(by_q, [[-0.5, 0], [0, -0.5]])
    np.testing.assert_allclose(by_log_prob, [0.1, 0.1], rtol=1e-6)


@pytest.mark.parametrize(("log_prob", "sign"), [(3.0, 1), (1.0, -1)])
def test_the_temperature_rises_while_the_entropy_is_too_small(log_prob, sign):
    # An entropy of -3 where -2 is wanted is too small, -1 too large.
    loss, slope = jax.value_and_grad(losses.temperature_loss)(jnp.log(0.5), jnp.full(4, log_prob), -2.0)
    assert loss == pytest.approx(-0.5 * (log_prob - 2), rel=1e-6)
    assert slope == pytest.approx(float(loss), rel=1e-6)
    assert np.sign(-slope) == sign


def test_the_temperatures_loss_moves_no_policy():
    assert not np.any(jax.grad(losses.temperature_loss, 1)(jnp.float32(0), LOG_PROB_T, -2.0))
