"""TD3's policy and critics."""

from typing import NamedTuple

import haiku as hk

from acme_ext import specs
from acme_ext.agents.td3.config import TD3Config
from acme_ext.networks import continuous, torsos
from acme_ext.types import Array, EnvironmentSpec, Tree


class Networks(NamedTuple):
    """Actions are in [-1, 1]; no network is given a random key."""

    action_size: int  # A
    policy: hk.Transformed  # observation [B, ...] -> action [B, A]
    critic: hk.Transformed  # (observation [B, ...], action [B, A]) -> q [B]; one of the two


def make_networks(spec: EnvironmentSpec, config: TD3Config, torso: str | torsos.Torso | None = None) -> Networks:
    """Returns the networks, each with a torso of its own, see `torsos.features`."""
    action_size = specs.action_size(spec, "TD3")

    def policy(observation: Tree) -> Array:
        return continuous.DeterministicPolicy(action_size, config.hidden_sizes, torso=torso)(observation)

    def critic(observation: Tree, action: Array) -> Array:
        return continuous.Critic(config.hidden_sizes, torso=torso)(observation, action)

    return Networks(action_size, hk.transform(policy), hk.transform(critic))
