"""DQfD's margin loss."""

import jax
import jax.numpy as jnp

from acme_ext.ops import masking, value
from acme_ext.types import Array


def margin_loss(q: Array, action: Array, margin: float, legal: Array | None = None) -> Array:
    """Returns max_a (q[a] + margin * 1(a != action)) - q[action], `[B]` (Hester et al. 2018, eq. 2).

    It is 0 if the action's value exceeds all other values by at least the margin.

    Args:
        q: `[B, A]` action values.
        action: `[B]` actions taken.
        margin: the required difference to the other actions' values.
        legal: `[B, A]` the legal actions; None if all are legal.
    """
    others = margin * (1 - jax.nn.one_hot(action, q.shape[-1]))
    return jnp.max(masking.masked(q + others, legal), axis=-1) - value.take_action(q, action)
