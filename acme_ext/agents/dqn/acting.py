"""How DQN acts."""

from collections.abc import Callable

import haiku as hk
import jax.numpy as jnp
import optax

from acme_ext.acting.exploration import epsilon_greedy
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.agents.dqn.learning import PolicyVariables
from acme_ext.types import Array, Params, Tree


def epsilon_schedule(config: DQNConfig) -> Callable[[Context], Array]:
    """Returns `context -> epsilon`, linear in the run's environment steps."""
    schedule = optax.linear_schedule(config.epsilon_start, config.epsilon_end, config.epsilon_decay_steps)
    return lambda context: jnp.asarray(schedule(context.steps))


def make_policy(network: hk.Transformed, epsilon: Callable[[Context], Array], *, with_priority: bool) -> Policy:
    """Returns the epsilon-greedy policy of a network, see `networks.make_network`, which is given no random key; the
    rest as for `policy_of`.
    """

    def q_values(params: Params, keys: Array, observation: Tree) -> Array:
        del keys
        return network.apply(params, None, observation)

    return policy_of(q_values, epsilon, with_priority=with_priority)


def policy_of(
    q_values: Callable[[Params, Array, Tree], Array], epsilon: Callable[[Context], Array], *, with_priority: bool
) -> Policy:
    """Returns the epsilon-greedy policy of action values.

    Args:
        q_values: `(params, keys [B], observation [B, ...]) -> q [B, A]`, a random key for each environment.
        epsilon: of a context; `[]` or `[B]`.
        with_priority: whether each action comes with a first priority for replay, the largest any transition has had.
    """

    def apply(params: PolicyVariables, context: Context, observation: Tree, state: Tree):
        q = q_values(params.network, context.key, observation)
        action = epsilon_greedy(context.key, q, epsilon(context))
        extras = {"priority": jnp.broadcast_to(params.max_priority, action.shape)} if with_priority else ()
        return action, state, extras

    return Policy(apply)
