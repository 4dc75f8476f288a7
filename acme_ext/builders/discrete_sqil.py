"""Discrete SQIL, composed."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from acme_ext.agents.discrete_sqil import learning
from acme_ext.agents.discrete_sqil.config import DiscreteSQILConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.dqn import DQN


@dataclasses.dataclass(frozen=True)
class DiscreteSQIL(DQN):
    """Soft Q imitation learning for discrete actions. The fields are DQN's."""

    name: ClassVar[str] = "discrete_sqil"
    wants_demos = True
    presets: ClassVar[Mapping[str, Preset]] = {}
    core_of = staticmethod(learning.make_core)

    config: DiscreteSQILConfig = DiscreteSQILConfig()
