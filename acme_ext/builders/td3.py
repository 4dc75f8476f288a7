"""The builder of the TD3 agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.agents.td3 import acting, learning
from acme_ext.agents.td3.config import TD3Config
from acme_ext.agents.td3.networks import make_networks
from acme_ext.builders.base import NetworkBuilder
from acme_ext.networks.continuous import Networks


@dataclasses.dataclass(frozen=True)
class TD3(NetworkBuilder):
    """Twin delayed deep deterministic policy gradient for a continuous, bounded action.

    The fields are `NetworkBuilder`'s.
    """

    name = "td3"
    actions = "continuous"
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: TD3Config = TD3Config()
    network: Callable[..., Networks] = make_networks
