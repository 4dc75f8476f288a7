"""DQN, composed."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import haiku as hk
import jax.numpy as jnp

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.dqn import acting, learning, networks
from acme_ext.agents.dqn.config import ATARI, DQNConfig, QLearningConfig
from acme_ext.builders.base import Builder
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.nstep import PriorityFn
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class DQN(Builder):
    """DQN for discrete actions.

    Attributes:
        config: the agent's numbers.
        network: `(num_actions, config) -> hk.Transformed` that maps observations `[B, ...]` to action values `[B, A]`.
    """

    name: ClassVar[str] = "dqn"
    presets: ClassVar[dict[str, DQNConfig]] = {"atari": ATARI}

    config: DQNConfig = DQNConfig()
    network: Callable[[int, DQNConfig], hk.Transformed] = networks.make_network

    @property
    def sgd_steps_per_call(self) -> int:
        return self.config.sgd_steps_per_call

    def make_replay(self, spec: EnvironmentSpec) -> TransitionReplay:
        return transition_replay(spec, self.config, first_priority)

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        if evaluation:
            epsilon = jnp.float32(self.config.evaluation_epsilon)
            return acting.make_policy(self._network(spec), lambda context: epsilon, with_priority=False)
        schedule = acting.epsilon_schedule(self.config)
        return acting.make_policy(self._network(spec), schedule, with_priority=self.config.prioritized)

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        return learning.make_core(self._network(spec), self.config, specs.zeros(spec.observations, 1))

    def _network(self, spec: EnvironmentSpec) -> hk.Transformed:
        return self.network(specs.num_actions(spec, "DQN"), self.config)


def transition_replay(spec: EnvironmentSpec, config: QLearningConfig, priority: PriorityFn) -> TransitionReplay:
    """Returns the replay that a config describes; `priority` gives first priorities, if it is prioritized."""
    c = config
    return TransitionReplay(
        spec,
        batch_size=c.batch_size,
        n_step=c.n_step,
        discount=c.discount,
        max_size=c.max_replay_size,
        limit=RateLimit(c.samples_per_insert, c.min_replay_size),
        order="prioritized" if c.prioritized else "uniform",
        priority_exponent=c.priority_exponent,
        priority=priority if c.prioritized else None,
        max_abs_reward=c.max_abs_reward,
        burst=c.write_burst,
    )


def first_priority(reward, discount, extras_tm1, extras_t):
    """Returns the priority of new transitions: what the policy said at their first step."""
    return extras_tm1["priority"]
