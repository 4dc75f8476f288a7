"""CRR's advantages and weights (Wang et al. 2020)."""

import jax.numpy as jnp

from acme_ext.agents.iql.losses import advantage_weights
from acme_ext.types import Array


def advantage(q: Array, q_sampled: Array, baseline: str) -> Array:
    """Returns A = Q(o, a) - mean_j Q(o, a_j), `[B]`, or with the maximum instead of the mean (eq. 4).

    Args:
        q: `[B]` values of the data's actions.
        q_sampled: `[S, B]` values of S actions a_j sampled from the policy.
        baseline: `mean` or `max`.
    """
    return q - (jnp.mean(q_sampled, axis=0) if baseline == "mean" else jnp.max(q_sampled, axis=0))


def weights(advantage: Array, weighting: str, temperature: float, max_weight: float) -> Array:
    """Returns 1(A > 0), or min(exp(A / temperature), max_weight), `[B]`, without a gradient (eq. 3)."""
    if weighting == "binary":
        return (advantage > 0).astype(advantage.dtype)
    return advantage_weights(advantage, 1 / temperature, max_weight)
