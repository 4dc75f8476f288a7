"""Discrete BCQ's restriction of actions."""

import jax.numpy as jnp

from acme_ext.ops import masking
from acme_ext.types import Array


def allowed_values(q: Array, logits: Array, threshold: float, legal: Array | None = None) -> Array:
    """Returns action values `[B, A]` for an argmax over the allowed actions (Fujimoto et al. 2019, eq. 8).

    Actions with p(a | o) / max_a p(a | o) < tau aren't allowed; they get the lowest value of the data type. The maximum
    is over the legal actions.

    Args:
        q: `[B, A]` action values.
        logits: `[B, A]` logits of p(a | o), the action's probability in the data.
        threshold: tau.
        legal: `[B, A]` which actions are legal; None for all.
    """
    logits = masking.masked(logits, legal)
    ratio = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    return jnp.where(ratio < threshold, jnp.finfo(q.dtype).min, masking.masked(q, legal))
