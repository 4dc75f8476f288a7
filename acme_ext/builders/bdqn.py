"""The builder of the Bootstrapped DQN agent."""

import dataclasses
from collections.abc import Callable

import haiku as hk

from acme_ext.agents.bdqn import acting, learning, networks
from acme_ext.agents.bdqn.config import ATARI, BDQNConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.dqn import DQN
from acme_ext.types import Tree


@dataclasses.dataclass(frozen=True)
class BootstrappedDQN(DQN):
    """Bootstrapped DQN with randomized priors, for discrete actions.

    The fields are DQN's. If a torso is given, all heads share it. The network maps observations `[B, ...]` to the
    action values of K heads, `[B, K, A]`.
    """

    name = "bdqn"
    presets = {"atari": Preset({"config": ATARI})}
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: BDQNConfig = BDQNConfig()
    network: Callable[..., hk.Transformed] = networks.make_network
    average_rate: float | None = dataclasses.field(default=None, kw_only=True)

    @property
    def extras(self) -> Tree:
        return acting.example_extras(self.config)
