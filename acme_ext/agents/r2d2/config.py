"""The hyperparameters of R2D2 and R2D3."""

import dataclasses

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, NonNegative, NonNegativeInt, Positive, PositiveInt, PositiveShare, Share
from acme_ext.replay.config import SequenceConfig


@dataclasses.dataclass(frozen=True)
class R2D2Config(AgentConfig):
    """R2D2 (Kapturowski et al. 2019).

    The defaults are for small problems on a CPU; `ATARI` holds the published values. Values without a source are ours,
    chosen on CartPole, and on bsuite's memory and catch.
    """

    # The problem
    discount: Share = 0.99  # gamma per step
    n_step: PositiveInt = 10  # steps of a return; 5 in Kapturowski et al. 2019, section 2.3
    # epsilon of the value rescaling h; None: no rescaling; Kapturowski et al. 2019, section 2.3
    rescaling_epsilon: Positive | None = 1e-3
    # lambda of Retrace (Munos et al. 2016), which replaces n-step double Q-learning; None: no Retrace
    retrace_lambda: Share | None = None
    retrace_epsilon: Share = 0.01  # epsilon of Retrace's epsilon-greedy target policy; Badia et al. 2020a, table 6
    normalize_observations: bool = False  # by running mean and variance; images are not normalised

    # The network
    hidden_sizes: LayerSizes = (64,)  # units of the MLP for observations that are not images
    image_features: PositiveInt = 512  # units after a convolutional torso; Kapturowski et al. 2019, section 2.3
    core_size: PositiveInt = 64  # units of the recurrent core, and of a hidden layer of a dueling head
    # Separate streams for value and advantage; Wang et al. 2016, eq. 9; Kapturowski et al. 2019, section 2.3
    dueling: bool = True

    # Learning
    batch_size: int = 32  # sequences
    learning_rate: Positive = 1e-3  # Adam
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay to 0; None: constant
    adam_epsilon: Positive = 1e-8  # added to the root of Adam's second moment; Adam's default
    max_gradient_norm: Positive | None = 40.0  # global norm; Horgan et al. 2018, appendix
    target_period: PositiveInt = 20  # learner steps between target updates
    target_rate: PositiveShare = 1.0  # step size of a target update; 1 copies the online network
    sgd_steps_per_call: PositiveInt = 1  # learner steps fused in one compiled call

    # Replay of sequences. Both exponents are of Kapturowski et al. 2019, section 2.3 and table 2; beta is constant.
    replay: SequenceConfig = SequenceConfig(
        prioritized=True, priority_exponent=0.9, importance_exponent=0.6, importance_exponent_end=0.6
    )
    # Share of the largest error in a sequence's priority; eta of Kapturowski et al. 2019, section 2.3
    priority_max_share: Share = 0.9

    # Exploration
    epsilon_base: Share = 0.4  # largest epsilon of all environments; Horgan et al. 2018, section 4.1
    # The smallest epsilon is base**(1 + this); alpha in Horgan et al. 2018, section 4.1, where it is 7. With 7 and few
    # environments, too many of them hardly explore.
    epsilon_steepness: NonNegative = 3.0
    # Environment steps, from the start of learning, in which every epsilon decays from 1 to its final value. 0, as in
    # the paper: every epsilon has its final value from the first step. Learning then begins late with few environments.
    epsilon_decay_steps: NonNegativeInt = 10_000
    evaluation_epsilon: Share = 0.0  # probability of a random action in evaluation; 0 is greedy
    variable_period: PositiveInt = 1  # actor steps between updates of its parameters


# Source of the values without a comment: Kapturowski et al. 2019, section 2.3 and appendix.
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
        samples_per_insert=1.0,  # ours; the speeds of actors and learner in section 2.3 give about 0.2
        min_size=5_000,  # ours: 200,000 agent steps
        max_size=100_000,  # 4 million observations; a sequence starts every 40
        prioritized=True,
        priority_exponent=0.9,
        importance_exponent=0.6,
        importance_exponent_end=0.6,
    ),
    epsilon_steepness=7.0,  # Horgan et al. 2018, section 4.1
    epsilon_decay_steps=0,
    variable_period=100,  # 400 frames
)
"""The published hyperparameters."""


@dataclasses.dataclass(frozen=True)
class R2D3Config(R2D2Config):
    """R2D3 (Paine et al. 2019): R2D2 that also learns from demonstrations."""

    # In Paine et al. 2019, where runs are thousands of times longer, small ratios of about 1/256 work best.
    replay: SequenceConfig = dataclasses.replace(R2D2Config.replay, demo_ratio=1 / 16)
    # Less exploration than in R2D2: the demonstrations show where the rewards are.
    epsilon_steepness: NonNegative = 7.0  # Horgan et al. 2018, section 4.1
    epsilon_decay_steps: NonNegativeInt = 0
