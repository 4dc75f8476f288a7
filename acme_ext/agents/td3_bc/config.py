"""TD3+BC's hyperparameters."""

import dataclasses

from acme_ext.agents.td3.config import TD3Config
from acme_ext.config.types import Positive
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class TD3BCConfig(TD3Config):
    """TD3+BC (Fujimoto and Gu 2021), with the other hyperparameters of TD3's authors."""

    normalize_observations: bool = True  # Fujimoto and Gu 2021, section 5
    imitation_alpha: Positive = 2.5  # weight of the values relative to the imitation; alpha of section 5

    replay: TransitionConfig = dataclasses.replace(TD3Config.replay, n_step=1)
    noise_stddev: float = 0.1  # on the policy's actions; Fujimoto et al. 2018, section 6.1
