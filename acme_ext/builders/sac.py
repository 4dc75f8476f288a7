"""SAC, composed."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.sac import acting, learning
from acme_ext.agents.sac.config import SACConfig
from acme_ext.agents.sac.networks import Networks, make_networks
from acme_ext.builders.base import Builder
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class SAC(Builder):
    """Soft actor-critic for a continuous, bounded action.

    Attributes:
        config: the agent's numbers.
        networks: `(values of an action, config) -> Networks`.
    """

    name: ClassVar[str] = "sac"

    config: SACConfig = SACConfig()
    networks: Callable[[int, SACConfig], Networks] = make_networks

    @property
    def sgd_steps_per_call(self) -> int:
        return self.config.sgd_steps_per_call

    def make_replay(self, spec: EnvironmentSpec) -> TransitionReplay:
        c = self.config
        return TransitionReplay(
            spec,
            batch_size=c.batch_size,
            n_step=c.n_step,
            discount=c.discount,
            max_size=c.max_replay_size,
            limit=RateLimit(c.samples_per_insert, c.min_replay_size),
            burst=c.write_burst,
        )

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        bounds = specs.action_bounds(spec, "SAC")
        networks = self.networks(bounds.size, self.config)
        if evaluation:
            return acting.make_evaluation_policy(networks, bounds)
        return acting.make_policy(networks, self.config, bounds)

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        bounds = specs.action_bounds(spec, "SAC")
        networks = self.networks(bounds.size, self.config)
        return learning.make_core(networks, self.config, bounds, specs.zeros(spec.observations, 1))
