import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.ops import value


def test_double_q_target_by_hand():
    # The selector chooses actions 1 and 0, and the value is read there: 1 + 0.5 * 4 and -2 + 0.9 * 5.
    target = value.double_q_target(
        r_t=jnp.array([1.0, -2.0]),
        discount_t=jnp.array([0.5, 0.9]),
        q_t_value=jnp.array([[9.0, 4.0, 8.0], [5.0, 6.0, 7.0]]),
        q_t_selector=jnp.array([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]]),
    )
    np.testing.assert_allclose(target, [3.0, 2.5], rtol=1e-6)


def test_the_same_array_twice_is_q_learning():
    q = jnp.array([[1.0, 3.0], [-1.0, -2.0]])
    target = value.double_q_target(jnp.zeros(2), jnp.ones(2), q, q)
    np.testing.assert_array_equal(target, jnp.max(q, axis=1))


def test_without_discount_nothing_is_bootstrapped():
    q = jnp.full((2, 3), 1e6)
    np.testing.assert_array_equal(value.double_q_target(jnp.array([1.0, 2.0]), jnp.zeros(2), q, q), [1, 2])


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.uint8, jnp.float32])
def test_take_action(dtype):
    q = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(value.take_action(q, jnp.array([1, 0, 1], dtype)), [1, 2, 5])


def test_huber_by_hand():
    # With delta 2: 0.5 * 1.5**2, 0.5 * 2**2 where both meet, and 2 * (3 - 1).
    error = jnp.array([0.0, 1.5, -1.5, 2.0, 3.0, -3.0])
    np.testing.assert_allclose(value.huber(error, 2.0), [0, 1.125, 1.125, 2, 4, 4], rtol=1e-6)


def test_hubers_gradient_is_the_clipped_error():
    error = jnp.linspace(-3, 3, 25)
    gradient = jax.vmap(jax.grad(lambda e: value.huber(e, 1.0)))(error)
    np.testing.assert_allclose(gradient, jnp.clip(error, -1, 1), atol=1e-6)


def test_agrees_with_rlax(rlax):
    rng = np.random.default_rng(0)
    q_value, q_selector = (rng.normal(size=(64, 5)).astype(np.float32) for _ in range(2))
    r, discount = rng.normal(size=64).astype(np.float32), rng.uniform(size=64).astype(np.float32)
    zeros = np.zeros((64, 5), np.float32)
    expected = jax.vmap(rlax.double_q_learning)(zeros, np.zeros(64, int), r, discount, q_value, q_selector)
    np.testing.assert_allclose(value.double_q_target(r, discount, q_value, q_selector), expected, rtol=1e-5, atol=1e-6)
    error = rng.normal(scale=3, size=1000).astype(np.float32)
    for delta in (0.5, 1.0, 2.0):
        np.testing.assert_allclose(value.huber(error, delta), rlax.huber_loss(error, delta), rtol=1e-5, atol=1e-6)


def test_clipped_double_q_target_by_hand():
    # The smaller value counts, of each transition its own: 1 + 0.9 * 2, and -1 + 0.5 * -7; the third ended.
    target = value.clipped_double_q_target(
        r_t=jnp.array([1.0, -1.0, 4.0]),
        discount_t=jnp.array([0.9, 0.5, 0.0]),
        q_t=jnp.array([[3.0, -7.0, 9.0], [2.0, 5.0, 8.0]]),
    )
    np.testing.assert_allclose(target, [2.8, -4.5, 4.0], rtol=1e-6)
