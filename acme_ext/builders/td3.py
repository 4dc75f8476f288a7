"""TD3, composed."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.agents.td3 import acting, learning
from acme_ext.agents.td3.config import TD3Config
from acme_ext.agents.td3.networks import Networks, make_networks
from acme_ext.builders.base import Builder
from acme_ext.learning.core import LearnerCore
from acme_ext.networks.torsos import Torso
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class TD3(Builder):
    """Twin delayed deep deterministic policy gradients, for a continuous, bounded action.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`.
        networks: `(spec, config, torso) -> Networks`.
    """

    name: ClassVar[str] = "td3"
    actions = "continuous"

    config: TD3Config = TD3Config()
    torso: str | Torso | None = None
    networks: Callable[..., Networks] = make_networks

    def make_networks(self, spec: EnvironmentSpec) -> Networks:
        return self.networks(spec, self.config, self.torso)

    def make_policy(self, spec: EnvironmentSpec, networks: Networks, *, evaluation: bool = False) -> Policy:
        return acting.make_policy(networks, self.config, evaluation=evaluation)

    def make_core(self, spec: EnvironmentSpec, networks: Networks) -> LearnerCore:
        return learning.make_core(networks, self.config, specs.zeros(spec.observations, 1))
