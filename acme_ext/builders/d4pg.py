"""D4PG, composed."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.d4pg import acting, learning
from acme_ext.agents.d4pg.config import SUITE, D4PGConfig, DPGConfig
from acme_ext.agents.d4pg.networks import Networks, make_networks
from acme_ext.builders.base import Builder
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class D4PG(Builder):
    """D4PG for a continuous, bounded action.

    Attributes:
        config: the agent's numbers.
        networks: `(values of an action, config) -> Networks`.
    """

    name: ClassVar[str] = "d4pg"
    title: ClassVar[str] = "D4PG"
    presets: ClassVar[dict[str, DPGConfig]] = {"dmc": SUITE}

    config: DPGConfig = D4PGConfig()
    networks: Callable[[int, Any], Networks] = make_networks

    @property
    def sgd_steps_per_call(self) -> int:
        return self.config.sgd_steps_per_call

    def make_replay(self, spec: EnvironmentSpec) -> TransitionReplay:
        c = self.config
        first_priority = functools.partial(acting.first_priority, offset=c.priority_offset)
        return TransitionReplay(
            spec,
            batch_size=c.batch_size,
            n_step=c.n_step,
            discount=c.discount,
            max_size=c.max_replay_size,
            limit=RateLimit(c.samples_per_insert, c.min_replay_size),
            order="prioritized" if c.prioritized else "uniform",
            priority_exponent=c.priority_exponent,
            priority=first_priority if c.prioritized else None,
            burst=c.write_burst,
        )

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        c, bounds = self.config, specs.action_bounds(spec, self.title)
        networks = self.networks(bounds.size, c)
        if evaluation:
            return acting.make_policy(networks, bounds, 0.0, with_values=False)
        return acting.make_policy(networks, bounds, c.noise_stddev, with_values=c.prioritized)

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        bounds = specs.action_bounds(spec, self.title)
        networks = self.networks(bounds.size, self.config)
        return learning.make_core(networks, self.config, bounds, specs.zeros(spec.observations, 1))
