"""The builder of the DMPO agent."""

import dataclasses

from acme_ext.agents.mpo.config import SUITE, DMPOConfig, MPOConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.mpo import MPO


@dataclasses.dataclass(frozen=True)
class DMPO(MPO):
    """DMPO for a continuous, bounded action: MPO with a categorical critic. The fields are MPO's."""

    name = "dmpo"
    presets = {"dmc": Preset({"config": SUITE})}

    config: MPOConfig = DMPOConfig()
