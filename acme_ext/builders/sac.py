"""The builder of the SAC agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting import continuous
from acme_ext.agents.sac import learning
from acme_ext.agents.sac.config import SACConfig
from acme_ext.agents.sac.networks import make_networks
from acme_ext.builders.base import NetworkBuilder
from acme_ext.networks.continuous import Networks


@dataclasses.dataclass(frozen=True)
class SAC(NetworkBuilder):
    """Soft actor-critic for a continuous, bounded action. The fields are `NetworkBuilder`'s."""

    name = "sac"
    actions = "continuous"
    policy_of = staticmethod(continuous.gaussian_policy)
    core_of = staticmethod(learning.make_core)

    config: SACConfig = SACConfig()
    network: Callable[..., Networks] = make_networks
