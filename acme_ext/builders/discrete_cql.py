"""Discrete CQL, composed."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from acme_ext.agents.discrete_cql import learning
from acme_ext.agents.discrete_cql.config import DiscreteCQLConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.dqn import DQN


@dataclasses.dataclass(frozen=True)
class DiscreteCQL(DQN):
    """Conservative Q-learning for discrete actions, from recorded data. The fields are DQN's."""

    name: ClassVar[str] = "discrete_cql"
    presets: ClassVar[Mapping[str, Preset]] = {}
    core_of = staticmethod(learning.make_core)

    config: DiscreteCQLConfig = DiscreteCQLConfig()
