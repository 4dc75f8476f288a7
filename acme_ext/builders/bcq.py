"""The builder of the Discrete BCQ agent."""

import dataclasses
from collections.abc import Callable

import haiku as hk

from acme_ext.agents.bcq import acting, learning, networks
from acme_ext.agents.bcq.config import MINATAR, BCQConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.dqn import DQN


@dataclasses.dataclass(frozen=True)
class BCQ(DQN):
    """Discrete BCQ, which learns from recorded data.

    The fields are DQN's. The network maps observations `[B, ...]` to an `agents.bcq.networks.Output`.
    """

    name = "bcq"
    wants_data = True
    presets = {"minatar": Preset({"config": MINATAR})}
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: BCQConfig = BCQConfig()
    network: Callable[..., hk.Transformed] = networks.make_network
    average_rate: float | None = dataclasses.field(default=None, kw_only=True)
