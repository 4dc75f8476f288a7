"""SAC's hyperparameters."""

import dataclasses
import math
from typing import Annotated

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, NonNegativeInt, Positive, PositiveInt, PositiveShare, Rule
from acme_ext.replay.config import TransitionConfig

_REACHABLE = Rule(
    lambda value: value < math.log(2), "it must be less than log 2 (0.693), the entropy of uniform actions in [-1, 1]"
)


@dataclasses.dataclass(frozen=True)
class SACConfig(AgentConfig):
    """Soft actor-critic (Haarnoja et al. 2018b), with the published hyperparameters but for the first temperature.

    Values without a source are ours, chosen on Pendulum and the control suite.
    """

    # The problem
    discount: float = 0.99  # gamma per step; Haarnoja et al. 2018b, table 1
    normalize_observations: bool = False  # by running mean and variance; images are not normalised
    random_shift: PositiveInt | None = None  # largest shift of sampled images, in pixels; 4 in Yarats et al. 2021

    # The networks
    hidden_sizes: LayerSizes = (256, 256)  # units of the policy and of each critic; Haarnoja et al. 2018b, table 1
    layer_norm: bool = False  # layer norm and tanh after the first layer, then ELUs, as in D4PG; false: ReLUs

    # Learning
    batch_size: int = 256  # transitions; Haarnoja et al. 2018b, table 1
    learning_rate: Positive = 3e-4  # Adam, of policy, critics and temperature; Haarnoja et al. 2018b, table 1
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay to 0; None: constant
    target_rate: PositiveShare = 0.005  # step size of the targets' moving average; Haarnoja et al. 2018b, table 1
    # Target of the policy's entropy, nats per action dimension, for actions in [-1, 1]; Haarnoja et al. 2018b, table 1.
    target_entropy_per_value: Annotated[float, _REACHABLE] = -1.0
    # Initial weight of the entropy; Yarats and Kostrikov 2020, for the control suite. It is 1 in the authors' code.
    init_temperature: Positive = 0.1
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # Sizes from Haarnoja et al. 2018b, table 1, and the authors' code.
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=256.0, write_burst=8)

    # Exploration
    random_steps: NonNegativeInt = 1_000  # initial environment steps with random actions; the authors' code
