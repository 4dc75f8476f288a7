"""The hyperparameters of R2D2 and R2D3."""

import dataclasses

from acme_ext.replay.config import SequenceConfig
from acme_ext.utils.checks import (
    Checked,
    LayerSizes,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    PositiveShare,
    Share,
)


@dataclasses.dataclass(frozen=True)
class R2D2Config(Checked):
    """R2D2 (Kapturowski et al. 2019).

    The defaults are for small problems on a CPU; `ATARI` holds the published ones. Where a field names no source, it is
    ours, chosen on CartPole, and on bsuite's memory and catch.
    """

    # The problem
    discount: Share = 0.99  # gamma of one step
    n_step: PositiveInt = 10  # steps of a return; 5 in Kapturowski et al. 2019, section 2.3
    # epsilon of h, in whose scale values are learned; None for none; Kapturowski et al. 2019, section 2.3
    rescaling_epsilon: Positive | None = 1e-3
    # lambda of Retrace (Munos et al. 2016), in the place of n-step double Q-learning; None for that
    retrace_lambda: Share | None = None
    retrace_epsilon: Share = 0.01  # of the target policy of Retrace, epsilon-greedy; Badia et al. 2020a, appendix E
    normalize_observations: bool = False  # by running means and variances; pictures never are

    # The network
    hidden_sizes: LayerSizes = (64,)  # units of the MLP for observations that are not images
    image_features: PositiveInt = 512  # units after a convolutional torso; Kapturowski et al. 2019, section 2.3
    core_size: PositiveInt = 64  # units of the recurrent core
    dueling: bool = True  # Wang et al. 2016, eq. 9; Kapturowski et al. 2019, section 2.3

    # Learning
    batch_size: int = 32  # sequences
    learning_rate: Positive = 1e-3  # Adam
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps in which it falls linearly to 0; None: stays
    adam_epsilon: Positive = 1e-8  # Adam's default
    max_gradient_norm: Positive | None = 40.0  # global norm
    target_period: PositiveInt = 20  # learner steps between target updates
    target_rate: PositiveShare = 1.0  # share of the online network that a target update takes; 1 copies it
    sgd_steps_per_call: PositiveInt = 1  # learner steps fused in one compiled call

    # Replay of sequences. The priority exponent is of Kapturowski et al. 2019, section 2.3; beta stays the same.
    replay: SequenceConfig = SequenceConfig(
        prioritized=True, priority_exponent=0.9, importance_exponent=0.6, importance_exponent_end=0.6
    )
    # Share of the largest error in a sequence's priority; eta of Kapturowski et al. 2019, section 2.3
    priority_max_share: Share = 0.9

    # Exploration
    epsilon_base: Share = 0.4  # epsilon of the environment that explores most; Horgan et al. 2018, section 4.1
    # Least epsilon: base**(1 + this); alpha in Horgan et al. 2018, section 4.1, where it is 7. With few environments so
    # many of them hardly explored.
    epsilon_steepness: NonNegative = 3.0
    # Environment steps, from the start of learning on, in which every epsilon falls to its own from 1. 0, as in the
    # paper: it is its own from the first step on, with which few environments learned late.
    epsilon_decay_steps: NonNegativeInt = 10_000
    variable_period: PositiveInt = 1  # steps that an actor takes with the same parameters


# Where no other source is named: Kapturowski et al. 2019, section 2.3 and appendix.
ATARI = R2D2Config(
    discount=0.997,
    n_step=5,
    core_size=512,
    batch_size=64,
    learning_rate=1e-4,
    adam_epsilon=1e-3,
    target_period=2_500,
    replay=SequenceConfig(
        length=80,
        burn_in=40,
        period=40,
        samples_per_insert=1.0,  # ours: the paper's 256 actors and its learner are not bound to each other
        min_size=5_000,  # ours: 200,000 agent steps
        max_size=100_000,  # 4 million observations in sequences that begin every 40
        prioritized=True,
        priority_exponent=0.9,
        importance_exponent=0.6,
        importance_exponent_end=0.6,
    ),
    epsilon_steepness=7.0,  # Horgan et al. 2018, section 4.1
    epsilon_decay_steps=0,
    variable_period=100,  # 400 frames
)
"""The published agent, on whichever hardware."""


@dataclasses.dataclass(frozen=True)
class R2D3Config(R2D2Config):
    """R2D3 (Paine et al. 2019): R2D2 that learns from demonstrations beside its own experience."""

    # Small ratios are best, about 1/256 (Paine et al. 2019), where runs take thousands of times as many steps as here.
    replay: SequenceConfig = dataclasses.replace(R2D2Config.replay, demo_ratio=1 / 16)
    # What there is to find, demonstrations show.
    epsilon_steepness: NonNegative = 7.0  # Horgan et al. 2018, section 4.1
    epsilon_decay_steps: NonNegativeInt = 0
