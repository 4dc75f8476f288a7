"""The builder of the DQfD agent."""

import dataclasses
from typing import Any

from acme_ext.agents.dqfd import learning
from acme_ext.agents.dqfd.config import DQfDConfig
from acme_ext.builders.dqn import DQN
from acme_ext.replay.base import Replay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class DQfD(DQN):
    """Deep Q-learning from demonstrations, for discrete actions. The fields are DQN's."""

    name = "dqfd"
    wants_demos = True
    presets = {}
    core_of = staticmethod(learning.make_core)

    config: DQfDConfig = DQfDConfig()
    average_rate: float | None = dataclasses.field(default=None, kw_only=True)

    def make_replay(self, spec: EnvironmentSpec, networks: Any) -> Replay:
        replay: Any = super().make_replay(spec, networks)
        return dataclasses.replace(replay, keeps_one_step=True)
