"""TD3's hyperparameters."""

import dataclasses

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, NonNegative, NonNegativeInt, Positive, PositiveInt, PositiveShare
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class TD3Config(AgentConfig):
    """Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018), with the values of the authors' code,
    except for the exploration noise, the steps of a return, and the random steps at the start.

    Noise is in the units of actions in [-1, 1]. Values without a source are ours, chosen on Pendulum and the control
    suite.
    """

    # The problem
    discount: float = 0.99  # gamma per step; Fujimoto et al. 2018, table 3
    normalize_observations: bool = False  # by running mean and variance; images are not normalised
    random_shift: PositiveInt | None = None  # largest shift of sampled images, in pixels; 4 in Yarats et al. 2021

    # The networks
    hidden_sizes: LayerSizes = (256, 256)  # units of each network; the authors' code, (400, 300) in the paper
    layer_norm: bool = False  # layer norm and tanh after the first layer, then ELUs, as in D4PG; false: ReLUs

    # Learning
    batch_size: int = 256  # transitions; the authors' code, 100 in the paper
    learning_rate: Positive = 3e-4  # Adam, of policy and critics; the authors' code, 1e-3 in the paper
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay to 0; None: constant
    target_rate: PositiveShare = 0.005  # step size of the targets' moving average; Fujimoto et al. 2018, table 3
    policy_period: PositiveInt = 2  # learner steps between policy and target updates; Fujimoto et al. 2018, section 6.1
    target_noise_stddev: NonNegative = 0.2  # on the target policy's actions; Fujimoto et al. 2018, section 6.1
    max_target_noise: Positive = 0.5  # clips the target noise to [-this, this]; Fujimoto et al. 2018, section 6.1
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # max_size from the authors' code; n_step is 1 in the paper.
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=256.0, write_burst=8, n_step=3)

    # Exploration
    random_steps: NonNegativeInt = 1_000  # initial environment steps with random actions; section 6.1
    noise_stddev: NonNegative = 0.3  # on the policy's actions; 0.1 in Fujimoto et al. 2018, section 6.1
