"""R2D2's hyperparameters."""

import dataclasses

from acme_ext.replay.config import SequenceConfig
from acme_ext.utils import checks


@dataclasses.dataclass(frozen=True)
class R2D2Config:
    """R2D2 (Kapturowski et al. 2019).

    The defaults are for small problems on a CPU; `ATARI` holds the published ones. Where a field names no source, it is
    ours, chosen on bsuite's memory and catch.
    """

    # The problem
    discount: float = 0.99  # gamma of one step
    n_step: int = 5  # steps of a return; Kapturowski et al. 2019, section 2.3
    # epsilon of h, in whose scale values are learned; None for none; Kapturowski et al. 2019, section 2.3
    rescaling_epsilon: float | None = 1e-3
    # lambda of Retrace (Munos et al. 2016), in the place of n-step double Q-learning; None for that
    retrace_lambda: float | None = None
    retrace_epsilon: float = 0.01  # of the target policy of Retrace, epsilon-greedy; Badia et al. 2020a, appendix E
    normalize_observations: bool = False  # by running means and variances; pictures never are

    # The network
    hidden_sizes: tuple[int, ...] = (64,)  # units of the MLP for observations that are not images
    image_features: int = 512  # units after a convolutional torso; Kapturowski et al. 2019, section 2.3
    core_size: int = 64  # units of the recurrent core
    dueling: bool = True  # Wang et al. 2016, eq. 9; Kapturowski et al. 2019, section 2.3

    # Learning
    batch_size: int = 32  # sequences
    learning_rate: float = 1e-3  # Adam
    learning_rate_decay_steps: int | None = None  # learner steps in which it falls to 0, linearly; None: it stays
    adam_epsilon: float = 1e-8  # Adam's default
    max_gradient_norm: float | None = 40.0  # global norm
    target_period: int = 50  # learner steps between target updates
    target_rate: float = 1.0  # share of the online network that a target update takes; 1 copies it
    sgd_steps_per_call: int = 1  # learner steps fused in one compiled call

    # Replay of sequences. The priority exponent is of Kapturowski et al. 2019, section 2.3; beta stays the same.
    replay: SequenceConfig = SequenceConfig(
        prioritized=True, priority_exponent=0.9, importance_exponent=0.6, importance_exponent_end=0.6
    )
    # Share of the largest error in a sequence's priority; eta of Kapturowski et al. 2019, section 2.3
    priority_max_share: float = 0.9

    # Exploration
    epsilon_base: float = 0.4  # epsilon of the environment that explores most; Horgan et al. 2018, section 4.1
    epsilon_steepness: float = 7.0  # the least epsilon is base**(1 + this); alpha in Horgan et al. 2018, section 4.1
    variable_period: int = 1  # steps that an actor takes with the same parameters

    def __post_init__(self):
        checks.at_least_one(self, "n_step", "image_features", "core_size", "target_period", "sgd_steps_per_call")
        checks.at_least_one(self, "variable_period")
        checks.positive(
            self,
            "learning_rate",
            "learning_rate_decay_steps",
            "adam_epsilon",
            "max_gradient_norm",
            "target_rate",
            "rescaling_epsilon",
        )
        checks.not_negative(self, "epsilon_steepness")
        checks.share(self, "discount", "target_rate", "priority_max_share", "epsilon_base", "retrace_epsilon")
        if self.retrace_lambda is not None:
            checks.share(self, "retrace_lambda")
        checks.layer_sizes(self, "hidden_sizes")


# Where no other source is named: Kapturowski et al. 2019, section 2.3 and appendix.
ATARI = R2D2Config(
    discount=0.997,
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
    variable_period=100,  # 400 frames
)
"""The published agent, on whichever hardware."""
