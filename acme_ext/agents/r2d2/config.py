"""What can be chosen of R2D2."""

import dataclasses

from acme_ext.errors import UsageError
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

    # The network
    hidden_sizes: tuple[int, ...] = (64,)  # units of the MLP for observations that are not images
    image_features: int = 512  # units after a convolutional torso; Kapturowski et al. 2019, section 2.3
    lstm_size: int = 64  # units
    dueling: bool = True  # Wang et al. 2016, eq. 9; Kapturowski et al. 2019, section 2.3

    # Sequences
    length: int = 24  # steps of a sequence that are learned from; m of Kapturowski et al. 2019, section 3
    burn_in: int = 8  # steps before them that bring the stored state up to date; l of the same
    period: int = 12  # steps between the beginnings of two sequences: they overlap by length - period

    # Learning
    batch_size: int = 32  # sequences
    learning_rate: float = 1e-3  # Adam
    adam_epsilon: float = 1e-8  # Adam's default
    max_gradient_norm: float | None = 40.0  # global norm
    target_period: int = 50  # learner steps between target updates
    target_rate: float = 1.0  # share of the online network that a target update takes; 1 copies it
    sgd_steps_per_call: int = 1  # learner steps fused in one compiled call

    # Replay
    samples_per_insert: float = 16.0  # sequences sampled for each inserted
    min_replay_size: int = 100  # sequences before learning starts
    max_replay_size: int = 10_000  # sequences
    priority_exponent: float = 0.9  # alpha; Kapturowski et al. 2019, section 2.3
    priority_max_share: float = 0.9  # eta, of the largest error in a sequence's priority; the same
    priority_offset: float = 1e-3  # added to a priority, that none is zero; Schaul et al. 2016, section 3.3
    importance_exponent: float = 0.6  # beta, for good; 0 weighs all sequences the same

    # Exploration
    epsilon_base: float = 0.4  # epsilon of the environment that explores most; Horgan et al. 2018, section 4.1
    epsilon_steepness: float = 7.0  # the least epsilon is base**(1 + this); alpha in Horgan et al. 2018, section 4.1
    variable_period: int = 1  # steps that an actor takes with the same parameters

    def __post_init__(self):
        at_least_one = ("n_step", "image_features", "lstm_size", "length", "period", "target_period")
        for name in (*at_least_one, "sgd_steps_per_call", "variable_period"):
            if (value := getattr(self, name)) < 1:
                raise UsageError(f"{name} is {value}: it must be at least 1.")
        checks.positive(self, "learning_rate", "adam_epsilon", "max_gradient_norm", "target_rate", "priority_offset")
        checks.positive(self, "rescaling_epsilon")
        checks.not_negative(self, "burn_in", "priority_exponent", "epsilon_steepness")
        checks.share(self, "discount", "target_rate", "priority_max_share", "importance_exponent", "epsilon_base")
        checks.layer_sizes(self, "hidden_sizes")
        if self.period > self.length:
            raise UsageError(
                f"period is {self.period}: with a length of {self.length} steps would never be learned from; give at "
                f"most {self.length}."
            )


# Where no other source is named: Kapturowski et al. 2019, section 2.3 and appendix.
ATARI = R2D2Config(
    discount=0.997,
    lstm_size=512,
    length=80,
    burn_in=40,
    period=40,
    batch_size=64,
    learning_rate=1e-4,
    adam_epsilon=1e-3,
    target_period=2_500,
    samples_per_insert=1.0,  # ours: the paper's 256 actors and its learner are not bound to each other
    min_replay_size=5_000,  # ours: 200,000 agent steps
    max_replay_size=100_000,  # 4 million observations in sequences that begin every 40
    variable_period=100,  # 400 frames
)
"""The published agent, on whichever hardware."""
