"""The hyperparameters of MPO and DMPO."""

import dataclasses
from typing import Annotated

from acme_ext.ops.critics import CategoricalConfig
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils.checks import AT_LEAST_TWO, Checked, LayerSizes, Positive, PositiveInt, PositiveShare


@dataclasses.dataclass(frozen=True)
class MPOConfig(Checked):
    """MPO (Abdolmaleki et al. 2018a, 2018b).

    "Acme" is Hoffman et al. 2020 and its released code. Where a field names no source, it is ours, chosen on Pendulum
    and the control suite.
    """

    # The problem
    discount: float = 0.99  # gamma of one step; Abdolmaleki et al. 2018a, appendix D
    normalize_observations: bool = False  # by running means and variances; pictures never are
    random_shift: PositiveInt | None = None  # pixels that learned pictures shift by at most; 4 in Yarats et al. 2021

    # The networks
    policy_sizes: LayerSizes = (128, 128)  # units of the policy's layers
    critic_sizes: LayerSizes = (128, 128)  # units of the critic's layers, which take observation and action
    layer_norm: bool = True  # normalisation and tanh after the first layer, ELU after the others; else ReLUs
    init_stddev: Positive = 0.7  # near which the policy's standard deviation starts, of actions in [-1, 1]; Acme
    min_stddev: Positive = 1e-6  # below which it never falls; Acme

    # The E-step
    num_samples: Annotated[int, AT_LEAST_TWO] = 20  # actions of each observation; Abdolmaleki et al. 2018a, appendix D
    epsilon: Positive = 0.1  # nats, bound on KL(q | target policy); 2018a, appendix D
    # Nats, the same bound for the cost of actions out of bounds; None: no cost. Abdolmaleki et al. 2020; Acme
    epsilon_penalty: Positive | None = 1e-3
    init_temperature: Positive = 10.0  # of both; Acme

    # The M-step
    epsilon_mean: Positive = 2.5e-3  # nats per dimension of the action, bound on the change of the mean; Acme
    epsilon_stddev: Positive = 1e-6  # likewise of the standard deviation; Acme
    init_alpha_mean: Positive = 10.0  # the first bound's multiplier at first; Acme
    init_alpha_stddev: Positive = 1_000.0  # the second's; Acme

    # Learning
    batch_size: int = 64  # transitions; 256 in Acme
    policy_learning_rate: Positive = 1e-3  # Adam; 1e-4 in Acme
    critic_learning_rate: Positive = 1e-3  # Adam; 1e-4 in Acme
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps in which both fall to 0; None: they stay
    dual_learning_rate: Positive = 1e-2  # Adam, of temperatures and multipliers; Acme
    max_gradient_norm: Positive | None = 40.0  # global norm, of policy and critic each; Acme
    target_period: PositiveInt = 100  # learner steps between target updates; Acme
    target_rate: PositiveShare = 1.0  # share of the online networks that a target update takes; 1 copies them
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # n_step and sizes are Acme's.
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=64.0, n_step=5)


@dataclasses.dataclass(frozen=True)
class DMPOConfig(CategoricalConfig, MPOConfig):
    """MPO with a categorical critic (Hoffman et al. 2020, section 4), whose support is Acme's."""


SUITE = DMPOConfig(
    v_min=0.0,  # the control suite's rewards lie in [0, 1]
    v_max=100.0,  # 1 / (1 - discount) of them
)
"""The control suite (`dmc:`), whose returns are known to lie in [0, 100] with a discount of 0.99."""
