"""PPO's losses, elementwise; the caller takes the mean."""

import jax.numpy as jnp

from acme_ext.types import Array


def clipped_surrogate_pg_loss(prob_ratios_t: Array, adv_t: Array, epsilon: Array | float) -> Array:
    """Returns the policy's loss `[...]`, the negative of L^CLIP (Schulman et al. 2017, eq. 7).

    -min(r * A, clip(r, 1 - epsilon, 1 + epsilon) * A)

    Args:
        prob_ratios_t: `[...]` ratios r of the actions' current probabilities or densities to those under the policy
            that took them.
        adv_t: `[...]` advantages A.
        epsilon: clipping range of the ratios.
    """
    clipped = jnp.clip(prob_ratios_t, 1 - epsilon, 1 + epsilon)
    return -jnp.minimum(prob_ratios_t * adv_t, clipped * adv_t)


def value_loss(value: Array, target: Array, before: Array | None = None, clip: float | None = None) -> Array:
    """Returns the squared error `[...]` of values, (V - V^targ)**2 (Schulman et al. 2017, eq. 9).

    With `clip`, it is the maximum of this error and the squared error of before + clip(V - before, -clip, clip), as in
    the authors' code (Andrychowicz et al. 2021, appendix B.1).

    Args:
        value: `[...]` values V.
        target: `[...]` targets V^targ.
        before: `[...]` the values before the updates with this batch.
        clip: clipping range of the change from `before`; None for no clipping.
    """
    error = jnp.square(value - target)
    if clip is None or before is None:
        return error
    return jnp.maximum(error, jnp.square(before + jnp.clip(value - before, -clip, clip) - target))


def kl_divergence(log_prob: Array, behaviour_log_prob: Array) -> Array:
    """Returns an estimate `[...]` of KL(mu || pi) from the actions of mu: r - 1 - log r, with r = pi / mu.

    Its expectation is the divergence. Unlike the estimate -log r, it is never negative.
    """
    log_ratio = log_prob - behaviour_log_prob
    return jnp.expm1(log_ratio) - log_ratio


def clip_rewards(rewards: Array, max_abs: float | None) -> Array:
    """Returns the rewards, clipped to [-max_abs, max_abs]; unchanged if `max_abs` is None."""
    return rewards if max_abs is None else jnp.clip(rewards, -max_abs, max_abs)
