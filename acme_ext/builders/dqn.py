"""DQN, composed."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar

import haiku as hk

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.dqn import acting, learning, networks
from acme_ext.agents.dqn.config import ATARI, DQNConfig, QLearningConfig
from acme_ext.builders.base import Builder, Preset
from acme_ext.learning.core import LearnerCore
from acme_ext.networks.torsos import Torso
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class DQN(Builder):
    """DQN for discrete actions.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`.
        network: `(spec, config, torso) -> hk.Transformed` that maps observations `[B, ...]` to action values `[B, A]`.
    """

    name: ClassVar[str] = "dqn"
    actions = "discrete"
    presets: ClassVar[Mapping[str, Preset]] = {"atari": Preset({"config": ATARI})}

    config: QLearningConfig = DQNConfig()
    torso: str | Torso | None = None
    network: Callable[..., hk.Transformed] = networks.make_network

    def make_networks(self, spec: EnvironmentSpec) -> hk.Transformed:
        return self.network(spec, self.config, self.torso)

    def make_policy(self, spec: EnvironmentSpec, networks: hk.Transformed, *, evaluation: bool = False) -> Policy:
        assert isinstance(self.config, DQNConfig)
        return acting.make_policy(networks, self.config, evaluation=evaluation)

    def make_core(self, spec: EnvironmentSpec, networks: hk.Transformed) -> LearnerCore:
        return learning.make_core(networks, self.config, specs.zeros(spec.observations, 1))
