"""Behavioural cloning, composed."""

import dataclasses
from collections.abc import Callable

from acme_ext.agents.bc import acting, learning, networks
from acme_ext.agents.bc.config import BCConfig
from acme_ext.builders.base import FunctionalBuilder
from acme_ext.networks.torsos import Torso
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class BC(FunctionalBuilder):
    """Behavioural cloning, for discrete actions and for continuous ones that are bounded.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`.
        network: `(spec, config, torso) -> agents.bc.networks.Network`.
    """

    name = "bc"
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: BCConfig = BCConfig()
    torso: str | Torso | None = None
    network: Callable[..., networks.Network] = networks.make_network

    def make_networks(self, spec: EnvironmentSpec) -> networks.Network:
        return self.network(spec, self.config, self.torso)
