"""IQL's hyperparameters."""

import dataclasses
from typing import Annotated

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, Positive, PositiveShare, Rule, Share
from acme_ext.replay.config import TransitionConfig

MAX_LOG_STDDEV = 2.0  # greatest log stddev of the policy's actions; the authors' code
MinLogStddev = Annotated[
    float, Rule(lambda value: value < MAX_LOG_STDDEV, f"it must be less than {MAX_LOG_STDDEV}, the greatest")
]


@dataclasses.dataclass(frozen=True)
class IQLConfig(AgentConfig):
    """Implicit Q-learning (Kostrikov et al. 2022), with the hyperparameters of appendix B for locomotion.

    Values without a source are ours.
    """

    # The problem
    discount: float = 0.99  # gamma per step
    reward_scale: Positive = 1.0  # factor on rewards; the authors scale returns to a range of 1,000 per data set
    normalize_observations: bool = True  # by running mean and variance; images are not normalised

    # The networks
    hidden_sizes: LayerSizes = (256, 256)  # units of each network
    min_log_stddev: MinLogStddev = -5.0  # least log stddev of the policy's actions; the authors' code

    # Learning
    batch_size: int = 256  # transitions
    learning_rate: Positive = 3e-4  # Adam, of each network
    expectile: Share = 0.7  # tau: 0.5 learns the mean over actions, near 1 the best action's value; section 4.2
    inverse_temperature: Positive = 3.0  # beta in the weight exp(beta A) of an action; section 4.3
    max_weight: Positive = 100.0  # upper bound on an action's weight; the authors' code
    target_rate: PositiveShare = 0.005  # step size of the target critics' moving average
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    replay: TransitionConfig = TransitionConfig()
