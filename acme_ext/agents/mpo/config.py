"""The hyperparameters of MPO and DMPO."""

import dataclasses

from acme_ext.errors import UsageError
from acme_ext.ops import critics
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils import checks


@dataclasses.dataclass(frozen=True)
class MPOConfig:
    """MPO (Abdolmaleki et al. 2018a, 2018b).

    "Acme" is Hoffman et al. 2020 and its released code. Where a field names no source, it is ours, chosen on Pendulum
    and the control suite.
    """

    # The problem
    discount: float = 0.99  # gamma of one step; Abdolmaleki et al. 2018a, appendix D
    normalize_observations: bool = False  # by running means and variances; pictures never are
    random_shift: int | None = None  # pixels that learned pictures are shifted by at most; 4 in Yarats et al. 2021

    # The networks
    policy_sizes: tuple[int, ...] = (128, 128)  # units of the policy's layers
    critic_sizes: tuple[int, ...] = (128, 128)  # units of the critic's layers, which take observation and action
    layer_norm: bool = True  # normalisation and tanh after the first layer, ELU after the others; else ReLUs
    init_stddev: float = 0.7  # near which the policy's standard deviation starts, of actions in [-1, 1]; Acme
    min_stddev: float = 1e-6  # below which it never falls; Acme

    # The E-step
    num_samples: int = 20  # actions sampled for each observation; Abdolmaleki et al. 2018a, appendix D
    epsilon: float = 0.1  # nats, bound on KL(q | target policy); 2018a, appendix D
    # Nats, the same bound for the cost of actions out of bounds; None: no cost. Abdolmaleki et al. 2020; Acme
    epsilon_penalty: float | None = 1e-3
    init_temperature: float = 10.0  # of both; Acme

    # The M-step
    epsilon_mean: float = 2.5e-3  # nats per dimension of the action, bound on the change of the mean; Acme
    epsilon_stddev: float = 1e-6  # likewise of the standard deviation; Acme
    init_alpha_mean: float = 10.0  # the first bound's multiplier at first; Acme
    init_alpha_stddev: float = 1_000.0  # the second's; Acme

    # Learning
    batch_size: int = 64  # transitions; 256 in Acme
    policy_learning_rate: float = 1e-3  # Adam; 1e-4 in Acme
    critic_learning_rate: float = 1e-3  # Adam; 1e-4 in Acme
    learning_rate_decay_steps: int | None = None  # learner steps in which both fall to 0, linearly; None: they stay
    dual_learning_rate: float = 1e-2  # Adam, of temperatures and multipliers; Acme
    max_gradient_norm: float | None = 40.0  # global norm, of policy and critic each; Acme
    target_period: int = 100  # learner steps between target updates; Acme
    target_rate: float = 1.0  # share of the online networks that a target update takes; 1 copies them
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # n_step and sizes are Acme's.
    replay: TransitionConfig = TransitionConfig(max_size=1_000_000, samples_per_insert=64.0, n_step=5)

    def __post_init__(self):
        checks.positive(self, "init_stddev", "min_stddev", "epsilon", "epsilon_penalty", "init_temperature")
        checks.positive(self, "epsilon_mean", "epsilon_stddev", "init_alpha_mean", "init_alpha_stddev", "random_shift")
        checks.positive(self, "policy_learning_rate", "critic_learning_rate", "dual_learning_rate")
        checks.positive(self, "learning_rate_decay_steps", "max_gradient_norm", "target_period", "target_rate")
        checks.share(self, "target_rate")
        checks.layer_sizes(self, "policy_sizes", "critic_sizes")
        if self.num_samples < 2:
            raise UsageError(f"num_samples is {self.num_samples}: there must be at least 2 actions to choose between.")


@dataclasses.dataclass(frozen=True)
class DMPOConfig(MPOConfig):
    """MPO with a categorical critic (Hoffman et al. 2020, section 4)."""

    # The critic's support. It must hold every discounted return that occurs: the metric clipped_mass tells.
    v_min: float = -150.0  # return of the lowest atom; Acme
    v_max: float = 150.0  # return of the highest atom; Acme
    num_atoms: int = 51  # Acme

    def __post_init__(self):
        super().__post_init__()
        critics.check_support(self.v_min, self.v_max, self.num_atoms)


SUITE = DMPOConfig(
    v_min=0.0,  # the control suite's rewards lie in [0, 1]
    v_max=100.0,  # 1 / (1 - discount) of them
)
"""The control suite (`dmc:`), whose returns are known to lie in [0, 100] with a discount of 0.99."""
