"""R2D3's hyperparameters."""

import dataclasses

from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.replay.config import SequenceConfig


@dataclasses.dataclass(frozen=True)
class R2D3Config(R2D2Config):
    """R2D3 (Paine et al. 2019): R2D2's, but for the share of demonstrations."""

    # Small ratios are best, about 1/256 (Paine et al. 2019), where runs take thousands of times as many steps as here.
    replay: SequenceConfig = dataclasses.replace(R2D2Config.replay, demo_ratio=1 / 16)
