"""The builder of the A2C agent."""

import dataclasses

from acme_ext.agents.a2c import learning
from acme_ext.agents.a2c.config import ATARI, A2CConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.ppo import PPO


@dataclasses.dataclass(frozen=True)
class A2C(PPO):
    """A2C for discrete and for bounded, continuous actions. The fields are PPO's."""

    name = "a2c"
    presets = {"atari": Preset({"config": ATARI, "average_rate": None})}
    core_of = staticmethod(learning.make_core)

    config: A2CConfig = A2CConfig()
    average_rate: float | None = dataclasses.field(default=0.002, kw_only=True)  # about the last 500 batches
