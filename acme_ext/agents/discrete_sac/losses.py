"""What is exact in discrete SAC where SAC samples (Christodoulou 2019); the losses are SAC's."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.types import Array


class Expected(NamedTuple):
    """Expectations over a policy's actions, in the place of what SAC knows of one that it samples."""

    q: Array  # [1, B] sum_a pi(a) min_i q[i, a]
    log_prob: Array  # [B] sum_a pi(a) log pi(a): the entropy, negative


def expected(logits: Array, q: Array) -> Expected:
    """Returns the expectations over all actions (eq. 10 to 12).

    The smaller critic is believed action by action.

    Args:
        logits: `[B, A]` of the policy, `masking.ILLEGAL` where an action may not be taken, which counts for nothing.
        q: `[N, B, A]` each critic's values.
    """
    log_probs = jax.nn.log_softmax(logits)
    probs = jnp.exp(log_probs)
    values = jnp.sum(probs * jnp.min(q, axis=0), axis=-1)
    return Expected(values[None], jnp.sum(probs * log_probs, axis=-1))


def target_entropy(share: float, num_actions: int, legal: Array | None) -> Array:
    """Returns the entropy to keep to, a share of that of uniformly random legal actions, in nats: `[B]`, or `[]` where
    all actions are legal.

    Args:
        share: in [0, 1].
        num_actions: A.
        legal: bool `[B, A]`; None where all are.
    """
    count = jnp.float32(num_actions) if legal is None else jnp.sum(legal, axis=-1, dtype=jnp.float32)
    return share * jnp.log(jnp.maximum(count, 1.0))
