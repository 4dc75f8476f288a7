"""The policy and the critic."""

from typing import NamedTuple

import haiku as hk

from acme_ext.agents.d4pg.config import DPGConfig
from acme_ext.networks import continuous
from acme_ext.types import Array, Tree


class Networks(NamedTuple):
    """Actions are in [-1, 1]; neither network is given a random key."""

    policy: hk.Transformed  # observation [B, ...] -> action [B, A]
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> output, as a ValueModel reads it


def make_networks(action_size: int, outputs: int | None, config: DPGConfig) -> Networks:
    """Returns the networks for actions of so many values and a critic of so many outputs."""

    def policy(observation: Tree) -> Array:
        return continuous.DeterministicPolicy(action_size, config.policy_sizes, layer_norm=config.layer_norm)(
            observation
        )

    def critic(observation: Tree, action: Array) -> Array:
        return continuous.Critic(config.critic_sizes, outputs=outputs, layer_norm=config.layer_norm)(
            observation, action
        )

    return Networks(hk.transform(policy), hk.transform(critic))
