"""The builder of the DQN agent."""

import dataclasses
from collections.abc import Callable

import haiku as hk

from acme_ext.agents.dqn import acting, learning, networks
from acme_ext.agents.dqn.config import ATARI, MINATAR, DQNConfig, QLearningConfig
from acme_ext.builders.base import NetworkBuilder, Preset


@dataclasses.dataclass(frozen=True)
class DQN(NetworkBuilder):
    """DQN for discrete actions.

    The fields are `NetworkBuilder`'s. The network maps observations `[B, ...]` to action values `[B, A]`.
    """

    name = "dqn"
    actions = "discrete"
    presets = {
        "atari": Preset({"config": ATARI, "average_rate": None}),
        "minatar": Preset({"config": MINATAR, "average_rate": None}),
    }
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: QLearningConfig = DQNConfig()
    network: Callable[..., hk.Transformed] = networks.make_network
    average_rate: float | None = dataclasses.field(default=0.005, kw_only=True)  # about the last 200 learner steps
