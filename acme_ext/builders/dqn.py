"""DQN, composed."""

import dataclasses
from collections.abc import Callable

import haiku as hk

from acme_ext.agents.dqn import acting, learning, networks
from acme_ext.agents.dqn.config import ATARI, MINATAR, DQNConfig, QLearningConfig
from acme_ext.builders.base import FunctionalBuilder, Preset
from acme_ext.networks.torsos import Torso
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class DQN(FunctionalBuilder):
    """DQN for discrete actions.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`.
        network: `(spec, config, torso) -> hk.Transformed` that maps observations `[B, ...]` to action values `[B, A]`.
    """

    name = "dqn"
    actions = "discrete"
    presets = {
        "atari": Preset({"config": ATARI}),
        "minatar": Preset({"config": MINATAR}),
    }
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: QLearningConfig = DQNConfig()
    torso: str | Torso | None = None
    network: Callable[..., hk.Transformed] = networks.make_network

    def make_networks(self, spec: EnvironmentSpec) -> hk.Transformed:
        return self.network(spec, self.config, self.torso)
