"""Ape-X DPG, composed."""

import dataclasses
from typing import Any, ClassVar

from acme_ext.agents.d4pg.config import ApexDPGConfig
from acme_ext.builders.d4pg import D4PG
from acme_ext.ops import critics


@dataclasses.dataclass(frozen=True)
class ApexDPG(D4PG):
    """Deterministic policy gradients with a critic of expected values and prioritized replay, for many actors; continuous
    actions.
    """

    name: ClassVar[str] = "apex_dpg"
    title: ClassVar[str] = "Ape-X DPG"
    presets: ClassVar[dict[str, Any]] = {}

    config: Any = ApexDPGConfig()

    def value_model(self) -> critics.ValueModel:
        return critics.expected_value()
