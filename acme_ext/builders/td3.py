"""The builder of the TD3 agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.agents.td3 import acting, learning
from acme_ext.agents.td3.config import TD3Config
from acme_ext.agents.td3.networks import make_networks
from acme_ext.builders.actor_critic import ActorCritic
from acme_ext.networks.continuous import Networks


@dataclasses.dataclass(frozen=True)
class TD3(ActorCritic):
    """Twin delayed deep deterministic policy gradient for a continuous, bounded action.

    The fields are `ActorCritic`'s.
    """

    name = "td3"
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: TD3Config = TD3Config()
    networks: Callable[..., Networks] = make_networks
