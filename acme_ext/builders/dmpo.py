"""DMPO, composed."""

import dataclasses
from typing import Any, ClassVar

from acme_ext.agents.mpo.config import SUITE, DMPOConfig
from acme_ext.builders.mpo import MPO
from acme_ext.ops import critics


@dataclasses.dataclass(frozen=True)
class DMPO(MPO):
    """MPO with a categorical critic, for continuous actions."""

    name: ClassVar[str] = "dmpo"
    title: ClassVar[str] = "DMPO"
    presets: ClassVar[dict[str, Any]] = {"dmc": SUITE}

    config: Any = DMPOConfig()

    def value_model(self) -> critics.ValueModel:
        return critics.categorical_value(self.config.v_min, self.config.v_max, self.config.num_atoms)
