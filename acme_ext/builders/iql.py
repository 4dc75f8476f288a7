"""The builder of the IQL agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting import continuous
from acme_ext.agents.iql import learning
from acme_ext.agents.iql.config import IQLConfig
from acme_ext.agents.iql.networks import Networks, make_networks
from acme_ext.builders.base import NetworkBuilder


@dataclasses.dataclass(frozen=True)
class IQL(NetworkBuilder):
    """Implicit Q-learning for a continuous, bounded action, from recorded data. The fields are `NetworkBuilder`'s."""

    name = "iql"
    actions = "continuous"
    wants_data = True
    policy_of = staticmethod(continuous.gaussian_policy)
    core_of = staticmethod(learning.make_core)

    config: IQLConfig = IQLConfig()
    network: Callable[..., Networks] = make_networks
