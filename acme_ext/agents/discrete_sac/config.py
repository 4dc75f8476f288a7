"""Discrete SAC's hyperparameters."""

import dataclasses

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, Positive, PositiveInt, PositiveShare, Share
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class DiscreteSACConfig(AgentConfig):
    """Soft actor-critic for one discrete action (Christodoulou 2019).

    Values without a source are ours, chosen on catch and CartPole.
    """

    # The problem
    discount: float = 0.99  # gamma per step; Christodoulou 2019, appendix A
    max_abs_reward: Positive | None = None  # clips rewards to [-this, this]; 1 on Atari, Mnih et al. 2015, Methods
    normalize_observations: bool = True  # by running mean and variance; images are not normalised
    random_shift: PositiveInt | None = None  # largest shift of sampled images, in pixels; 4 in Yarats et al. 2021

    # The networks
    hidden_sizes: LayerSizes = (64, 64)  # units of policy and critics, each, if observations are not images
    image_features: PositiveInt = 512  # units of the layer after a convolutional torso; Mnih et al. 2015, Methods

    # Learning
    batch_size: int = 128  # transitions
    learning_rate: Positive = 1e-3  # Adam, of policy, critics and temperature
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay to 0; None: constant
    target_rate: PositiveShare = 0.01  # step size of the target critics' moving average
    # Target of the policy's entropy, as a share of the entropy of uniformly random legal actions; 0.98 in
    # Christodoulou 2019.
    target_entropy_share: Share = 0.5
    init_temperature: Positive = 1.0  # initial weight of the entropy; as in SAC
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    replay: TransitionConfig = TransitionConfig()
