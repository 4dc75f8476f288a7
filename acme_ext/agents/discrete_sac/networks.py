"""Discrete SAC's policy and critics."""

from typing import NamedTuple

import haiku as hk

from acme_ext import specs
from acme_ext.agents.discrete_sac.config import DiscreteSACConfig
from acme_ext.networks import heads, torsos
from acme_ext.types import Array, EnvironmentSpec, Tree


class Networks(NamedTuple):
    """A policy and a critic; they use no random key."""

    num_actions: int  # A
    policy: hk.Transformed  # observation [B, ...] -> logits [B, A]
    critic: hk.Transformed  # observation [B, ...] -> q [B, A]; one of the two critics


def make_networks(
    spec: EnvironmentSpec, config: DiscreteSACConfig, torso: str | torsos.Torso | None = None
) -> Networks:
    """Returns the networks, each with its own torso."""
    num_actions = specs.num_actions(spec, "DiscreteSAC")

    def for_each_action(observation: Tree) -> Array:
        x = torsos.dense_features(torso, observation, config.hidden_sizes, config.image_features)
        return heads.LinearQHead(num_actions)(x)

    return Networks(num_actions, hk.transform(for_each_action), hk.transform(for_each_action))
