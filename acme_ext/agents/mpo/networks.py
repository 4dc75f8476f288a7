"""The policy and the critic."""

from typing import NamedTuple

import haiku as hk
import jax.numpy as jnp

from acme_ext.agents.mpo.config import MPOConfig
from acme_ext.networks import continuous
from acme_ext.ops.gaussian import Gaussian
from acme_ext.types import Array, Tree


class Networks(NamedTuple):
    """Neither network is given a random key."""

    policy: hk.Transformed  # observation [B, ...] -> Gaussian [B, A]; its samples may leave [-1, 1]
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> output, as a ValueModel reads it


def make_networks(action_size: int, outputs: int | None, config: MPOConfig) -> Networks:
    """Returns the networks for actions of so many values and a critic of so many outputs.

    The critic clips actions to [-1, 1], as the environment will.
    """

    def policy(observation: Tree) -> Gaussian:
        network = continuous.GaussianPolicy(
            action_size,
            config.policy_sizes,
            layer_norm=config.layer_norm,
            init_stddev=config.init_stddev,
            min_stddev=config.min_stddev,
        )
        return network(observation)

    def critic(observation: Tree, action: Array) -> Array:
        network = continuous.Critic(config.critic_sizes, outputs=outputs, layer_norm=config.layer_norm)
        return network(observation, jnp.clip(action, -1.0, 1.0))

    return Networks(hk.transform(policy), hk.transform(critic))
