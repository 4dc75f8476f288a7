"""SAC's hyperparameters."""

import dataclasses

from acme_ext.replay.config import TransitionConfig
from acme_ext.utils.checks import Checked, LayerSizes, NonNegativeInt, Positive, PositiveInt, PositiveShare


@dataclasses.dataclass(frozen=True)
class SACConfig(Checked):
    """Soft actor-critic (Haarnoja et al. 2018b), with its published numbers.

    Where a field names no source, it is ours, chosen on Pendulum and the control suite.
    """

    # The problem
    discount: float = 0.99  # gamma of one step; Haarnoja et al. 2018b, table 1
    normalize_observations: bool = False  # by running means and variances; pictures never are
    random_shift: PositiveInt | None = None  # pixels that learned pictures shift by at most; 4 in Yarats et al. 2021

    # The networks
    hidden_sizes: LayerSizes = (256, 256)  # units of policy and critics, each; Haarnoja et al. 2018b, table 1

    # Learning
    batch_size: int = 256  # transitions; Haarnoja et al. 2018b, table 1
    learning_rate: Positive = 3e-4  # Adam, of policy, critics and temperature; Haarnoja et al. 2018b, table 1
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps in which it falls linearly to 0; None: stays
    target_rate: PositiveShare = 0.005  # share of the critics that targets take a step; Haarnoja et al. 2018b, table 1
    # The entropy that the temperature keeps the policy's to, in nats of actions in [-1, 1], for each of an action's
    # values; Haarnoja et al. 2018b, table 1.
    target_entropy_per_value: float = -1.0
    init_temperature: Positive = 1.0  # the entropy's weight at first; as in the authors' code
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # Sizes are of Haarnoja et al. 2018b, table 1, and of the authors' code.
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=256.0, write_burst=8)

    # Exploration
    random_steps: NonNegativeInt = 1_000  # first environment steps of the run, with random actions; the authors' code
