"""SAC's policy and critics."""

from typing import NamedTuple

import haiku as hk

from acme_ext import specs
from acme_ext.agents.sac.config import SACConfig
from acme_ext.networks import continuous, torsos
from acme_ext.ops.gaussian import SquashedGaussian
from acme_ext.types import Array, EnvironmentSpec, Tree


class Networks(NamedTuple):
    """Actions are in [-1, 1]; no network is given a random key."""

    action_size: int  # A
    policy: hk.Transformed  # observation [B, ...] -> SquashedGaussian [B, A]
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> q [B]; one of the two


def make_networks(spec: EnvironmentSpec, config: SACConfig, torso: str | torsos.Torso | None = None) -> Networks:
    """Returns the networks, each with a torso of its own, see `torsos.features`."""
    action_size = specs.action_size(spec, "SAC")

    def policy(observation: Tree) -> SquashedGaussian:
        return continuous.SquashedGaussianPolicy(action_size, config.hidden_sizes, torso=torso)(observation)

    def critic(observation: Tree, action: Array) -> Array:
        return continuous.Critic(config.hidden_sizes, torso=torso)(observation, action)

    return Networks(action_size, hk.transform(policy), hk.transform(critic))
