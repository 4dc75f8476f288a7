"""The deterministic policy gradient; the critic's losses are in `acme_ext/ops/critics.py`."""

import jax.numpy as jnp
from jax import lax

from acme_ext.types import Array


def dpg_loss(a_tm1: Array, dqda_tm1: Array) -> Array:
    """Returns a loss `[B]` whose gradient by the policy's actions is -dq/da (Silver et al. 2014, eq. 9; Lillicrap et
    al. 2016, eq. 6).

    |a + dq/da - a|**2 / 2 with the first two terms held fixed. Its value, half the squared length of dq/da, goes to
    zero as the policy comes to a maximum of the critic.

    Args:
        a_tm1: `[B, A]` the policy's actions.
        dqda_tm1: `[B, A]` the gradient of the critic's value by them.
    """
    return 0.5 * jnp.sum((lax.stop_gradient(a_tm1 + dqda_tm1) - a_tm1) ** 2, axis=-1)
