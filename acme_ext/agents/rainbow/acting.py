"""How Rainbow acts: epsilon-greedily, like DQN, with a noisy network."""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext.acting.exploration import other_keys
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.dqn import acting as dqn
from acme_ext.agents.rainbow import networks
from acme_ext.agents.rainbow.config import RainbowConfig
from acme_ext.networks import noisy
from acme_ext.types import Array, Params, Tree


class Noise(NamedTuple):
    """The network noise for acting, for each environment."""

    key: Array  # [B, ...] uint32: data of the random key that generates the noise
    age: Array  # [B] int32: steps of the episode so far; the noise is new at each multiple of the period


def make_policy(network: hk.Transformed, config: RainbowConfig, *, evaluation: bool) -> Policy:
    """Returns the epsilon-greedy policy, like DQN's.

    With noisy layers, each environment has its own noise. It is resampled every `config.noise_period` steps and at the
    start of each episode. In evaluation there is no noise, and quantile fractions are midpoints.

    See `networks.make_network` for the network.
    """
    if evaluation:
        return dqn.make_policy(networks.q_network(network), config, evaluation=True)
    own_noise = noisy.own_noise(networks.q_network(network))

    def q_values(params: Params, keys: Array, observation: Tree) -> Array:
        return own_noise.apply(params, other_keys(keys), observation)

    epsilon = dqn.epsilon_schedule(config)
    if not config.noisy:
        return dqn.policy_of(q_values, epsilon)

    def apply(params: Params, context: Context, observation: Tree, state: Noise):
        fresh = state.age % config.noise_period == 0
        held: Array = jnp.where(fresh[:, None], jax.random.key_data(context.key), state.key)
        keys = jax.random.wrap_key_data(held, impl=jax.random.key_impl(context.key))
        by_noise = dqn.policy_of(lambda params, _, observation: q_values(params, keys, observation), epsilon)
        action, _, extras = by_noise.apply(params, context, observation, ())
        return action, Noise(held, state.age + 1), extras

    def init_state(batch: int) -> Noise:
        shape = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).shape
        return Noise(jnp.zeros((batch, *shape), jnp.uint32), jnp.zeros(batch, jnp.int32))

    return Policy(apply, init_state)
