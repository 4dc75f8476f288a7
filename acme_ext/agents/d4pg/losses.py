"""The deterministic policy gradient; the critic's losses are in `acme_ext/ops/critics.py`."""

import jax.numpy as jnp
from jax import lax

from acme_ext.types import Array


def dpg_loss(a_tm1: Array, dqda_tm1: Array) -> Array:
    """Returns a loss `[B]` whose gradient with respect to the policy's actions is -dq/da (Silver et al. 2014, eq. 9;
    Lillicrap et al. 2016, eq. 6).

    It is |a + dq/da - a|**2 / 2, without a gradient through the first two terms. Its value is half the squared norm of
    dq/da, which is zero at a maximum of the critic.

    Args:
        a_tm1: `[B, A]` the policy's actions.
        dqda_tm1: `[B, A]` the gradient of the critic's value with respect to these actions.
    """
    return 0.5 * jnp.sum((lax.stop_gradient(a_tm1 + dqda_tm1) - a_tm1) ** 2, axis=-1)
