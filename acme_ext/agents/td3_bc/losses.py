"""TD3+BC's policy loss."""

import jax.numpy as jnp
from jax import lax

from acme_ext.types import Array


def policy_loss(q: Array, action: Array, data_action: Array, alpha: float) -> Array:
    """Returns the policy's loss `[]` (Fujimoto and Gu 2021, eq. 3 and 5).

    -lambda * mean q + mean (pi(o) - a)**2,   lambda = alpha / mean |q|

    No gradient flows through lambda. As in the authors' code, q are the values of the policy's actions here too; eq. 5
    has those of the actions in the data.

    Args:
        q: `[B]` the first critic's values of the policy's actions.
        action: `[B, A]` the policy's actions.
        data_action: `[B, A]` the actions in the data.
        alpha: weight of the critic's values.
    """
    scale = alpha / lax.stop_gradient(jnp.maximum(jnp.mean(jnp.abs(q)), 1e-6))
    return -scale * jnp.mean(q) + jnp.mean(jnp.square(action - data_action))
