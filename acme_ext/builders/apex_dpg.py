"""Ape-X DPG, composed."""

import dataclasses

from acme_ext.agents.d4pg.config import ApexDPGConfig, DPGConfig
from acme_ext.builders.d4pg import D4PG


@dataclasses.dataclass(frozen=True)
class ApexDPG(D4PG):
    """Ape-X DPG for a continuous, bounded action: D4PG with a critic of expected values and prioritized replay, made
    for many actors. The fields are D4PG's.
    """

    name = "apex_dpg"
    presets = {}

    config: DPGConfig = ApexDPGConfig()
