"""The builder of the MPO agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting import continuous
from acme_ext.agents.mpo import learning
from acme_ext.agents.mpo.config import MPOConfig
from acme_ext.agents.mpo.networks import Networks, make_networks
from acme_ext.builders.actor_critic import ActorCritic


@dataclasses.dataclass(frozen=True)
class MPO(ActorCritic):
    """MPO for a continuous, bounded action. The fields are `ActorCritic`'s."""

    name = "mpo"
    policy_of = staticmethod(continuous.gaussian_policy)
    core_of = staticmethod(learning.make_core)

    config: MPOConfig = MPOConfig()
    networks: Callable[..., Networks] = make_networks
