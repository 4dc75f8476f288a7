"""The builder of the behavioural-cloning agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.agents.bc import acting, learning, networks
from acme_ext.agents.bc.config import BCConfig
from acme_ext.agents.dqn.config import MINATAR
from acme_ext.builders.base import NetworkBuilder, Preset


@dataclasses.dataclass(frozen=True)
class BC(NetworkBuilder):
    """Behavioural cloning for discrete and for bounded, continuous actions. The fields are `NetworkBuilder`'s."""

    name = "bc"
    wants_data = True
    learns_rewards = False
    presets = {"minatar": Preset({"config": BCConfig(image_features=MINATAR.image_features)})}  # DQN's network
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: BCConfig = BCConfig()
    network: Callable[..., networks.Network] = networks.make_network
