"""The builder of the Discrete CQL agent."""

import dataclasses

from acme_ext.agents.discrete_cql import learning
from acme_ext.agents.discrete_cql.config import MINATAR, DiscreteCQLConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.dqn import DQN


@dataclasses.dataclass(frozen=True)
class DiscreteCQL(DQN):
    """Conservative Q-learning for discrete actions, from recorded data. The fields are DQN's."""

    name = "discrete_cql"
    wants_data = True
    presets = {"minatar": Preset({"config": MINATAR})}
    core_of = staticmethod(learning.make_core)

    config: DiscreteCQLConfig = DiscreteCQLConfig()
    average_rate: float | None = dataclasses.field(default=None, kw_only=True)
