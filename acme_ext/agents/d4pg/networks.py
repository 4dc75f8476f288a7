"""The policy and the critic, and what the critic's outputs stand for."""

from typing import NamedTuple

import haiku as hk

from acme_ext.agents.d4pg.config import ApexDPGConfig, D4PGConfig, DPGConfig
from acme_ext.networks import continuous
from acme_ext.ops import critics
from acme_ext.types import Array, Tree


class Networks(NamedTuple):
    """Actions are in [-1, 1]; neither network is given a random key."""

    policy: hk.Transformed  # observation [B, ...] -> action [B, A]
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> output, as `value` reads it
    value: critics.ValueModel


def make_networks(action_size: int, config: D4PGConfig) -> Networks:
    """Returns D4PG's networks, for actions of so many values."""
    return _networks(action_size, config, critics.categorical_value(config.v_min, config.v_max, config.num_atoms))


def make_apex_networks(action_size: int, config: ApexDPGConfig) -> Networks:
    """Returns the networks of Ape-X DPG, whose critic gives expected values."""
    return _networks(action_size, config, critics.expected_value())


def _networks(action_size: int, config: DPGConfig, value: critics.ValueModel) -> Networks:
    def policy(observation: Tree) -> Array:
        network = continuous.DeterministicPolicy(action_size, config.policy_sizes, layer_norm=config.layer_norm)
        return network(observation)

    def critic(observation: Tree, action: Array) -> Array:
        network = continuous.Critic(config.critic_sizes, outputs=value.outputs, layer_norm=config.layer_norm)
        return network(observation, action)

    return Networks(hk.transform(policy), hk.transform(critic), value)
