"""R2D2, composed."""

import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

import haiku as hk
import jax
import jax.numpy as jnp

from acme_ext import specs
from acme_ext.acting.exploration import ladder_epsilon
from acme_ext.acting.policy import Policy
from acme_ext.agents.r2d2 import acting, learning, networks
from acme_ext.agents.r2d2.config import ATARI, R2D2Config
from acme_ext.builders.base import Builder
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class R2D2(Builder):
    """R2D2 for discrete actions.

    Attributes:
        config: the agent's numbers.
        network: `(num_actions, config) -> hk.Transformed`, see `agents.r2d2.networks.make_network`.
    """

    name: ClassVar[str] = "r2d2"
    presets: ClassVar[dict[str, R2D2Config]] = {"atari": ATARI}

    config: R2D2Config = R2D2Config()
    network: Callable[[int, R2D2Config], hk.Transformed] = networks.make_network

    @property
    def sgd_steps_per_call(self) -> int:
        return self.config.sgd_steps_per_call

    @property
    def variable_period(self) -> int:
        return self.config.variable_period

    def make_replay(self, spec: EnvironmentSpec) -> SequenceReplay:
        c = self.config
        return SequenceReplay(
            spec=spec,
            batch_size=c.batch_size,
            length=c.burn_in + c.length,
            period=c.period,
            burn_in=c.burn_in,
            discount=c.discount,
            cross_episodes=False,
            state=jax.tree.map(lambda leaf: leaf[0], acting.initial_state(1, c)),
            max_size=c.max_replay_size,
            limit=RateLimit(c.samples_per_insert, c.min_replay_size),
            order="prioritized",
            priority_exponent=c.priority_exponent,
            priority=functools.partial(acting.first_priority, config=c),
        )

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        c = self.config
        if evaluation:
            return acting.make_policy(self._network(spec), c, lambda context: jnp.float32(0))
        return acting.make_policy(
            self._network(spec),
            c,
            lambda context: ladder_epsilon(context.rank, c.epsilon_base, c.epsilon_steepness),
        )

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        observation = jax.tree.map(lambda leaf: leaf[None], specs.zeros(spec.observations, 1))
        state = acting.initial_state(1, self.config)
        example = networks.Inputs(observation, state.action[None], jnp.zeros((1, 1)), jnp.ones((1, 1), bool))
        return learning.make_core(self._network(spec), self.config, example, state)

    def _network(self, spec: EnvironmentSpec) -> hk.Transformed:
        return self.network(specs.num_actions(spec, "R2D2"), self.config)
