"""IQL's hyperparameters."""

import dataclasses

from acme_ext.replay.config import TransitionConfig
from acme_ext.utils import checks


@dataclasses.dataclass(frozen=True)
class IQLConfig:
    """Implicit Q-learning (Kostrikov et al. 2022), with the numbers of its appendix B for locomotion.

    Where a field names no source, it is ours.
    """

    # The problem
    discount: float = 0.99  # gamma of one step
    reward_scale: float = 1.0  # multiplies rewards; the authors scale so that returns differ by 1,000 in a data set
    normalize_observations: bool = True  # by running means and variances; pictures never are

    # The networks
    hidden_sizes: tuple[int, ...] = (256, 256)  # units of each network
    min_log_stddev: float = -5.0  # of the policy's actions; the authors' code

    # Learning
    batch_size: int = 256  # transitions
    learning_rate: float = 3e-4  # Adam, of each network
    expectile: float = 0.7  # tau, which values are learned; 0.5 is the mean, towards 1 the best action's; section 4.2
    inverse_temperature: float = 3.0  # beta, how much better actions count more; section 4.3
    max_weight: float = 100.0  # bound on what an action counts; the authors' code
    target_rate: float = 0.005  # share of the critics that their targets take a step
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    replay: TransitionConfig = TransitionConfig()

    def __post_init__(self):
        checks.positive(self, "reward_scale", "learning_rate", "inverse_temperature", "max_weight", "target_rate")
        checks.share(self, "expectile", "target_rate")
        checks.layer_sizes(self, "hidden_sizes")
