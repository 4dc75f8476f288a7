"""Discrete CQL's penalty."""

import jax

from acme_ext.ops import value
from acme_ext.types import Array


def conservative_penalty(q: Array, action: Array) -> Array:
    """Returns the penalty log sum_a exp q[a] - q[action], `[B]` (Kumar et al. 2020, eq. 4).

    The values `q` are `[B, A]`, and the data's actions `[B]`.
    """
    return jax.nn.logsumexp(q, axis=-1) - value.take_action(q, action)
