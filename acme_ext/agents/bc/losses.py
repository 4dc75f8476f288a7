"""Behavioural cloning's loss."""

import jax
import jax.numpy as jnp

from acme_ext.ops import value
from acme_ext.types import Array


def imitation_loss(out: Array, action: Array, *, discrete: bool) -> Array:
    """Returns the loss `[B]` of a policy's output beside the actions that were taken.

    Cross-entropy -log pi(a | o), or the squared distance sum_i (pi(o)_i - a_i)**2 / A.

    Args:
        out: `[B, A]` logits, or actions.
        action: `[B]`, or `[B, A]`.
        discrete: which.
    """
    if discrete:
        return -value.take_action(jax.nn.log_softmax(out), action)
    return jnp.mean(jnp.square(out - action), axis=-1)
