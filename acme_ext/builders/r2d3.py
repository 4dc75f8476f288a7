"""The builder of the R2D3 agent."""

import dataclasses

from acme_ext.agents.r2d2.config import R2D3Config
from acme_ext.builders.r2d2 import R2D2


@dataclasses.dataclass(frozen=True)
class R2D3(R2D2):
    """R2D3 for discrete actions: R2D2 with demonstrations. The fields are R2D2's."""

    name = "r2d3"
    wants_demos = True
    presets = {}

    config: R2D3Config = R2D3Config()
    average_rate: float | None = dataclasses.field(default=None, kw_only=True)
