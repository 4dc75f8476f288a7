"""TD3's hyperparameters."""

import dataclasses

from acme_ext.replay.config import TransitionConfig
from acme_ext.utils import checks


@dataclasses.dataclass(frozen=True)
class TD3Config:
    """Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018), with the numbers of the authors' code.

    Noise is of actions in [-1, 1]. Where a field names no source, it is ours, chosen on Pendulum and the control suite.
    """

    # The problem
    discount: float = 0.99  # gamma of one step; Fujimoto et al. 2018, table 3
    normalize_observations: bool = False  # by running means and variances; pictures never are
    random_shift: int | None = None  # pixels that learned pictures are shifted by at most; 4 in Yarats et al. 2021

    # The networks
    hidden_sizes: tuple[int, ...] = (256, 256)  # units of each network; the authors' code, (400, 300) in the paper

    # Learning
    batch_size: int = 256  # transitions; the authors' code, 100 in the paper
    learning_rate: float = 3e-4  # Adam, of policy and critics; the authors' code, 1e-3 in the paper
    learning_rate_decay_steps: int | None = None  # learner steps in which it falls to 0, linearly; None: it stays
    target_rate: float = 0.005  # share of the networks that their targets take an update; Fujimoto et al. 2018, table 3
    policy_period: int = 2  # learner steps between updates of policy and targets; Fujimoto et al. 2018, section 6.1
    target_noise_stddev: float = 0.2  # on the target policy's actions; Fujimoto et al. 2018, section 6.1
    max_target_noise: float = 0.5  # to which that noise is clipped; Fujimoto et al. 2018, section 6.1
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # The size is of the authors' code.
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=256.0, write_burst=8)

    # Exploration
    random_steps: int = 1_000  # environment steps of the run with uniformly random actions first; section 6.1
    noise_stddev: float = 0.1  # on the policy's actions; Fujimoto et al. 2018, section 6.1

    def __post_init__(self):
        checks.positive(
            self, "learning_rate", "learning_rate_decay_steps", "target_rate", "max_target_noise", "random_shift"
        )
        checks.share(self, "target_rate")
        checks.not_negative(self, "random_steps", "noise_stddev", "target_noise_stddev")
        checks.layer_sizes(self, "hidden_sizes")
        checks.at_least_one(self, "policy_period")
