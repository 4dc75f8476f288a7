"""The hyperparameters of MPO and DMPO."""

import dataclasses
from typing import Annotated

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import AT_LEAST_TWO, LayerSizes, Positive, PositiveInt, PositiveShare
from acme_ext.ops.critics import CategoricalConfig
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class MPOConfig(AgentConfig):
    """MPO (Abdolmaleki et al. 2018a, 2018b).

    "Acme" is Hoffman et al. 2020 and its released code. Values without a source are ours, chosen on Pendulum
    and the control suite.
    """

    # The problem
    discount: float = 0.99  # gamma per step; Abdolmaleki et al. 2018a, appendix D
    normalize_observations: bool = False  # by running mean and variance; images are not normalised
    random_shift: PositiveInt | None = None  # largest shift of sampled images, in pixels; 4 in Yarats et al. 2021

    # The networks
    policy_sizes: LayerSizes = (128, 128)  # units of the policy's layers
    critic_sizes: LayerSizes = (128, 128)  # units of the critic's layers, which take observation and action
    layer_norm: bool = True  # layer norm and tanh after the first layer, then ELUs; false: ReLUs
    init_stddev: Positive = 0.7  # approximate initial stddev of actions in [-1, 1]; Acme
    min_stddev: Positive = 1e-6  # least stddev of the policy; Acme

    # The E-step
    num_samples: Annotated[int, AT_LEAST_TWO] = 20  # actions per observation; Abdolmaleki et al. 2018a, appendix D
    epsilon: Positive = 0.1  # nats, bound on KL(q | target policy); 2018a, appendix D
    # Nats, the same bound for the penalty of out-of-bounds actions; None: no penalty. Abdolmaleki et al. 2020; Acme
    epsilon_penalty: Positive | None = 1e-3
    init_temperature: Positive = 10.0  # of both temperatures; Acme

    # The M-step
    epsilon_mean: Positive = 2.5e-3  # bound on the KL of the mean, nats per action dimension; Acme
    epsilon_stddev: Positive = 1e-6  # the same bound for the standard deviation; Acme
    init_alpha_mean: Positive = 10.0  # initial multiplier of the bound on the mean; Acme
    init_alpha_stddev: Positive = 1_000.0  # initial multiplier of the bound on the stddev; Acme

    # Learning
    batch_size: int = 64  # transitions; 256 in Acme
    policy_learning_rate: Positive = 1e-3  # Adam; 1e-4 in Acme
    critic_learning_rate: Positive = 1e-3  # Adam; 1e-4 in Acme
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay of both to 0; None: constant
    dual_learning_rate: Positive = 1e-2  # Adam, of temperatures and multipliers; Acme
    max_gradient_norm: Positive | None = 40.0  # global norm, of policy and critic each; Acme
    target_period: PositiveInt = 100  # learner steps between target updates; Acme
    target_rate: PositiveShare = 1.0  # step size of a target update; 1 copies the online networks
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # n_step, max_size and min_size are Acme's.
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=64.0, n_step=5)


@dataclasses.dataclass(frozen=True)
class DMPOConfig(CategoricalConfig, MPOConfig):
    """MPO with a categorical critic (Hoffman et al. 2020, section 4), whose support is Acme's."""


SUITE = DMPOConfig(
    v_min=0.0,  # rewards of the control suite lie in [0, 1]
    v_max=100.0,  # 1 / (1 - discount): the return if every reward is 1
)
"""For the control suite (`dmc:`), whose returns lie in [0, 100] with a discount of 0.99."""
