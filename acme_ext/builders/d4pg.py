"""D4PG, composed."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.acting.values import first_error
from acme_ext.agents.d4pg import acting, learning
from acme_ext.agents.d4pg.config import SUITE, D4PGConfig, DPGConfig
from acme_ext.agents.d4pg.networks import Networks, make_networks
from acme_ext.builders.base import Builder, Preset
from acme_ext.learning.core import LearnerCore
from acme_ext.networks.torsos import Torso
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class D4PG(Builder):
    """D4PG for a continuous, bounded action.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`.
        networks: `(spec, config, torso) -> Networks`.
    """

    name: ClassVar[str] = "d4pg"
    actions = "continuous"
    presets: ClassVar[Mapping[str, Preset]] = {"dmc": Preset({"config": SUITE})}

    config: DPGConfig = D4PGConfig()
    torso: str | Torso | None = None
    networks: Callable[..., Networks] = make_networks

    def make_networks(self, spec: EnvironmentSpec) -> Networks:
        return self.networks(spec, self.config, self.torso)

    @property
    def first_error(self) -> Callable[..., np.ndarray]:
        return first_error

    def make_policy(self, spec: EnvironmentSpec, networks: Networks, *, evaluation: bool = False) -> Policy:
        return acting.make_policy(networks, self.config, evaluation=evaluation)

    def make_core(self, spec: EnvironmentSpec, networks: Networks) -> LearnerCore:
        return learning.make_core(networks, self.config, specs.zeros(spec.observations, 1))
