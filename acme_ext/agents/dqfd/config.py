"""DQfD's hyperparameters."""

import dataclasses

from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils.checks import NonNegative, NonNegativeInt


@dataclasses.dataclass(frozen=True)
class DQfDConfig(DQNConfig):
    """DQfD (Hester et al. 2018), whose other numbers are DQN's. Where a field names no source, it is ours."""

    pretrain_steps: NonNegativeInt = 2_000  # first, on demonstrations alone; 750,000 in Hester et al. 2018, appendix
    n_step_coef: NonNegative = 1.0  # lambda_1, of the n-step loss beside the 1-step one; Hester et al. 2018, appendix
    margin_coef: NonNegative = 1.0  # lambda_2, of the margin loss; Hester et al. 2018, appendix
    l2_coef: NonNegative = 1e-5  # lambda_3, of the parameters' squares; Hester et al. 2018, appendix
    margin: NonNegative = 0.8  # by which other actions' values are to be lower; Hester et al. 2018, appendix
    demo_priority_offset: NonNegative = 1.0  # added to a demonstration's |TD error|; Hester et al. 2018, appendix

    # Hester et al. 2018, appendix, of the n, the exponents and the offset of own items.
    replay: TransitionConfig = TransitionConfig(
        n_step=10, prioritized=True, priority_exponent=0.4, importance_exponent=0.6, importance_exponent_end=1.0
    )
