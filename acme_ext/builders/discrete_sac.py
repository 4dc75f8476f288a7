"""The builder of the Discrete SAC agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.agents.discrete_sac import acting, learning
from acme_ext.agents.discrete_sac.config import DiscreteSACConfig
from acme_ext.agents.discrete_sac.networks import Networks, make_networks
from acme_ext.builders.base import NetworkBuilder


@dataclasses.dataclass(frozen=True)
class DiscreteSAC(NetworkBuilder):
    """Soft actor-critic for one discrete action. The fields are `NetworkBuilder`'s."""

    name = "discrete_sac"
    actions = "discrete"
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: DiscreteSACConfig = DiscreteSACConfig()
    network: Callable[..., Networks] = make_networks
