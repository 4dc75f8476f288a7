import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.agents.r2d2 import losses


def column(*values: float) -> np.ndarray:
    """A sequence `[T, 1]`."""
    return np.array(values, np.float32)[:, None]


# Four timesteps with two actions each, and the three steps between them.
Q = jnp.array([[1.0, 2.0], [5.0, 4.0], [3.0, 6.0], [8.0, 7.0]])[:, None]
Q_TARGET = jnp.array([[0.0, 0.0], [10.0, 20.0], [30.0, 40.0], [50.0, 60.0]])[:, None]
ACTION = jnp.array([1, 0, 1])[:, None]
REWARD, DISCOUNT = column(1, 2, 4), column(0.5, 0.5, 0.5)
ONES = column(1, 1, 1)


def error(mask=ONES, discount=DISCOUNT, n=2, epsilon=None):
    return losses.td_error(Q, ACTION, REWARD, discount, Q_TARGET, mask, n, epsilon)[:, 0]


def test_the_error_by_hand():
    # The online best at the timesteps 1, 2, 3 are actions 0, 1, 0, of which the target says 10, 40, 50.
    # 1 + 0.5 (2 + 0.5 * 40) - 2;  2 + 0.5 (4 + 0.5 * 50) - 5;  4 + 0.5 * 50 - 6.
    np.testing.assert_allclose(error(), [10.0, 11.5, 23.0])


def test_a_terminations_error_by_hand():
    # The second step ends the episode: 1 + 0.5 * 2 - 2, and 2 - 5; the third is no step.
    np.testing.assert_allclose(error(column(1, 1, 0), column(0.5, 0, 0)), [0.0, -3.0, 0.0])


def test_a_truncations_error_by_hand():
    # Cut short after the second step: its end is bootstrapped from. 1 + 0.5 (2 + 0.5 * 40) - 2, 2 + 0.5 * 40 - 5.
    np.testing.assert_allclose(error(column(1, 1, 0), column(0.5, 0.5, 0), n=3), [10.0, 17.0, 0.0])


def test_values_are_rescaled_outside_of_the_sum():
    # With epsilon 0, h(x) = sqrt(x + 1) - 1 and its inverse (x + 1)**2 - 1 for what is positive.
    targets = [1 + 0.5 * (2 + 0.5 * 1680), 2 + 0.5 * (4 + 0.5 * 2600), 4 + 0.5 * 2600]
    expected = np.sqrt(np.array(targets) + 1) - 1 - [2, 5, 6]
    np.testing.assert_allclose(error(epsilon=1e-9), expected, rtol=1e-4)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_agrees_with_rlax(rlax, n):
    rng = np.random.default_rng(n)
    q, q_target = rng.normal(scale=3, size=(2, 9, 4, 3)).astype(np.float32)
    action, reward = rng.integers(0, 3, (8, 4)), rng.normal(scale=5, size=(8, 4)).astype(np.float32)
    discount = rng.choice(np.float32([0, 0.9, 1]), (8, 4))
    pair = rlax.TxPair(rlax.signed_hyperbolic, rlax.signed_parabolic)
    expected = jax.vmap(rlax.transformed_n_step_q_learning, (1, 1, 1, 1, 1, 1, None, None, None), 1)(
        q[:-1], action, q_target[1:], jnp.argmax(q[1:], axis=-1), reward, discount, n, True, pair
    )
    got = losses.td_error(q, action, reward, discount, q_target, np.ones((8, 4), np.float32), n, 1e-3)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_the_gradient_flows_through_the_actions_taken_alone():
    def total(q, q_target):
        return jnp.sum(losses.td_error(q, ACTION, REWARD, DISCOUNT, q_target, column(1, 1, 0), 2, 1e-3))

    of_q, of_target = jax.grad(total, (0, 1))(Q, Q_TARGET)
    np.testing.assert_array_equal(of_q[:, 0], [[0, -1], [-1, 0], [0, 0], [0, 0]])
    assert not of_target.any()


def test_the_loss_by_hand():
    errors = jnp.array([[1.0, 3.0], [2.0, 0.0]])
    # (1 * (1 + 4) / 2 + 0.5 * 9 / 2) / 2.
    np.testing.assert_allclose(losses.sequence_loss(errors, jnp.array([1.0, 0.5])), (2.5 + 2.25) / 2)


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_priorities_by_hand(array):
    errors = array(np.array([[1.0, -4.0], [-3.0, 100.0]], np.float32))
    mask = array(np.array([[1.0, 1.0], [1.0, 0.0]], np.float32))
    # 0.9 * 3 + 0.1 * 2; and, of one step, 4.
    np.testing.assert_allclose(losses.sequence_error(errors, mask, 0.9), [2.9, 4.0], rtol=1e-6)
    np.testing.assert_allclose(losses.sequence_error(errors, mask, 0.0), [2.0, 4.0], rtol=1e-6)
    np.testing.assert_allclose(losses.sequence_error(errors, 0 * mask, 0.9), [0, 0])
