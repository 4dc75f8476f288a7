"""The builder of the Ape-X DPG agent."""

import dataclasses

from acme_ext.agents.d4pg.config import ApexDPGConfig, DPGConfig
from acme_ext.builders.d4pg import D4PG


@dataclasses.dataclass(frozen=True)
class ApexDPG(D4PG):
    """Ape-X DPG for a continuous, bounded action, designed for many actors.

    It is D4PG with prioritized replay and a critic that predicts expected returns, not distributions. The fields are
    D4PG's.
    """

    name = "apex_dpg"
    presets = {}

    config: DPGConfig = ApexDPGConfig()
