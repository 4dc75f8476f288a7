"""How Ape-X's actors act, and what they say of it."""

import haiku as hk
import jax.numpy as jnp

from acme_ext.acting.exploration import epsilon_greedy, ladder_epsilon
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.apex.config import ApexConfig
from acme_ext.agents.dqn.learning import PolicyVariables
from acme_ext.ops import value
from acme_ext.types import Array, Tree


def make_policy(network: hk.Transformed, config: ApexConfig) -> Policy:
    """Returns the epsilon-greedy policy whose epsilon is each environment's own, for good.

    Its extras are what first priorities are made of: `q_taken` `[B]`, the value of the action that is taken, and
    `q_max` `[B]`, that of the best.
    """

    def apply(params: PolicyVariables, context: Context, observation: Tree, state: Tree):
        q = network.apply(params.network, None, observation)
        epsilon = ladder_epsilon(context.rank, config.epsilon_base, config.epsilon_steepness)
        action = epsilon_greedy(context.key, q, epsilon)
        return action, state, {"q_taken": value.take_action(q, action), "q_max": jnp.max(q, axis=-1)}

    return Policy(apply)


def first_priority(reward: Array, discount: Array, extras_tm1: Tree, extras_t: Tree, *, offset: float) -> Array:
    """Returns the first priorities `[M]` of new transitions, by the values their actor had anyway.

    p = |R_t + gamma_t * max_a q(o_t, a) - q(o_tm1, a_tm1)| + offset   (Horgan et al. 2018, algorithm 1, line 10)

    Each value is by the parameters that the actor had at that step.

    Args:
        reward: `[M]` n-step rewards.
        discount: `[M]` n-step discounts, zero after a termination.
        extras_tm1: `q_taken` `[M]` and `q_max` `[M]` where the transitions begin.
        extras_t: the same where they end.
        offset: keeps every priority above zero (Schaul et al. 2016, section 3.3).
    """
    return abs(reward + discount * extras_t["q_max"] - extras_tm1["q_taken"]) + offset
