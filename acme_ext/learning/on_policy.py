"""What agents share that learn from unrolls of (nearly) their own policy."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from acme_ext.types import Array, Sequence


class VersionedParams(NamedTuple):
    """What the actors of such an agent are given."""

    params: Any  # whatever the policy is applied with
    learner_steps: Array  # [] int32, the learner steps that made them: the version, stored with every action


def lag(learner_steps: Array, unrolls: Sequence) -> dict[str, Array]:
    """Returns how many learner steps old the policy was that took the actions `[T, B]`, as metrics: the mean of them,
    and the most. Zero where data is on-policy.
    """
    age = (learner_steps - unrolls.extras.learner_steps).astype(jnp.float32) * unrolls.mask
    return {"lag": masked_mean(age, unrolls.mask), "lag_max": jnp.max(age)}


def masked_mean(x: Array, mask: Array) -> Array:
    """Returns the mean `[]` of the elements that count; 0 if none does."""
    return jnp.sum(x * mask) / jnp.maximum(jnp.sum(mask), 1.0)


def normalized_advantages(adv_t: Array, mask: Array) -> Array:
    """Returns advantages `[...]` of mean 0 and variance 1 among those that count, with 0 for the others.

    Args:
        adv_t: `[...]`.
        mask: `[...]` 1 for a step, 0 for what is none.
    """
    centred = mask * (adv_t - masked_mean(adv_t, mask))
    return centred / (jnp.sqrt(masked_mean(jnp.square(centred), mask)) + 1e-8)
