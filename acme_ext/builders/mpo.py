"""The builder of the MPO agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting import continuous
from acme_ext.agents.mpo import learning
from acme_ext.agents.mpo.config import MPOConfig
from acme_ext.agents.mpo.networks import Networks, make_networks
from acme_ext.builders.base import NetworkBuilder


@dataclasses.dataclass(frozen=True)
class MPO(NetworkBuilder):
    """MPO for a continuous, bounded action. The fields are `NetworkBuilder`'s."""

    name = "mpo"
    actions = "continuous"
    policy_of = staticmethod(continuous.gaussian_policy)
    core_of = staticmethod(learning.make_core)

    config: MPOConfig = MPOConfig()
    network: Callable[..., Networks] = make_networks
