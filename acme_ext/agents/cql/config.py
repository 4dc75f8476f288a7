"""CQL's hyperparameters."""

import dataclasses

from acme_ext.agents.sac.config import SACConfig
from acme_ext.config.types import NonNegative, Positive, PositiveInt


@dataclasses.dataclass(frozen=True)
class CQLConfig(SACConfig):
    """Conservative Q-learning (Kumar et al. 2020), CQL(H) on SAC, with SAC's other hyperparameters."""

    normalize_observations: bool = True  # by running mean and variance; images are not normalised
    init_temperature: Positive = 1.0  # initial weight of the entropy; as in the authors' code
    penalty_coef: NonNegative = 5.0  # weight of the penalty; alpha of Kumar et al. 2020, appendix F
    penalty_samples: PositiveInt = 10  # sampled actions of each of the 3 kinds in the log-sum-exp; appendix F
