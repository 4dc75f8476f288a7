"""The builder of the RND agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.agents.rnd import learning, networks
from acme_ext.agents.rnd.config import ATARI, RNDConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.ppo import PPO
from acme_ext.networks.recurrent import RecurrentNetwork


@dataclasses.dataclass(frozen=True)
class RND(PPO):
    """PPO with random network distillation, for discrete and for bounded, continuous actions. The fields are PPO's."""

    name = "rnd"
    presets = {"atari": Preset({"config": ATARI, "average_rate": None})}
    core_of = staticmethod(learning.make_core)

    config: RNDConfig = RNDConfig()
    network: Callable[..., RecurrentNetwork] = networks.make_network
