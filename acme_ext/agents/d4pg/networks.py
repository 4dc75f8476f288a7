"""The policy, the critic, and the meaning of the critic's outputs."""

from typing import NamedTuple

import haiku as hk

from acme_ext import specs
from acme_ext.agents.d4pg.config import DPGConfig
from acme_ext.networks import continuous, torsos
from acme_ext.ops import critics
from acme_ext.types import Array, EnvironmentSpec, Tree


class Networks(NamedTuple):
    """The networks, for actions in [-1, 1]; they use no random key."""

    action_size: int  # A
    policy: hk.Transformed  # observation [B, ...] -> action [B, A]
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> output, see `value`
    value: critics.ValueModel


def make_networks(spec: EnvironmentSpec, config: DPGConfig, torso: str | torsos.Torso | None = None) -> Networks:
    """Returns the networks, each with its own torso, see `torsos.features`.

    D4PG's critic outputs distributions, and Ape-X DPG's critic outputs expected values.
    """
    action_size = specs.action_size(spec, "D4PG")
    value = critics.value_of(config)
    layer_norm = config.layer_norm

    def policy(observation: Tree) -> Array:
        network = continuous.DeterministicPolicy(action_size, config.policy_sizes, layer_norm=layer_norm, torso=torso)
        return network(observation)

    def critic(observation: Tree, action: Array) -> Array:
        network = continuous.Critic(config.critic_sizes, outputs=value.outputs, layer_norm=layer_norm, torso=torso)
        return network(observation, action)

    return Networks(action_size, hk.transform(policy), hk.transform(critic), value)
