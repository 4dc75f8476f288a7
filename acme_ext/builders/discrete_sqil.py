"""The builder of the Discrete SQIL agent."""

import dataclasses
from typing import Any

from acme_ext.agents.sqil.config import DiscreteSQILConfig
from acme_ext.agents.sqil.learning import rewarded
from acme_ext.builders.dqn import DQN
from acme_ext.learning.core import LearnerCore
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class DiscreteSQIL(DQN):
    """Soft Q imitation learning for discrete actions. The fields are DQN's."""

    name = "discrete_sqil"
    wants_demos = True
    learns_rewards = False
    presets = {}

    config: DiscreteSQILConfig = DiscreteSQILConfig()
    average_rate: float | None = dataclasses.field(default=None, kw_only=True)

    def make_core(self, spec: EnvironmentSpec, networks: Any) -> LearnerCore:
        return rewarded(super().make_core(spec, networks))
