"""A2C, composed."""

import dataclasses
from typing import ClassVar

import haiku as hk

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.acting.stochastic import extras_spec
from acme_ext.agents.a2c import learning
from acme_ext.agents.a2c.config import A2CConfig
from acme_ext.agents.ppo import acting, networks
from acme_ext.builders.base import Builder
from acme_ext.builders.ppo import Network, actions_of, bounds_of
from acme_ext.builders.unrolls import unroll_queue
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class A2C(Builder):
    """A2C for discrete actions, and for continuous ones that are bounded.

    Attributes:
        config: the agent's numbers.
        network: as PPO's.
    """

    name: ClassVar[str] = "a2c"

    config: A2CConfig = A2CConfig()
    network: Network = networks.make_network

    def make_replay(self, spec: EnvironmentSpec) -> SequenceReplay:
        return unroll_queue(spec, self.config, extras_spec(bounds_of(spec, "A2C")))

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        bounds = bounds_of(spec, "A2C")
        return acting.make_policy(self._network(spec), self.config, bounds, greedy=evaluation)

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        return learning.make_core(self._network(spec), self.config, specs.zeros(spec.observations, 1))

    def _network(self, spec: EnvironmentSpec) -> hk.Transformed:
        return self.network(actions_of(spec, "A2C"), self.config)
