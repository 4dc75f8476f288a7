"""CQL's hyperparameters."""

import dataclasses

from acme_ext.agents.sac.config import SACConfig
from acme_ext.utils.checks import NonNegative, PositiveInt


@dataclasses.dataclass(frozen=True)
class CQLConfig(SACConfig):
    """Conservative Q-learning (Kumar et al. 2020), CQL(H) on SAC, whose other numbers are SAC's."""

    normalize_observations: bool = True  # by running means and variances; pictures never are
    penalty_coef: NonNegative = 5.0  # weight of the penalty; alpha of Kumar et al. 2020, appendix F
    penalty_samples: PositiveInt = 10  # actions of each of three kinds that the log-sum-exp is estimated by; appendix F
