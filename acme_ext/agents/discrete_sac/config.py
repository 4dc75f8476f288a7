"""Discrete SAC's hyperparameters."""

import dataclasses

from acme_ext.replay.config import TransitionConfig
from acme_ext.utils.checks import Checked, LayerSizes, Positive, PositiveInt, PositiveShare, Share


@dataclasses.dataclass(frozen=True)
class DiscreteSACConfig(Checked):
    """Soft actor-critic for one discrete action (Christodoulou 2019).

    Where a field names no source, it is ours, chosen on catch and CartPole.
    """

    # The problem
    discount: float = 0.99  # gamma of one step; Christodoulou 2019, appendix A
    max_abs_reward: Positive | None = None  # rewards are clipped to it; 1 on Atari, Mnih et al. 2015, Methods
    normalize_observations: bool = True  # by running means and variances; pictures never are
    random_shift: PositiveInt | None = None  # pixels that learned pictures shift by at most; 4 in Yarats et al. 2021

    # The networks
    hidden_sizes: LayerSizes = (64, 64)  # units of policy and critics, each, for what are no pictures
    image_features: PositiveInt = 512  # units after a convolutional torso; Mnih et al. 2015, Methods

    # Learning
    batch_size: int = 128  # transitions
    learning_rate: Positive = 1e-3  # Adam, of policy, critics and temperature
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps in which it falls linearly to 0; None: stays
    target_rate: PositiveShare = 0.01  # share of the critics that their targets take a step
    # The entropy that the temperature keeps the policy's to, as a share of that of uniformly random legal actions;
    # 0.98 in Christodoulou 2019.
    target_entropy_share: Share = 0.5
    init_temperature: Positive = 1.0  # the entropy's weight at first; as in SAC
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    replay: TransitionConfig = TransitionConfig()
