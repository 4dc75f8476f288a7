"""D4PG, composed."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.d4pg import acting, learning
from acme_ext.agents.d4pg.config import SUITE, D4PGConfig, DPGConfig
from acme_ext.agents.d4pg.networks import Networks, make_networks
from acme_ext.builders.base import Builder
from acme_ext.learning.core import LearnerCore
from acme_ext.ops import critics
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import EnvironmentSpec, Tree


@dataclasses.dataclass(frozen=True)
class D4PG(Builder):
    """D4PG for continuous actions.

    Attributes:
        config: the agent's numbers.
        networks: `(size of an action, critic's outputs, config) -> Networks`.
    """

    name: ClassVar[str] = "d4pg"
    title: ClassVar[str] = "D4PG"
    presets: ClassVar[dict[str, Any]] = {"dmc": SUITE}

    config: Any = D4PGConfig()
    networks: Callable[[int, int | None, DPGConfig], Networks] = make_networks

    def value_model(self) -> critics.ValueModel:
        """Returns what the critic's outputs stand for."""
        return critics.categorical_value(self.config.v_min, self.config.v_max, self.config.num_atoms)

    @property
    def sgd_steps_per_call(self) -> int:
        return self.config.sgd_steps_per_call

    def make_replay(self, spec: EnvironmentSpec) -> TransitionReplay:
        config: DPGConfig = self.config
        return TransitionReplay(
            spec,
            batch_size=config.batch_size,
            n_step=config.n_step,
            discount=config.discount,
            max_size=config.max_replay_size,
            limit=RateLimit(config.samples_per_insert, config.min_replay_size),
            order="prioritized" if config.prioritized else "uniform",
            priority_exponent=config.priority_exponent,
            priority=FirstPriority(config.priority_offset) if config.prioritized else None,
            burst=config.write_burst,
        )

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        config: DPGConfig = self.config
        return acting.make_policy(
            self._networks(spec),
            self.value_model(),
            specs.action_bounds(spec, self.title),
            0.0 if evaluation else config.noise_stddev,
            with_values=config.prioritized and not evaluation,
        )

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        return learning.make_core(
            self._networks(spec),
            self.value_model(),
            self.config,
            specs.action_bounds(spec, self.title),
            specs.zeros(spec.observations, 1),
        )

    def _networks(self, spec: EnvironmentSpec) -> Networks:
        size = specs.action_bounds(spec, self.title).size
        return self.networks(size, self.value_model().outputs, self.config)


@dataclasses.dataclass(frozen=True)
class FirstPriority:
    """The priority of new transitions: their absolute TD error, by the critic of the actor that made them (Horgan et al.
    2018, section 3).
    """

    offset: float

    def __call__(self, reward: np.ndarray, discount: np.ndarray, extras_tm1: Tree, extras_t: Tree) -> np.ndarray:
        """Returns priorities `[M]`; see `replay.nstep.PriorityFn`."""
        return np.abs(reward + discount * extras_t["value"] - extras_tm1["q"]) + self.offset
