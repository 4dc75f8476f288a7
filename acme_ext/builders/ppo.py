"""PPO, composed."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import haiku as hk
from dm_env.specs import DiscreteArray

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.acting.stochastic import extras_spec
from acme_ext.agents.ppo import acting, learning, networks
from acme_ext.agents.ppo.config import ATARI, CONTROL, AdvantageConfig, PPOConfig
from acme_ext.builders.base import Builder
from acme_ext.builders.unrolls import unroll_queue
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.specs import Bounds
from acme_ext.types import EnvironmentSpec

Network = Callable[[int | Bounds, AdvantageConfig], hk.Transformed]


@dataclasses.dataclass(frozen=True)
class PPO(Builder):
    """PPO for discrete actions, and for continuous ones that are bounded.

    Attributes:
        config: the agent's numbers.
        network: `(number of discrete actions or Bounds, config) -> hk.Transformed` that maps observations `[B, ...]` to
            `agents.ppo.networks.Output`.
    """

    name: ClassVar[str] = "ppo"
    presets: ClassVar[dict[str, PPOConfig]] = {"atari": ATARI, "dmc": CONTROL}

    config: PPOConfig = PPOConfig()
    network: Network = networks.make_network

    def make_replay(self, spec: EnvironmentSpec) -> SequenceReplay:
        return unroll_queue(spec, self.config, extras_spec(bounds_of(spec, "PPO")))

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        bounds = bounds_of(spec, "PPO")
        return acting.make_policy(self._network(spec), self.config, bounds, greedy=evaluation)

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        return learning.make_core(self._network(spec), self.config, specs.zeros(spec.observations, 1))

    def _network(self, spec: EnvironmentSpec) -> hk.Transformed:
        return self.network(actions_of(spec, "PPO"), self.config)


def bounds_of(spec: EnvironmentSpec, agent: str) -> Bounds | None:
    """Returns the bounds of a continuous action, and None for a discrete one; raises UsageError, naming the agent, if
    the actions are neither.
    """
    if isinstance(spec.actions, DiscreteArray):
        return None
    return specs.action_bounds(spec, agent)


def actions_of(spec: EnvironmentSpec, agent: str) -> int | Bounds:
    """Returns the number of discrete actions or the bounds of a continuous one; raises as `bounds_of`."""
    bounds = bounds_of(spec, agent)
    return specs.num_actions(spec, agent) if bounds is None else bounds
