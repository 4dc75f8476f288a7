"""SAC's policy and critics."""

from typing import NamedTuple

import haiku as hk

from acme_ext.agents.sac.config import SACConfig
from acme_ext.networks import continuous
from acme_ext.ops.gaussian import SquashedGaussian
from acme_ext.types import Array, Tree


class Networks(NamedTuple):
    """Actions are in [-1, 1]; no network is given a random key."""

    policy: hk.Transformed  # observation [B, ...] -> SquashedGaussian [B, A]
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> q [B]; one of the two


def make_networks(action_size: int, config: SACConfig) -> Networks:
    """Returns the networks for actions of so many values."""

    def policy(observation: Tree) -> SquashedGaussian:
        return continuous.SquashedGaussianPolicy(action_size, config.hidden_sizes)(observation)

    def critic(observation: Tree, action: Array) -> Array:
        return continuous.Critic(config.hidden_sizes)(observation, action)

    return Networks(hk.transform(policy), hk.transform(critic))
