"""SQIL, composed."""

import dataclasses
from typing import ClassVar

from acme_ext.agents.sqil import learning
from acme_ext.agents.sqil.config import SQILConfig
from acme_ext.builders.sac import SAC


@dataclasses.dataclass(frozen=True)
class SQIL(SAC):
    """Soft Q imitation learning for a continuous, bounded action. The fields are `ActorCritic`'s."""

    name: ClassVar[str] = "sqil"
    wants_demos = True
    core_of = staticmethod(learning.make_core)

    config: SQILConfig = SQILConfig()
