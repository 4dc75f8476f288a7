"""A2C's hyperparameters."""

import dataclasses

from acme_ext.agents.ppo.config import AdvantageConfig
from acme_ext.config.types import Positive, Share
from acme_ext.replay.config import UnrollConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class A2CConfig(AdvantageConfig):
    """A2C, the synchronous form of A3C (Mnih et al. 2016).

    The defaults are for small problems on a CPU; `ATARI` holds published values. Values without a source are ours.
    """

    gae_lambda: float = 1.0  # n-step returns to the end of the unroll; Mnih et al. 2016, algorithm S3
    share_layers: bool = True  # Mnih et al. 2016, section 4
    normalize_observations: bool = False
    normalize_values: bool = True
    normalize_advantages: bool = False
    batch_size: int = 8
    learning_rate: float = 3e-3
    max_gradient_norm: Positive | None = 0.1
    replay: UnrollConfig = UnrollConfig(max_size=8, length=5)  # the length is of Mnih et al. 2016, section 8

    rmsprop_decay: Share = 0.99  # of the average of squared gradients; Mnih et al. 2016, section 8
    rmsprop_epsilon: Positive = 1e-6  # added to the average of squares, inside the square root


ATARI = A2CConfig(
    max_abs_reward=1.0,  # Mnih et al. 2016, section 8
    normalize_values=False,
    batch_size=16,  # the number of actors; Mnih et al. 2016, section 8
    learning_rate=7e-4,  # Wu et al. 2017, whose code runs A3C synchronously with 16 environments
    max_gradient_norm=0.5,  # OpenAI Baselines
    rmsprop_epsilon=1e-5,  # OpenAI Baselines
    replay=UnrollConfig(max_size=16, length=5),
)
"""The hyperparameters of A3C for Atari, run synchronously as in OpenAI Baselines."""
