"""CRR's hyperparameters."""

import dataclasses
from typing import Literal

from acme_ext.agents.iql.config import MinLogStddev
from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, Positive, PositiveInt, PositiveShare
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class CRRConfig(AgentConfig):
    """Critic regularized regression (Wang et al. 2020). Values without a source are ours."""

    # The problem
    discount: float = 0.99  # gamma per step
    reward_scale: Positive = 1.0  # factor on rewards, which also scales the advantages
    normalize_observations: bool = True  # by running mean and variance; images are not normalised

    # The networks
    hidden_sizes: LayerSizes = (256, 256)  # units of each network
    min_log_stddev: MinLogStddev = -5.0  # least log stddev of the policy's actions

    # Learning
    batch_size: int = 256  # transitions
    learning_rate: Positive = 3e-4  # Adam, of each network
    # Weight of an action: 1(A > 0), or exp(A / temperature); Wang et al. 2020, eq. 3
    weighting: Literal["binary", "exp"] = "exp"
    baseline: Literal["mean", "max"] = "mean"  # over the values of sampled actions; Wang et al. 2020, eq. 4
    num_samples: PositiveInt = 4  # actions sampled from the policy for an expectation; Wang et al. 2020, appendix
    temperature: Positive = 1.0  # beta of exp; Wang et al. 2020, appendix
    max_weight: Positive = 20.0  # upper bound on exp; Wang et al. 2020, appendix
    target_rate: PositiveShare = 0.005  # step size of the moving averages of policy and critics
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    replay: TransitionConfig = TransitionConfig()
