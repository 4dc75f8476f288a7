"""IQL's losses (Kostrikov et al. 2022)."""

import jax.numpy as jnp
from jax import lax

from acme_ext.ops.gaussian import Gaussian
from acme_ext.types import Array

_INSIDE = 1 - 1e-5  # keeps the data's actions away from the bounds, which a tanh mean never reaches


def expectile_loss(error: Array, expectile: float) -> Array:
    """Returns |tau - 1(u < 0)| u**2, `[B]`, for errors u `[B]` (eq. 4); it is minimal at the expectile tau."""
    return jnp.abs(expectile - (error < 0)) * jnp.square(error)


def advantage_weights(advantage: Array, inverse_temperature: float, max_weight: float) -> Array:
    """Returns min(exp(beta A), max_weight), `[B]`, without a gradient (eq. 7)."""
    return lax.stop_gradient(jnp.minimum(jnp.exp(inverse_temperature * advantage), max_weight))


def policy_loss(policy: Gaussian, action: Array, weight: Array) -> Array:
    """Returns the weighted behavioural cloning loss -mean_b w_b log pi(a_b | o_b), `[]` (eq. 7).

    Args:
        policy: `[B, A]` action distributions.
        action: `[B, A]` the data's actions, in [-1, 1].
        weight: `[B]` weights.
    """
    return -jnp.mean(weight * policy.log_prob(jnp.clip(action, -_INSIDE, _INSIDE)))


def critic_loss(q: Array, target: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    """Returns the critics' loss sum_i mean_b w_b (y_b - q_ib)**2, `[]` (eq. 6), and their values and errors.

    Args:
        q: `[N, B]` each critic's value of the action taken.
        target: `[B]` targets y.
        weight: `[B]` weights.
    """
    error = target - q
    return jnp.sum(jnp.mean(weight * jnp.square(error), axis=1)), (q, error)
