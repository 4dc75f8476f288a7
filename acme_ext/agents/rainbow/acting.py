"""How Rainbow acts: greedily by a noisy network, or epsilon-greedily as DQN does."""

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.acting.policy import Policy
from acme_ext.agents.dqn import acting as dqn
from acme_ext.agents.rainbow import networks
from acme_ext.agents.rainbow.config import RainbowConfig
from acme_ext.networks import noisy
from acme_ext.types import Array, Params, Tree


def make_policy(network: hk.Transformed, config: RainbowConfig) -> Policy:
    """Returns the policy of training, in which every environment has a noise of its own, and each step another one.

    With noisy layers there is no epsilon. The network is as of `networks.make_network`.
    """
    own_noise = noisy.own_noise(networks.q_network(network))

    def q_values(params: Params, keys: Array, observation: Tree) -> Array:
        # Apart from what the keys are used for in choosing an action.
        return own_noise.apply(params, jax.vmap(jax.random.fold_in, (0, None))(keys, 0), observation)

    epsilon = (lambda context: jnp.float32(0)) if config.noisy else dqn.epsilon_schedule(config)
    return dqn.policy_of(q_values, epsilon, with_priority=config.prioritized)


def make_evaluation_policy(network: hk.Transformed, config: RainbowConfig) -> Policy:
    """Returns the policy of evaluation, without noise and with fractions that are midpoints."""
    epsilon = jnp.float32(config.evaluation_epsilon)
    return dqn.make_policy(networks.q_network(network), lambda context: epsilon, with_priority=False)
