"""IQL's losses (Kostrikov et al. 2022)."""

import jax.numpy as jnp
from jax import lax

from acme_ext.types import Array


def expectile_loss(error: Array, expectile: float) -> Array:
    """Returns |tau - 1(u < 0)| u**2, `[B]`, of errors u `[B]` (eq. 4): its least lies at the expectile tau."""
    return jnp.abs(expectile - (error < 0)) * jnp.square(error)


def advantage_weights(advantage: Array, inverse_temperature: float, max_weight: float) -> Array:
    """Returns min(exp(beta A), max_weight), `[B]`, through which no gradient flows (eq. 7)."""
    return lax.stop_gradient(jnp.minimum(jnp.exp(inverse_temperature * advantage), max_weight))
