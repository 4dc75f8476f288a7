"""The builder of the CQL agent."""

import dataclasses

from acme_ext.agents.cql import learning
from acme_ext.agents.cql.config import CQLConfig
from acme_ext.builders.sac import SAC


@dataclasses.dataclass(frozen=True)
class CQL(SAC):
    """Conservative Q-learning for a continuous, bounded action, from recorded data. The fields are SAC's."""

    name = "cql"
    wants_data = True
    core_of = staticmethod(learning.make_core)

    config: CQLConfig = CQLConfig()
