"""The builder of the IQL agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting import continuous
from acme_ext.agents.iql import learning
from acme_ext.agents.iql.config import IQLConfig
from acme_ext.agents.iql.networks import Networks, make_networks
from acme_ext.builders.actor_critic import ActorCritic


@dataclasses.dataclass(frozen=True)
class IQL(ActorCritic):
    """Implicit Q-learning for a continuous, bounded action, from recorded data. The fields are `ActorCritic`'s."""

    name = "iql"
    wants_data = True
    policy_of = staticmethod(continuous.gaussian_policy)
    core_of = staticmethod(learning.make_core)

    config: IQLConfig = IQLConfig()
    networks: Callable[..., Networks] = make_networks
