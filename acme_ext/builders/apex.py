"""Ape-X DQN, composed."""

import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

import haiku as hk
import jax.numpy as jnp

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.apex import acting
from acme_ext.agents.apex.config import ATARI, ApexConfig
from acme_ext.agents.dqn import acting as dqn_acting
from acme_ext.agents.dqn import learning, networks
from acme_ext.builders.base import Builder
from acme_ext.builders.dqn import transition_replay
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class ApexDQN(Builder):
    """Ape-X DQN for discrete actions: DQN's learning, with actors that explore apart and give first priorities.

    Attributes:
        config: the agent's numbers.
        network: `(num_actions, config) -> hk.Transformed` that maps observations `[B, ...]` to action values `[B, A]`.
    """

    name: ClassVar[str] = "apex"
    presets: ClassVar[dict[str, ApexConfig]] = {"atari": ATARI}

    config: ApexConfig = ApexConfig()
    network: Callable[[int, ApexConfig], hk.Transformed] = networks.make_network

    @property
    def sgd_steps_per_call(self) -> int:
        return self.config.sgd_steps_per_call

    @property
    def variable_period(self) -> int:
        return self.config.variable_period

    def make_replay(self, spec: EnvironmentSpec) -> TransitionReplay:
        priority = functools.partial(acting.first_priority, offset=self.config.priority_offset)
        return transition_replay(spec, self.config, priority)

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        if evaluation:
            return dqn_acting.make_policy(self._network(spec), lambda context: jnp.float32(0), with_priority=False)
        return acting.make_policy(self._network(spec), self.config)

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        return learning.make_core(self._network(spec), self.config, specs.zeros(spec.observations, 1))

    def _network(self, spec: EnvironmentSpec) -> hk.Transformed:
        return self.network(specs.num_actions(spec, "Ape-X DQN"), self.config)
