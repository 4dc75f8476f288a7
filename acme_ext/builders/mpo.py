"""MPO, composed."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.mpo import acting, learning
from acme_ext.agents.mpo.config import MPOConfig
from acme_ext.agents.mpo.networks import Networks, make_networks
from acme_ext.builders.base import Builder
from acme_ext.learning.core import LearnerCore
from acme_ext.ops import critics
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class MPO(Builder):
    """MPO for continuous actions.

    Attributes:
        config: the agent's numbers.
        networks: `(size of an action, critic's outputs, config) -> Networks`.
    """

    name: ClassVar[str] = "mpo"
    title: ClassVar[str] = "MPO"

    config: Any = MPOConfig()
    networks: Callable[[int, int | None, MPOConfig], Networks] = make_networks

    def value_model(self) -> critics.ValueModel:
        """Returns what the critic's outputs stand for."""
        return critics.expected_value()

    @property
    def sgd_steps_per_call(self) -> int:
        return self.config.sgd_steps_per_call

    def make_replay(self, spec: EnvironmentSpec) -> TransitionReplay:
        config: MPOConfig = self.config
        return TransitionReplay(
            spec,
            batch_size=config.batch_size,
            n_step=config.n_step,
            discount=config.discount,
            max_size=config.max_replay_size,
            limit=RateLimit(config.samples_per_insert, config.min_replay_size),
            burst=config.write_burst,
        )

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        return acting.make_policy(self._networks(spec), specs.action_bounds(spec, self.title), deterministic=evaluation)

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        return learning.make_core(
            self._networks(spec),
            self.value_model(),
            self.config,
            specs.action_bounds(spec, self.title),
            specs.zeros(spec.observations, 1),
        )

    def _networks(self, spec: EnvironmentSpec) -> Networks:
        return self.networks(specs.action_bounds(spec, self.title).size, self.value_model().outputs, self.config)
