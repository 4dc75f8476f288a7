"""Functions for agents that learn from unrolls of (nearly) their current policy."""

import jax.numpy as jnp

from acme_ext.types import Array, Sequence


def lag(learner_steps: Array, unrolls: Sequence) -> dict[str, Array]:
    """Returns the mean and maximum age of the policies that took the actions `[T, B]`, in learner steps, as metrics.

    The age is zero for on-policy data.
    """
    age = (learner_steps - unrolls.extras.learner_steps).astype(jnp.float32) * unrolls.mask
    return {"lag": masked_mean(age, unrolls.mask), "lag_max": jnp.max(age)}


def masked_mean(x: Array, mask: Array) -> Array:
    """Returns the mean `[]` of the elements whose mask is 1; 0 if there are none."""
    return jnp.sum(x * mask) / jnp.maximum(jnp.sum(mask), 1.0)


def normalized_advantages(adv_t: Array, mask: Array) -> Array:
    """Returns advantages `[...]` normalised to mean 0 and variance 1 over the steps, and 0 elsewhere.

    Args:
        adv_t: `[...]`.
        mask: `[...]` 1 for steps, 0 for padding.
    """
    centred = mask * (adv_t - masked_mean(adv_t, mask))
    return centred / (jnp.sqrt(masked_mean(jnp.square(centred), mask)) + 1e-8)
