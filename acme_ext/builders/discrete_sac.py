"""The builder of the Discrete SAC agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.agents.discrete_sac import acting, learning
from acme_ext.agents.discrete_sac.config import DiscreteSACConfig
from acme_ext.agents.discrete_sac.networks import Networks, make_networks
from acme_ext.builders.actor_critic import ActorCritic


@dataclasses.dataclass(frozen=True)
class DiscreteSAC(ActorCritic):
    """Soft actor-critic for one discrete action. The fields are `ActorCritic`'s."""

    name = "discrete_sac"
    actions = "discrete"
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: DiscreteSACConfig = DiscreteSACConfig()
    networks: Callable[..., Networks] = make_networks
