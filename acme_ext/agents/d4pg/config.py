"""The hyperparameters of D4PG and Ape-X DPG."""

import dataclasses

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, NonNegative, Positive, PositiveInt, PositiveShare
from acme_ext.ops.critics import CategoricalConfig
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class DPGConfig(AgentConfig):
    """The hyperparameters that both agents share.

    Values without a source are ours, chosen on Pendulum and the control suite.
    """

    # The problem
    discount: float = 0.99  # gamma per step; Lillicrap et al. 2016, section 7
    normalize_observations: bool = False  # by running mean and variance; images are not normalised
    random_shift: PositiveInt | None = None  # largest shift of sampled images, in pixels; 4 in Yarats et al. 2021

    # The networks
    policy_sizes: LayerSizes = (128, 128)  # units of the policy's layers
    critic_sizes: LayerSizes = (128, 128)  # units of the critic's layers, which take observation and action
    layer_norm: bool = True  # layer norm and tanh after the first layer, then ELUs; false: ReLUs

    # Learning
    batch_size: int = 128  # transitions; 256 in both papers
    policy_learning_rate: Positive = 3e-4  # Adam; 1e-4 in both papers
    critic_learning_rate: Positive = 1e-3  # Adam; 1e-4 in both papers
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay of both to 0; None: constant
    max_gradient_norm: Positive | None = 40.0  # global norm, of each network; Hoffman et al. 2020, released code
    max_policy_gradient: Positive | None = None  # bound on each element of the policy's gradient
    target_period: PositiveInt = 100  # learner steps between target updates; Barth-Maron et al. 2018, section 4
    target_rate: PositiveShare = 1.0  # step size of a target update; 1 copies the online networks
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # max_size is of Barth-Maron et al. 2018, section 4, where n_step is 5. With that, some seeds keep poor policies on
    # Pendulum. With a beta of 1 the importance weights correct prioritized sampling in full (algorithm 1).
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=128.0, importance_exponent=1.0)

    # Exploration
    noise_stddev: NonNegative = 0.3  # of Gaussian noise on actions in [-1, 1]; both papers


@dataclasses.dataclass(frozen=True)
class D4PGConfig(CategoricalConfig, DPGConfig):
    """D4PG (Barth-Maron et al. 2018), with a categorical critic."""


SUITE = D4PGConfig(
    v_min=0.0,  # rewards of the control suite lie in [0, 1]
    v_max=100.0,  # 1 / (1 - discount): the return if every reward is 1
    replay=dataclasses.replace(DPGConfig.replay, n_step=5),  # Barth-Maron et al. 2018, section 4
)
"""For the control suite (`dmc:`), whose returns lie in [0, 100] with a discount of 0.99."""


@dataclasses.dataclass(frozen=True)
class ApexDPGConfig(DPGConfig):
    """Ape-X DPG (Horgan et al. 2018, section 4.2 and appendix D)."""

    max_policy_gradient: float | None = 1.0  # appendix D
    # beta is constant; appendix C
    replay: TransitionConfig = TransitionConfig(
        max_size=1_000_000, samples_per_insert=128.0, prioritized=True, importance_exponent_end=0.4
    )
