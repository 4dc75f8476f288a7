"""PPO's losses, elementwise: whoever calls them takes the mean."""

import jax.numpy as jnp

from acme_ext.types import Array


def clipped_surrogate_pg_loss(prob_ratios_t: Array, adv_t: Array, epsilon: Array | float) -> Array:
    """Returns the policy's loss `[...]`, the negative of L^CLIP (Schulman et al. 2017, eq. 7).

    -min(r * A, clip(r, 1 - epsilon, 1 + epsilon) * A)

    Args:
        prob_ratios_t: `[...]` r, the actions' probabilities or densities over those they had when they were taken.
        adv_t: `[...]` A, advantages.
        epsilon: how far from 1 a ratio still gains.
    """
    clipped = jnp.clip(prob_ratios_t, 1 - epsilon, 1 + epsilon)
    return -jnp.minimum(prob_ratios_t * adv_t, clipped * adv_t)


def value_loss(value: Array, target: Array, before: Array | None = None, clip: float | None = None) -> Array:
    """Returns the squared error `[...]` of values, (V - V^targ)**2 (Schulman et al. 2017, eq. 9).

    With `clip`, the greater of this and of the error of before + clip(V - before, -clip, clip), as in the authors'
    code (Andrychowicz et al. 2021, appendix B.1).

    Args:
        value: `[...]` V.
        target: `[...]` V^targ.
        before: `[...]` the values of the parameters that the batch found.
        clip: how far from those a value still gains.
    """
    error = jnp.square(value - target)
    if clip is None or before is None:
        return error
    return jnp.maximum(error, jnp.square(before + jnp.clip(value - before, -clip, clip) - target))


def kl_divergence(log_prob: Array, behaviour_log_prob: Array) -> Array:
    """Returns an estimate `[...]` of KL(mu || pi) from the actions of mu: r - 1 - log r, with r = pi / mu.

    Its mean is the divergence, and none of its values is negative, where -log r has both signs.
    """
    log_ratio = log_prob - behaviour_log_prob
    return jnp.expm1(log_ratio) - log_ratio


def clip_rewards(rewards: Array, max_abs: float | None) -> Array:
    """Returns rewards as they are learned from: clipped to [-max_abs, max_abs], or as they are."""
    return rewards if max_abs is None else jnp.clip(rewards, -max_abs, max_abs)
