"""Rainbow, composed."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar

import haiku as hk

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.rainbow import acting, learning, networks
from acme_ext.agents.rainbow.config import ATARI, MINATAR, RainbowConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.dqn import DQN
from acme_ext.learning.core import LearnerCore
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class Rainbow(DQN):
    """Rainbow for discrete actions.

    Attributes:
        config, torso: as DQN's.
        network: `(spec, config, torso) -> hk.Transformed` that maps observations `[B, ...]` to a
            `agents.rainbow.networks.Prediction`.
    """

    name: ClassVar[str] = "rainbow"
    presets: ClassVar[Mapping[str, Preset]] = {
        "atari": Preset({"config": ATARI}),
        "minatar": Preset({"config": MINATAR}),
    }

    config: RainbowConfig = RainbowConfig()
    network: Callable[..., hk.Transformed] = networks.make_network

    def make_policy(self, spec: EnvironmentSpec, networks: hk.Transformed, *, evaluation: bool = False) -> Policy:
        return acting.make_policy(networks, self.config, evaluation=evaluation)

    def make_core(self, spec: EnvironmentSpec, networks: hk.Transformed) -> LearnerCore:
        return learning.make_core(networks, self.config, specs.zeros(spec.observations, 1))
