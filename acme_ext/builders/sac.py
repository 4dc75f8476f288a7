"""The builder of the SAC agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting import continuous
from acme_ext.agents.sac import learning
from acme_ext.agents.sac.config import SACConfig
from acme_ext.agents.sac.networks import make_networks
from acme_ext.builders.actor_critic import ActorCritic
from acme_ext.networks.continuous import Networks


@dataclasses.dataclass(frozen=True)
class SAC(ActorCritic):
    """Soft actor-critic for a continuous, bounded action. The fields are `ActorCritic`'s."""

    name = "sac"
    policy_of = staticmethod(continuous.gaussian_policy)
    core_of = staticmethod(learning.make_core)

    config: SACConfig = SACConfig()
    networks: Callable[..., Networks] = make_networks
