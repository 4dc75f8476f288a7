"""Policies of agents that act by vectors in [-1, 1]."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from acme_ext.acting.exploration import uniform_noise
from acme_ext.acting.policy import Context, Policy
from acme_ext.types import Array, Params, Tree

Choose = Callable[[Params, Array, Tree], Array]
"""`(params, keys [B], observation [B, ...]) -> action [B, A]`."""


def make_policy(choose: Choose, *, random_steps: int = 0) -> Policy:
    """Returns the policy that takes the actions of `choose`.

    Args:
        choose: the agent's choice; what it gives beyond [-1, 1] is clipped.
        random_steps: environment steps of the run that are taken by uniformly random actions first.
    """

    def apply(params: Params, context: Context, observation: Tree, state: Tree):
        keys = jax.vmap(jax.random.split)(context.key)
        action = jnp.clip(choose(params, keys[:, 0], observation), -1.0, 1.0)
        if random_steps:
            random = uniform_noise(keys[:, 1], action.shape[-1])
            action = jnp.where(context.steps < random_steps, random, action)
        return action, state, ()

    return Policy(apply)
