"""Policies for continuous actions in [-1, 1]."""

from collections.abc import Callable
from typing import Any, Protocol

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.acting.exploration import normal_noise, uniform_noise
from acme_ext.acting.policy import Context, Policy
from acme_ext.types import Array, Params, Tree

Choose = Callable[[Params, Array, Tree], Array]
"""`(params, keys [B], observation [B, ...]) -> action [B, A]`."""


def make_policy(choose: Choose, *, random_steps: int = 0) -> Policy:
    """Returns the policy that takes the actions of `choose`.

    Args:
        choose: the agent's function that chooses actions; they are clipped to [-1, 1].
        random_steps: environment steps at the start of the run with uniformly random actions.
    """

    def apply(params: Params, context: Context, observation: Tree, state: Tree):
        keys = jax.vmap(jax.random.split)(context.key)
        action = jnp.clip(choose(params, keys[:, 0], observation), -1.0, 1.0)
        if random_steps:
            random = uniform_noise(keys[:, 1], action.shape[-1])
            action = jnp.where(context.steps < random_steps, random, action)
        return action, state, ()

    return Policy(apply)


class HasPolicy(Protocol):
    """Networks that include a policy."""

    @property
    def policy(self) -> hk.Transformed:
        """`observation [B, ...] -> Gaussian [B, A]`, squashed or not; see `ops.gaussian`."""
        ...


def gaussian_policy(networks: HasPolicy, config: Any, *, evaluation: bool) -> Policy:
    """Returns the policy that samples from the network's Gaussian; in evaluation, it takes the mode.

    Args:
        networks: the agent's networks.
        config: the agent's config; its field `random_steps` is used if there is one, see `make_policy`.
        evaluation: whether to return the evaluation policy, which has no random steps.
    """

    def choose(params: Params, keys: Array, observation: Tree) -> Array:
        policy = networks.policy.apply(params, None, observation)
        return policy.mode() if evaluation else policy.sample(normal_noise(keys, policy.mean.shape[-1]))

    return make_policy(choose, random_steps=0 if evaluation else getattr(config, "random_steps", 0))
