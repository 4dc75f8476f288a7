"""Discrete BCQ's choice of actions."""

import jax.numpy as jnp

from acme_ext.types import Array


def allowed_values(q: Array, logits: Array, threshold: float) -> Array:
    """Returns action values `[B, A]` for an argmax, the least there are where an action is left out (Fujimoto et al.
    2019b, eq. 8).

    An action is left out where p(a | o) / max_a p(a | o) < tau.

    Args:
        q: `[B, A]` action values.
        logits: `[B, A]` of the data's actions.
        threshold: tau.
    """
    ratio = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    return jnp.where(ratio < threshold, jnp.finfo(q.dtype).min, q)
