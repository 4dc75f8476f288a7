"""The hyperparameters of D4PG and Ape-X DPG."""

import dataclasses

from acme_ext.ops.critics import CategoricalConfig
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils.checks import Checked, LayerSizes, NonNegative, Positive, PositiveInt, PositiveShare


@dataclasses.dataclass(frozen=True)
class DPGConfig(Checked):
    """The hyperparameters that both agents share.

    Where a field names no source, it is ours, chosen on Pendulum and the control suite.
    """

    # The problem
    discount: float = 0.99  # gamma of one step; Lillicrap et al. 2016, section 7
    normalize_observations: bool = False  # by running means and variances; pictures never are
    random_shift: PositiveInt | None = None  # pixels that learned pictures shift by at most; 4 in Yarats et al. 2021

    # The networks
    policy_sizes: LayerSizes = (128, 128)  # units of the policy's layers
    critic_sizes: LayerSizes = (128, 128)  # units of the critic's layers, which take observation and action
    layer_norm: bool = True  # normalisation and tanh after the first layer, ELU after the others; else ReLUs

    # Learning
    batch_size: int = 128  # transitions; 256 in both papers
    policy_learning_rate: Positive = 3e-4  # Adam; 1e-4 in both papers
    critic_learning_rate: Positive = 1e-3  # Adam; likewise
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps in which both fall to 0; None: they stay
    max_gradient_norm: Positive | None = 40.0  # global norm, of each network; Hoffman et al. 2020, released code
    max_policy_gradient: Positive | None = None  # bound on each element of the policy's gradient
    target_period: PositiveInt = 100  # learner steps between target updates; Barth-Maron et al. 2018, section 4
    target_rate: PositiveShare = 1.0  # share of the online networks that a target update takes; 1 copies them
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # max_size is of Barth-Maron et al. 2018, section 4, where n_step is 5: on Pendulum some seeds then stay with poor
    # policies. With a beta of 1 the importance weights correct prioritized sampling in full (algorithm 1).
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=128.0, importance_exponent=1.0)

    # Exploration
    noise_stddev: NonNegative = 0.3  # of normal noise on actions in [-1, 1]; both papers


@dataclasses.dataclass(frozen=True)
class D4PGConfig(CategoricalConfig, DPGConfig):
    """D4PG (Barth-Maron et al. 2018), with a categorical critic."""


SUITE = D4PGConfig(
    v_min=0.0,  # the control suite's rewards lie in [0, 1]
    v_max=100.0,  # 1 / (1 - discount) of them
    replay=dataclasses.replace(DPGConfig.replay, n_step=5),  # Barth-Maron et al. 2018, section 4
)
"""The control suite (`dmc:`), whose returns are known to lie in [0, 100] with a discount of 0.99."""


@dataclasses.dataclass(frozen=True)
class ApexDPGConfig(DPGConfig):
    """Ape-X DPG (Horgan et al. 2018, section 4.2 and appendix D)."""

    max_policy_gradient: float | None = 1.0  # appendix D
    # beta stays the same; appendix C
    replay: TransitionConfig = TransitionConfig(
        max_size=1_000_000, samples_per_insert=128.0, prioritized=True, importance_exponent_end=0.4
    )
