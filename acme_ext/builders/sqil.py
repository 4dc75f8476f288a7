"""The builder of the SQIL agent."""

import dataclasses
from typing import Any

from acme_ext.agents.sqil.config import SQILConfig
from acme_ext.agents.sqil.learning import rewarded
from acme_ext.builders.sac import SAC
from acme_ext.learning.core import LearnerCore
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class SQIL(SAC):
    """Soft Q imitation learning for a continuous, bounded action. The fields are SAC's."""

    name = "sqil"
    wants_demos = True
    learns_rewards = False

    config: SQILConfig = SQILConfig()

    def make_core(self, spec: EnvironmentSpec, networks: Any) -> LearnerCore:
        return rewarded(super().make_core(spec, networks))
