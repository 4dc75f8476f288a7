"""The policy and the critic, and what the critic's outputs stand for."""

from typing import NamedTuple

import haiku as hk
import jax.numpy as jnp

from acme_ext.agents.mpo.config import DMPOConfig, MPOConfig
from acme_ext.networks import continuous
from acme_ext.ops import critics
from acme_ext.ops.gaussian import Gaussian
from acme_ext.types import Array, Tree


class Networks(NamedTuple):
    """Neither network is given a random key."""

    policy: hk.Transformed  # observation [B, ...] -> Gaussian [B, A]; its samples may leave [-1, 1]
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> output, as `value` reads it
    value: critics.ValueModel


def make_networks(action_size: int, config: MPOConfig) -> Networks:
    """Returns MPO's networks, for actions of so many values."""
    return _networks(action_size, config, critics.expected_value())


def make_distributional_networks(action_size: int, config: DMPOConfig) -> Networks:
    """Returns DMPO's networks."""
    return _networks(action_size, config, critics.categorical_value(config.v_min, config.v_max, config.num_atoms))


def _networks(action_size: int, config: MPOConfig, value: critics.ValueModel) -> Networks:
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
        network = continuous.Critic(config.critic_sizes, outputs=value.outputs, layer_norm=config.layer_norm)
        # As the environment will.
        return network(observation, jnp.clip(action, -1.0, 1.0))

    return Networks(hk.transform(policy), hk.transform(critic), value)
