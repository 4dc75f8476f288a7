"""Behavioural cloning's loss."""

import jax
import jax.numpy as jnp

from acme_ext.ops import value
from acme_ext.types import Array


def imitation_loss(out: Array, action: Array, *, discrete: bool) -> Array:
    """Returns the loss `[B]` between a policy's outputs and the actions in the data.

    It is the cross-entropy -log pi(a | o) for discrete actions, and the mean squared error sum_i (pi(o)_i - a_i)**2 / A
    for continuous ones.

    Args:
        out: `[B, A]` logits, or continuous actions.
        action: the data's actions, `[B]` if discrete, or `[B, A]` if continuous.
        discrete: whether the actions are discrete.
    """
    if discrete:
        return -value.take_action(jax.nn.log_softmax(out), action)
    return jnp.mean(jnp.square(out - action), axis=-1)
