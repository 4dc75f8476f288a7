"""The builder of the TD3+BC agent."""

import dataclasses

from acme_ext.agents.td3_bc import learning
from acme_ext.agents.td3_bc.config import TD3BCConfig
from acme_ext.builders.td3 import TD3


@dataclasses.dataclass(frozen=True)
class TD3BC(TD3):
    """TD3+BC for a continuous, bounded action, from recorded data. The fields are TD3's."""

    name = "td3_bc"
    wants_data = True
    core_of = staticmethod(learning.make_core)

    config: TD3BCConfig = TD3BCConfig()
