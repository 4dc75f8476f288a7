"""The exact expectations that discrete SAC uses instead of samples (Christodoulou 2019); the losses are SAC's."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.types import Array


class Expected(NamedTuple):
    """Expectations over a policy's actions; SAC uses a sampled action instead."""

    q: Array  # [1, B] sum_a pi(a) min_i q[i, a]
    log_prob: Array  # [B] sum_a pi(a) log pi(a), the negative entropy


def expected(logits: Array, q: Array) -> Expected:
    """Returns the expectations over all actions (eq. 10 to 12).

    The minimum over critics is taken separately for each action.

    Args:
        logits: `[B, A]` the policy's logits; `masking.ILLEGAL` for illegal actions, which get probability 0.
        q: `[N, B, A]` each critic's values.
    """
    log_probs = jax.nn.log_softmax(logits)
    probs = jnp.exp(log_probs)
    values = jnp.sum(probs * jnp.min(q, axis=0), axis=-1)
    return Expected(values[None], jnp.sum(probs * log_probs, axis=-1))


def target_entropy(share: float, num_actions: int, legal: Array | None) -> Array:
    """Returns the target entropy in nats, `[B]`, or `[]` if `legal` is None.

    It is a fraction of the entropy of the uniform distribution over legal actions.

    Args:
        share: the fraction, in [0, 1].
        num_actions: number of actions A.
        legal: bool `[B, A]`, the legal actions; None if all are legal.
    """
    count = jnp.float32(num_actions) if legal is None else jnp.sum(legal, axis=-1, dtype=jnp.float32)
    return share * jnp.log(jnp.maximum(count, 1.0))
