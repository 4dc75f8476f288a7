"""Ape-X DPG, composed."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from acme_ext.agents.d4pg.config import ApexDPGConfig, DPGConfig
from acme_ext.agents.d4pg.networks import Networks, make_apex_networks
from acme_ext.builders.d4pg import D4PG


@dataclasses.dataclass(frozen=True)
class ApexDPG(D4PG):
    """Ape-X DPG for a continuous, bounded action: D4PG's parts with a critic of expected values and prioritized replay,
    made for many actors.
    """

    name: ClassVar[str] = "apex_dpg"
    title: ClassVar[str] = "Ape-X DPG"
    presets: ClassVar[dict[str, DPGConfig]] = {}

    config: DPGConfig = ApexDPGConfig()
    networks: Callable[[int, Any], Networks] = make_apex_networks
