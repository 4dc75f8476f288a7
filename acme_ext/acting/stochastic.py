"""Stochastic policies, which store each action's log-probability for on-policy learning."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Context, Policy
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.ops import masking
from acme_ext.ops.gaussian import Gaussian
from acme_ext.ops.policy import Categorical
from acme_ext.types import Array, Params, Tree

Distribution = Categorical | Gaussian

Decide = Callable[[Any, Context, Tree, Tree], tuple[Distribution, Tree]]
"""`(params, context, observation [B, ...], state) -> (distribution [B, ...], state)`."""


class VersionedParams(NamedTuple):
    """The parameters that a stochastic policy receives."""

    params: Any  # the policy's parameters
    learner_steps: Array  # [] int32, the learner steps behind them: their version, stored with every action


class Behaviour(NamedTuple):
    """The extras of a stochastic policy, stored with every action."""

    log_prob: Array  # [B] float32, the action's log-probability under the policy that took it
    learner_steps: Array  # [B] int32, that policy's version


EXAMPLE_EXTRAS = Behaviour(np.zeros((), np.float32), np.zeros((), np.int32))
"""Example extras of one step of one environment, from which a replay gets their shapes."""


def make_policy(
    decide: Decide,
    *,
    init_state: Callable[[int], Tree] | None = None,
    remember: Callable[[Tree, Array], Tree] = lambda state, action: state,
    evaluation: bool,
) -> Policy:
    """Returns the policy that samples from a distribution; its extras are a `Behaviour`.

    Continuous actions are returned and stored unclipped; the environment clips them to its bounds.

    Args:
        decide: the agent's function that returns the distribution; it receives `VersionedParams.params`.
        init_state: see `Policy`; None for a policy without a recurrent state.
        remember: `(state, action [B, ...]) -> state`, for states that include the action taken.
        evaluation: whether to take the most likely action instead, without extras.
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
    """Returns the policy of a network whose output has a field `policy`, a distribution, as in PPO and IMPALA.

    It samples actions; in evaluation, it takes the most likely one. The config is not used.
    """
    del config

    def decide(params: Params, context: Context, observation: Tree, state: Tree):
        output, state = network.step(params, context.reward, observation, state)
        return output.policy, state

    return make_policy(decide, init_state=network.init_memory, remember=network.remember, evaluation=evaluation)


def among_legal(distribution: Distribution, observation: Tree) -> Distribution:
    """Returns a distribution limited to the actions that are legal according to an observation `[..., *shape]`."""
    if isinstance(distribution, Categorical):
        return Categorical(masking.masked(distribution.logits, masking.legal_actions(observation)))
    return distribution


def noise_of(distribution: Distribution, keys: Array) -> Array:
    """Returns the noise `[B, A]` for sampling from a distribution; each row has its own key of `keys` `[B]`."""
    if isinstance(distribution, Categorical):
        size = distribution.logits.shape[-1]
        return jax.vmap(lambda key: jax.random.gumbel(key, (size,)))(keys)
    return normal_noise(keys, distribution.mean.shape[-1])
