"""PPO's losses, elementwise: whoever calls them takes the mean."""

import jax.numpy as jnp

from acme_ext.types import Array


def clipped_surrogate_pg_loss(prob_ratios_t: Array, adv_t: Array, epsilon: float) -> Array:
    """Returns the policy's loss `[...]`, the negative of L^CLIP (Schulman et al. 2017, eq. 7).

    -min(r * A, clip(r, 1 - epsilon, 1 + epsilon) * A)

    Args:
        prob_ratios_t: `[...]` r, the actions' probabilities or densities over those they had when they were taken.
        adv_t: `[...]` A, advantages.
        epsilon: how far from 1 a ratio still gains.
    """
    clipped = jnp.clip(prob_ratios_t, 1 - epsilon, 1 + epsilon)
    return -jnp.minimum(prob_ratios_t * adv_t, clipped * adv_t)


def value_loss(value: Array, target: Array) -> Array:
    """Returns the squared error `[...]` of values, (V - V^targ)**2 (Schulman et al. 2017, eq. 9), not clipped."""
    return jnp.square(value - target)


def normalized_advantages(adv_t: Array, mask: Array) -> Array:
    """Returns advantages `[B]` of mean 0 and variance 1 among those that count, with 0 for the others.

    Args:
        adv_t: `[B]`.
        mask: `[B]` 1 for a step, 0 for what is none.
    """
    count = jnp.maximum(jnp.sum(mask), 1.0)
    centred = mask * (adv_t - jnp.sum(mask * adv_t) / count)
    return centred / (jnp.sqrt(jnp.sum(jnp.square(centred)) / count) + 1e-8)
