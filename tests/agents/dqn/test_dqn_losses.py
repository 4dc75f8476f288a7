import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.agents.dqn import losses

# Two transitions with three actions each.
Q_TM1 = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
A_TM1 = jnp.array([1, 2])
R_T = jnp.array([0.5, -1.0])
DISCOUNT_T = jnp.array([0.9, 0.5])
Q_T_VALUE = jnp.array([[10.0, 20.0, 30.0], [2.0, 4.0, 8.0]])
Q_T_SELECTOR = jnp.array([[7.0, 9.0, 8.0], [3.0, 2.0, 1.0]])


def error(**changed):
    arguments = {
        "q_tm1": Q_TM1,
        "a_tm1": A_TM1,
        "r_t": R_T,
        "discount_t": DISCOUNT_T,
        "q_t_value": Q_T_VALUE,
        "q_t_selector": Q_T_SELECTOR,
    }
    return losses.td_error(**{**arguments, **changed})


def test_the_double_error_by_hand():
    # The selector's best are actions 1 and 0: 0.5 + 0.9 * 20 - 2 = 16.5, and -1 + 0.5 * 2 - 6 = -6.
    np.testing.assert_allclose(error(), [16.5, -6.0], rtol=1e-6)


def test_the_plain_error_by_hand():
    # The target's own best are the actions 2: 0.5 + 0.9 * 30 - 2 = 25.5, and -1 + 0.5 * 8 - 6 = -3.
    np.testing.assert_allclose(error(q_t_selector=Q_T_VALUE), [25.5, -3.0], rtol=1e-6)


def test_a_termination_bootstraps_nothing():
    # 0.5 - 2 and -1 - 6.
    np.testing.assert_allclose(error(discount_t=jnp.zeros(2)), [-1.5, -7.0], rtol=1e-6)


def test_the_gradient_flows_through_the_first_values_alone():
    def total(q_tm1, q_t_value, q_t_selector):
        return jnp.sum(error(q_tm1=q_tm1, q_t_value=q_t_value, q_t_selector=q_t_selector))

    first, value, selector = jax.grad(total, (0, 1, 2))(Q_TM1, Q_T_VALUE, Q_T_SELECTOR)
    np.testing.assert_array_equal(first, [[0, -1, 0], [0, 0, -1]])
    assert not value.any()
    assert not selector.any()


def test_the_same_network_for_all_three_learns_through_the_first_alone():
    # As the core calls it: one set of parameters gives all values.
    def total(w):
        return jnp.sum(error(q_tm1=w * Q_TM1, q_t_value=w * Q_T_VALUE, q_t_selector=w * Q_T_SELECTOR))

    assert jax.grad(total)(1.0) == -(2 + 6)


@pytest.mark.parametrize(
    ("huber_delta", "expected"),
    [
        # Squared: (1 * 0.5**2 + 0.5 * 3**2) / 2 / 2.
        (None, (0.25 + 4.5) / 4),
        # Delta 1: 0.5**2 / 2, and 3 - 1/2 past it: (1 * 0.125 + 0.5 * 2.5) / 2.
        (1.0, (0.125 + 1.25) / 2),
        # Delta 2: 2 * (3 - 1) past it: (1 * 0.125 + 0.5 * 4) / 2.
        (2.0, (0.125 + 2.0) / 2),
    ],
)
def test_the_loss_by_hand(huber_delta, expected):
    loss = losses.q_loss(jnp.array([0.5, -3.0]), jnp.array([1.0, 0.5]), huber_delta)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_the_weight_scales_the_loss_and_not_the_error():
    # Inside the Huber loss the weight would move its kink.
    for weight in (0.1, 1.0):
        gradient = jax.grad(lambda e, w: losses.q_loss(e[None], w[None], 1.0))(jnp.array(3.0), jnp.array(weight))
        np.testing.assert_allclose(gradient, weight, rtol=1e-6)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("huber_delta", [None, 1.0, 0.3])
def test_agrees_with_rlax(rlax, double, huber_delta):
    rng = np.random.default_rng(0)
    q_tm1, q_value, q_selector = (rng.normal(size=(32, 4)).astype(np.float32) for _ in range(3))
    a_tm1 = rng.integers(0, 4, 32)
    r_t = rng.normal(size=32).astype(np.float32)
    discount_t, weight = (rng.uniform(size=32).astype(np.float32) for _ in range(2))
    if not double:
        q_selector = q_value

    def ours(q):
        return losses.q_loss(losses.td_error(q, a_tm1, r_t, discount_t, q_value, q_selector), weight, huber_delta)

    def theirs(q):
        if double:
            delta = jax.vmap(rlax.double_q_learning)(q, a_tm1, r_t, discount_t, q_value, q_selector)
        else:
            delta = jax.vmap(rlax.q_learning)(q, a_tm1, r_t, discount_t, q_value)
        loss = rlax.l2_loss(delta) if huber_delta is None else rlax.huber_loss(delta, huber_delta)
        return jnp.mean(weight * loss)

    for mine, other in zip(jax.value_and_grad(ours)(q_tm1), jax.value_and_grad(theirs)(q_tm1), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
