"""Policies of agents that learn a distribution over actions, and need to know what it was when they acted."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Context, Policy
from acme_ext.learning.on_policy import VersionedParams
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.ops import masking
from acme_ext.ops.gaussian import Gaussian
from acme_ext.ops.policy import Categorical
from acme_ext.types import Array, Params, Tree

Distribution = Categorical | Gaussian

Decide = Callable[[Any, Context, Tree, Tree], tuple[Distribution, Tree]]
"""`(params, context, observation [B, ...], state) -> (distribution [B, ...], state)`."""


class Behaviour(NamedTuple):
    """The extras of such a policy, stored with every action."""

    log_prob: Array  # [B] float32, of the action, by the policy that took it
    learner_steps: Array  # [B] int32, the version of that policy


EXTRAS = Behaviour(np.zeros((), np.float32), np.zeros((), np.int32))
"""Stands for the extras of one environment's step, where a replay is described."""


def make_policy(
    decide: Decide,
    *,
    init_state: Callable[[int], Tree] | None = None,
    remember: Callable[[Tree, Array], Tree] = lambda state, action: state,
    evaluation: bool,
) -> Policy:
    """Returns the policy that samples from a distribution; its extras are a `Behaviour`.

    Continuous actions are given and stored as they were sampled; the environment clips them to its bounds.

    Args:
        decide: the agent's, which is given `VersionedParams.params`.
        init_state: see `Policy`; None for a policy without a recurrent state.
        remember: `(state, action [B, ...]) -> state`, for states that hold the action taken.
        evaluation: takes the likeliest action instead, and gives no extras.
    """

    def apply(versioned: VersionedParams, context: Context, observation: Tree, state: Tree):
        distribution, state = decide(versioned.params, context, observation, state)
        distribution = among_legal(distribution, observation)
        if evaluation:
            action = distribution.mode()
            return action, remember(state, action), ()
        action = distribution.sample(noise_of(distribution, context.key))
        version = jnp.broadcast_to(versioned.learner_steps, action.shape[:1])
        return action, remember(state, action), Behaviour(distribution.log_prob(action), version)

    return Policy(apply) if init_state is None else Policy(apply, init_state)


def network_policy(network: RecurrentNetwork, config: Any, *, evaluation: bool) -> Policy:
    """Returns the policy of a network whose output has a distribution `policy`, such as PPO's and IMPALA's; it samples,
    and in evaluation takes the likeliest action. Of the config nothing is read.
    """
    del config

    def decide(params: Params, context: Context, observation: Tree, state: Tree):
        output, state = network.step(params, context.reward, observation, state)
        return output.policy, state

    return make_policy(decide, init_state=network.init_memory, remember=network.remember, evaluation=evaluation)


def among_legal(distribution: Distribution, observation: Tree) -> Distribution:
    """Returns a distribution over the actions that are legal by an observation `[..., *shape]`."""
    if isinstance(distribution, Categorical):
        return Categorical(masking.masked(distribution.logits, masking.legal_actions(observation)))
    return distribution


def noise_of(distribution: Distribution, keys: Array) -> Array:
    """Returns the noise `[B, A]` that a distribution is sampled with, each row from a key of its own `[B]`."""
    if isinstance(distribution, Categorical):
        size = distribution.logits.shape[-1]
        return jax.vmap(lambda key: jax.random.gumbel(key, (size,)))(keys)
    return normal_noise(keys, distribution.mean.shape[-1])
