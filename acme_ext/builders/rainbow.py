"""The builder of the Rainbow agent."""

import dataclasses
from collections.abc import Callable

import haiku as hk

from acme_ext.agents.rainbow import acting, learning, networks
from acme_ext.agents.rainbow.config import ATARI, MINATAR, RainbowConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.dqn import DQN


@dataclasses.dataclass(frozen=True)
class Rainbow(DQN):
    """Rainbow for discrete actions.

    The fields are DQN's. The network maps observations `[B, ...]` to an `agents.rainbow.networks.Prediction`.
    """

    name = "rainbow"
    presets = {
        "atari": Preset({"config": ATARI, "average_rate": None}),
        "minatar": Preset({"config": MINATAR}),
    }
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: RainbowConfig = RainbowConfig()
    network: Callable[..., hk.Transformed] = networks.make_network
