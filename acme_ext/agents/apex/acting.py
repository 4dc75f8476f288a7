"""How Ape-X's actors act."""

import haiku as hk
import jax.numpy as jnp

from acme_ext.acting.exploration import ladder_epsilon
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.apex.config import ApexConfig
from acme_ext.agents.dqn import acting as dqn
from acme_ext.types import Array


def make_policy(network: hk.Transformed, config: ApexConfig, *, evaluation: bool) -> Policy:
    """Returns the epsilon-greedy policy whose epsilon is fixed, and another for each environment; in evaluation the
    greedy one.

    In training its extras are `ActorValues`, from which new transitions get their first priorities.
    """

    def epsilon(context: Context) -> Array:
        if evaluation:
            return jnp.float32(0)
        return ladder_epsilon(context.rank, config.epsilon_base, config.epsilon_steepness)

    with_values = config.replay.prioritized and not evaluation
    return dqn.policy_of(dqn.without_keys(network), epsilon, with_values=with_values)
