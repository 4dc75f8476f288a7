"""DMPO, composed."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from acme_ext.agents.mpo.config import SUITE, DMPOConfig, MPOConfig
from acme_ext.agents.mpo.networks import Networks, make_distributional_networks
from acme_ext.builders.mpo import MPO


@dataclasses.dataclass(frozen=True)
class DMPO(MPO):
    """DMPO for a continuous, bounded action: MPO's parts with a categorical critic."""

    name: ClassVar[str] = "dmpo"
    title: ClassVar[str] = "DMPO"
    presets: ClassVar[dict[str, MPOConfig]] = {"dmc": SUITE}

    config: MPOConfig = DMPOConfig()
    networks: Callable[[int, Any], Networks] = make_distributional_networks
