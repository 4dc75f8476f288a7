"""SAC's hyperparameters."""

import dataclasses

from acme_ext.replay.config import TransitionConfig
from acme_ext.utils import checks


@dataclasses.dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic (Haarnoja et al. 2018b), with its published numbers.

    Where a field names no source, it is ours, chosen on Pendulum and the control suite.
    """

    # The problem
    discount: float = 0.99  # gamma of one step; Haarnoja et al. 2018b, table 1
    normalize_observations: bool = False  # by running means and variances; pictures never are
    random_shift: int | None = None  # pixels that learned pictures are shifted by at most; 4 in Yarats et al. 2021

    # The networks
    hidden_sizes: tuple[int, ...] = (256, 256)  # units of policy and critics, each; Haarnoja et al. 2018b, table 1

    # Learning
    batch_size: int = 256  # transitions; Haarnoja et al. 2018b, table 1
    learning_rate: float = 3e-4  # Adam, of policy, critics and temperature; Haarnoja et al. 2018b, table 1
    learning_rate_decay_steps: int | None = None  # learner steps in which it falls to 0, linearly; None: it stays
    target_rate: float = 0.005  # share of the critics that their targets take a step; Haarnoja et al. 2018b, table 1
    # The entropy that the temperature keeps the policy's to, in nats of actions in [-1, 1], for each of an action's
    # values; Haarnoja et al. 2018b, table 1.
    target_entropy_per_value: float = -1.0
    init_temperature: float = 1.0  # the entropy's weight at first; as in the authors' code
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # Sizes are of Haarnoja et al. 2018b, table 1, and of the authors' code.
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=256.0, write_burst=8)

    # Exploration
    random_steps: int = 1_000  # environment steps of the run with uniformly random actions first; the authors' code

    def __post_init__(self):
        checks.positive(
            self, "learning_rate", "learning_rate_decay_steps", "target_rate", "init_temperature", "random_shift"
        )
        checks.share(self, "target_rate")
        checks.not_negative(self, "random_steps")
        checks.layer_sizes(self, "hidden_sizes")
