"""Policies of agents that think in actions in [-1, 1]."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from acme_ext.acting.exploration import uniform_noise
from acme_ext.acting.policy import Context, Policy
from acme_ext.ops.bounds import to_environment
from acme_ext.specs import Bounds
from acme_ext.types import Array, Params, Tree

Choose = Callable[[Params, Array, Tree], Array]
"""`(params, keys [B], observation [B, ...]) -> canonical action [B, A]`."""


def make_policy(choose: Choose, bounds: Bounds, *, random_steps: int = 0) -> Policy:
    """Returns the policy that takes the actions of `choose`, in the environment's bounds and shape.

    Args:
        choose: the agent's choice; what it gives beyond [-1, 1] is clipped.
        bounds: of the environment's action.
        random_steps: environment steps of the run that are taken by uniformly random actions first.
    """

    def apply(params: Params, context: Context, observation: Tree, state: Tree):
        keys = jax.vmap(jax.random.split)(context.key)
        action = choose(params, keys[:, 0], observation)
        if random_steps:
            random = uniform_noise(keys[:, 1], bounds.size)
            action = jnp.where(context.steps < random_steps, random, action)
        return to_environment(action, bounds), state, ()

    return Policy(apply)
