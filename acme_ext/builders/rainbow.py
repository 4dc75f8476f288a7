"""Rainbow, composed."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import haiku as hk

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.rainbow import acting, learning, networks
from acme_ext.agents.rainbow.config import ATARI, MINATAR, RainbowConfig
from acme_ext.builders import dqn
from acme_ext.builders.base import Builder
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class Rainbow(Builder):
    """Rainbow for discrete actions.

    Attributes:
        config: the agent's numbers.
        network: `(num_actions, config) -> hk.Transformed` that maps observations `[B, ...]` to a
            `agents.rainbow.networks.Prediction`.
    """

    name: ClassVar[str] = "rainbow"
    presets: ClassVar[dict[str, RainbowConfig]] = {"atari": ATARI, "minatar": MINATAR}

    config: RainbowConfig = RainbowConfig()
    network: Callable[[int, RainbowConfig], hk.Transformed] = networks.make_network

    @property
    def sgd_steps_per_call(self) -> int:
        return self.config.sgd_steps_per_call

    def make_replay(self, spec: EnvironmentSpec) -> TransitionReplay:
        return dqn.transition_replay(spec, self.config, dqn.first_priority)

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        make = acting.make_evaluation_policy if evaluation else acting.make_policy
        return make(self._network(spec), self.config)

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        return learning.make_core(self._network(spec), self.config, specs.zeros(spec.observations, 1))

    def _network(self, spec: EnvironmentSpec) -> hk.Transformed:
        return self.network(specs.num_actions(spec, "Rainbow"), self.config)
