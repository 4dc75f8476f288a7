"""How bootstrapped DQN acts: with one head in each training episode, and with all heads in evaluation."""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from acme_ext.acting.exploration import epsilon_greedy, other_keys
from acme_ext.acting.policy import Context, Policy, PolicyMemory, StateAndMemory
from acme_ext.agents.bdqn.config import BDQNConfig
from acme_ext.agents.dqn import acting as dqn
from acme_ext.ops import masking
from acme_ext.types import Array, Params, Tree
from acme_ext.utils.trees import select

GREEDY = np.zeros((), np.float32)


class BDQNParams(NamedTuple):
    """The policy's parameters."""

    values: Params
    prior: Params  # of the prior network, which has the same architecture and is never trained


class BDQNExtras(NamedTuple):
    """The data that is stored with every action."""

    mask: Array  # [B, K] bool, whether a head learns from the step


def example_extras(config: BDQNConfig) -> BDQNExtras:
    """Returns example extras of one environment's step, for the replay's shapes and data types."""
    return BDQNExtras(np.zeros(config.num_heads, np.bool_))


def head_values(network: hk.Transformed, params: BDQNParams, observation: Tree, scale: float) -> Array:
    """Returns the action values of every head, `[B, K, A]`: Q = f + scale * p (Osband et al. 2018, eq. 8).

    No gradient flows through the prior p.
    """
    values = network.apply(params.values, None, observation)
    return values + scale * lax.stop_gradient(network.apply(params.prior, None, observation))


def make_policy(network: hk.Transformed, config: BDQNConfig, *, evaluation: bool) -> Policy:
    """Returns the greedy policy of one head, which is sampled uniformly for each episode.

    In evaluation it is the greedy policy of all heads together, see `joined`.

    In training its extras are `BDQNExtras`: each head learns from a step with probability `config.mask_probability`.
    The episode's head is stored in the policy's memory (see `acting.policy.PolicyMemory`).

    Args:
        network: see `networks.make_network`.
        config: the agent's config.
        evaluation: whether to act for evaluation.
    """

    def q_values(params: BDQNParams, observation: Tree) -> Array:
        q = head_values(network, params, observation, config.prior_scale)
        legal = masking.legal_actions(observation)
        return masking.masked(q, None if legal is None else legal[:, None])

    if evaluation:
        return dqn.policy_of(
            lambda params, keys, observation: joined(q_values(params, observation), config), lambda context: GREEDY
        )

    def apply(params: BDQNParams, context: Context, observation: Tree, state: Tree):
        head_keys, mask_keys = (other_keys(context.key, number) for number in range(2))
        drawn = jax.vmap(lambda key: jax.random.randint(key, (), 0, config.num_heads))(head_keys)
        head = select(context.first, drawn, context.memory.episode)
        q = jnp.take_along_axis(q_values(params, observation), head[:, None, None], axis=1)[:, 0]
        action = epsilon_greedy(context.key, q, GREEDY, masking.legal_actions(observation))
        mask = jax.vmap(lambda key: jax.random.bernoulli(key, config.mask_probability, (config.num_heads,)))(mask_keys)
        return action, StateAndMemory(state, PolicyMemory(episode=head)), BDQNExtras(mask)

    return Policy(apply, init_policy_memory=lambda batch: PolicyMemory(episode=np.zeros(batch, np.int32)))


def joined(q: Array, config: BDQNConfig) -> Array:
    """Returns action values `[B, A]` that combine all heads: their mean, or a majority vote.

    With the vote, only the actions that are greedy for the most heads keep their mean values (Osband et al. 2016,
    section 6.2).

    Args:
        q: `[B, K, A]` action values.
        config: the agent's, whose `evaluation` is `mean` or `vote`.
    """
    mean = jnp.mean(q, axis=1)
    if config.evaluation == "mean":
        return mean
    votes = jnp.sum(jax.nn.one_hot(jnp.argmax(q, axis=-1), q.shape[-1], dtype=jnp.int32), axis=1)
    return masking.masked(mean, votes == jnp.max(votes, axis=-1, keepdims=True))
