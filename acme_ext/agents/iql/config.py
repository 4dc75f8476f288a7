"""IQL's hyperparameters."""

import dataclasses

from acme_ext.replay.config import TransitionConfig
from acme_ext.utils.checks import Checked, LayerSizes, Positive, PositiveShare, Share


@dataclasses.dataclass(frozen=True)
class IQLConfig(Checked):
    """Implicit Q-learning (Kostrikov et al. 2022), with the numbers of its appendix B for locomotion.

    Where a field names no source, it is ours.
    """

    # The problem
    discount: float = 0.99  # gamma of one step
    reward_scale: Positive = 1.0  # multiplies rewards; the authors scale so that returns differ by 1,000 in a data set
    normalize_observations: bool = True  # by running means and variances; pictures never are

    # The networks
    hidden_sizes: LayerSizes = (256, 256)  # units of each network
    min_log_stddev: float = -5.0  # of the policy's actions; the authors' code

    # Learning
    batch_size: int = 256  # transitions
    learning_rate: Positive = 3e-4  # Adam, of each network
    expectile: Share = 0.7  # tau, which values are learned; 0.5 is the mean, towards 1 the best action's; section 4.2
    inverse_temperature: Positive = 3.0  # beta, how much better actions count more; section 4.3
    max_weight: Positive = 100.0  # bound on what an action counts; the authors' code
    target_rate: PositiveShare = 0.005  # share of the critics that their targets take a step
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    replay: TransitionConfig = TransitionConfig()
