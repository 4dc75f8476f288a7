"""DQfD's hyperparameters."""

import dataclasses

from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.config.types import NonNegative, NonNegativeInt
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class DQfDConfig(DQNConfig):
    """DQfD (Hester et al. 2018), with DQN's other hyperparameters. Values without a source are ours."""

    pretrain_steps: NonNegativeInt = 2_000  # learner steps on demonstrations first; 750,000 in Hester et al. 2018
    n_step_coef: NonNegative = 1.0  # lambda_1, weight of the n-step loss; Hester et al. 2018, appendix
    margin_coef: NonNegative = 1.0  # lambda_2, weight of the margin loss; Hester et al. 2018, appendix
    l2_coef: NonNegative = 1e-5  # lambda_3, weight of the L2 regularisation; Hester et al. 2018, appendix
    margin: NonNegative = 0.8  # between the demonstrated action's value and others'; Hester et al. 2018, appendix
    demo_priority_offset: float | None = 1.0  # added to a demonstration's |TD error|; Hester et al. 2018, appendix

    # n_step, the exponents and the priority offset of the agent's own items: Hester et al. 2018, appendix.
    replay: TransitionConfig = TransitionConfig(
        n_step=10, prioritized=True, priority_exponent=0.4, importance_exponent=0.6, importance_exponent_end=1.0
    )
