"""How DQN acts."""

from collections.abc import Callable

import haiku as hk
import jax.numpy as jnp
import optax

from acme_ext.acting.exploration import epsilon_greedy
from acme_ext.acting.policy import Context, Policy
from acme_ext.acting.values import ActorValues
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.ops import masking, value
from acme_ext.types import Array, Params, Tree


def epsilon_schedule(config: DQNConfig, *, evaluation: bool = False) -> Callable[[Context], Array]:
    """Returns the schedule of epsilon, `context -> epsilon`; in evaluation a constant.

    Epsilon decreases linearly with the run's environment steps. It starts to decrease when learning starts, as in the
    code of Mnih et al. 2015.
    """
    if evaluation:
        return lambda context: jnp.float32(config.evaluation_epsilon)
    begin = config.replay.steps_before_learning
    schedule = optax.linear_schedule(
        config.epsilon_start, config.epsilon_end, config.epsilon_decay_steps, transition_begin=begin
    )
    return lambda context: jnp.asarray(schedule(context.steps))


def make_policy(network: hk.Transformed, config: DQNConfig, *, evaluation: bool) -> Policy:
    """Returns the epsilon-greedy policy of a network that uses no random key, see `networks.make_network`."""
    return policy_of(without_keys(network), epsilon_schedule(config, evaluation=evaluation))


def without_keys(network: hk.Transformed) -> Callable[[Params, Array, Tree], Array]:
    """Returns the function of action values for `policy_of`, for a network that uses no random key."""
    return lambda params, keys, observation: network.apply(params, None, observation)


def policy_of(
    q_values: Callable[[Params, Array, Tree], Array],
    epsilon: Callable[[Context], Array],
    *,
    with_values: bool = False,
) -> Policy:
    """Returns the epsilon-greedy policy of action values.

    Args:
        q_values: `(params, keys [B], observation [B, ...]) -> q [B, A]`, with a random key for each environment.
        epsilon: `context -> epsilon`, `[]` or `[B]`.
        with_values: whether its extras are `ActorValues`, for the initial priorities of new items; otherwise it has no
            extras.
    """

    def apply(params: Params, context: Context, observation: Tree, state: Tree):
        legal = masking.legal_actions(observation)
        q = masking.masked(q_values(params, context.key, observation), legal)
        action = epsilon_greedy(context.key, q, epsilon(context), legal)
        extras = ActorValues(value.take_action(q, action), jnp.max(q, axis=-1)) if with_values else ()
        return action, state, extras

    return Policy(apply)
